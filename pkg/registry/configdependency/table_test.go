// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

// printed is what kubectl get shows of a table.
func printed(table *metav1.Table, wide bool) []byte {
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 3, ' ', tabwriter.TabIndent)
	shown := func(i int) bool { return wide || columns[i].Priority == 0 }
	line := func(cells []any) {
		for i, cell := range cells {
			if shown(i) {
				fmt.Fprintf(w, "%v\t", cell)
			}
		}
		fmt.Fprintln(w)
	}
	var header []any
	for _, c := range table.ColumnDefinitions {
		header = append(header, c.Name)
	}
	line(header)
	for _, row := range table.Rows {
		line(row.Cells)
	}
	w.Flush()
	return out.Bytes()
}

// rendered returns a view of each of the workloads in testdata/render, 30 hours old, of
// which those that were reloaded were so 3 days ago.
func rendered(t *testing.T) *v1alpha1.ConfigDependencyList {
	t.Helper()
	list := &v1alpha1.ConfigDependencyList{ListMeta: metav1.ListMeta{ResourceVersion: "100", Continue: "token", RemainingItemCount: new(int64(7))}}
	now := time.Now()
	for _, file := range []string{"everything", "all-present", "no-sources-and-an-invalid-annotation", "patterns"} {
		for _, view := range renderFile(t, "testdata/render/"+file+".yaml", 99) {
			view.CreationTimestamp = metav1.NewTime(now.Add(-30 * time.Hour))
			if last := view.Status.LastReload; last != nil {
				last.Time = metav1.NewTime(now.Add(-3 * 24 * time.Hour))
			}
			list.Items = append(list.Items, *view)
		}
	}
	return list
}

func convert(t *testing.T, object, options runtime.Object) *metav1.Table {
	t.Helper()
	table, err := NewREST(nil, nil).ConvertToTable(t.Context(), object, options)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestTableOfAList(t *testing.T) {
	list := rendered(t)
	table := convert(t, list, &metav1.TableOptions{})
	golden(t, "table.txt", printed(table, false))
	golden(t, "table-wide.txt", printed(table, true))
	if diff := cmp.Diff(list.ListMeta, table.ListMeta); diff != "" {
		t.Errorf("kubectl cannot go on to the next page (-want +got):\n%s", diff)
	}
	for i, row := range table.Rows {
		if len(row.Cells) != len(columns) {
			t.Errorf("row %d has %d cells, there are %d columns", i, len(row.Cells), len(columns))
		}
		// The generic API server puts the metadata, or all, of it into the answer: kubectl
		// needs the names and labels for -A and -L.
		if got, ok := row.Object.Object.(*v1alpha1.ConfigDependency); !ok || got.Name != list.Items[i].Name {
			t.Errorf("row %d stands for %v", i, row.Object.Object)
		}
	}
}

// Each row has all cells, and a workload may name hundreds of sources.
func TestTable_CellsAreBounded(t *testing.T) {
	o := &v1alpha1.ConfigDependency{}
	for i := range 500 {
		name := fmt.Sprintf("%s-%03d", strings.Repeat("s", 96), i)
		o.Spec.Sources = append(o.Spec.Sources, v1alpha1.Source{Kind: v1alpha1.SourceSecret, Name: name})
		o.Status.Sources = append(o.Status.Sources, v1alpha1.SourceStatus{Kind: v1alpha1.SourceSecret, Name: name, Present: new(false)})
	}
	cells := convert(t, o, &metav1.TableOptions{}).Rows[0].Cells
	for _, i := range []int{8, 9} { // Uses and Missing
		if got := cells[i].(string); len(got) > maxCell+32 || !strings.HasSuffix(got, "-003, 496 more") {
			t.Errorf("%s = %s", columns[i].Name, got)
		}
	}
}

func TestTableOfOneObject(t *testing.T) {
	one := &rendered(t).Items[0]
	table := convert(t, one, &metav1.TableOptions{})
	if len(table.Rows) != 1 || table.Rows[0].Object.Object != one {
		t.Fatalf("rows %v", table.Rows)
	}
	if table.ResourceVersion != one.ResourceVersion {
		t.Errorf("version %q, so kubectl get -w would not know from where to watch", table.ResourceVersion)
	}
}

func TestTableHeaders(t *testing.T) {
	empty := &v1alpha1.ConfigDependencyList{}
	tests := map[string]struct {
		options runtime.Object
		want    int
	}{
		"of a list without items": {&metav1.TableOptions{}, len(columns)},
		"without options":         {nil, len(columns)},
		"that are not wanted":     {&metav1.TableOptions{NoHeaders: true}, 0},
	}
	for name, tt := range tests {
		if table := convert(t, empty, tt.options); len(table.ColumnDefinitions) != tt.want || len(table.Rows) != 0 || table.Rows == nil {
			t.Errorf("%s: %d columns, rows %v", name, len(table.ColumnDefinitions), table.Rows)
		}
	}
	for _, c := range columns {
		if c.Name == "" || c.Type == "" || c.Description == "" {
			t.Errorf("column %+v is not described", c)
		}
	}
}

func TestNoTableOfAnythingElse(t *testing.T) {
	if table, err := NewREST(nil, nil).ConvertToTable(t.Context(), &v1alpha1.Reload{}, nil); err == nil {
		t.Errorf("got %v", table)
	}
}
