// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// skewed is a clock that differs from that of the API server.
type skewed struct {
	clock.RealClock
	by time.Duration
}

func (s skewed) Now() time.Time                  { return s.RealClock.Now().Add(s.by) }
func (s skewed) Since(t time.Time) time.Duration { return s.Now().Sub(t) }

// TestRecreateDoesNotDependOnClocks: each old pod is evicted exactly once, whatever times
// there are in pods, and in the process that goes on.
func TestRecreateDoesNotDependOnClocks(t *testing.T) {
	for name, tc := range map[string]struct{ before, after time.Duration }{
		"behind":                      {-5 * time.Second, -5 * time.Second},
		"ahead":                       {90 * time.Second, 90 * time.Second},
		"far behind":                  {-time.Hour, -time.Hour},
		"far ahead":                   {time.Hour, time.Hour},
		"the next leader's is behind": {time.Hour, -time.Hour},
		"the next leader's is ahead":  {-time.Hour, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.clock = skewed{by: tc.before}
				c.newProcess()
				recreating(c)
				if tc.after != tc.before {
					c.resign()
					c.clock = skewed{by: tc.after}
					c.newProcess()
					c.synced()
					c.lead()
				}
				evicted := map[string]int{"web-0": 1}
				for range 30 {
					c.replace(true)
					c.advance(5 * time.Second)
					c.mu.Lock()
					for _, r := range c.requests {
						if r.verb == "evict" {
							evicted[r.name]++
						}
					}
					c.requests = nil
					c.mu.Unlock()
				}
				if diff := cmp.Diff(map[string]int{"web-0": 1, "web-1": 1, "web-2": 1}, evicted); diff != "" {
					t.Errorf("evictions (-want +got):\n%s", diff)
				}
				if d := live(c, deployment("web", "db")); d.Annotations[policy.RecreatingAnnotation] != "" {
					t.Errorf("it has not ended: %v", d.Annotations)
				}
			})
		})
	}
}

// TestRecreateGetsPastADeadNodeOfADeployment: the ReplicaSet has replaced the pod, which
// stays there until the node is removed.
func TestRecreateGetsPastADeadNodeOfADeployment(t *testing.T) {
	inCluster(t, func(c *cluster) {
		recreating(c)
		c.set(pod("heir", "uid-web-a"))
		c.advance(5 * time.Second)
		c.expect("the heir is ready", "1m6.5s evict web-1")
		c.remove(pod("web-1", ""))
		c.set(pod("new-web-1", "uid-web-a"))
		c.advance(5 * time.Second)
		c.expect("the next", "1m11.5s evict web-2")
		c.remove(pod("web-2", ""))
		c.set(pod("new-web-2", "uid-web-a"))
		c.advance(5 * time.Second)
		c.expect("the end", "1m16.5s recreated web")
		c.advance(24 * time.Hour)
		c.expect("after that")
		if diff := cmp.Diff([]string{"heir", "new-web-1", "new-web-2", "web-0"}, c.podNames()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestRecreateGetsPastADeadNodeOfOtherKinds: nothing comes in the place of the pod. Until it
// is certain that it is dead, the others stay.
func TestRecreateGetsPastADeadNodeOfOtherKinds(t *testing.T) {
	for name, tc := range map[string]struct {
		workload metav1.Object
		status   func(c *cluster, ready int32)
	}{
		"StatefulSet": {statefulSet("web", "db"), func(c *cluster, ready int32) {
			edit(c, statefulSet("web", "db"), func(s *appsv1.StatefulSet) {
				s.Spec.Replicas = new(int32(3))
				s.Status = appsv1.StatefulSetStatus{Replicas: 3, UpdatedReplicas: 3, ReadyReplicas: ready}
			})
		}},
		"DaemonSet": {daemonSet("web", "db"), func(c *cluster, ready int32) {
			edit(c, daemonSet("web", "db"), func(s *appsv1.DaemonSet) {
				s.Status = appsv1.DaemonSetStatus{DesiredNumberScheduled: 3, UpdatedNumberScheduled: 3, NumberAvailable: ready}
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.synced()
				c.set(secret("db", "1"))
				tc.workload.GetAnnotations()[policy.StrategyAnnotation] = "recreate"
				c.set(tc.workload)
				tc.status(c, 3)
				for i := range 3 {
					c.set(pod(fmt.Sprint("web-", i), "uid-web"))
				}
				c.lead()
				c.advance(time.Minute)
				c.set(secret("db", "2"))
				c.advance(5 * time.Second)
				c.expect("it begins", "0s baseline web", "1m1s recreate web", "1m1s evict web-0")
				c.told()
				tc.status(c, 2)
				c.advance(2 * time.Minute)
				c.expect("it may be ending yet")
				c.expectEvents("it may be ending yet",
					"Normal ConfigReloadWaiting "+name+"/shop/web: The next pod will be evicted later: 2 of 3 pods are ready.")
				c.advance(time.Second)
				c.expect("it is dead", "3m6s evict web-1")
				c.advance(time.Minute)
				c.expect("another one is ending")
				c.remove(pod("web-1", ""))
				c.set(pod("new-web-1", "uid-web"))
				c.advance(5 * time.Second)
				c.expect("the last", "4m11s evict web-2")
				c.remove(pod("web-2", ""))
				c.set(pod("new-web-2", "uid-web"))
				c.advance(5 * time.Second)
				c.expect("the end", "4m16s recreated web")
			})
		})
	}
}

// evicting returns the pods of some UIDs as those to be evicted.
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
		t.Errorf("%v is not valid", patch.Metadata.Annotations)
	}
	return pods
}

func surveyOf(pods []corev1.Pod, evict policy.PodsToEvict) survey {
	s := survey{evict: evict}
	for i := range pods {
		p := pods[i].DeepCopy()
		s.add(p)
		*p = corev1.Pod{} // it is valid during the call alone
	}
	return s
}

func TestWhichPodGoesNext(t *testing.T) {
	made := func(name string, changes ...func(*corev1.Pod)) corev1.Pod {
		p := pod(name, "uid-web-a")
		p.UID = types.UID("uid-" + name)
		for _, change := range changes {
			change(p)
		}
		return *p
	}
	notReady := func(p *corev1.Pod) { unready(p) }
	unknown := func(p *corev1.Pod) { p.Status.Conditions = nil }
	ending := func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }
	for name, tc := range map[string]struct {
		pods  []corev1.Pod
		evict []types.UID
		next  string
		ready int32
	}{
		"no pods":                           {nil, []types.UID{"uid-a"}, "", 0},
		"none to evict":                     {[]corev1.Pod{made("a"), made("b", notReady)}, nil, "", 1},
		"new ones only":                     {[]corev1.Pod{made("a"), made("b")}, []types.UID{"uid-c"}, "", 2},
		"the first":                         {[]corev1.Pod{made("a"), made("b")}, []types.UID{"uid-b", "uid-a"}, "a", 2},
		"the old one":                       {[]corev1.Pod{made("a"), made("b")}, []types.UID{"uid-b"}, "b", 2},
		"one that is not ready":             {[]corev1.Pod{made("a"), made("b", notReady), made("c", notReady)}, []types.UID{"uid-a", "uid-b", "uid-c"}, "b", 1},
		"one without conditions":            {[]corev1.Pod{made("a"), made("b", unknown)}, []types.UID{"uid-a", "uid-b"}, "b", 1},
		"the first of those not ready":      {[]corev1.Pod{made("a", notReady), made("b", notReady), made("c")}, []types.UID{"uid-a", "uid-b", "uid-c"}, "a", 1},
		"a new one that is not ready":       {[]corev1.Pod{made("a"), made("b", notReady)}, []types.UID{"uid-a"}, "a", 1},
		"one that is ending has gone":       {[]corev1.Pod{made("a", ending), made("b")}, []types.UID{"uid-a", "uid-b"}, "b", 1},
		"all are ending":                    {[]corev1.Pod{made("a", ending), made("b", ending, notReady)}, []types.UID{"uid-a", "uid-b"}, "", 0},
		"the same name is not the same pod": {[]corev1.Pod{made("a", func(p *corev1.Pod) { p.UID = "another" })}, []types.UID{"uid-a"}, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			pods := surveyOf(tc.pods, evicting(t, tc.evict...))
			got := ""
			if pods.next != nil {
				got = pods.next.Name
			}
			if got != tc.next || pods.ready != tc.ready {
				t.Errorf("%q goes next, and %d are ready, want %q and %d", got, pods.ready, tc.next, tc.ready)
			}
		})
	}
}

// How long a pod has been ending is measured by the clock of this process alone.
func TestWhichPodsAreDead(t *testing.T) {
	start := time.Now()
	ending := func(name string, grace *int64) corev1.Pod {
		at := metav1.NewTime(start.Add(-24 * time.Hour)) // by another clock
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), DeletionTimestamp: &at, DeletionGracePeriodSeconds: grace}}
	}
	n := &note{}
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
		{2*time.Minute + 31*time.Second, []corev1.Pod{ending("b", new(int64(30))), ending("a", nil)}, 1}, // a is another pod
		{time.Hour, []corev1.Pod{ending("a", nil), ending("endless", new(int64(math.MaxInt64)))}, 1},
		{100 * time.Hour, []corev1.Pod{ending("endless", new(int64(math.MaxInt64)))}, 0},
	} {
		if got := n.deadPods(surveyOf(step.pods, nil).ending, start.Add(step.after)); got != step.want {
			t.Errorf("after %v %d are dead, want %d", step.after, got, step.want)
		}
		if len(n.ending) > len(step.pods) {
			t.Errorf("after %v %d pods are remembered of %d", step.after, len(n.ending), len(step.pods))
		}
	}
}
