// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/record"
)

// request is a write request, with the time since the beginning.
type request struct {
	at   time.Duration
	name string
	kind string // evict, or of a patch: rollout, baseline, forget, recreate, recreated, in place, progress, tell
	err  string // the reason of the error
}

func (r request) String() string {
	out := fmt.Sprintf("%v %s %s", r.at, r.kind, r.name)
	if r.err != "" {
		out += ": " + r.err
	}
	return out
}

func (c *cluster) record(r request, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		r.err = string(apierrors.ReasonForError(err))
	}
	c.requests = append(c.requests, r)
}

// took returns the requests since the last call.
func (c *cluster) took() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, r := range c.requests {
		out = append(out, r.String())
	}
	c.requests = nil
	return out
}

// pods returns the pods of requests of a kind since the last call, in order.
func (c *cluster) pods(kind string) (names []string) {
	for _, r := range c.took() {
		if _, name, is := strings.Cut(r, " "+kind+" "); is {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// tells returns the pods that have been told to restart in place since the last call.
func (c *cluster) tells() []string { return c.pods("tell") }

func (c *cluster) expectTells(what string, want ...string) {
	c.t.Helper()
	if diff := cmp.Diff(want, c.tells()); diff != "" {
		c.t.Fatalf("%s: pods that are told (-want +got):\n%s", what, diff)
	}
}

// expectDone compares the requests since the last call with the expected ones, but for the times.
func (c *cluster) expectDone(what string, want ...string) {
	c.t.Helper()
	var got []string
	for _, r := range c.took() {
		_, done, _ := strings.Cut(r, " ")
		got = append(got, done)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		c.t.Fatalf("%s: requests (-want +got):\n%s", what, diff)
	}
}

// expect compares the requests since the last call with the expected ones.
func (c *cluster) expect(what string, want ...string) {
	c.t.Helper()
	if diff := cmp.Diff(want, c.took()); diff != "" {
		c.t.Fatalf("%s: requests (-want +got):\n%s", what, diff)
	}
}

// refusing sets a function that can refuse or delay requests; nil: none.
func (c *cluster) refusing(refuse func(clienttesting.Action) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = refuse
}

func (c *cluster) refused(a clienttesting.Action) error {
	c.mu.Lock()
	refuse := c.refuse
	c.mu.Unlock()
	if refuse == nil {
		return nil
	}
	return refuse(a)
}

// ownerLatency is how long the owner takes to react.
const ownerLatency = 10 * time.Millisecond

// owning sets a function that acts as the owner of the workloads after each patch; nil: none.
func (c *cluster) owning(react func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owner = react
}

// patch handles a patch as an API server does.
func (c *cluster) patch(action clienttesting.Action) (bool, runtime.Object, error) {
	a := action.(clienttesting.PatchAction)
	r := request{at: time.Since(c.start), name: a.GetName(), kind: kindOf(a.GetPatch())}
	o, err := c.answer(a)
	c.record(r, err)
	if err != nil {
		return true, nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owner != nil {
		time.AfterFunc(ownerLatency, c.owner)
	}
	return true, o, nil
}

func (c *cluster) answer(a clienttesting.PatchAction) (runtime.Object, error) {
	if err := c.refused(a); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	live, err := c.client.Tracker().Get(a.GetResource(), namespace, a.GetName())
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(live)
	if err != nil {
		return nil, err
	}
	var object, patch map[string]any
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(a.GetPatch(), &patch); err != nil {
		return nil, err
	}
	bound, has := patch["metadata"].(map[string]any), object["metadata"].(map[string]any)
	if bound["resourceVersion"] != nil && bound["resourceVersion"] != has["resourceVersion"] || bound["uid"] != has["uid"] {
		return nil, apierrors.NewConflict(a.GetResource().GroupResource(), a.GetName(), fmt.Errorf("it is another version"))
	}
	raw, err = json.Marshal(merge(object, patch))
	if err != nil {
		return nil, err
	}
	patched := reflect.New(reflect.TypeOf(live).Elem()).Interface().(runtime.Object)
	if err := json.Unmarshal(raw, patched); err != nil {
		return nil, err
	}
	owner := c.Manager
	c.Manager = record.FieldManager
	c.store(patched.(ingesttest.Object))
	c.Manager = owner
	return patched.DeepCopyObject(), nil
}

// merge applies a JSON merge patch (RFC 7386).
func merge(object, patch map[string]any) map[string]any {
	for k, v := range patch {
		switch v := v.(type) {
		case nil:
			delete(object, k)
		case map[string]any:
			inner, ok := object[k].(map[string]any)
			if !ok {
				inner = map[string]any{}
			}
			object[k] = merge(inner, v)
		default:
			object[k] = v
		}
	}
	return object
}

func kindOf(patch []byte) string {
	switch text := string(patch); {
	case strings.Contains(text, `"spec"`):
		return "rollout"
	case strings.Contains(text, record.ConfigHashAnnotation+`":null`):
		return "forget"
	case strings.Contains(text, record.RecreatingAnnotation+`":null`):
		return "recreated"
	case strings.Contains(text, record.RestartingAnnotation):
		return "tell"
	case strings.Contains(text, `{\"restart\":`) && strings.Contains(text, record.LastReloadAnnotation):
		return "in place"
	case strings.Contains(text, `{\"restart\":`):
		return "progress"
	case strings.Contains(text, record.RecreatingAnnotation):
		return "recreate"
	default:
		return "baseline"
	}
}

// evict handles an eviction: the pod is then terminating.
func (c *cluster) evict(action clienttesting.Action) (bool, runtime.Object, error) {
	a := action.(clienttesting.CreateAction)
	if a.GetSubresource() != "eviction" {
		return false, nil, nil
	}
	eviction := a.GetObject().(*policyv1.Eviction)
	err := func() error {
		if err := c.refused(a); err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		o, err := c.client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("pods"), namespace, eviction.Name)
		if err != nil {
			return err
		}
		pod := o.DeepCopyObject().(*corev1.Pod)
		if uid := eviction.DeleteOptions.Preconditions.UID; *uid != pod.UID {
			return apierrors.NewConflict(corev1.Resource("pods"), pod.Name, fmt.Errorf("it is another pod"))
		}
		now := metav1.Now()
		pod.DeletionTimestamp, pod.Finalizers = &now, []string{"test"}
		c.store(pod)
		return nil
	}()
	c.record(request{at: time.Since(c.start), name: eviction.Name, kind: "evict"}, err)
	return true, nil, err
}
