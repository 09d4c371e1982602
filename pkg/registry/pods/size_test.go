// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/policy"
)

// crowded returns a world in which so many pods of StatefulSet web, each with so many containers beside those of readsDB, are stale for Secret db
// and for so many Secrets that an annotation names. Any container may read the latter.
func crowded(t *testing.T, pods, containers, sources int) *world {
	t.Helper()
	o := statefulSet("web-1")
	var names []string
	for i := range sources {
		names = append(names, fmt.Sprintf("%s-%04d", strings.Repeat("s", 200), i))
	}
	if sources > 0 {
		o.Annotations[policy.SourcesAnnotation] = "secret/" + strings.Join(names, ",secret/")
	}
	w := newWorld(t, o)
	write := func(value string) {
		for _, name := range append(names, "db") {
			w.Set(ingesttest.Secret(name, "password", value))
		}
	}
	write("x")
	w.pass(time.Hour)
	for i := range pods {
		p := w.runWeb(fmt.Sprintf("web-%d", i), "web-1").DeepCopy()
		for k := range containers {
			status := p.Status.ContainerStatuses[1]
			status.Name = fmt.Sprintf("more-%04d", k)
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: status.Name})
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, status)
		}
		w.Set(p)
	}
	w.pass(time.Hour)
	write("y")
	return w
}

// The numbers of containers and of sources multiply, so that a small workload could have an answer of any size.
func TestGet_AnswerIsBounded(t *testing.T) {
	const containers, sources = 200, 250
	got := crowded(t, 3, containers, sources).get(t, "statefulset.web")
	raw, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if most := maxContainerBytes + maxSourceBytes + maxStaleSourceBytes; len(raw) > most || len(raw) < maxSourceBytes*3/4 {
		t.Errorf("the answer has %d bytes, want less than %d, and about as much as is allowed of sources", len(raw), most)
	}
	// What is not listed is counted.
	for i := range got.Pods {
		p := &got.Pods[i]
		if len(p.Containers) != containers+2 || p.MoreContainers != 0 || len(p.StaleSources) != sources+1 || p.MoreStaleSources != 0 {
			t.Errorf("%s: %d and %d containers, %d and %d stale sources", p.Name, len(p.Containers), p.MoreContainers, len(p.StaleSources), p.MoreStaleSources)
		}
		for j := range p.Containers {
			want := sources
			if j == 0 { // which reads db besides
				want++
			}
			if s := &p.Containers[j]; len(s.Sources)+int(s.MoreSources) != want || s.State != "Stale" {
				t.Fatalf("%s of %s is %s: %d and %d sources", s.Name, p.Name, s.State, len(s.Sources), s.MoreSources)
			}
		}
	}
}

// Each part of an answer has its own budget, and what comes later is not listed instead of what did not fit.
func TestGet_BudgetOfEachPart(t *testing.T) {
	w := crowded(t, 2, 1, 2)
	for name, tt := range map[string]struct {
		renderer renderer
		// listed and counted: sources, stale sources and containers of both pods
		want string
		row  string // the stale sources of the second pod
	}{
		"all of everything": {renderer{1 << 20, 1 << 20, 1 << 20}, "14+0 6+0 6+0", "Secret/db, Secret/s-0000, Secret/s-0001"},
		"few sources":       {renderer{1 << 20, 2000, 1 << 20}, "4+10 6+0 6+0", "Secret/db, Secret/s-0000, Secret/s-0001"},
		"few stale sources": {renderer{1 << 20, 1 << 20, 600}, "14+0 4+2 6+0", "Secret/db, 2 more"},
		"few containers":    {renderer{1600, 1 << 20, 1 << 20}, "10+0 6+0 4+2", "Secret/db, Secret/s-0000, Secret/s-0001"},
		"nothing":           {renderer{}, "0+0 0+6 0+6", "3 more"},
	} {
		w.renderer = tt.renderer
		got := w.get(t, "statefulset.web")
		var sources, stale, containers, moreSources, moreStale, moreContainers int
		for i := range got.Pods {
			p := &got.Pods[i]
			if p.State != "Stale" {
				t.Errorf("%s: %s is %s", name, p.Name, p.State)
			}
			stale, moreStale = stale+len(p.StaleSources), moreStale+int(p.MoreStaleSources)
			containers, moreContainers = containers+len(p.Containers), moreContainers+int(p.MoreContainers)
			for j := range p.Containers {
				sources, moreSources = sources+len(p.Containers[j].Sources), moreSources+int(p.Containers[j].MoreSources)
			}
		}
		if got := fmt.Sprintf("%d+%d %d+%d %d+%d", sources, moreSources, stale, moreStale, containers, moreContainers); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
		table, err := w.ConvertToTable(t.Context(), got, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.ReplaceAll(table.Rows[1].Cells[6].(string), strings.Repeat("s", 200), "s"); got != tt.row {
			t.Errorf("%s: the row has %q, want %q", name, got, tt.row)
		}
	}
}

// Responses take turns by what they have at most, before they are made.
func TestREST_Size(t *testing.T) {
	for name, w := range map[string]*world{"few of everything": crowded(t, 2, 1, 2), "many sources": crowded(t, 3, 20, 250), "many containers": crowded(t, 50, 100, 1)} {
		raw, err := json.Marshal(w.get(t, "statefulset.web"))
		if err != nil {
			t.Fatal(err)
		}
		w.REST.Index.Read(func(now decide.Evaluator) {
			now.Graph.EachWorkload(func(o *dependency.Workload) {
				if got := w.size(now, o); got < len(raw) || got > 3*len(raw) {
					t.Errorf("%s: size = %d, and the answer has %d bytes", name, got, len(raw))
				}
			})
		})
	}
}

func TestGet_TruncatedAnswersSaySo(t *testing.T) {
	w := crowded(t, 2, 0, 1) // which reads two sources
	for most, message := range map[int]string{1: "Only the first 1 pods are shown.", 2: ""} {
		w.maxPods = most
		if got := w.get(t, "statefulset.web"); got.Truncated != (message != "") || len(got.Pods) != most || got.Message != message {
			t.Errorf("at most %d: %d pods, truncated = %v, %q", most, len(got.Pods), got.Truncated, got.Message)
		}
		w.maxPods, w.maxJudged = maxPods, 2*most+1
		if got := w.get(t, "statefulset.web"); len(got.Pods) != most || got.Message != message {
			t.Errorf("at most %d by their sources: %d pods, %q", most, len(got.Pods), got.Message)
		}
		w.maxJudged = maxJudged
	}
}
