// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// dashboard has the fields of a Grafana dashboard that are used here.
type dashboard struct {
	Title         string
	UID           string
	SchemaVersion int
	Panels        []panel
	Templating    struct {
		List []struct {
			Name  string
			Type  string
			Query any
		}
	}
}

type panel struct {
	ID          int
	Type        string
	Title       string
	Description string
	GridPos     struct{ H, W, X, Y int }
	Datasource  datasource
	Targets     []struct {
		Datasource   datasource
		Expr         string
		LegendFormat string
		RefID        string
	}
}

type datasource struct{ Type, UID string }

type expression struct {
	where, expression string
	labels            []string // labels in the legend
}

func readDashboard(file string) (*dashboard, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	d := &dashboard{}
	if err := json.Unmarshal(content, d); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return d, nil
}

var (
	labelOfLegend = regexp.MustCompile(`{{\s*([a-zA-Z_]+)\s*}}`)
	labelValues   = regexp.MustCompile(`^label_values\((.+), *([a-zA-Z_]+)\)$`)
)

// expressions returns the expressions of the panels and the variables.
func (d *dashboard) expressions() (all []expression) {
	for _, p := range d.Panels {
		for _, t := range p.Targets {
			e := expression{where: fmt.Sprintf("panel %q", p.Title), expression: t.Expr}
			for _, found := range labelOfLegend.FindAllStringSubmatch(t.LegendFormat, -1) {
				e.labels = append(e.labels, found[1])
			}
			all = append(all, e)
		}
	}
	for _, v := range d.Templating.List {
		query, _ := v.Query.(map[string]any)
		text, _ := query["query"].(string)
		if found := labelValues.FindStringSubmatch(text); found != nil {
			all = append(all, expression{"variable " + v.Name, found[1], []string{found[2]}})
		}
	}
	return all
}

// substitute replaces variables as Grafana does before a query.
func substitute(expression string) string {
	return strings.NewReplacer("$__rate_interval", "5m", "$job", ".+").Replace(expression)
}
