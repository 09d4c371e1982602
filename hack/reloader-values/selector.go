// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// selector is for label selectors, as Reloader parses them: KEY:VALUE stands for KEY=VALUE, and KEY:* and KEY=* for KEY. A
// value of the chart gets the selector as in Kubernetes objects; what that cannot express, a flag gets as it is.
func selector(target, flag string) rule {
	return typed(func(c *conversion, path, value string) {
		terms := strings.Split(value, ",")
		for i, term := range terms {
			term = strings.TrimSpace(term)
			if key, value, legacy := strings.Cut(term, ":"); legacy {
				term = key + "=" + value
			}
			if key, all := strings.CutSuffix(term, "=*"); all && !strings.HasSuffix(key, "!") {
				term = key
			}
			terms[i] = term
		}
		joined := strings.Join(terms, ",")
		requirements, err := labels.ParseToRequirements(joined)
		if err != nil {
			c.fail(path, "must be a label selector, such as env=test,team: "+err.Error())
			return
		}
		if out, possible := selectorOf(requirements); possible {
			c.set(target, out)
		} else {
			c.arg(flag, joined)
		}
	})
}

// selectorOf returns a label selector as in Kubernetes objects.
func selectorOf(requirements labels.Requirements) (out map[string]any, possible bool) {
	equal, expressions := map[string]any{}, []any{}
	operators := map[selection.Operator]string{
		selection.In: "In", selection.NotIn: "NotIn", selection.NotEquals: "NotIn", selection.Exists: "Exists", selection.DoesNotExist: "DoesNotExist",
		selection.Equals: "In", selection.DoubleEquals: "In",
	}
	for _, r := range requirements {
		operator, known := operators[r.Operator()]
		values := []any{}
		for _, v := range r.Values().List() {
			values = append(values, v)
		}
		switch {
		case !known:
			return nil, false
		case operator == "In" && len(values) == 1 && equal[r.Key()] == nil:
			equal[r.Key()] = values[0]
		case len(values) > 0:
			expressions = append(expressions, map[string]any{"key": r.Key(), "operator": operator, "values": values})
		default:
			expressions = append(expressions, map[string]any{"key": r.Key(), "operator": operator})
		}
	}
	out = map[string]any{}
	if len(equal) > 0 {
		out["matchLabels"] = equal
	}
	if len(expressions) > 0 {
		out["matchExpressions"] = expressions
	}
	return out, true
}
