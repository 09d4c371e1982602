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
