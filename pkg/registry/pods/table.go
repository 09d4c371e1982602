// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

// tableConvertor renders the table that kubectl get --subresource=pods prints, with a row for each pod.
type tableConvertor struct{}

var columns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: "The name of the pod."},
	{Name: "State", Type: "string", Description: "The worst state of its containers: Stale, Unknown, NotStarted or Current; or Terminating, when the pod is being deleted."},
	{Name: "Node", Type: "string", Description: "The node of the pod."},
	{Name: "Revision", Type: "string", Description: "The revision of the pod's template; (old) if it is not the current one."},
	{Name: "Started", Type: "string", Description: "How long ago the longest-running container was started."},
	{Name: "Age", Type: "string", Description: "How long ago the pod was created."},
	{Name: "Stale Sources", Type: "string", Description: "The sources that have changed since a container that reads them was started."},
	{Name: "Containers", Type: "string", Priority: 1, Description: "The state of each container, and why."},
	{Name: "Message", Type: "string", Priority: 1, Description: "Why the pod is in its state."},
}

// ConvertToTable implements rest.TableConvertor.
func (tableConvertor) ConvertToTable(_ context.Context, object, options runtime.Object) (*metav1.Table, error) {
	o, ok := object.(*v1alpha1.ConfigDependencyPods)
	if !ok {
		return nil, fmt.Errorf("no table for a %T", object)
	}
	table := &metav1.Table{Rows: make([]metav1.TableRow, len(o.Pods))}
	if given, ok := options.(*metav1.TableOptions); !ok || !given.NoHeaders {
		table.ColumnDefinitions = columns
	}
	now := time.Now()
	for i := range o.Pods {
		table.Rows[i] = row(o, i, now)
	}
	return table, nil
}

// row renders one pod. The object of the row has the pod's name, and contains only this pod.
func row(o *v1alpha1.ConfigDependencyPods, i int, now time.Time) metav1.TableRow {
	p := &o.Pods[i]
	object := *o
	object.ObjectMeta = metav1.ObjectMeta{Name: p.Name, Namespace: o.Namespace, UID: p.UID, CreationTimestamp: p.CreationTimestamp, DeletionTimestamp: p.DeletionTimestamp}
	object.Pods = o.Pods[i : i+1]
	state := string(p.State)
	if p.DeletionTimestamp != nil {
		state = "Terminating"
	}
	revision := orNone(p.TemplateRevision)
	if p.TemplateRevision != "" && o.TemplateRevision != "" && p.TemplateRevision != o.TemplateRevision {
		revision += " (old)"
	}
	cells := []any{
		p.Name,
		state,
		orNone(p.NodeName),
		revision,
		started(p, now),
		duration.HumanDuration(now.Sub(p.CreationTimestamp.Time)),
		list(p.StaleSources, p.MoreStaleSources),
		containers(p),
		p.Message,
	}
	return metav1.TableRow{Cells: cells, Object: runtime.RawExtension{Object: &object}}
}

// started renders how long ago the longest-running container was started, without init containers.
func started(p *v1alpha1.PodContent, now time.Time) string {
	var oldest *metav1.Time
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.StartedAt != nil && c.Type != v1alpha1.ContainerInit && (oldest == nil || c.StartedAt.Before(oldest)) {
			oldest = c.StartedAt
		}
	}
	if oldest == nil {
		return "<none>"
	}
	return duration.HumanDuration(now.Sub(oldest.Time))
}

// containers renders "app=Stale(StartedBefore), proxy=Current(StartedAfter)".
func containers(p *v1alpha1.PodContent) string {
	all := make([]string, len(p.Containers))
	for i := range p.Containers {
		c := &p.Containers[i]
		all[i] = fmt.Sprintf("%s=%s(%s)", c.Name, c.State, c.Reason)
	}
	return list(all, p.MoreContainers)
}

// list renders "a, b, 2 more".
func list(some []string, more int64) string {
	if more > 0 {
		some = append(slices.Clip(some), fmt.Sprintf("%d more", more))
	}
	return orNone(strings.Join(some, ", "))
}

func orNone(s string) string {
	if s == "" {
		return "<none>"
	}
	return s
}
