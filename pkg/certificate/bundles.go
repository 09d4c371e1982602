// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/follow"
	"github.com/configdep/configdep/pkg/jsonpatch"
)

// fieldManager is the field manager of what is written.
const fieldManager = "configdep"

// APIServices name the CAs of the server for kube-apiserver, ConfigMaps for any other client.
var (
	APIServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// Bundles keeps caBundle correct in an APIService, and the same CAs in a ConfigMap. An object that
// does not exist is correct; it is corrected once it exists.
type Bundles struct {
	targets []*target

	mu   sync.Mutex
	want []byte // PEM-encoded; empty as long as nothing is known
}

// Targets are the objects that name the CAs of the server. An empty name means that there
// is no such object.
type Targets struct {
	APIService string
	// ConfigMap, in Namespace, has the CAs in the entry ca.crt.
	Namespace, ConfigMap string
}

// NewBundles creates a Bundles for objects.
func NewBundles(client dynamic.Interface, targets Targets) *Bundles {
	b := &Bundles{}
	add := func(resource schema.GroupVersionResource, namespace, name string, place func(*unstructured.Unstructured) place) {
		if name != "" {
			b.targets = append(b.targets, &target{
				client: client, objects: client.Resource(resource).Namespace(namespace), resource: resource.Resource, name: name, place: place, wake: newSignal(), bundles: b,
			})
		}
	}
	add(APIServices, "", targets.APIService, apiServicePlace)
	add(configMaps, targets.Namespace, targets.ConfigMap, configMapPlace)
	return b
}

// Set sets the correct bundle, PEM-encoded. Nothing is done before that.
func (b *Bundles) Set(bundle []byte) {
	b.mu.Lock()
	b.want = bundle
	b.mu.Unlock()
	for _, t := range b.targets {
		t.wake.send()
	}
}

func (b *Bundles) wanted() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.want
}

// begin forgets the bundle of an earlier term as the leader, and runs Run. The returned function waits for its end.
func (b *Bundles) begin(ctx context.Context) (wait func()) {
	b.Set(nil)
	var running sync.WaitGroup
	running.Go(func() { b.Run(ctx) })
	return running.Wait
}

// Run keeps the objects correct until the context is done.
func (b *Bundles) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, t := range b.targets {
		running.Go(func() { t.watch(ctx) })
		running.Go(func() { t.run(ctx) })
	}
	running.Wait()
}

// target is one object.
type target struct {
	client   dynamic.Interface
	objects  dynamic.ResourceInterface
	resource string
	name     string
	place    func(*unstructured.Unstructured) place
	wake     signal
	bundles  *Bundles

	mu   sync.Mutex
	seen *unstructured.Unstructured // nil: it does not exist
}

// place is a place in an object for a bundle, and the bundle in it.
type place struct {
	pointer string // of JSON, to what is to be added or replaced
	bundle  []byte
	value   func(bundle []byte) any // what is added there for a bundle
}

func apiServicePlace(o *unstructured.Unstructured) place {
	encoded, _, _ := unstructured.NestedString(o.Object, "spec", "caBundle")
	bundle, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		bundle = nil // not correct, so it is replaced
	}
	return place{"/spec/caBundle", bundle, func(bundle []byte) any { return base64.StdEncoding.EncodeToString(bundle) }}
}

// configMapPlace returns the entry, or all data of a ConfigMap that has none.
func configMapPlace(o *unstructured.Unstructured) place {
	text, _, _ := unstructured.NestedString(o.Object, "data", bundleEntry)
	if data, _, _ := unstructured.NestedMap(o.Object, "data"); data == nil {
		return place{"/data", nil, func(bundle []byte) any { return map[string]any{bundleEntry: string(bundle)} }}
	}
	return place{"/data/" + bundleEntry, []byte(text), func(bundle []byte) any { return string(bundle) }}
}

// watch observes the object.
func (t *target) watch(ctx context.Context) {
	follow.Object[*unstructured.Unstructured, *unstructured.UnstructuredList]{
		Name: t.name, Client: t.client, List: t.objects.List, Watch: t.objects.Watch,
		Present: t.observe, Absent: func() { t.observe(nil) },
	}.Run(ctx)
}

func (t *target) observe(o *unstructured.Unstructured) {
	t.mu.Lock()
	t.seen = o
	t.mu.Unlock()
	t.wake.send()
}

// patch returns a JSON patch that corrects the object, or nil if it is correct.
func (t *target) patch() ([]byte, error) {
	want := t.bundles.wanted()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen == nil || len(want) == 0 {
		return nil, nil
	}
	p := t.place(t.seen)
	if bytes.Equal(p.bundle, want) {
		return nil, nil
	}
	return json.Marshal([]jsonpatch.Operation{jsonpatch.Unchanged(t.seen.GetResourceVersion()), jsonpatch.Add(p.pointer, p.value(want))})
}

// run corrects the object whenever it is not correct.
func (t *target) run(ctx context.Context) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "resource", t.resource, "object", t.name)
	fresh := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 100, Cap: 30 * time.Second}
	backoff := fresh
	// If another program wants another bundle there, do not race with it.
	limit := flowcontrol.NewTokenBucketRateLimiter(0.2, 10)
	for {
		again := false
		switch patch, err := t.patch(); {
		case err != nil:
			logger.Error(err, "Encoding a patch of the CAs failed")
		case patch == nil:
		case limit.Wait(ctx) != nil:
			return
		default:
			patched, err := t.objects.Patch(ctx, t.name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
			switch {
			case err == nil:
				logger.Info("Updated the CAs")
				t.observe(patched)
			case ctx.Err() != nil:
				return
			case apierrors.IsNotFound(err): // its deletion is about to be seen
			case apierrors.IsInvalid(err) || apierrors.IsConflict(err):
				again = true // another client has written it, most of the time
				logger.V(2).Info("Could not update the CAs, will retry", "reason", err.Error())
			default:
				again = true
				logger.Error(err, "Updating the CAs failed, will retry")
			}
		}
		var later <-chan time.Time
		if again {
			later = time.After(backoff.Step())
		} else {
			backoff = fresh
		}
		select {
		case <-ctx.Done():
			return
		case <-later:
		case <-t.wake:
		}
	}
}
