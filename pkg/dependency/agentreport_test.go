// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

func agentPod(name, workload string, state AgentState, sources ...AgentSource) *Pod {
	return &Pod{
		PodKey: PodKey{"shop", name}, Workload: WorkloadKey{"Deployment", "shop", workload},
		Agent: &AgentReport{State: state, Sources: SortAgentSources(sources)},
	}
}

func applied(name string, version uint64) AgentSource {
	return AgentSource{Kind: ConfigMap, Name: name, UID: types.UID(name), Version: version}
}

func podsOf(g *Graph, w *Workload) (names []string) {
	g.PodsOf(w, func(p *Pod) bool {
		names = append(names, p.Name)
		return true
	})
	return names
}

// What counts of pods is what they say about their workload, and not that they are written.
func TestSetPod_ReturnsWhomAReportConcerns(t *testing.T) {
	g := NewGraph()
	key := func(name string) WorkloadKey { return WorkloadKey{"Deployment", "shop", name} }
	for _, step := range []struct {
		what string
		pod  *Pod
		want []WorkloadKey
	}{
		{"a first pod", agentPod("web-1", "web", AgentSilent), []WorkloadKey{key("web")}},
		{"its status", agentPod("web-1", "web", AgentSilent), nil},
		{"its report", agentPod("web-1", "web", AgentApplied, applied("a", 1), applied("b", 1)), []WorkloadKey{key("web")}},
		{"the same report", agentPod("web-1", "web", AgentApplied, applied("b", 1), applied("a", 1)), nil},
		{"another version", agentPod("web-1", "web", AgentApplied, applied("a", 2), applied("b", 1)), []WorkloadKey{key("web")}},
		{"another workload", agentPod("web-1", "api", AgentApplied, applied("a", 2)), []WorkloadKey{key("api"), key("web")}},
		{"a second pod", agentPod("api-2", "api", AgentFailed), []WorkloadKey{key("api")}},
	} {
		if diff := cmp.Diff(step.want, g.SetPod(step.pod)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.what, diff)
		}
	}
	if got := g.DeletePod(PodKey{"shop", "web-1"}); !slices.Equal(got, []WorkloadKey{key("api")}) {
		t.Errorf("a deletion concerns %v", got)
	}
	if got := g.DeletePod(PodKey{"shop", "web-1"}); got != nil {
		t.Errorf("a second deletion concerns %v", got)
	}
}

func TestSortAgentSources(t *testing.T) {
	got := SortAgentSources([]AgentSource{applied("b", 1), {Kind: Secret, Name: "a", Version: 3}, applied("a", 1), applied("b", 2)})
	if want := []AgentSource{applied("a", 1), applied("b", 1), {Kind: Secret, Name: "a", Version: 3}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// In random histories, each workload has its pods, a source has the workloads whose pods have applied it, pods that have applied the same
// share it, and nothing is left in the end. Snapshots stay as they are.
func TestPods_ReportsOfAgents(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		g, model := NewGraph(), map[string]*Pod{}
		check := func(g *Graph, model map[string]*Pod) {
			t.Helper()
			for w := range 3 {
				workload := "w" + strconv.Itoa(w)
				var want []string
				for name, p := range model {
					if p.Workload.Name == workload {
						want = append(want, name)
					}
				}
				slices.Sort(want)
				if got := podsOf(g, &Workload{WorkloadKey: WorkloadKey{"Deployment", "shop", workload}}); !slices.Equal(got, want) {
					t.Fatalf("seed %d: pods of %s: %v, want %v", seed, workload, got, want)
				}
			}
			for s := range 4 {
				key := SourceKey{ConfigMap, "shop", "s" + strconv.Itoa(s)}
				users := map[WorkloadKey]bool{}
				for _, p := range model {
					if slices.ContainsFunc(p.Agent.Sources, func(s AgentSource) bool { return s.Name == key.Name }) {
						users[p.Workload] = true
					}
				}
				want := slices.SortedFunc(maps.Keys(users), func(a, b WorkloadKey) int { return compareWorkloads(&a, &b) })
				if got := g.Users(key); !slices.Equal(got, want) || g.Used(key) != (len(want) > 0) {
					t.Fatalf("seed %d: users of %s: %v, want %v", seed, key.Name, got, want)
				}
			}
		}
		snapshot, then := g.Snapshot(), maps.Clone(model)
		for range 300 {
			name := fmt.Sprintf("p%d", r.IntN(8))
			if r.IntN(4) == 0 {
				g.DeletePod(PodKey{"shop", name})
				delete(model, name)
			} else {
				var sources []AgentSource
				for s := range 4 {
					if r.IntN(2) == 0 {
						sources = append(sources, applied("s"+strconv.Itoa(s), uint64(r.IntN(2))))
					}
				}
				model[name] = agentPod(name, fmt.Sprintf("w%d", r.IntN(3)), AgentApplied, sources...)
				g.SetPod(model[name])
			}
			check(g, model)
			check(snapshot, then)
			if r.IntN(20) == 0 {
				snapshot, then = g.Snapshot(), maps.Clone(model)
			}
		}
		shared := map[string]*AgentSource{}
		g.EachPod(func(p *Pod) {
			if len(p.Agent.Sources) == 0 {
				return
			}
			if text := fmt.Sprint(p.Agent.Sources); shared[text] == nil {
				shared[text] = &p.Agent.Sources[0]
			} else if shared[text] != &p.Agent.Sources[0] {
				t.Errorf("seed %d: two pods do not share %s", seed, text)
			}
		})
		if len(g.pods.shared) != len(shared) {
			t.Errorf("seed %d: %d lists of sources are kept, want %d", seed, len(g.pods.shared), len(shared))
		}
		for name := range model {
			g.DeletePod(PodKey{"shop", name})
		}
		if len(g.pods.shared)+g.pods.users.len()+g.pods.byName.len()+g.pods.byWorkload.len() != 0 || g.HasAgents() {
			t.Errorf("seed %d: something is left: %+v", seed, g.pods)
		}
	}
}
