// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// The dashboard can be imported into any Grafana: it has a variable for the data source, panels do not overlap, and each
// panel has a description.
func TestDashboard(t *testing.T) {
	d, err := readDashboard(artifacts + "/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	if d.Title != "configdep" || d.UID != "configdep" || d.SchemaVersion < 39 { // the schema of Grafana 11
		t.Errorf("title = %q, UID = %q, schema version = %d", d.Title, d.UID, d.SchemaVersion)
	}
	if len(d.Templating.List) == 0 || d.Templating.List[0].Name != "datasource" || d.Templating.List[0].Type != "datasource" {
		t.Errorf("want the data source as the first variable; got %v", d.Templating.List)
	}
	ids, titles, taken := map[int]bool{}, map[string]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] || titles[p.Title] || p.Title == "" {
			t.Errorf("panel %d %q has no title, or its ID or title is not unique", p.ID, p.Title)
		}
		ids[p.ID], titles[p.Title] = true, true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				cell := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other := taken[cell]; other != "" || cell[0] >= 24 {
					t.Fatalf("panel %q overlaps with %q, or is outside the grid", p.Title, other)
				}
				taken[cell] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("panel %q has no description or no query", p.Title)
		}
		refs := map[string]bool{}
		for _, target := range p.Targets {
			if want := (datasource{"prometheus", "${datasource}"}); target.Datasource != want || p.Datasource != want {
				t.Errorf("panel %q has the data source %v", p.Title, target.Datasource)
			}
			if refs[target.RefID] || target.RefID == "" {
				t.Errorf("panel %q has more than one query with the ID %q, or one without ID", p.Title, target.RefID)
			}
			refs[target.RefID] = true
			// Grafana keeps unknown variables, which Prometheus would reject.
			if rest := substitute(target.Expr); strings.Contains(strings.ReplaceAll(rest, `"$1"`, ""), "$") {
				t.Errorf("panel %q uses an unknown variable: %s", p.Title, rest)
			}
		}
	}
}

// Labels that a result cannot have are an error, and labels that a result gets in other ways are not.
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
			t.Errorf("%s: uses = %v, error = %v", expression, uses, err)
		}
	}
	uses, err := analyze("here", `sum by (a) (label_replace(x{c="d"}, "a", "$1", "b", "(.+)")) / on (e) sum by (e) (y)`, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(uses) != 2 || strings.Join(uses[0].Labels, " ") != "b" || uses[0].Matchers[0] != (matcher{"c", "=", "d"}) || strings.Join(uses[1].Labels, " ") != "e" {
		t.Errorf("uses = %v", uses)
	}
}
