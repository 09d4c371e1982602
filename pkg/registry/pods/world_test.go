// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/registry/view"
	"github.com/configdep/configdep/pkg/render"
)

var begin = time.Date(2026, 2, 3, 4, 0, 0, 0, time.UTC)

// world is a cluster with Secret db, which an index reads, and the subresource.
type world struct {
	*ingesttest.Cluster
	*REST
	clock *testingclock.FakePassiveClock
}

// newWorld returns one that the index has read.
func newWorld(t *testing.T, objects ...ingesttest.Object) *world {
	t.Helper()
	w := &world{clock: testingclock.NewFakePassiveClock(begin)}
	w.Cluster = ingesttest.New(t, w.clock)
	x := ingest.NewIndex(w.clock)
	x.SetDefaults(policy.Defaults{Mode: policy.Off})
	w.Start(x, ingest.Scope{}, 7)
	w.REST = NewREST(Config{Views: w, Index: x, Clock: w.clock})
	w.Set(ingesttest.Secret("db", "password", "x"))
	for _, o := range objects {
		w.Set(o)
	}
	w.List()
	return w
}

func (w *world) pass(d time.Duration) { w.clock.SetTime(w.clock.Now().Add(d)) }

// Lookup implements Views.
func (w *world) Lookup(namespace, name string) (found *v1alpha1.ConfigDependency, err error) {
	synced := w.REST.Index.Read(func(now decide.Evaluator) {
		now.Graph.EachWorkload(func(o *dependency.Workload) {
			if o.Namespace == namespace && o.ViewName() == name {
				e := now.Evaluate(o)
				found = render.ConfigDependency(w.REST.Kinds, e, e.Decide(w.clock.Now()))
			}
		})
	})
	switch {
	case !synced:
		return nil, view.NotReady()
	case found == nil:
		return nil, apierrors.NewNotFound(v1alpha1.Resource("configdependencies"), name)
	}
	return found, nil
}

func (w *world) get(t *testing.T, name string) *v1alpha1.ConfigDependencyPods {
	t.Helper()
	o, err := w.Get(genericapirequest.WithNamespace(t.Context(), ingesttest.Namespace), name, &metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o.(*v1alpha1.ConfigDependencyPods)
}

// readsDB returns a spec with a container that reads Secret db, and one that reads nothing.
func readsDB() corev1.PodSpec {
	db := corev1.LocalObjectReference{Name: "db"}
	return corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{
		{Name: "app", EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: db}}}},
		{Name: "side"},
	}}
}

// run creates a pod that an object controls, whose containers start now.
func (w *world) run(name string, controller metav1.OwnerReference, labels map[string]string, spec corev1.PodSpec) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid"), Labels: labels},
		Spec:       *spec.DeepCopy(), Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if controller.Name != "" {
		controller.Controller = new(true)
		p.OwnerReferences = []metav1.OwnerReference{controller}
	}
	started := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(w.clock.Now())}}
	for i := range spec.InitContainers {
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, corev1.ContainerStatus{Name: spec.InitContainers[i].Name, State: started})
	}
	for i := range spec.Containers {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: spec.Containers[i].Name, State: started})
	}
	w.Set(p)
	return p
}

// owner returns a reference to an object that has been set.
func owner(apiVersion, kind string, o ingesttest.Object) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: o.GetName(), UID: o.GetUID()}
}

// states renders "app Stale StartedBefore, side Current NothingRead" of a pod.
func states(p *v1alpha1.PodContent) string {
	var all []string
	for i := range p.Containers {
		c := &p.Containers[i]
		all = append(all, fmt.Sprintf("%s %s %s", c.Name, c.State, c.Reason))
	}
	return strings.Join(all, ", ")
}
