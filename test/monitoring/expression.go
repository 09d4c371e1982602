// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

// use is one metric in an expression, with what the expression wants of it.
type use struct {
	// Where the expression is.
	Where string `json:"where"`
	// Metric is the name of the time series, such as x_bucket.
	Metric string `json:"metric"`
	// Matchers are those of its selector.
	Matchers []matcher `json:"matchers,omitempty"`
	// Labels are the other labels that the expression takes of it.
	Labels []string `json:"labels,omitempty"`
}

type matcher struct {
	Label string `json:"label"`
	Type  string `json:"type"` // =, !=, =~ or !~
	Value string `json:"value"`
}

var language = parser.NewParser(parser.Options{})

// analyze returns the metrics of an expression. The labels that it groups or joins by, and
// those that are shown of its result, are wanted of all metrics below.
func analyze(where, expression string, shown []string) ([]use, error) {
	parsed, err := language.ParseExpr(expression)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", where, expression, err)
	}
	for _, label := range shown {
		if !survives(parsed, label) {
			return nil, fmt.Errorf("%s: %s: the label %s is shown, and is not in the result", where, expression, label)
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
		return nil, fmt.Errorf("%s: %s: it uses no metric", where, expression)
	}
	return uses, nil
}

// collect calls found for each selector, with the labels that are wanted of it.
func collect(node parser.Node, wanted []string, found func(*parser.VectorSelector, []string)) {
	switch n := node.(type) {
	case *parser.VectorSelector:
		found(n, wanted)
	case *parser.AggregateExpr:
		// Of what is above, nothing but the grouping is left below.
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
			// It makes the label, if it is there to begin with or not.
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
		case parser.TOPK, parser.BOTTOMK: // leave labels alone
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
