// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/admission"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/follow"
	"github.com/configdep/configdep/pkg/jsonpatch"
	"github.com/configdep/configdep/pkg/record"
)

// path is the URL path of the webhook, which cannot be guessed. The leader writes it into the webhook configuration.
// kube-apiserver does not authenticate to webhooks, but it knows the path, unlike a client that can only reach the port.
//
// All replicas derive the path from the key of the config hash. The path of the previous key is served for some time,
// because kube-apiserver uses it until the leader has written the new path and kube-apiserver has read it. It is served
// for a limited time only, because a key may be replaced after a leak.
type path struct {
	client        kubernetes.Interface
	configuration string // its name; empty: serve the fixed path admission.Path
	clock         clock.PassiveClock

	mu       sync.Mutex
	paths    []string                                     // the current and the previous path; empty: the key is not known yet
	replaced time.Time                                    // when the previous path was replaced
	queue    workqueue.TypedRateLimitingInterface[string] // contains the configuration when it needs an update; nil: this replica does not lead
}

// previousPath is how long the path of the previous key is served: long enough for a change of the leader and for
// retries of writes to the configuration.
const previousPath = 10 * time.Minute

// follow switches to the path for a key.
func (p *path) follow(d *dependency.Digester) {
	secret := d.Derive("the path of the webhook")
	path := admission.Path + "/" + hex.EncodeToString(secret[:]) // kube-apiserver accepts only lower case
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.paths) > 0 && p.paths[0] == path {
		return
	}
	p.paths, p.replaced = append([]string{path}, p.paths[:min(1, len(p.paths))]...), p.clock.Now()
	if p.queue != nil {
		p.queue.Add(p.configuration)
	}
}

// current returns the path that the configuration should have, or "" if it is not known yet.
func (p *path) current() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.paths) == 0 {
		return ""
	}
	return p.paths[0]
}

func (p *path) served(path string) bool {
	if p.configuration == "" {
		return path == admission.Path
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, known := range p.paths {
		if i > 0 && p.clock.Since(p.replaced) >= previousPath {
			break
		}
		if subtle.ConstantTimeCompare([]byte(path), []byte(known)) == 1 {
			return true
		}
	}
	return false
}

// handler serves only at the path.
func (p *path) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !p.served(r.URL.Path) {
			w.Header().Set("Connection", "close") // or the body would be read first
			http.NotFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// lead keeps the path in the configuration up to date until the context is done. The configuration may be created later.
func (p *path) lead(ctx context.Context) {
	if p.configuration == "" {
		return
	}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, 30*time.Second))
	limit := rate.NewLimiter(0.2, 10) // if another client keeps writing something else, do not race with it
	p.setQueue(queue)
	defer p.setQueue(nil)
	var present atomic.Pointer[admissionregistrationv1.MutatingWebhookConfiguration]
	configurations := p.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		follow.Object[*admissionregistrationv1.MutatingWebhookConfiguration, *admissionregistrationv1.MutatingWebhookConfigurationList]{
			Name: p.configuration, Client: p.client, List: configurations.List, Watch: configurations.Watch,
			Present: func(o *admissionregistrationv1.MutatingWebhookConfiguration) {
				present.Store(o)
				queue.Add(p.configuration)
			},
			Absent: func() { present.Store(nil) },
		}.Run(ctx)
	})
	defer queue.ShutDown() // also if the limiter sees first that the context is done
	defer context.AfterFunc(ctx, queue.ShutDown)()
	for {
		item, shutdown := queue.Get()
		if shutdown {
			return
		}
		logger := klog.FromContext(ctx).WithValues("configuration", p.configuration)
		// Most events leave nothing to write, and do not count, or the path could be missing for long after many of them.
		if patch, err := pathPatch(present.Load(), p.current()); (err != nil || patch != nil) && limit.Wait(ctx) != nil {
			return
		}
		switch err := p.publish(ctx, present.Load()); {
		case err == nil:
			queue.Forget(item)
		case ctx.Err() != nil:
		case apierrors.IsInvalid(err) || apierrors.IsConflict(err):
			logger.V(2).Info("Could not write the path of the webhook, will retry", "reason", err.Error())
			queue.AddRateLimited(item) // usually because another client has written it
		default:
			logger.Error(err, "Writing the path of the webhook into its configuration failed, will retry")
			queue.AddRateLimited(item)
		}
		queue.Done(item)
	}
}

func (p *path) setQueue(queue workqueue.TypedRateLimitingInterface[string]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = queue
}

// publish writes the path into a configuration that has another path. If the configuration is nil, it does not exist.
func (p *path) publish(ctx context.Context, o *admissionregistrationv1.MutatingWebhookConfiguration) error {
	patch, err := pathPatch(o, p.current())
	if err != nil || patch == nil {
		return err
	}
	_, err = p.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(ctx, o.Name, types.JSONPatchType, patch,
		metav1.PatchOptions{FieldManager: record.FieldManager})
	if apierrors.IsNotFound(err) {
		return nil // the watch will report its deletion
	}
	if err == nil {
		klog.FromContext(ctx).Info("Wrote the path of the webhook into its configuration", "configuration", p.configuration)
	}
	return err
}

// pathPatch returns a JSON patch that sets the path of all webhooks in a configuration, or nil if they have it or the
// configuration is nil. Webhooks with a URL instead of a Service are not ours.
func pathPatch(o *admissionregistrationv1.MutatingWebhookConfiguration, path string) ([]byte, error) {
	if o == nil || path == "" {
		return nil, nil
	}
	operations := []jsonpatch.Operation{jsonpatch.Unchanged(o.ResourceVersion)}
	for i := range o.Webhooks {
		if service := o.Webhooks[i].ClientConfig.Service; service != nil && (service.Path == nil || *service.Path != path) {
			operations = append(operations, jsonpatch.Add(fmt.Sprintf("/webhooks/%d/clientConfig/service/path", i), path))
		}
	}
	if len(operations) == 1 {
		return nil, nil
	}
	return jsonpatch.Marshal(operations)
}
