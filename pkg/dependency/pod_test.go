// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var podTime = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

func shopKey(kind WorkloadKind, name string) WorkloadKey { return WorkloadKey{kind, "shop", name} }

// podFor returns a pod of a workload with a UID, or an unknown one.
func podFor(name string, key WorkloadKey, owner types.UID) *Pod {
	return &Pod{PodKey: PodKey{"shop", name}, UID: types.UID("uid-" + name), Workload: key, Owner: owner, Created: podTime}
}

func workloadAt(key WorkloadKey, uid types.UID, created time.Time) *Workload {
	return &Workload{WorkloadKey: key, UID: uid, Created: metav1.NewTime(created)}
}

// A pod belongs to the workload of the UID that its controller names. Where another object is between them, it belongs to one that is not younger.
func TestPodsOf_AreThoseOfTheWorkload(t *testing.T) {
	web, db, boat := shopKey(Deployment, "web"), shopKey(StatefulSet, "db"), shopKey("Boat", "ark")
	g := NewGraph()
	labelled := podFor("web-3", web, "")
	labelled.Labelled = &boat
	ending := podFor("db-1", db, "u1")
	ending.Deleted = podTime
	old := podFor("web-0", web, "")
	old.Created = podTime.Add(-time.Hour)
	for _, p := range []*Pod{old, podFor("web-2", web, ""), labelled, ending, podFor("db-2", db, "u2"), podFor("x", shopKey(Deployment, "wea"), "")} {
		g.SetPod(p)
	}
	adopts := workloadAt(web, "d2", podTime)
	adopts.Revision, old.Revision = "1", "x"
	g.SetReplicaSet(&ReplicaSet{Namespace: "shop", Name: "web-x", Owner: "d2", Number: 1, Revision: "x", Deployment: "web"})
	g.SetPod(old)
	for name, tt := range map[string]struct {
		of   *Workload
		want string
	}{
		"of a Deployment that has adopted a pod": {adopts, "web-0 web-2 web-3"},
		"of a Deployment":                        {workloadAt(web, "d", podTime.Add(-2*time.Hour)), "web-0 web-2 web-3"},
		"of a Deployment that was created again": {workloadAt(web, "d", podTime), "web-2 web-3"},
		"of a StatefulSet":                       {workloadAt(db, "u1", podTime.Add(time.Hour)), "db-1"},
		"of the StatefulSet before":              {workloadAt(db, "u2", podTime), "db-2"},
		"by labels":                              {workloadAt(boat, "b", podTime), "web-3"},
		"by labels, of a younger one":            {workloadAt(boat, "b", podTime.Add(time.Second)), ""},
		"of none":                                {workloadAt(shopKey(Job, "web"), "d", podTime), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(podsOf(g, tt.of), " "); got != tt.want {
				t.Errorf("pods %q, want %q", got, tt.want)
			}
		})
	}
	var first []string
	g.PodsOf(workloadAt(web, "d", podTime), func(p *Pod) bool {
		first = append(first, p.Name)
		return false
	})
	if len(first) != 1 {
		t.Errorf("after false, f is called with %v", first)
	}
}

// A CronJob has the pods of its Jobs, in whichever order these are read.
func TestPodsOf_ARecurringWorkload(t *testing.T) {
	report := workloadAt(shopKey(CronJob, "report"), "c2", podTime)
	report.Recurring = true
	g := NewGraph()
	run := func(name string, owner types.UID) *Run {
		return &Run{WorkloadKey: shopKey(Job, name), Of: report.WorkloadKey, Owner: owner}
	}
	g.SetPod(podFor("b", shopKey(Job, "report-2"), "j2"))
	for _, r := range []*Run{run("report-0", "c1"), run("report-1", "c2"), run("report-2", "c2")} {
		if !g.SetRun(r) || g.SetRun(r) {
			t.Errorf("%s is not new once", r.Name)
		}
	}
	g.SetPod(podFor("c", shopKey(Job, "report-1"), "j1"))
	g.SetPod(podFor("d", shopKey(Job, "report-1"), "j1"))
	g.SetPod(podFor("of-the-one-before", shopKey(Job, "report-0"), "j0"))
	g.SetPod(podFor("of-no-run", shopKey(Job, "other"), "j"))
	if got := podsOf(g, report); !slices.Equal(got, []string{"c", "d", "b"}) {
		t.Errorf("pods %v", got)
	}
	n := 0
	g.PodsOf(report, func(*Pod) bool {
		n++
		return false
	})
	if n != 1 {
		t.Errorf("after false, f is called %d times", n)
	}
	if got := g.Shown(shopKey(Job, "report-1")); got != report.WorkloadKey {
		t.Errorf("%v is shown for a run", got)
	}
	if g.DeleteRun(shopKey(Job, "report-1")) == nil || g.DeleteRun(shopKey(Job, "report-1")) != nil {
		t.Error("a run is not deleted once")
	}
	if got := podsOf(g, report); !slices.Equal(got, []string{"b"}) || g.Shown(shopKey(Job, "report-1")).Kind != Job {
		t.Errorf("pods %v without a run", got)
	}
}

// A write of a pod concerns its workloads if it says anything about the pod that counts.
func TestSetPod_ReturnsWhomItConcerns(t *testing.T) {
	web, api, boat := shopKey(Deployment, "web"), shopKey(Deployment, "api"), shopKey("Boat", "ark")
	g, p := NewGraph(), podFor("p", web, "")
	p.Containers = []PodContainer{{Name: "app", Waiting: NotStarted}}
	for _, step := range []struct {
		what   string
		change func()
		want   []WorkloadKey
	}{
		{"a first pod", func() {}, []WorkloadKey{web}},
		{"another version", func() { p.Version++ }, nil},
		{"scheduled", func() { p.Node = "n" }, []WorkloadKey{web}},
		{"a container waits", func() { p.Containers = []PodContainer{{Name: "app", Waiting: "Image"}} }, []WorkloadKey{web}},
		{"a container starts", func() { p.Containers = []PodContainer{{Name: "app", Started: podTime}} }, []WorkloadKey{web}},
		{"in another zone", func() { p.Containers = []PodContainer{{Name: "app", Started: podTime.Local()}} }, nil},
		{"it restarts", func() { p.Containers = []PodContainer{{Name: "app", Started: podTime, Restarts: 1}} }, []WorkloadKey{web}},
		{"it is ready", func() { p.Ready = podTime }, []WorkloadKey{web}},
		{"it is not ready", func() { p.Ready, p.Unready = time.Time{}, 5 }, []WorkloadKey{web}},
		{"its phase", func() { p.Phase = "Running" }, []WorkloadKey{web}},
		{"its hash", func() { p.Hash = "h" }, []WorkloadKey{web}},
		{"its revision", func() { p.Revision = "r" }, []WorkloadKey{web}},
		{"its agent", func() { p.Agent = &AgentReport{} }, []WorkloadKey{web}},
		{"it gets labels", func() { p.Labelled = &boat }, []WorkloadKey{web, boat}},
		{"another controller", func() { p.Workload = api }, []WorkloadKey{api, boat, web}},
		{"other labels", func() { p.Labelled = nil }, []WorkloadKey{api, boat}},
		{"it is deleted", func() { p.Deleted = podTime }, []WorkloadKey{api}},
		{"created again", func() { p.UID, p.Deleted = "other", time.Time{} }, []WorkloadKey{api}},
	} {
		step.change()
		if diff := cmp.Diff(step.want, g.SetPod(p)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.what, diff)
		}
	}
	if got := g.DeletePod(p.PodKey); !slices.Equal(got, []WorkloadKey{api}) {
		t.Errorf("a deletion concerns %v", got)
	}
	if got := g.DeletePod(p.PodKey); got != nil || g.Pods() != 0 {
		t.Errorf("a second deletion concerns %v", got)
	}
}

// In random histories, each workload has its pods, and snapshots stay as they are.
func TestPods_InAnyHistory(t *testing.T) {
	keys := []WorkloadKey{shopKey(Deployment, "a"), shopKey(StatefulSet, "a"), shopKey("Boat", "a"), shopKey("Boat", "b")}
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		g, model := NewGraph(), map[string]*Pod{}
		check := func(g *Graph, model map[string]*Pod) {
			t.Helper()
			for _, key := range keys {
				var want []string
				for name, p := range model {
					if p.Workload == key || p.Labelled != nil && *p.Labelled == key {
						want = append(want, name)
					}
				}
				slices.Sort(want)
				if got := podsOf(g, workloadAt(key, "u", podTime)); !slices.Equal(got, want) {
					t.Fatalf("seed %d: pods of %v: %v, want %v", seed, key, got, want)
				}
			}
			if g.Pods() != len(model) {
				t.Fatalf("seed %d: %d pods, want %d", seed, g.Pods(), len(model))
			}
		}
		snapshot, then := g.Snapshot(), map[string]*Pod{}
		for range 200 {
			name := fmt.Sprint("p", r.IntN(8))
			if r.IntN(3) == 0 {
				g.DeletePod(PodKey{"shop", name})
				delete(model, name)
			} else {
				p := podFor(name, WorkloadKey{}, "")
				if r.IntN(4) > 0 {
					p.Workload = keys[r.IntN(2)]
				}
				if r.IntN(2) == 0 || p.Workload.Name == "" {
					p.Labelled = &keys[2+r.IntN(2)]
				}
				g.SetPod(p)
				model[name] = p
			}
			check(g, model)
			check(snapshot, then)
			if r.IntN(20) == 0 {
				snapshot, then = g.Snapshot(), map[string]*Pod{}
				maps.Copy(then, model)
			}
		}
	}
}

// What an agent has applied concerns all workloads that its pod belongs to, as they are shown.
func TestUsers_OfWhatAgentsHaveApplied(t *testing.T) {
	g := NewGraph()
	report := &AgentReport{State: AgentApplied, Sources: []AgentSource{applied("a", 1)}}
	boat, cron := shopKey("Boat", "ark"), shopKey(CronJob, "report")
	for name, p := range map[string]*Pod{"p1": {Labelled: &boat}, "p2": {Workload: shopKey(Job, "report-1")}} {
		p.PodKey, p.Agent = PodKey{"shop", name}, report
		g.SetPod(p)
	}
	g.SetRun(&Run{WorkloadKey: shopKey(Job, "report-1"), Of: cron})
	if got := g.Users(SourceKey{ConfigMap, "shop", "a"}); !slices.Equal(got, []WorkloadKey{boat, cron}) {
		t.Errorf("users %v", got)
	}
}

// A text that many pods have is in memory once, also if some of them come much later.
func TestIntern(t *testing.T) {
	text := []byte("node-1")
	first := Intern(string(text))
	runtime.GC()
	runtime.GC()
	if again := Intern(string(text)); again != first || unsafe.StringData(again) != unsafe.StringData(first) || Intern("") != "" {
		t.Error("a second copy is kept")
	}
	for i := range maxInterned + 10 {
		Intern(fmt.Sprint(i))
	}
	if n := len(interned.texts); n > maxInterned {
		t.Errorf("%d texts are remembered", n)
	}
}
