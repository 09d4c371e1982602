// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"

	"github.com/configdep/configdep/pkg/dependency"
)

// Dialect is how the annotations of one tool are read: those of configdep, or of another tool, whose users need not change
// their manifests. A dialect is one file, and one line in dialects. Its methods get annotations that any dialect owns, and
// may be called with nil maps.
type Dialect interface {
	// Owns reports whether annotations with a key, of workloads, pod templates, namespaces, ConfigMaps or Secrets, are
	// of the dialect. Those of no dialect are dropped where objects are read.
	Owns(key string) bool
	// Declares reports whether the annotations of a workload or a namespace say whether the workload is restarted.
	Declares(annotations map[string]string) bool
	// Policy completes a policy, which holds the defaults, by the annotations of a workload and its namespace.
	Policy(p *Policy, workload, namespace map[string]string, defaults *Defaults)
	// Scope returns the keys of the annotations that say which sources count.
	Scope() []string
	// Own returns what the annotations of a workload say of whether it is restarted; empty: nothing.
	Own(annotations map[string]string) string
	// Namespace returns the annotations of a namespace that are of the dialect, with what labels say instead of one.
	Namespace(annotations, labels map[string]string) map[string]string
	// Source returns what the annotations of a ConfigMap or Secret say.
	Source(annotations map[string]string) dependency.SourceMarks
}

// dialects are all of them. If several declare on the same object, the first counts.
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

// Owns reports whether annotations with a key are kept of objects that are read: those of a dialect.
func Owns(key string) bool {
	return slices.ContainsFunc(dialects, func(d Dialect) bool { return d.Owns(key) })
}

// ReadWorkload returns what is kept of a workload.
func ReadWorkload(o *dependency.Object) *dependency.Workload {
	return dependency.NewWorkload(o, readAnnotations(o.Meta.Annotations, o.Template.Annotations))
}

// readAnnotations returns what is kept of the annotations of a workload and of its pod template.
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
		out.Settings[key] = value
	}
	return out
}

// ReadNamespace returns what is kept of the annotations and the labels of a namespace: the defaults for the workloads in it.
func ReadNamespace(annotations, labels map[string]string) map[string]string {
	var out map[string]string
	for _, d := range dialects {
		for key, value := range d.Namespace(annotations, labels) {
			if out == nil {
				out = map[string]string{}
			}
			out[key] = value
		}
	}
	return out
}

// ReadSource returns what the annotations of a ConfigMap or Secret say: what any dialect reads in them.
func ReadSource(annotations map[string]string) (marks dependency.SourceMarks) {
	for _, d := range dialects {
		said := d.Source(annotations)
		marks.Ignored, marks.Match = marks.Ignored || said.Ignored, marks.Match || said.Match
	}
	return marks
}
