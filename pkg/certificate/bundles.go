// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"slices"
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
	changed signal // something is in place, or no longer is

	mu   sync.Mutex
	want wanted
}

// wanted is what objects should trust.
type wanted struct {
	bundle []byte // PEM-encoded; empty as long as nothing is known
	others bool   // whether other CAs may remain
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
	b := &Bundles{changed: newSignal()}
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

// Set sets the correct bundle, PEM-encoded. Nothing is done before Set or Add.
func (b *Bundles) Set(bundle []byte) { b.set(wanted{bundle, false}) }

// Add sets the CAs, PEM-encoded, that objects must trust. Others that an object names remain there.
func (b *Bundles) Add(bundle []byte) { b.set(wanted{bundle, true}) }

func (b *Bundles) set(want wanted) {
	b.mu.Lock()
	same := bytes.Equal(b.want.bundle, want.bundle) && b.want.others == want.others
	b.want = want
	b.mu.Unlock()
	if !same {
		for _, t := range b.targets {
			t.wake.send()
		}
	}
}

func (b *Bundles) wanted() wanted {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.want
}

// over returns the correct bundle for a place that holds another. If other CAs may remain,
// those that have not expired follow the wanted ones.
func (w *wanted) over(present []byte, now time.Time) []byte {
	right := slices.Clone(w.bundle)
	if !w.others {
		return right
	}
	known := parseCerts(w.bundle)
	for _, ca := range parseCerts(present) {
		if now.Before(ca.NotAfter) && !slices.ContainsFunc(known, ca.Equal) {
			known = append(known, ca)
			right = append(right, certPEM(ca)...)
		}
	}
	return right
}

// InPlace reports whether every object that exists trusts a CA. No CA is in place until it is
// known which objects exist.
func (b *Bundles) InPlace(ca *x509.Certificate) bool {
	return !slices.ContainsFunc(b.targets, func(t *target) bool { return !t.trusts(ca) })
}

// known reports whether every object has been looked up. Then the state at the beginning of the
// term is known.
func (b *Bundles) known() bool {
	return !slices.ContainsFunc(b.targets, func(t *target) bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		return !t.known
	})
}

// MissingAtFirst reports whether some object that existed when the term began is known not to
// have trusted a CA then.
func (b *Bundles) MissingAtFirst(ca *x509.Certificate) bool {
	return slices.ContainsFunc(b.targets, func(t *target) bool { return t.missedAtFirst(ca) })
}

// forget prepares for another term as the leader.
func (b *Bundles) forget() {
	for _, t := range b.targets {
		t.forget()
	}
}

// Run keeps the objects correct until the context is done.
func (b *Bundles) Run(ctx context.Context) {
	b.forget()
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

	mu    sync.Mutex
	known bool                       // whether it has been looked for
	seen  *unstructured.Unstructured // nil: it does not exist
	first *unstructured.Unstructured // as it was when it was looked for; nil: it did not exist
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
		Present: t.observe, Absent: func() { t.observe(nil) }, Looked: t.lookedFor,
	}.Run(ctx)
}

func (t *target) observe(o *unstructured.Unstructured) {
	t.mu.Lock()
	t.seen = o
	if !t.known && t.first == nil {
		t.first = o
	}
	t.mu.Unlock()
	t.wake.send()
	t.bundles.changed.send()
}

func (t *target) lookedFor() {
	t.mu.Lock()
	t.known = true
	t.mu.Unlock()
	t.bundles.changed.send()
}

func (t *target) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known, t.seen, t.first = false, nil, nil
}

func (t *target) trusts(ca *x509.Certificate) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.known {
		return false
	}
	return t.trustedBy(t.seen, ca)
}

func (t *target) missedAtFirst(ca *x509.Certificate) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known && !t.trustedBy(t.first, ca)
}

// trustedBy reports whether a state of the object trusts a CA. A missing object counts as
// trusting it.
func (t *target) trustedBy(o *unstructured.Unstructured, ca *x509.Certificate) bool {
	return o == nil || slices.ContainsFunc(parseCerts(t.place(o).bundle), ca.Equal)
}

// patch returns a JSON patch that corrects the object, or nil if it is correct.
func (t *target) patch() ([]byte, error) {
	want := t.bundles.wanted()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen == nil || len(want.bundle) == 0 {
		return nil, nil
	}
	p := t.place(t.seen)
	right := want.over(p.bundle, time.Now())
	if bytes.Equal(p.bundle, right) {
		return nil, nil
	}
	return json.Marshal([]jsonpatch.Operation{jsonpatch.Unchanged(t.seen.GetResourceVersion()), jsonpatch.Add(p.pointer, p.value(right))})
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
