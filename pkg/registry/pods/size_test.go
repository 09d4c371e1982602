// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	clienttesting "k8s.io/client-go/testing"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/registry/configdependency"
)

// namesMany lets the workload of a cluster name so many Secrets in an annotation, which have all changed since its pods
// started. Any container may read them.
func (c *cluster) namesMany(sources int) {
	long := strings.Repeat("s", 200)
	var names []string
	for i := range sources {
		name := fmt.Sprintf("%s-%04d", long, i)
		names = append(names, "secret/"+name)
		before, after := secret("x", "100", now.Add(-time.Hour)), secret("y", "210", now.Add(-time.Minute))
		before.Name, after.Name = name, name
		before.After(nil, nil, dependency.Arrival{})
		after.After(before, nil, dependency.Arrival{Live: true, Seen: now.Add(-time.Minute)})
		c.graph.SetSource(after)
	}
	w := *c.graph.Workload(dependency.WorkloadKey{Kind: "StatefulSet", Namespace: "shop", Name: "web"})
	w.Annotations = map[string]string{policy.ReloadAnnotation: "auto", policy.SourcesAnnotation: strings.Join(names, ",")}
	c.graph.SetWorkload(&w, dependency.Patterns{})
	e := policy.Evaluator{Graph: c.graph, Defaults: policy.Defaults{Mode: policy.Off}}.Evaluate(&w)
	c.view = configdependency.Render(nil, e, e.Decide(policy.Observed{Now: now}))
}

// podOf returns a pod with so many containers that have started 10 minutes ago, beside those of pod.
func podOf(name string, containers int) *corev1.Pod {
	p := pod(name, 600)
	status := p.Status.ContainerStatuses[1]
	for i := range containers {
		status.Name = fmt.Sprintf("more-%04d", i)
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: status.Name})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, status)
	}
	return p
}

// The numbers of containers and of sources multiply, so that a small workload could have an answer of any size.
func TestGet_AnswerIsBounded(t *testing.T) {
	const containers, sources = 200, 250
	c := newCluster(podOf("web-0", containers), podOf("web-1", containers), podOf("web-2", containers))
	c.namesMany(sources)
	got, err := c.get("statefulset.web")
	if err != nil {
		t.Fatal(err)
	}
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
	c := newCluster(podOf("web-0", 1), podOf("web-1", 1))
	c.namesMany(2)
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
		c.renderer = tt.renderer
		got, err := c.get("statefulset.web")
		if err != nil {
			t.Fatal(err)
		}
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
		table, err := c.ConvertToTable(t.Context(), got, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.ReplaceAll(table.Rows[1].Cells[6].(string), strings.Repeat("s", 200), "s"); got != tt.row {
			t.Errorf("%s: the row has %q, want %q", name, got, tt.row)
		}
	}
}

// Once the client has gone, no further pod is judged.
func TestGet_EndsWithTheRequest(t *testing.T) {
	c := newCluster(pod("web-0", 600), pod("web-1", 600))
	ctx, cancel := context.WithCancel(genericapirequest.WithNamespace(t.Context(), "shop"))
	c.client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		cancel()
		return false, nil, nil
	})
	if got, err := c.Get(ctx, "statefulset.web", &metav1.GetOptions{}); !apierrors.IsTimeout(err) {
		t.Errorf("%v %v", got, err)
	}
}
