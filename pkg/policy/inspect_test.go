// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// Exactly the containers that may have been started while content was different are found, with a
// margin for clocks that differ.
func TestInspectPods(t *testing.T) {
	started := func(after time.Duration) corev1.ContainerState {
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(epoch.Add(after))}}
	}
	ended := func(after time.Duration) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: metav1.NewTime(epoch.Add(after))}}
	}
	waits := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	for name, tt := range map[string]struct {
		excursion policy.Excursion // zero: from one to two minutes after the epoch
		init      bool
		state     corev1.ContainerState
		want      bool
	}{
		"started in between":                      {state: started(90 * time.Second), want: true},
		"started before, by less than the margin": {state: started(-time.Minute), want: true},
		"before":                                 {state: started(-time.Minute - 1)},
		"started after, by less than the margin": {state: started(4 * time.Minute), want: true},
		"after":                                  {state: started(4*time.Minute + 1)},
		"started before, and the beginning is unknown": {excursion: policy.Excursion{To: epoch.Add(2 * time.Minute)}, state: started(-time.Hour), want: true},
		"started after, and the beginning is unknown":  {excursion: policy.Excursion{To: epoch.Add(2 * time.Minute)}, state: started(time.Hour)},
		"ended":                                     {state: ended(90 * time.Second), want: true},
		"ended, started before":                     {state: ended(-time.Hour)},
		"waiting":                                   {state: waits("CreateContainerConfigError")},
		"waiting, and the beginning is unknown":     {excursion: policy.Excursion{To: epoch.Add(2 * time.Minute)}, state: waits("ImagePullBackOff")},
		"an init container":                         {init: true, state: started(90 * time.Second), want: true},
		"a container that reads the source":         {excursion: policy.Excursion{Containers: []string{"app"}}, state: started(90 * time.Second), want: true},
		"a container that does not read the source": {excursion: policy.Excursion{Containers: []string{"other"}}, state: started(90 * time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			x := tt.excursion
			x.ID = "Secret/db"
			if x.To.IsZero() {
				x.From, x.To = epoch.Add(time.Minute), epoch.Add(2*time.Minute)
			}
			// An earlier container must not prevent checking this one.
			statuses := []corev1.ContainerStatus{{Name: "first", State: started(-time.Hour)}, {Name: "app", State: tt.state}}
			if x.From.IsZero() {
				statuses = statuses[1:]
			}
			pod := corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: statuses}}
			if tt.init {
				pod.Status = corev1.PodStatus{InitContainerStatuses: statuses}
			}
			var want []string
			if tt.want {
				want = []string{"Secret/db"}
			}
			found, err := policy.InspectPods([]policy.Excursion{x}, func(look func(*corev1.Pod)) error {
				look(&corev1.Pod{})
				look(&pod)
				look(&corev1.Pod{})
				return nil
			})
			if diff := cmp.Diff(&policy.Inspection{Mixed: want}, found); diff != "" || err != nil {
				t.Errorf("error = %v, inspection (-want +got):\n%s", err, diff)
			}
		})
	}
}

// The kubelet reports started containers only when it has started all containers of a pod.
func TestInspectPods_BeforeTheKubeletReports(t *testing.T) {
	to := epoch.Add(2 * time.Minute)
	status := func(name, reason string, restarts int32) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: name, RestartCount: restarts, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}
	}
	for name, tt := range map[string]struct {
		created time.Time
		node    string
		status  corev1.PodStatus
		want    bool
	}{
		"being created":               {to, "a", corev1.PodStatus{ContainerStatuses: status("app", "ContainerCreating", 0)}, true},
		"waiting for init containers": {to, "a", corev1.PodStatus{ContainerStatuses: status("app", "PodInitializing", 0)}, true},
		"waiting without a reason":    {to, "a", corev1.PodStatus{InitContainerStatuses: status("app", "", 0)}, true},
		"no container status":         {to, "a", corev1.PodStatus{Phase: corev1.PodPending}, true},
		"not scheduled":               {to, "", corev1.PodStatus{Phase: corev1.PodPending}, false},
		"failed":                      {to, "a", corev1.PodStatus{Phase: corev1.PodFailed}, false},
		"newer, within the margin":    {to.Add(2 * time.Minute), "a", corev1.PodStatus{Phase: corev1.PodPending}, true},
		"newer":                       {to.Add(2*time.Minute + time.Second), "a", corev1.PodStatus{Phase: corev1.PodPending}, false},
		"started before":              {to, "a", corev1.PodStatus{ContainerStatuses: status("app", "ContainerCreating", 1)}, false},
		"unable to start":             {to, "a", corev1.PodStatus{ContainerStatuses: status("app", "CreateContainerConfigError", 0)}, false},
		"not reading the source":      {to, "a", corev1.PodStatus{ContainerStatuses: status("other", "ContainerCreating", 0)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := policy.InspectPods([]policy.Excursion{{ID: "Secret/db", To: to, Containers: []string{"app"}}}, func(look func(*corev1.Pod)) error {
				look(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(tt.created)}, Spec: corev1.PodSpec{NodeName: tt.node}, Status: tt.status})
				return nil
			})
			if err != nil || found.Unreported != tt.want || len(found.Mixed) > 0 {
				t.Errorf("inspection = %+v, %v; want Unreported = %t", found, err, tt.want)
			}
		})
	}
}

// A restart in doubt does not claim that content has changed.
func TestDecide_WhyPodsAreRestartedToBeSure(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password"), env(dependency.Secret, "more", "k"), env(dependency.ConfigMap, "c", "k")),
		secret("db", "password", "1"), secret("more", "k", "1"), configMap("c", "k", "1"))
	x.adopt()
	x.set(secret("db", "password", "2"))
	x.set(secret("db", "password", "1"))
	x.mixed = []string{"Secret/db"}
	x.act()
	x.tick(time.Minute)
	const differs = "some pods may have been started with other content of Secret/db"
	if d := x.decide(); d.Because != differs || d.Message != policy.UpperFirst(differs)+". A restart is due." {
		t.Errorf("Because = %q, Message = %q, want %q", d.Because, d.Message, differs)
	}
	x.set(secret("more", "k", "2"))
	x.tick(time.Minute)
	if d := x.decide(); d.Because != "Secret/more has changed, and "+differs {
		t.Errorf("with a change: Because = %q", d.Because)
	}
	x.set(configMap("c", "k", "2"))
	x.tick(time.Minute)
	if d := x.decide(); d.Because != "ConfigMap/c and Secret/more have changed, and "+differs {
		t.Errorf("with two more changes: Because = %q", d.Because)
	}
}
