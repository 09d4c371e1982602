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
	"github.com/configdep/configdep/pkg/policy"
)

// path is where the webhook is served: a path that can be read in the webhook configuration alone, where the
// leader writes it. kube-apiserver does not say who it is to webhooks, but it knows the path, and a client that only
// reaches the port does not.
//
// All replicas derive it from the key of the hashes. The path of the previous key is served for a while, as kube-apiserver
// calls it until the leader has written the new one and kube-apiserver has read that. Then it ends, since a key may be
// replaced because it has leaked.
type path struct {
	client        kubernetes.Interface
	configuration string // its name; empty: the path is known to all
	clock         clock.PassiveClock

	mu       sync.Mutex
	paths    []string                                     // at most two; none: the key is not known yet
	replaced time.Time                                    // when the second of them was
	queue    workqueue.TypedRateLimitingInterface[string] // of the configuration, while this replica leads
}

// previousPath is how long the path of the previous key is served: enough for another replica to become the leader, and
// for writes of the configuration that are tried again.
const previousPath = 10 * time.Minute

// follow takes the path that belongs to a key.
func (p *path) follow(d *dependency.Digester) {
	secret := d.Derive("the path of the webhook")
	path := admission.Path + "/" + hex.EncodeToString(secret[:]) // kube-apiserver takes lower case alone
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

// current returns the path that the configuration is to have, or "".
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

// handler serves at the path, and nothing elsewhere.
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

// lead keeps the path in the configuration, as long as this replica leads. A configuration that does not exist gets it
// when it does.
func (p *path) lead(ctx context.Context) {
	if p.configuration == "" {
		return
	}
	// If another client keeps writing something else, do not race with it.
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedMaxOfRateLimiter(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, 30*time.Second),
		&workqueue.TypedBucketRateLimiter[string]{Limiter: rate.NewLimiter(0.2, 10)},
	))
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
				queue.AddRateLimited(p.configuration)
			},
			Absent: func() { present.Store(nil) },
		}.Run(ctx)
	})
	stop := context.AfterFunc(ctx, queue.ShutDown)
	defer stop()
	for {
		item, shutdown := queue.Get()
		if shutdown {
			return
		}
		logger := klog.FromContext(ctx).WithValues("configuration", p.configuration)
		switch err := p.publish(ctx, present.Load()); {
		case err == nil:
			queue.Forget(item)
		case ctx.Err() != nil:
		case apierrors.IsInvalid(err) || apierrors.IsConflict(err):
			logger.V(2).Info("Could not write the path of the webhook, will retry", "reason", err.Error())
			queue.AddRateLimited(item) // another client has written it, most of the time
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

// publish writes the path into the configuration, where it has another. Nil: it does not exist.
func (p *path) publish(ctx context.Context, o *admissionregistrationv1.MutatingWebhookConfiguration) error {
	if o == nil {
		return nil
	}
	patch, err := pathPatch(o, p.current())
	if err != nil || patch == nil {
		return err
	}
	_, err = p.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(ctx, o.Name, types.JSONPatchType, patch,
		metav1.PatchOptions{FieldManager: policy.FieldManager})
	if apierrors.IsNotFound(err) {
		return nil // its deletion is about to be seen
	}
	if err == nil {
		klog.FromContext(ctx).Info("Wrote the path of the webhook into its configuration", "configuration", p.configuration)
	}
	return err
}

// pathPatch returns a JSON patch that gives all webhooks of a configuration a path, or nil if they have it. One that is
// called by a URL is not ours.
func pathPatch(o *admissionregistrationv1.MutatingWebhookConfiguration, path string) ([]byte, error) {
	if path == "" {
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
