// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// The dashboard can be imported anywhere: it names no data source, nothing overlaps, and
// each panel says what it shows.
func TestDashboard(t *testing.T) {
	d, err := readDashboard(artifacts + "/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	if d.Title != "configdep" || d.UID != "configdep" || d.SchemaVersion < 39 { // that of Grafana 11
		t.Errorf("it is %q, %q, of schema %d", d.Title, d.UID, d.SchemaVersion)
	}
	if len(d.Templating.List) == 0 || d.Templating.List[0].Name != "datasource" || d.Templating.List[0].Type != "datasource" {
		t.Errorf("the first variable is not the data source: %v", d.Templating.List)
	}
	ids, titles, taken := map[int]bool{}, map[string]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] || titles[p.Title] || p.Title == "" {
			t.Errorf("panel %d %q is there twice", p.ID, p.Title)
		}
		ids[p.ID], titles[p.Title] = true, true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				cell := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other := taken[cell]; other != "" || cell[0] >= 24 {
					t.Fatalf("%q is where %q is, or outside", p.Title, other)
				}
				taken[cell] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("%q says nothing, or shows nothing", p.Title)
		}
		refs := map[string]bool{}
		for _, target := range p.Targets {
			if want := (datasource{"prometheus", "${datasource}"}); target.Datasource != want || p.Datasource != want {
				t.Errorf("%q asks %v", p.Title, target.Datasource)
			}
			if refs[target.RefID] || target.RefID == "" {
				t.Errorf("%q has two queries %q", p.Title, target.RefID)
			}
			refs[target.RefID] = true
			// What Grafana does not know it leaves, and Prometheus would refuse.
			if rest := substitute(target.Expr); strings.Contains(strings.ReplaceAll(rest, `"$1"`, ""), "$") {
				t.Errorf("%q uses an unknown variable: %s", p.Title, rest)
			}
		}
	}
}

// What is not there is found, and what is there by another way is not missed.
func TestAnalyze(t *testing.T) {
	for expression, want := range map[string]struct {
		shown []string
		fails bool
	}{
		`sum by (state) (configdep_workloads)`:                      {shown: []string{"state"}},
		`sum by (type) (configdep_workloads)`:                       {shown: []string{"state"}, fails: true},
		`histogram_quantile(0.9, sum by (le) (rate(x_bucket[5m])))`: {shown: []string{"verb"}, fails: true},
		`topk(3, sum by (a) (x))`:                                   {shown: []string{"a"}},
		`sum by (a) (label_replace(x, "a", "$1", "b", "(.+)"))`:     {shown: []string{"a"}},
		`sum(rate(x[5m])`:                                           {fails: true},
		`1 + 1`:                                                     {fails: true},
		`time() - min by (resource) (configdep_ingest_last_progress_timestamp_seconds)`: {shown: []string{"resource"}},
	} {
		if uses, err := analyze("here", expression, want.shown); (err != nil) != want.fails {
			t.Errorf("%s: %v, %v", expression, uses, err)
		}
	}
	uses, err := analyze("here", `sum by (a) (label_replace(x{c="d"}, "a", "$1", "b", "(.+)")) / on (e) sum by (e) (y)`, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(uses) != 2 || strings.Join(uses[0].Labels, " ") != "b" || uses[0].Matchers[0] != (matcher{"c", "=", "d"}) || strings.Join(uses[1].Labels, " ") != "e" {
		t.Errorf("it uses %v", uses)
	}
}
