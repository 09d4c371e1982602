// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package values

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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
		if _, err := labels.Parse(joined); err != nil {
			c.fail(path, "must be a label selector, such as env=test,team: "+err.Error())
		} else if parsed, err := metav1.ParseToLabelSelector(joined); err == nil {
			c.set(target, parsed)
		} else {
			c.arg(flag, joined)
		}
	})
}
