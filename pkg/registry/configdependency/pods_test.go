// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/policy"
)

// Each pod that is not being deleted is in one of the counts.
func TestRender_CountsPods(t *testing.T) {
	w := web(annotated(policy.ReloadAnnotation, "off"))
	c := newCluster(t, secret("db", "one", secondOf(3)), secret("share-key", "one", secondOf(3)), w)
	c.startPod("web-unknown", secondOf(2))
	c.startPod("web-stale-1", c.minuteLater())
	ending := c.startPod("web-ending", c.minuteLater()).DeepCopy()
	ending.DeletionTimestamp = new(c.minuteLater())
	c.set(ending)
	first := c.minuteLater()
	c.set(secret("db", "two", first))
	c.startPod("web-stale-2", c.minuteLater())
	c.set(secret("db", "three", c.minuteLater()))
	c.startPod("web-current", c.minuteLater())
	waiting := c.startPod("web-waiting", c.minuteLater()).DeepCopy()
	waiting.Status = corev1.PodStatus{Phase: corev1.PodPending}
	c.set(waiting)

	o := c.render(w, 1)
	p := o.Status.Pods
	if want := (v1alpha1.PodCounts{Total: 5, Current: 1, Stale: 2, Unknown: 1, NotStarted: 1}); p != want || p.Total != p.Current+p.Stale+p.Unknown+p.NotStarted {
		t.Errorf("pods = %+v, want %+v", p, want)
	}
	if since := o.Status.StaleSince; since == nil || !since.Equal(&first) {
		t.Errorf("stale since %v, want %v", since, first)
	}
	stale := map[string]int32{}
	for i := range o.Status.Sources {
		stale[o.Status.Sources[i].Name] = o.Status.Sources[i].StalePods
	}
	if diff := cmp.Diff(map[string]int32{"db": 2, "share-key": 0}, stale); diff != "" {
		t.Errorf("stale pods by source (-want +got):\n%s", diff)
	}
	for _, says := range []string{
		"2 of 5 pods run with old content of Secret/db, which changed at 2026-03-01T12:04:00Z:", "web-stale-1", "Automatic restarts are off. Create a Reload to restart the workload.",
	} {
		if !strings.Contains(o.Status.Message, says) {
			t.Errorf("message %q does not say %q", o.Status.Message, says)
		}
	}
}

// What users read first about a workload.
func TestRender_Message(t *testing.T) {
	off := annotated(policy.ReloadAnnotation, "off")
	optedOut := annotated(policy.ExcludeAnnotation, "secret/db")
	for name, tt := range map[string]struct {
		pod     metav1.Time // zero: there is none
		off     bool
		exclude bool
		want    string
	}{
		"current": {pod: secondOf(4), want: "The pods run with the current content. The next change restarts them."},
		"current, and off": {
			pod: secondOf(4), off: true, want: "The pods run with the current content. Automatic restarts are off.",
		},
		"no pod": {want: "The Deployment reports that its pods are up to date, but none of them is found. Pods belong to a workload by their owner; " +
			"those of a Deployment by the name of their ReplicaSet."},
		"unknown": {
			pod: secondOf(2), off: true, want: "It is not known whether 1 of 1 pod runs with the current content, because a source was written after they started, " +
				"before configdep began to read it (Secret/db at 2026-02-01T03:00:00Z): web-1. The subresource pods says more. Create a Reload to restart the workload if it matters.",
		},
		"nothing triggers": {
			pod: secondOf(4), exclude: true, want: "No ConfigMap or Secret restarts this workload automatically; spec.sources says why.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := web()
			if tt.off {
				off(w)
			}
			if tt.exclude {
				optedOut(w)
			}
			c := newCluster(t, secret("db", "one", secondOf(3)), secret("share-key", "one", secondOf(3)), w)
			if !tt.pod.IsZero() {
				c.startPod("web-1", tt.pod)
			}
			o := c.render(w, 1)
			if got := o.Status.Message; got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
			if got := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionInSync).Status; (got == metav1.ConditionUnknown) != (o.Status.State == v1alpha1.StateUnknown) {
				t.Errorf("the condition InSync is %s in the state %s", got, o.Status.State)
			}
		})
	}
}

func TestTable_Pods(t *testing.T) {
	read, pull := v1alpha1.Source{Kind: "Secret", Name: "db", TriggersReload: true}, v1alpha1.Source{Kind: "Secret", Name: "registry", Reason: policy.ReasonNotRead}
	off := v1alpha1.Source{Kind: "Secret", Name: "db", Reason: policy.ReasonReloadOff}
	for name, tt := range map[string]struct {
		pods    v1alpha1.PodCounts
		sources []v1alpha1.Source
		want    string
	}{
		"some are current":        {v1alpha1.PodCounts{Total: 3, Current: 2, Stale: 1}, []v1alpha1.Source{read}, "2/3"},
		"none is known to be":     {v1alpha1.PodCounts{Total: 3, Unknown: 3}, []v1alpha1.Source{pull, read}, "0/3"},
		"automatic restarts off":  {v1alpha1.PodCounts{Total: 1, Current: 1}, []v1alpha1.Source{off}, "1/1"},
		"no pod runs":             {v1alpha1.PodCounts{}, []v1alpha1.Source{read}, "-"},
		"nothing is used":         {v1alpha1.PodCounts{Total: 1, Current: 1}, nil, "-"},
		"no content reaches pods": {v1alpha1.PodCounts{Total: 1, Current: 1}, []v1alpha1.Source{pull}, "-"},
	} {
		o := &v1alpha1.ConfigDependency{Spec: v1alpha1.ConfigDependencySpec{Sources: tt.sources}, Status: v1alpha1.ConfigDependencyStatus{Pods: tt.pods}}
		if got := pods(o); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
