// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ConvertToTable implements rest.TableConvertor: what kubectl get prints. It keeps no state: in a watch it is
// called once for each event.
func (r *REST[K, O, P]) ConvertToTable(_ context.Context, object, options runtime.Object) (*metav1.Table, error) {
	table := &metav1.Table{}
	if o, ok := options.(*metav1.TableOptions); !ok || !o.NoHeaders {
		table.ColumnDefinitions = r.resource.Columns
	}
	now := time.Now()
	add := func(o runtime.Object) error {
		p, ok := o.(P)
		if !ok {
			return fmt.Errorf("no table for a %T", o)
		}
		table.Rows = append(table.Rows, metav1.TableRow{Cells: r.resource.Row(p, now), Object: runtime.RawExtension{Object: o}})
		return nil
	}
	if !meta.IsListType(object) {
		if err := add(object); err != nil {
			return nil, err
		}
		table.ResourceVersion = object.(P).GetResourceVersion()
		return table, nil
	}
	list, err := meta.ListAccessor(object)
	if err != nil {
		return nil, fmt.Errorf("no table for a %T: %w", object, err)
	}
	table.ListMeta = metav1.ListMeta{ResourceVersion: list.GetResourceVersion(), Continue: list.GetContinue(), RemainingItemCount: list.GetRemainingItemCount()}
	table.Rows = make([]metav1.TableRow, 0, meta.LenList(object))
	return table, meta.EachListItem(object, add)
}
