// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

// counted checks how many pods run with what.
func counted(want v1alpha1.PodCounts) func(*v1alpha1.ConfigDependency) error {
	return func(o *v1alpha1.ConfigDependency) error {
		if diff := cmp.Diff(want, o.Status.Pods); diff != "" {
			return fmt.Errorf("%s, %s: %s; pods (-want +got):\n%s", o.Status.State, o.Status.Reason, o.Status.Message, diff)
		}
		return nil
	}
}

// A Secret is rotated, and no workload has opted in: the API says which pods run with old content, since when, and by which source. Opting in then
// restarts nothing and claims nothing, and the next change restarts the pods.
func TestStale_BeforeAndAfterOptingIn(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.write("Secret/db", "password", "x")
	s.create(deployment("web", envFromSecret("db")))
	first := runningPods(t, s.namespace, "web", 2, nil)
	s.view("deployment.web", is(v1alpha1.StateInSync, "ContentApplied"), counted(v1alpha1.PodCounts{Total: 2, Current: 2}))
	awaitAge(t, s.namespace, "web")

	rotated := s.write("Secret/db", "password", "y")
	shown := s.view("deployment.web", is(v1alpha1.StateStale, "NotOptedIn"), counted(v1alpha1.PodCounts{Total: 2, Stale: 2}))
	if since := shown.Status.StaleSince; since == nil || time.Since(since.Time) > time.Minute || shown.Status.Sources[0].StalePods != 2 {
		t.Errorf("staleSince = %v, sources = %+v", since, shown.Status.Sources)
	}
	stale, err := s.client.ConfigDependencies(s.namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "status.state=Stale,status.reason=NotOptedIn"})
	if s.must(err); len(stale.Items) != 1 {
		t.Errorf("%d are selected by their state and its reason", len(stale.Items))
	}

	s.edit("web", func(o *appsv1.Deployment) { optedIn(o) })
	s.view("deployment.web", is(v1alpha1.StateStale, "OptedInStale"), at(rotated), recorded, counted(v1alpha1.PodCounts{Total: 2, Stale: 2}))
	s.write("Secret/other", "password", "z") // which the servers have read after that
	s.view("deployment.web", is(v1alpha1.StateStale, "OptedInStale"))
	if now := runningPods(t, s.namespace, "web", 2, nil); !cmp.Equal(now, first) {
		t.Fatalf("opting in has replaced pods: %v, then %v", first, now)
	}

	s.write("Secret/db", "password", "z")
	runningPods(t, s.namespace, "web", 2, first)
	s.view("deployment.web", applied, restartedFor("Secret/db"), counted(v1alpha1.PodCounts{Total: 2, Current: 2}))
}

// A release is rolled back before it is complete: the pods that were never replaced run with the current content, and nothing is restarted.
func TestRollback_ToPodsThatWereNeverReplaced(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.write("Secret/db", "password", "x")
	o := deployment("web", envFromSecret("db"))
	optedIn(o)
	s.create(o)
	first := runningPods(t, s.namespace, "web", 2, nil)
	s.view("deployment.web", applied)
	awaitAge(t, s.namespace, "web")

	s.edit("web", func(o *appsv1.Deployment) {
		o.Spec.Template.Annotations = map[string]string{"controlplane.test/stuck": "", "release": "2"}
		o.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxUnavailable: new(intstr.FromInt32(0)), MaxSurge: new(intstr.FromInt32(1))}
	})
	s.view("deployment.web", is(v1alpha1.StateRollingOut, ""))
	s.write("Secret/db", "password", "bad")
	s.write("Secret/db", "password", "x")
	s.edit("web", func(o *appsv1.Deployment) {
		delete(o.Spec.Template.Annotations, "controlplane.test/stuck")
		delete(o.Spec.Template.Annotations, "release")
	})
	last := s.write("Secret/marker", "read", "after that")
	s.create(asleep("marker", envFromSecret("marker")))
	s.view("deployment.marker", at(last))
	s.view("deployment.web", applied, counted(v1alpha1.PodCounts{Total: 2, Current: 2}))
	if now := runningPods(t, s.namespace, "web", 2, nil); !cmp.Equal(now, first) {
		t.Errorf("pods were replaced: %v, then %v", first, now)
	}
}

// A workload that was restarted on request, and whose content has changed since, opts in for the first time: that restarts nothing.
func TestOptIn_AfterAReloadAndAChange(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.write("Secret/db", "password", "x")
	s.create(deployment("web", envFromSecret("db")))
	first := runningPods(t, s.namespace, "web", 2, nil)
	s.view("deployment.web", is(v1alpha1.StateInSync, ""))
	reload(t, s.namespace, "deployment.web", v1alpha1.ReloadSpec{})
	second := runningPods(t, s.namespace, "web", 2, first)
	s.view("deployment.web", is(v1alpha1.StateInSync, ""))
	awaitAge(t, s.namespace, "web")
	s.write("Secret/db", "password", "y")
	s.view("deployment.web", is(v1alpha1.StateStale, "NotOptedIn"))
	s.edit("web", func(o *appsv1.Deployment) { optedIn(o) })
	s.view("deployment.web", is(v1alpha1.StateStale, "OptedInStale"), recorded)
	if now := runningPods(t, s.namespace, "web", 2, nil); !cmp.Equal(now, second) {
		t.Errorf("opting in has replaced pods: %v, then %v", second, now)
	}
}
