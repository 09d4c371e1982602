// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/metrics"
)

func TestStalePods_OfEachNamespace(t *testing.T) {
	noon := time.Date(2026, 2, 3, 12, 0, 0, 0, time.UTC)
	got := stalePods(func(f func(*v1alpha1.ConfigDependency)) {
		for _, o := range []struct {
			namespace string
			stale     int32
			since     time.Time // zero: it is not known
		}{
			{"shop", 2, noon.Add(time.Hour)}, {"shop", 1, noon}, {"shop", 1, time.Time{}}, {"shop", 0, time.Time{}},
			{"payments", 3, time.Time{}}, {"quiet", 0, time.Time{}},
		} {
			view := &v1alpha1.ConfigDependency{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace}}
			if view.Status.Pods.Stale = o.stale; !o.since.IsZero() {
				view.Status.StaleSince = new(metav1.NewTime(o.since))
			}
			f(view)
		}
	})
	want := map[string]metrics.StalePods{"shop": {Pods: 4, Since: noon}, "payments": {Pods: 3}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWaiting_ByReason(t *testing.T) {
	got := waiting(func(f func(*v1alpha1.ConfigDependency)) {
		for _, o := range []struct {
			state  v1alpha1.State
			reason string
		}{
			{v1alpha1.StatePending, "Budget"}, {v1alpha1.StatePending, "Budget"}, {v1alpha1.StatePending, "Window"}, {v1alpha1.StateBlocked, "Window"},
			{v1alpha1.StateBlocked, "HaltedAfterFailure"}, {v1alpha1.StateSettling, "SourceChanged"}, {v1alpha1.StateRollingOut, "Progressing"}, {v1alpha1.StateFailed, "PodsNotReady"},
			{v1alpha1.StateInSync, "ContentApplied"}, {v1alpha1.StateStale, "NotOptedIn"},
		} {
			f(&v1alpha1.ConfigDependency{Status: v1alpha1.ConfigDependencyStatus{State: o.state, Reason: o.reason}})
		}
	})
	if diff := cmp.Diff(map[string]int{"Budget": 2, "Window": 2, "HaltedAfterFailure": 1}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
