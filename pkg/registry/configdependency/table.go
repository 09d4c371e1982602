// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/registry/view"
)

// resource is how the API presents ConfigDependencies.
var resource = view.Resource[v1alpha1.ConfigDependency]{
	Singular:   "configdependency",
	ShortNames: []string{"cfgdep"},
	Categories: []string{"configdep"},
	NewList: func(meta metav1.ListMeta, items []v1alpha1.ConfigDependency) runtime.Object {
		return &v1alpha1.ConfigDependencyList{ListMeta: meta, Items: items}
	},
	Columns: columns,
	Row:     row,
	Field:   fieldValues,
	Own:     func(field string) bool { return field != v1alpha1.FieldState && field != v1alpha1.FieldSource },
}

var columns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: "The kind and the name of the workload."},
	{Name: "State", Type: "string", Description: "Whether the pods run with the current content of their sources."},
	{Name: "Sources", Type: "string", Description: "How many ConfigMaps and Secrets the workload consumes, and how many more its patterns match."},
	{Name: "Mode", Type: "string", Description: "Which changes restart the workload automatically."},
	{Name: "Last Reload", Type: "string", Description: "How long ago configdep last restarted the workload."},
	{Name: "Age", Type: "string", Description: "How long ago the workload was created."},
	{Name: "Uses", Type: "string", Priority: 1, Description: "The names of the sources, and the patterns with their number of matches."},
	{Name: "Missing", Type: "string", Priority: 1, Description: "The missing sources and keys that pods need to start."},
	{Name: "Hash", Type: "string", Priority: 1, Description: "The hash of the content that the pods should run with."},
}

func row(o *v1alpha1.ConfigDependency, now time.Time) []any {
	last := "<none>"
	if o.Status.LastReload != nil {
		last = duration.HumanDuration(now.Sub(o.Status.LastReload.Time.Time))
	}
	return []any{
		o.Name,
		string(o.Status.State),
		count(o),
		string(o.Spec.Reload.Mode),
		last,
		duration.HumanDuration(now.Sub(o.CreationTimestamp.Time)),
		names(o),
		missing(o),
		o.Status.ConfigHash,
	}
}

// count renders "2 ConfigMaps, 1 Secret, 12 matched".
func count(o *v1alpha1.ConfigDependency) string {
	var parts []string
	sources := o.Spec.Sources
	for _, kind := range v1alpha1.SourceKinds {
		n := 0
		for i := range sources {
			if sources[i].Kind == kind {
				n++
			}
		}
		switch {
		case n == 1:
			parts = append(parts, "1 "+string(kind))
		case n > 1 && kind == v1alpha1.SourceSecretProviderClass:
			parts = append(parts, fmt.Sprintf("%d %ses", n, kind))
		case n > 1:
			parts = append(parts, fmt.Sprintf("%d %ss", n, kind))
		}
	}
	var matched int64
	for i := range o.Status.Patterns {
		matched += o.Status.Patterns[i].Count
	}
	if matched > 0 {
		parts = append(parts, fmt.Sprintf("%d matched", matched))
	}
	return orNone(parts)
}

// names renders "Secret/db, ConfigMap/app-* (12)".
func names(o *v1alpha1.ConfigDependency) string {
	var all []string
	for i := range o.Spec.Sources {
		all = append(all, string(o.Spec.Sources[i].Kind)+"/"+o.Spec.Sources[i].Name)
	}
	for i := range o.Status.Patterns {
		p := &o.Status.Patterns[i]
		all = append(all, fmt.Sprintf("%s/%s (%d)", p.Kind, p.Pattern, p.Count))
	}
	return orNone(all)
}

// missing renders the missing sources and keys without which new pods cannot start.
func missing(o *v1alpha1.ConfigDependency) string {
	var all []string
	for i := range o.Status.Sources {
		s, spec := &o.Status.Sources[i], &o.Spec.Sources[i]
		id := string(s.Kind) + "/" + s.Name
		if s.Present != nil && !*s.Present && !spec.Optional {
			all = append(all, id)
		}
		for _, key := range s.MissingKeys {
			all = append(all, id+":"+key)
		}
	}
	return orNone(all)
}

func orNone(parts []string) string {
	if len(parts) == 0 {
		return "<none>"
	}
	return strings.Join(parts, ", ")
}
