// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/render"
)

// tableConvertor renders the table that kubectl get --subresource=plan prints, with a row for each restart.
type tableConvertor struct{}

var columns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: "The name of the ConfigDependency."},
	{Name: "Position", Type: "string", Description: "The place of the restart among all that are planned in the cluster."},
	{Name: "Starts", Type: "string", Description: "In about how long the restart begins, or that it has."},
	{Name: "Takes", Type: "string", Description: "About how long it takes."},
	{Name: "State", Type: "string", Description: "The state of the workload, now or when the restart becomes due."},
	{Name: "Reason", Type: "string", Description: "Why it is in this state."},
	{Name: "Message", Type: "string", Priority: 1, Description: "What the restart waits for."},
}

// ConvertToTable implements rest.TableConvertor.
func (tableConvertor) ConvertToTable(_ context.Context, object, options runtime.Object) (*metav1.Table, error) {
	o, ok := object.(*v1alpha1.ConfigDependencyPlan)
	if !ok {
		return nil, fmt.Errorf("no table for a %T", object)
	}
	table := &metav1.Table{Rows: make([]metav1.TableRow, len(o.Restarts))}
	if given, ok := options.(*metav1.TableOptions); !ok || !given.NoHeaders {
		table.ColumnDefinitions = columns
	}
	for i := range o.Restarts {
		r := &o.Restarts[i]
		one := *o
		one.ObjectMeta = metav1.ObjectMeta{Name: r.Name, Namespace: o.Namespace}
		one.Restarts = o.Restarts[i : i+1]
		position := "<none>"
		if r.Position > 0 {
			position = fmt.Sprint(r.Position)
		}
		table.Rows[i] = metav1.TableRow{Cells: []any{r.Name, position, render.Starts(r, o.Time.Time), render.Takes(r), string(r.State), r.Reason, r.Message}, Object: runtime.RawExtension{Object: &one}}
	}
	return table, nil
}
