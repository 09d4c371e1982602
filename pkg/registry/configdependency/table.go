// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/registry/view"
	"github.com/configdep/configdep/pkg/render"
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
	Own: func(field string) bool {
		return field == v1alpha1.FieldName || field == v1alpha1.FieldNamespace || field == v1alpha1.FieldWorkloadKind || field == v1alpha1.FieldWorkloadName
	},
}

var columns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: "The kind and the name of the workload."},
	{Name: "State", Type: "string", Description: "Whether the pods run with the current content of their sources."},
	{Name: "Reason", Type: "string", Description: "Why the workload is in this state, in one word."},
	{Name: "Pods", Type: "string", Description: "How many of the pods run with the current content."},
	{Name: "Sources", Type: "string", Description: "How many ConfigMaps and Secrets the workload consumes."},
	{Name: "Mode", Type: "string", Description: "Which changes restart the workload automatically."},
	{Name: "Last Reload", Type: "string", Description: "How long ago configdep last restarted the workload."},
	{Name: "Age", Type: "string", Description: "How long ago the workload was created."},
	{Name: "Uses", Type: "string", Priority: 1, Description: "The names of the sources, and the patterns with their number of matches."},
	{Name: "Missing", Type: "string", Priority: 1, Description: "The missing sources and keys that pods need to start."},
	{Name: "Trigger", Type: "string", Priority: 1, Description: "What caused the last restart."},
}

func row(o *v1alpha1.ConfigDependency, now time.Time) []any {
	last, trigger := "<none>", "<none>"
	if o.Status.LastReload != nil {
		last, trigger = duration.HumanDuration(now.Sub(o.Status.LastReload.Time.Time)), o.Status.LastReload.Trigger
	}
	return []any{
		o.Name,
		string(o.Status.State),
		o.Status.Reason,
		pods(o),
		count(o),
		string(o.Spec.Reload.Mode),
		last,
		duration.HumanDuration(now.Sub(o.CreationTimestamp.Time)),
		names(o),
		missing(o),
		trigger,
	}
}

// pods returns how many of the pods run with the current content.
func pods(o *v1alpha1.ConfigDependency) string {
	if p := &o.Status.Pods; p.Total > 0 && slices.ContainsFunc(o.Spec.Sources, counts) {
		return fmt.Sprintf("%d/%d", p.Current, p.Total)
	}
	return "-"
}

// counts reports whether it matters with which content of a source the pods run.
func counts(s v1alpha1.Source) bool {
	switch s.Reason {
	case policy.ReasonIgnored, policy.ReasonExcluded, policy.ReasonNotObserved, policy.ReasonNotRead, policy.ReasonNotMounted, policy.ReasonLiveVolume, render.ReasonByAgent:
		return false
	default:
		return true
	}
}

// count renders "2 ConfigMaps, 1 Secret".
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

// maxCell is the length of a cell, in bytes, after which further names are only counted: each row has all cells, also those that are
// shown only on request.
const maxCell = 512

func orNone(parts []string) string {
	if len(parts) == 0 {
		return "<none>"
	}
	for i, n := 0, 0; i < len(parts); i++ {
		if n += len(parts[i]); n > maxCell && i > 0 {
			parts = append(parts[:i:i], fmt.Sprintf("%d more", len(parts)-i))
		}
	}
	return strings.Join(parts, ", ")
}
