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

func agentPod(name, workload string, state AgentState, sources ...AgentSource) *AgentPod {
	return &AgentPod{
		Namespace: "shop", Name: name, Workload: WorkloadKey{"Deployment", "shop", workload}, State: state, Sources: SortAgentSources(sources),
	}
}

func applied(name string, version uint64) AgentSource {
	return AgentSource{Kind: ConfigMap, Name: name, UID: types.UID(name), Version: version}
}

func agentPodsOf(g *Graph, workload string, uid types.UID) (names []string) {
	g.AgentPods(&Workload{WorkloadKey: WorkloadKey{"Deployment", "shop", workload}, UID: uid}, func(p *AgentPod) { names = append(names, p.Name) })
	return names
}

// What counts of pods is what they say about their workload, and not that they are written.
func TestSetAgentPod_ReturnsWhomItConcerns(t *testing.T) {
	g := NewGraph()
	key := func(name string) WorkloadKey { return WorkloadKey{"Deployment", "shop", name} }
	for _, step := range []struct {
		what string
		pod  *AgentPod
		want []WorkloadKey
	}{
		{"a first pod", agentPod("web-1", "web", AgentSilent), []WorkloadKey{key("web")}},
		{"its status", agentPod("web-1", "web", AgentSilent), nil},
		{"its report", agentPod("web-1", "web", AgentApplied, applied("a", 1), applied("b", 1)), []WorkloadKey{key("web")}},
		{"the same report", agentPod("web-1", "web", AgentApplied, applied("b", 1), applied("a", 1)), nil},
		{"another version", agentPod("web-1", "web", AgentApplied, applied("a", 2), applied("b", 1)), []WorkloadKey{key("web")}},
		{"another workload", agentPod("web-1", "api", AgentApplied, applied("a", 2)), []WorkloadKey{key("web"), key("api")}},
		{"a second pod", agentPod("api-2", "api", AgentFailed), []WorkloadKey{key("api")}},
	} {
		if diff := cmp.Diff(step.want, g.SetAgentPod(step.pod)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.what, diff)
		}
	}
	if got := g.DeleteAgentPod("shop", "web-1"); !slices.Equal(got, []WorkloadKey{key("api")}) {
		t.Errorf("a deletion concerns %v", got)
	}
	if got := g.DeleteAgentPod("shop", "web-1"); got != nil {
		t.Errorf("a second deletion concerns %v", got)
	}
}

// A pod that is being deleted does not count, nor does one whose controller had the same name as the workload before.
func TestAgentPods_AreThoseOfTheWorkload(t *testing.T) {
	g := NewGraph()
	ending, own, others := agentPod("web-1", "web", AgentApplied), agentPod("web-2", "web", AgentApplied), agentPod("web-3", "web", AgentApplied)
	ending.Terminating, own.Owner, others.Owner = true, "u1", "u2"
	for _, p := range []*AgentPod{agentPod("a", "web-1", AgentApplied), others, own, ending, agentPod("web-4", "web", AgentApplied), agentPod("web-5", "wea", AgentApplied)} {
		g.SetAgentPod(p)
	}
	if got, want := agentPodsOf(g, "web", "u1"), []string{"web-2", "web-4"}; !slices.Equal(got, want) {
		t.Errorf("pods %v, want %v", got, want)
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
func TestAgentPods_Random(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		g, model := NewGraph(), map[string]*AgentPod{}
		check := func(g *Graph, model map[string]*AgentPod) {
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
				if got := agentPodsOf(g, workload, ""); !slices.Equal(got, want) {
					t.Fatalf("seed %d: pods of %s: %v, want %v", seed, workload, got, want)
				}
			}
			for s := range 4 {
				key := SourceKey{ConfigMap, "shop", "s" + strconv.Itoa(s)}
				users := map[WorkloadKey]bool{}
				for _, p := range model {
					if slices.ContainsFunc(p.Sources, func(s AgentSource) bool { return s.Name == key.Name }) {
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
				g.DeleteAgentPod("shop", name)
				delete(model, name)
			} else {
				var sources []AgentSource
				for s := range 4 {
					if r.IntN(2) == 0 {
						sources = append(sources, applied("s"+strconv.Itoa(s), uint64(r.IntN(2))))
					}
				}
				model[name] = agentPod(name, fmt.Sprintf("w%d", r.IntN(3)), AgentApplied, sources...)
				g.SetAgentPod(model[name])
			}
			check(g, model)
			check(snapshot, then)
			if r.IntN(20) == 0 {
				snapshot, then = g.Snapshot(), maps.Clone(model)
			}
		}
		shared := map[string]*AgentSource{}
		g.EachAgentPod(func(p *AgentPod) {
			if len(p.Sources) == 0 {
				return
			}
			if text := fmt.Sprint(p.Sources); shared[text] == nil {
				shared[text] = &p.Sources[0]
			} else if shared[text] != &p.Sources[0] {
				t.Errorf("seed %d: two pods do not share %s", seed, text)
			}
		})
		if len(g.agents.shared) != len(shared) {
			t.Errorf("seed %d: %d lists of sources are kept, want %d", seed, len(g.agents.shared), len(shared))
		}
		for name := range model {
			g.DeleteAgentPod("shop", name)
		}
		if len(g.agents.shared)+g.agents.users.len()+g.agents.byName.len()+g.agents.byWorkload.len() != 0 {
			t.Errorf("seed %d: something is left: %+v", seed, g.agents)
		}
	}
}
