// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"

	"github.com/configdep/configdep/pkg/dependency"
)

// Dialect reads the annotations of one tool: configdep's, or those of another tool, whose users then need not change
// their manifests. A dialect is one file, and one line in dialects. Its methods get the annotations of all dialects,
// and may be called with nil maps.
type Dialect interface {
	// Owns reports whether annotations with a key, on workloads, pod templates, namespaces, ConfigMaps or Secrets,
	// belong to the dialect. Annotations of no dialect are dropped when objects are read.
	Owns(key string) bool
	// Declares reports whether the annotations of a workload or a namespace say whether the workload is restarted.
	Declares(annotations map[string]string) bool
	// Policy fills in a policy, which has the defaults, from the annotations of a workload and its namespace.
	Policy(p *Policy, workload, namespace map[string]string, defaults *Defaults)
	// Scope returns the keys of the annotations that say which sources count.
	Scope() []string
	// Own returns what the annotations of a workload say about whether it is restarted; empty:
	// nothing.
	Own(annotations map[string]string) string
	// Namespace returns the annotations of a namespace that belong to the dialect, including those that labels stand
	// for.
	Namespace(annotations, labels map[string]string) map[string]string
	// Source returns what the annotations of a ConfigMap or Secret say.
	Source(annotations map[string]string) dependency.SourceMarks
}

// dialects are all dialects. If several declare a mode on the same object, the first
// counts.
var dialects = []Dialect{native{}}

// dialectOf returns the dialect in which restarts of a workload are declared: on itself, else on its namespace, else the first.
func dialectOf(workload, namespace map[string]string) Dialect {
	for _, annotations := range []map[string]string{workload, namespace} {
		for _, d := range dialects {
			if d.Declares(annotations) {
				return d
			}
		}
	}
	return dialects[0]
}

// Owns reports whether annotations with a key belong to a dialect, and so are kept when objects are
// read.
func Owns(key string) bool {
	return slices.ContainsFunc(dialects, func(d Dialect) bool { return d.Owns(key) })
}

// ReadWorkload returns the part of a workload that is kept.
func ReadWorkload(o *dependency.Object) *dependency.Workload {
	return dependency.NewWorkload(o, readAnnotations(o.Meta.Annotations, o.Template.Annotations))
}

// readAnnotations returns the annotations of a workload and of its pod template that are kept.
func readAnnotations(object, template map[string]string) dependency.Annotations {
	out := dependency.Annotations{Marks: MarksOf(object)}
	out.Marks.TemplateHash, out.Marks.ReloadedAt = template[ConfigHashAnnotation], template[ReloadedAtAnnotation]
	for key, value := range object {
		if !Owns(key) || slices.Contains(workloadMarks, key) {
			continue
		}
		if out.Settings == nil {
			out.Settings = map[string]string{}
		}
		out.Settings[key] = keep(value)
	}
	return out
}

// ReadNamespace returns the annotations and labels of a namespace that are kept: the defaults for the workloads in it.
func ReadNamespace(annotations, labels map[string]string) map[string]string {
	var out map[string]string
	for _, d := range dialects {
		for key, value := range d.Namespace(annotations, labels) {
			if out == nil {
				out = map[string]string{}
			}
			out[key] = keep(value)
		}
	}
	return out
}

// ReadSource returns what the annotations of a ConfigMap or Secret say in any dialect.
func ReadSource(annotations map[string]string) (marks dependency.SourceMarks) {
	for _, d := range dialects {
		said := d.Source(annotations)
		marks.Ignored, marks.Match = marks.Ignored || said.Ignored, marks.Match || said.Match
	}
	return marks
}
