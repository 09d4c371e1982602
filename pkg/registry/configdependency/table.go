// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

// tableConvertor renders what kubectl get prints. It keeps no state: in a watch it is
// called once for each event.
type tableConvertor struct{}

var columns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: "The kind and the name of the workload."},
	{Name: "State", Type: "string", Description: "Whether the pods run with the current content of their sources."},
	{Name: "Sources", Type: "string", Description: "How many ConfigMaps and Secrets the workload consumes, and how many more its patterns match."},
	{Name: "Mode", Type: "string", Description: "Which changes restart the workload by themselves."},
	{Name: "Last Reload", Type: "string", Description: "How long ago configdep last restarted the workload."},
	{Name: "Age", Type: "string", Description: "How long ago the workload was created."},
	{Name: "Uses", Type: "string", Priority: 1, Description: "The names of the sources, and the patterns with how many they match."},
	{Name: "Missing", Type: "string", Priority: 1, Description: "What pods need to start and is missing."},
	{Name: "Hash", Type: "string", Priority: 1, Description: "The hash of the content that the pods should run with."},
}

// ConvertToTable implements rest.TableConvertor.
func (tableConvertor) ConvertToTable(_ context.Context, object, options runtime.Object) (*metav1.Table, error) {
	table := &metav1.Table{}
	if o, ok := options.(*metav1.TableOptions); !ok || !o.NoHeaders {
		table.ColumnDefinitions = columns
	}
	now := time.Now()
	switch o := object.(type) {
	case *v1alpha1.ConfigDependency:
		table.ResourceVersion = o.ResourceVersion
		table.Rows = []metav1.TableRow{row(o, now)}
	case *v1alpha1.ConfigDependencyList:
		table.ListMeta = o.ListMeta
		table.Rows = make([]metav1.TableRow, len(o.Items))
		for i := range o.Items {
			table.Rows[i] = row(&o.Items[i], now)
		}
	default:
		return nil, fmt.Errorf("no table for a %T", object)
	}
	return table, nil
}

func row(o *v1alpha1.ConfigDependency, now time.Time) metav1.TableRow {
	last := "<none>"
	if o.Status.LastReload != nil {
		last = duration.HumanDuration(now.Sub(o.Status.LastReload.Time.Time))
	}
	return metav1.TableRow{
		Cells: []any{
			o.Name,
			string(o.Status.State),
			count(o),
			string(o.Spec.Reload.Mode),
			last,
			duration.HumanDuration(now.Sub(o.CreationTimestamp.Time)),
			names(o),
			missing(o),
			o.Status.ConfigHash,
		},
		Object: runtime.RawExtension{Object: o},
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

// missing renders the sources and keys without which new pods do not start.
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
