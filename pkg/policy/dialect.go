// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/record"
)

// Dialect reads the annotations of one tool: configdep's, or those of another tool, whose users then need not change
// their manifests. A dialect is one file, and one line in allDialects. Its methods get the annotations of all dialects,
// and may be called with nil maps.
type Dialect interface {
	// Name identifies the dialect in --dialects.
	Name() string
	// Owns reports whether annotations with a key, on workloads, namespaces, ConfigMaps or Secrets, belong to the
	// dialect. Annotations of no dialect are dropped when objects are read. Those with Prefix belong to configdep's alone.
	Owns(key string) bool
	// OwnsOnTemplate is the same for annotations of pod templates by which users declare something.
	OwnsOnTemplate(key string) bool
	// Declare adds to a declaration what the annotations of a workload and its namespace say about whether it is
	// restarted, and by which sources.
	Declare(d *Declaration)
	// Namespace returns the annotations of a namespace that belong to the dialect.
	Namespace(annotations map[string]string) map[string]string
	// Source returns what the annotations of a ConfigMap or Secret say.
	Source(annotations map[string]string) dependency.SourceMarks
	// MarksAnnotation and MarksVariable report whether the tool writes annotations with a key, or environment variables
	// with a name and a plain value, to pod templates to restart them. The next restart removes them.
	MarksAnnotation(key string) bool
	MarksVariable(name string) bool
}

// quiet is what a dialect says that has nothing but annotations of workloads.
type quiet struct{}

// OwnsOnTemplate implements Dialect.
func (quiet) OwnsOnTemplate(string) bool { return false }

// Namespace implements Dialect.
func (quiet) Namespace(map[string]string) map[string]string { return nil }

// Source implements Dialect.
func (quiet) Source(map[string]string) dependency.SourceMarks { return dependency.SourceMarks{} }

// MarksAnnotation implements Dialect.
func (quiet) MarksAnnotation(string) bool { return false }

// MarksVariable implements Dialect.
func (quiet) MarksVariable(string) bool { return false }

// Annotated are the annotations by which users declare how a workload is restarted, those of its pod template and of
// its namespace, and its labels.
type Annotated struct {
	Workload, Template, Namespace, Labels map[string]string
	// InNamespace is the name of the namespace.
	InNamespace string
	dependency.Traits
}

// AnnotatedOf returns what a workload is annotated with.
func AnnotatedOf(w *dependency.Workload, namespace map[string]string) Annotated {
	return Annotated{w.Annotations, w.TemplateAnnotations, namespace, w.Labels, w.Namespace, w.Traits}
}

func (a *Annotated) empty() bool {
	return len(a.Workload) == 0 && len(a.Template) == 0 && len(a.Namespace) == 0
}

// set adds an annotation to one of the maps.
func set(annotations *map[string]string, key, value string) {
	if *annotations == nil {
		*annotations = map[string]string{}
	}
	(*annotations)[key] = value
}

// Dialects are those whose annotations are read. Nil: all of them, with their usual annotations.
type Dialects []Dialect

// allDialects are all dialects. Their order is that in which declaredBy names them.
var allDialects = Dialects{native{}, NewReloader(ReloaderAnnotations{}), podReloader{}, wave{}}

func (ds Dialects) orAll() Dialects {
	if ds == nil {
		return allDialects
	}
	return ds
}

// onlyNative is the dialect of configdep itself.
var onlyNative = Dialects{native{}}

// of returns the dialects that can say something about a workload. If all annotations have Prefix, that is only configdep's
// own: the others look up dozens of annotations, and must cost nothing where they are not used.
func (ds Dialects) of(a *Annotated) Dialects {
	if len(a.Template) > 0 || !allNative(a.Workload) || !allNative(a.Namespace) {
		return ds.orAll()
	}
	return onlyNative
}

func allNative(annotations map[string]string) bool {
	for key := range annotations {
		if !strings.HasPrefix(key, record.Prefix) {
			return false
		}
	}
	return true
}

// DialectNames are the names of all dialects.
func DialectNames() (names []string) {
	for _, d := range allDialects {
		names = append(names, d.Name())
	}
	return names
}

// NewDialects returns dialects by their names, and always the one of configdep itself. The annotations of Reloader can have
// other names than usual.
func NewDialects(names []string, annotations ReloaderAnnotations) (Dialects, error) {
	all := slices.Clone(allDialects)
	for i, d := range all {
		if _, is := d.(*reloader); is {
			all[i] = NewReloader(annotations)
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(all, func(d Dialect) bool { return d.Name() == name }) {
			return nil, fmt.Errorf("%q is no dialect: must be any of %s", abbreviate(name), strings.Join(DialectNames(), ", "))
		}
	}
	return slices.DeleteFunc(all, func(d Dialect) bool { return d != Dialect(native{}) && !slices.Contains(names, d.Name()) }), nil
}

// Fixed reports whether an annotation says something in any dialect, whatever the names that users have chosen.
func Fixed(key string) bool {
	return slices.ContainsFunc(allDialects, func(d Dialect) bool {
		if r, is := d.(*reloader); is {
			return r.fixed(key)
		}
		return d.Owns(key)
	})
}

// Owns reports whether annotations with a key belong to a dialect, and so are kept when objects are
// read.
func (ds Dialects) Owns(key string) bool {
	return slices.ContainsFunc(ds.orAll(), func(d Dialect) bool { return d.Owns(key) })
}

// ReadWorkload returns the part of a workload that is kept.
func (ds Dialects) ReadWorkload(o *dependency.Object) *dependency.Workload {
	annotations := ds.readAnnotations(o.Meta.Annotations, o.Template.Annotations)
	annotations.Foreign = ds.foreign(o.Template)
	nameFields(o)
	return dependency.NewWorkload(o, annotations)
}

// maxForeign limits the marks of other tools that are remembered of a pod template, and so removed at once.
const maxForeign = 256

// foreign returns the marks of other tools on a pod template; nil: there are none.
func (ds Dialects) foreign(template *corev1.PodTemplateSpec) *dependency.Foreign {
	var out dependency.Foreign
	marked := func(marks func(Dialect) bool) bool {
		return len(out.Annotations)+len(out.Variables) < maxForeign && slices.ContainsFunc(ds.orAll(), marks)
	}
	for key := range template.Annotations {
		if marked(func(d Dialect) bool { return d.MarksAnnotation(key) }) {
			out.Annotations = append(out.Annotations, key)
		}
	}
	slices.Sort(out.Annotations)
	for i := range template.Spec.Containers {
		c := &template.Spec.Containers[i]
		for j := range c.Env {
			if name := c.Env[j].Name; c.Env[j].ValueFrom == nil && marked(func(d Dialect) bool { return d.MarksVariable(name) }) {
				out.Variables = append(out.Variables, dependency.Variable{Container: c.Name, Name: name, Index: j})
			}
		}
	}
	if len(out.Annotations)+len(out.Variables) == 0 {
		return nil
	}
	return &out
}

// readAnnotations returns the annotations of a workload and of its pod template that are kept.
func (ds Dialects) readAnnotations(object, template map[string]string) dependency.Annotations {
	out := dependency.Annotations{Marks: record.MarksOf(object)}
	out.Marks.TemplateHash, out.Marks.ReloadedAt = template[record.ConfigHashAnnotation], template[record.ReloadedAtAnnotation]
	for key, value := range object {
		if ds.Owns(key) && !record.IsWorkloadMark(key) {
			set(&out.Settings, key, keep(value))
		}
	}
	for key, value := range template {
		if slices.ContainsFunc(ds.orAll(), func(d Dialect) bool { return d.OwnsOnTemplate(key) }) {
			set(&out.Template, key, keep(value))
		}
	}
	return out
}

// ReadNamespace returns the annotations of a namespace that are kept: the defaults for the workloads in it. Of a
// namespace that is not selected, nothing is kept but that (see NewPolicy).
func (ds Dialects) ReadNamespace(annotations map[string]string, selected bool) map[string]string {
	if !selected {
		return map[string]string{DeclaredBySelector: ""}
	}
	var out map[string]string
	for _, d := range ds.orAll() {
		for key, value := range d.Namespace(annotations) {
			set(&out, key, keep(value))
		}
	}
	return out
}

// ReadSource returns what the annotations of a ConfigMap or Secret say in any dialect.
func (ds Dialects) ReadSource(annotations map[string]string) (marks dependency.SourceMarks) {
	for _, d := range ds.orAll() {
		said := d.Source(annotations)
		marks.Ignored, marks.Match = marks.Ignored || said.Ignored, marks.Match || said.Match
		marks.AllowFields = cmp.Or(marks.AllowFields, said.AllowFields)
	}
	return marks
}
