// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

// use is a metric in an expression, with the matchers and labels that the expression needs.
type use struct {
	// Where names the place of the expression.
	Where string `json:"where"`
	// Metric is the name of the time series, such as x_bucket.
	Metric string `json:"metric"`
	// Matchers are the matchers of the metric's selector.
	Matchers []matcher `json:"matchers,omitempty"`
	// Labels are the other labels of the metric that the expression uses.
	Labels []string `json:"labels,omitempty"`
}

type matcher struct {
	Label string `json:"label"`
	Type  string `json:"type"` // =, !=, =~ or !~
	Value string `json:"value"`
}

var language = parser.NewParser(parser.Options{})

// analyze returns the metrics of an expression. Metrics must have the labels by which the expression groups or joins
// them, and the labels of the result that are shown.
func analyze(where, expression string, shown []string) ([]use, error) {
	parsed, err := language.ParseExpr(expression)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", where, expression, err)
	}
	for _, label := range shown {
		if !survives(parsed, label) {
			return nil, fmt.Errorf("%s: %s: the label %s is shown but is not in the result", where, expression, label)
		}
	}
	uses := []use{}
	collect(parsed, shown, func(s *parser.VectorSelector, wanted []string) {
		u := use{Where: where, Metric: s.Name, Labels: slices.Compact(slices.Sorted(slices.Values(wanted)))}
		for _, m := range s.LabelMatchers {
			if m.Name != model.MetricNameLabel {
				u.Matchers = append(u.Matchers, matcher{m.Name, m.Type.String(), m.Value})
			}
		}
		uses = append(uses, u)
	})
	if len(uses) == 0 {
		return nil, fmt.Errorf("%s: %s: the expression uses no metric", where, expression)
	}
	return uses, nil
}

// collect calls found for each selector, with the labels that its metric must have.
func collect(node parser.Node, wanted []string, found func(*parser.VectorSelector, []string)) {
	switch n := node.(type) {
	case *parser.VectorSelector:
		found(n, wanted)
	case *parser.AggregateExpr:
		// An aggregation keeps only the labels of its grouping.
		if !n.Without {
			wanted = nil
		}
		wanted = append(slices.Clone(wanted), n.Grouping...)
	case *parser.BinaryExpr:
		if n.VectorMatching != nil && n.VectorMatching.On {
			wanted = append(slices.Clone(wanted), n.VectorMatching.MatchingLabels...)
		}
	case *parser.Call:
		switch n.Func.Name {
		case "histogram_quantile":
			wanted = append(slices.Clone(wanted), "le")
		case "label_replace":
			// The function sets the label, whether it exists or not.
			to := n.Args[1].(*parser.StringLiteral).Val
			wanted = slices.DeleteFunc(slices.Clone(wanted), func(label string) bool { return label == to })
			wanted = append(wanted, n.Args[3].(*parser.StringLiteral).Val)
		}
	}
	for child := range parser.ChildrenIter(node) {
		collect(child, wanted, found)
	}
}

// survives reports whether a label can be in the result of an expression.
func survives(node parser.Node, label string) bool {
	switch n := node.(type) {
	case *parser.AggregateExpr:
		switch n.Op {
		case parser.TOPK, parser.BOTTOMK: // keep all labels
			return survives(n.Expr, label)
		}
		return slices.Contains(n.Grouping, label) != n.Without
	case *parser.BinaryExpr:
		return n.LHS.Type() == parser.ValueTypeVector && survives(n.LHS, label) ||
			n.RHS.Type() == parser.ValueTypeVector && survives(n.RHS, label)
	case *parser.ParenExpr:
		return survives(n.Expr, label)
	case *parser.Call:
		if n.Func.Name == "histogram_quantile" {
			return label != "le" && survives(n.Args[1], label)
		}
	}
	return true
}
