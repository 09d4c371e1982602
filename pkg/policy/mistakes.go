// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/configdep/configdep/pkg/record"
)

// Annotations of configdep that have no effect where they are, although their users expect one.

// settings are the annotations that users set on workloads and, but for the last, on namespaces.
var settings = []string{
	ReloadAnnotation, SourcesAnnotation, ExcludeAnnotation, KindsAnnotation, LiveVolumesAnnotation, SettleAnnotation, MinIntervalAnnotation, StrategyAnnotation,
	WindowsAnnotation, HoldAnnotation, OrderAnnotation, HealthyWithinAnnotation, ApprovalAnnotation, FieldsAnnotation,
}

// onSources are the annotations that users set on ConfigMaps and Secrets.
var onSources = []string{IgnoreAnnotation, MatchAnnotation, AllowFieldsAnnotation}

func isSetting(key string) bool { return slices.Contains(settings, key) }

// declareMistakes adds a problem for the first annotation of each place that does not belong there, or whose name does not exist.
func (d *Declaration) declareMistakes() {
	first := func(annotations map[string]string, wrong func(key string) bool) (first string) {
		for key := range annotations {
			if (first == "" || key < first) && strings.HasPrefix(key, record.Prefix) && wrong(key) {
				first = key
			}
		}
		return first
	}
	problems := &d.policy.Problems
	if key := first(d.Workload, func(key string) bool { return !isSetting(key) && !record.IsOfWorkload(key) }); key != "" {
		*problems = append(*problems, unknownAnnotation(key, "", settings))
	}
	if key := first(d.Namespace, func(key string) bool { return !isSetting(key) || key == FieldsAnnotation }); key != "" {
		*problems = append(*problems, unknownAnnotation(key, " on the Namespace", settings[:len(settings)-1]))
	}
	if key := first(d.Template, func(key string) bool { _, there := d.Workload[key]; return isSetting(key) && !there }); key != "" { // a Pod is its own template
		*problems = append(*problems, fmt.Sprintf("annotation %s has no effect on the pod template: it must be on the workload itself", key))
	}
	if key := first(d.Labels, isSetting); key != "" {
		*problems = append(*problems, fmt.Sprintf("label %s has no effect: it must be an annotation", key))
	}
}

// declareIdle tells of the first setting of a workload that nothing opts in. Sources are a problem, because their user means to opt it in; a platform may
// set the others on all workloads.
func (d *Declaration) declareIdle() {
	p := d.policy
	if p.Mode != Off || len(p.Problems) > 0 {
		return
	}
	p.Remarks = nil // what lists name does not matter then
	if p.DeclaredBy != DeclaredByDefault {
		return
	}
	for _, key := range settings {
		if _, found := d.Workload[key]; found && key != FieldsAnnotation {
			tell := &p.Remarks
			if key == SourcesAnnotation {
				tell, p.Idle = &p.Problems, true
			}
			*tell = append(*tell, fmt.Sprintf("annotation %s has no effect without %s", key, ReloadAnnotation))
			return
		}
	}
}

// labelled reports whether something that should be an annotation is a label.
func (a *Annotated) labelled() bool {
	for key := range a.Labels {
		if strings.HasPrefix(key, record.Prefix) && isSetting(key) {
			return true
		}
	}
	return false
}

func unknownAnnotation(key, on string, allowed []string) string {
	problem := fmt.Sprintf("unknown annotation %s%s", abbreviate(key), on)
	switch near := nearest(key, allowed); {
	case slices.Contains(onSources, key):
		return problem + ": it belongs on ConfigMaps and Secrets"
	case near != "":
		return problem + " (did you mean " + near + "?)"
	default:
		return problem + ": must be one of " + strings.Join(allowed, ", ")
	}
}

// nearest returns the value that text is most similar to; empty: it is similar to none.
func nearest[T ~string](text string, values []T) (near T) {
	const most = 2 // letters to be inserted, removed or replaced, which must not be most of them: on is not meant to be off
	best := most + 1
	for _, value := range values {
		if len(text) > len(value)+most {
			continue
		}
		if n := distance(strings.ToLower(text), string(value)); n < best && 2*n <= len(text) {
			best, near = n, value
		}
	}
	return near
}

// distance returns how many bytes have to be inserted, removed or replaced to turn one text into another.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
