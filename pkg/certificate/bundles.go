// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"bytes"
	"context"
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

// Bundles keeps the server registered by an APIService with its CAs, and the same CAs in a ConfigMap, if that exists.
type Bundles struct {
	targets []*target

	mu     sync.Mutex
	bundle []byte // PEM-encoded; empty as long as nothing is known
}

// Targets are the objects that name the CAs of the server.
type Targets struct {
	APIService Registration
	// ConfigMap, in Namespace, has the CAs in the entry ca.crt.
	Namespace, ConfigMap string
}

// NewBundles creates a Bundles for objects.
func NewBundles(client dynamic.Interface, targets Targets) *Bundles {
	b := &Bundles{}
	r := &targets.APIService
	b.targets = []*target{
		{objects: client.Resource(APIServices), name: r.Name, correct: r.correct, ready: r.Ready, write: r.write, repaired: r.Repaired},
		{objects: client.Resource(configMaps).Namespace(targets.Namespace), name: targets.ConfigMap, correct: configMapCorrect, write: writeConfigMap},
	}
	for _, t := range b.targets {
		t.client, t.bundles, t.wake = client, b, newSignal()
	}
	return b
}

// Set sets the correct bundle, PEM-encoded. Nothing is done before.
func (b *Bundles) Set(bundle []byte) {
	b.mu.Lock()
	same := bytes.Equal(b.bundle, bundle)
	b.bundle = bundle
	b.mu.Unlock()
	if !same {
		for _, t := range b.targets {
			t.wake.send()
		}
	}
}

func (b *Bundles) wanted() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bundle
}

// begin forgets what was known in an earlier term as the leader, and runs Run. The returned function waits for its end.
func (b *Bundles) begin(ctx context.Context) (wait func()) {
	b.Set(nil)
	for _, t := range b.targets {
		t.mu.Lock()
		t.looked, t.seen = false, nil
		t.mu.Unlock()
	}
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
	client  dynamic.Interface
	objects dynamic.ResourceInterface
	name    string
	bundles *Bundles
	wake    signal
	// correct reports whether the object is as it should be. It is nil if it does not exist.
	correct  func(o *unstructured.Unstructured, bundle []byte) bool
	ready    func(context.Context) error // waits until the object may be created; nil: it may
	write    func(ctx context.Context, objects dynamic.ResourceInterface, o *unstructured.Unstructured, bundle []byte) (*unstructured.Unstructured, error)
	repaired func(*unstructured.Unstructured) // as in Registration

	mu     sync.Mutex
	looked bool // whether it has been looked for
	seen   *unstructured.Unstructured
}

func configMapCorrect(o *unstructured.Unstructured, bundle []byte) bool {
	if o == nil {
		return true
	}
	got, _, _ := unstructured.NestedString(o.Object, "data", bundleEntry)
	return got == string(bundle)
}

// writeConfigMap writes the entry, or all data of a ConfigMap that has none.
func writeConfigMap(ctx context.Context, objects dynamic.ResourceInterface, o *unstructured.Unstructured, bundle []byte) (*unstructured.Unstructured, error) {
	operation := jsonpatch.Add("/data/"+bundleEntry, string(bundle))
	if data, _, _ := unstructured.NestedMap(o.Object, "data"); data == nil {
		operation = jsonpatch.Add("/data", map[string]any{bundleEntry: string(bundle)})
	}
	patch, err := json.Marshal([]jsonpatch.Operation{jsonpatch.Unchanged(o.GetResourceVersion()), operation})
	if err != nil {
		return nil, err
	}
	return objects.Patch(ctx, o.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
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
	t.looked, t.seen = true, o
	t.mu.Unlock()
	t.wake.send()
}

func (t *target) state() (o *unstructured.Unstructured, looked bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.seen, t.looked
}

// run corrects the object whenever it is not correct.
func (t *target) run(ctx context.Context) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "object", t.name)
	fresh := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 100, Cap: 30 * time.Second}
	backoff := fresh
	// If another program wants something else there, do not race with it.
	limit := flowcontrol.NewTokenBucketRateLimiter(0.2, 10)
	var correct []byte // the bundle with which the object was last correct
	ready := t.ready == nil
	for {
		again := false
		bundle := t.bundles.wanted()
		switch o, looked := t.state(); {
		case !looked || len(bundle) == 0:
		case t.correct(o, bundle):
			correct = bundle
		case limit.Wait(ctx) != nil:
			return
		case o == nil && !ready:
			if t.ready(ctx) != nil {
				return
			}
			ready = true
			continue // what is there, and what is wanted, may have changed meanwhile
		default:
			ready = t.ready == nil
			written, err := t.write(ctx, t.objects, o, bundle)
			switch {
			case err == nil:
				logger.Info("Wrote the object")
				t.observe(written)
				if t.repaired != nil && o != nil && bytes.Equal(bundle, correct) {
					t.repaired(written)
				}
				correct = bundle
			case ctx.Err() != nil:
				return
			case apierrors.IsNotFound(err) && o != nil: // its deletion is about to be seen
			case apierrors.IsInvalid(err) || apierrors.IsConflict(err):
				again = true // another client has written it, most of the time
				logger.V(2).Info("Could not write the object, will retry", "reason", err.Error())
			default:
				again = true
				logger.Error(err, "Writing the object failed, will retry")
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
