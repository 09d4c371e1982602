// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// selectorOf implements Kind.Selector.
func (l *layout) selectorOf(o Object) *metav1.LabelSelector {
	c := o.(*custom)
	var selector *metav1.LabelSelector
	if l.selector.IsZero() {
		selector = &metav1.LabelSelector{MatchLabels: make(map[string]string, len(l.labels))}
		for key, value := range l.labels {
			selector.MatchLabels[key] = strings.ReplaceAll(value, nameVariable, c.Name)
		}
	} else {
		selector = selectorFrom(l.selector.get(c.values))
	}
	if selector == nil || len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		return nil // selects nothing; an empty one would select every pod
	}
	if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
		return nil // no pod has such labels: the name of the object may be too long for one
	}
	return selector
}

// selectorFrom reads a label selector, a map of labels or a text; nil: it is none of them.
func selectorFrom(value any) *metav1.LabelSelector {
	switch v := value.(type) {
	case string:
		selector, err := metav1.ParseToLabelSelector(v)
		if err != nil {
			return nil
		}
		return selector
	case map[string]any:
		_, labels := v["matchLabels"].(map[string]any)
		_, expressions := v["matchExpressions"].([]any)
		if !labels && !expressions {
			return &metav1.LabelSelector{MatchLabels: textsOf(v)}
		}
		out := &metav1.LabelSelector{}
		if m, ok := v["matchLabels"].(map[string]any); ok {
			out.MatchLabels = textsOf(m)
		}
		all, _ := v["matchExpressions"].([]any)
		for _, e := range all {
			expression, _ := e.(map[string]any)
			key, _ := expression["key"].(string)
			operator, _ := expression["operator"].(string)
			requirement := metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOperator(operator)}
			values, _ := expression["values"].([]any)
			for _, value := range values {
				text, _ := value.(string)
				requirement.Values = append(requirement.Values, text)
			}
			out.MatchExpressions = append(out.MatchExpressions, requirement)
		}
		return out
	default:
		return nil
	}
}

func textsOf(m map[string]any) map[string]string {
	out := make(map[string]string, len(m))
	for key, value := range m {
		out[key] = textFrom(value)
	}
	return out
}

// textFrom returns a value as a text: labels of custom resources without a schema may be numbers.
func textFrom(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case bool, int64, float64:
		return fmt.Sprint(v)
	default:
		return ""
	}
}

// revisionOf returns the label of the pods that have the current template; empty: it is not known.
func (l *layout) revisionOf(o Object) string {
	c := o.(*custom)
	if l.revision.IsZero() || !l.isObserved(c) {
		return ""
	}
	return textFrom(l.revision.get(c.values))
}
