// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package strategy

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// evicting returns pods to evict with the UIDs.
func evicting(t *testing.T, uids ...types.UID) policy.PodsToEvict {
	t.Helper()
	p := policy.Policy{Mode: policy.Auto, Strategy: policy.Recreate}
	data, err := p.RestartPatch(&dependency.Workload{}, &policy.Restart{Present: policy.Record{Hash: "v1.a.b"}, Pods: uids})
	if err != nil {
		t.Fatal(err)
	}
	var patch struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(data, &patch); err != nil {
		t.Fatal(err)
	}
	pods, valid := policy.PodsToEvictOf(&dependency.Workload{Marks: policy.MarksOf(patch.Metadata.Annotations)})
	if !valid {
		t.Errorf("annotations %v are not valid", patch.Metadata.Annotations)
	}
	return pods
}

func surveyOf(pods []corev1.Pod, evict policy.PodsToEvict) survey {
	s := survey{evict: evict}
	for i := range pods {
		p := pods[i].DeepCopy()
		s.add(p)
		*p = corev1.Pod{} // a pod is only valid during the call
	}
	return s
}

func TestWhichPodGoesNext(t *testing.T) {
	made := func(name string, changes ...func(*corev1.Pod)) corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		for _, change := range changes {
			change(p)
		}
		return *p
	}
	notReady := func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }
	unknown := func(p *corev1.Pod) { p.Status.Conditions = nil }
	ending := func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }
	for name, tc := range map[string]struct {
		pods  []corev1.Pod
		evict []types.UID
		next  string
		ready int32
	}{
		"no pods":                          {nil, []types.UID{"uid-a"}, "", 0},
		"no pod to evict":                  {[]corev1.Pod{made("a"), made("b", notReady)}, nil, "", 1},
		"only new pods":                    {[]corev1.Pod{made("a"), made("b")}, []types.UID{"uid-c"}, "", 2},
		"the first pod":                    {[]corev1.Pod{made("a"), made("b")}, []types.UID{"uid-b", "uid-a"}, "a", 2},
		"the old pod":                      {[]corev1.Pod{made("a"), made("b")}, []types.UID{"uid-b"}, "b", 2},
		"a pod that is not ready":          {[]corev1.Pod{made("a"), made("b", notReady), made("c", notReady)}, []types.UID{"uid-a", "uid-b", "uid-c"}, "b", 1},
		"a pod without conditions":         {[]corev1.Pod{made("a"), made("b", unknown)}, []types.UID{"uid-a", "uid-b"}, "b", 1},
		"the first pod that is not ready":  {[]corev1.Pod{made("a", notReady), made("b", notReady), made("c")}, []types.UID{"uid-a", "uid-b", "uid-c"}, "a", 1},
		"a new pod is not ready":           {[]corev1.Pod{made("a"), made("b", notReady)}, []types.UID{"uid-a"}, "a", 1},
		"a terminating pod does not count": {[]corev1.Pod{made("a", ending), made("b")}, []types.UID{"uid-a", "uid-b"}, "b", 1},
		"all pods are terminating":         {[]corev1.Pod{made("a", ending), made("b", ending, notReady)}, []types.UID{"uid-a", "uid-b"}, "", 0},
		"another pod with the same name":   {[]corev1.Pod{made("a", func(p *corev1.Pod) { p.UID = "another" })}, []types.UID{"uid-a"}, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			pods := surveyOf(tc.pods, evicting(t, tc.evict...))
			got := ""
			if pods.next != nil {
				got = pods.next.Name
			}
			if got != tc.next || pods.available != tc.ready {
				t.Errorf("next pod = %q with %d ready pods, want %q and %d", got, pods.available, tc.next, tc.ready)
			}
		})
	}
}

// The time for which a pod has been terminating is measured by the clock of this process alone.
func TestWhichPodsAreDead(t *testing.T) {
	start := time.Now()
	ending := func(name string, grace *int64) corev1.Pod {
		at := metav1.NewTime(start.Add(-24 * time.Hour)) // by the clock of the API server
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), DeletionTimestamp: &at, DeletionGracePeriodSeconds: grace}}
	}
	m := &Memory{}
	for _, step := range []struct {
		after time.Duration
		pods  []corev1.Pod
		want  int32
	}{
		{0, nil, 0},
		{0, []corev1.Pod{ending("a", nil), ending("b", new(int64(30))), {}}, 0},
		{2 * time.Minute, []corev1.Pod{ending("a", nil), ending("b", new(int64(30))), ending("c", nil)}, 0},
		{2*time.Minute + 1, []corev1.Pod{ending("a", nil), ending("b", new(int64(30))), ending("c", nil), {}}, 1},
		{2*time.Minute + 30*time.Second, []corev1.Pod{ending("b", new(int64(30)))}, 0},
		{2*time.Minute + 31*time.Second, []corev1.Pod{ending("b", new(int64(30))), ending("a", nil)}, 1}, // a was forgotten, so its time starts again
		{time.Hour, []corev1.Pod{ending("a", nil), ending("endless", new(int64(math.MaxInt64)))}, 1},
		{100 * time.Hour, []corev1.Pod{ending("endless", new(int64(math.MaxInt64)))}, 0},
	} {
		if got := m.dead(surveyOf(step.pods, nil).ending, start.Add(step.after)); got != step.want {
			t.Errorf("after %v: %d dead pods, want %d", step.after, got, step.want)
		}
		if len(m.ending) > len(step.pods) {
			t.Errorf("after %v: %d of %d pods are remembered", step.after, len(m.ending), len(step.pods))
		}
	}
}
