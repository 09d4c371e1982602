// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package strategy

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// evicting returns pods to evict with the UIDs.
func evicting(t *testing.T, uids ...types.UID) record.PodsToEvict {
	t.Helper()
	p := policy.Policy{Mode: policy.Auto, Strategy: record.Recreate}
	data, err := p.RestartPatch(&dependency.Workload{}, &record.Restart{Present: record.Record{Hash: "v1.a.b"}, Pods: uids})
	if err != nil {
		t.Fatal(err)
	}
	var patch struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(data, &patch); err != nil {
		t.Fatal(err)
	}
	pods, valid := record.PodsToEvictOf(&dependency.Workload{Marks: record.MarksOf(patch.Metadata.Annotations)})
	if !valid {
		t.Errorf("annotations %v are not valid", patch.Metadata.Annotations)
	}
	return pods
}

func surveyOf(pods []*dependency.Pod, evict record.PodsToEvict) survey {
	s := survey{evict: evict}
	for _, p := range pods {
		s.add(p)
	}
	return s
}

func TestWhichPodGoesNext(t *testing.T) {
	now := time.Now()
	made := func(name string, changes ...func(*dependency.Pod)) *dependency.Pod {
		p := &dependency.Pod{PodKey: dependency.PodKey{Name: name}, UID: types.UID("uid-" + name), Ready: now}
		for _, change := range changes {
			change(p)
		}
		return p
	}
	notReady := func(p *dependency.Pod) { p.Ready = time.Time{} }
	ending := func(p *dependency.Pod) { p.Deleted = now }
	for name, tc := range map[string]struct {
		pods  []*dependency.Pod
		evict []types.UID
		next  string
		ready int32
	}{
		"no pods":                          {nil, []types.UID{"uid-a"}, "", 0},
		"no pod to evict":                  {[]*dependency.Pod{made("a"), made("b", notReady)}, nil, "", 1},
		"only new pods":                    {[]*dependency.Pod{made("a"), made("b")}, []types.UID{"uid-c"}, "", 2},
		"the first pod":                    {[]*dependency.Pod{made("a"), made("b")}, []types.UID{"uid-b", "uid-a"}, "a", 2},
		"the old pod":                      {[]*dependency.Pod{made("a"), made("b")}, []types.UID{"uid-b"}, "b", 2},
		"a pod that is not ready":          {[]*dependency.Pod{made("a"), made("b", notReady), made("c", notReady)}, []types.UID{"uid-a", "uid-b", "uid-c"}, "b", 1},
		"the first pod that is not ready":  {[]*dependency.Pod{made("a", notReady), made("b", notReady), made("c")}, []types.UID{"uid-a", "uid-b", "uid-c"}, "a", 1},
		"a new pod is not ready":           {[]*dependency.Pod{made("a"), made("b", notReady)}, []types.UID{"uid-a"}, "a", 1},
		"a terminating pod does not count": {[]*dependency.Pod{made("a", ending), made("b")}, []types.UID{"uid-a", "uid-b"}, "b", 1},
		"all pods are terminating":         {[]*dependency.Pod{made("a", ending), made("b", ending, notReady)}, []types.UID{"uid-a", "uid-b"}, "", 0},
		"another pod with the same name":   {[]*dependency.Pod{made("a", func(p *dependency.Pod) { p.UID = "another" })}, []types.UID{"uid-a"}, "", 1},
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
	ending := func(name string, grace int64) *dependency.Pod {
		return &dependency.Pod{UID: types.UID(name), Deleted: start.Add(-24 * time.Hour), Grace: grace} // by the clock of the API server
	}
	m := &Memory{}
	for _, step := range []struct {
		after time.Duration
		pods  []*dependency.Pod
		want  int32
		next  time.Duration
	}{
		{0, nil, 0, 0},
		{0, []*dependency.Pod{ending("a", 0), ending("b", 30)}, 0, 2*time.Minute + 1},
		{2 * time.Minute, []*dependency.Pod{ending("a", 0), ending("b", 30), ending("c", 0)}, 0, 1},
		{2*time.Minute + 1, []*dependency.Pod{ending("a", 0), ending("b", 30), ending("c", 0)}, 1, 30 * time.Second},
		{2*time.Minute + 30*time.Second, []*dependency.Pod{ending("b", 30)}, 0, 1},
		// a was forgotten, so its time starts again
		{2*time.Minute + 31*time.Second, []*dependency.Pod{ending("b", 30), ending("a", 0)}, 1, 2*time.Minute + 1},
		{time.Hour, []*dependency.Pod{ending("a", 0), ending("endless", math.MaxInt64)}, 1, 0},
		{100 * time.Hour, []*dependency.Pod{ending("endless", math.MaxInt64)}, 0, 0},
	} {
		r := &Restart{Workload: &dependency.Workload{}, Now: start.Add(step.after), Memory: m}
		next := r.availability()
		if got := r.dead(&next, step.pods); got != step.want {
			t.Errorf("after %v: %d dead pods, want %d", step.after, got, step.want)
		}
		if next.after() != step.next {
			t.Errorf("after %v: looks again after %v, want %v", step.after, next.after(), step.next)
		}
		if len(m.ending) > len(step.pods) {
			t.Errorf("after %v: %d of %d pods are remembered", step.after, len(m.ending), len(step.pods))
		}
	}
}
