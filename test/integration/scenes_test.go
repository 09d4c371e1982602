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
