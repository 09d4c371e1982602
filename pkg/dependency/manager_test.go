// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"slices"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The field manager that wrote the content is stored as a number that stands for its name.
func TestWhoChangedContentAndTemplate(t *testing.T) {
	entry := func(minute int, manager, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Time: new(at(minute)), FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const data, template = `{"f:data":{}}`, `{"f:spec":{"f:template":{}}}`
	by := func(entries ...metav1.ManagedFieldsEntry) FieldManager {
		_, manager := contentChanged(&metav1.ObjectMeta{CreationTimestamp: at(0), ManagedFields: entries})
		return manager
	}
	templateBy := func(entries ...metav1.ManagedFieldsEntry) []FieldManager {
		o := &appsv1.DaemonSet{ObjectMeta: workloadMeta()}
		o.ManagedFields = entries
		return readDaemonSet(o).TemplateBy
	}
	helm, flux := by(entry(0, "helm", data)), by(entry(5, "flux", data))
	if helm == 0 || flux == 0 || helm == flux {
		t.Fatalf("helm %d, flux %d", helm, flux)
	}
	if got := by(); got != 0 {
		t.Errorf("without managed fields: manager %d, want 0", got)
	}
	if got := by(entry(5, "flux", data), entry(7, "helm", data), entry(6, "flux", data), entry(8, "flux", template)); got != helm {
		t.Errorf("latest of several: manager %d, want %d", got, helm)
	}
	if got := by(entry(7, "helm", data), entry(7, "flux", data)); got != flux {
		t.Errorf("last of two in one second: manager %d, want %d", got, flux)
	}
	got := templateBy(entry(5, "flux", template), entry(6, "kubectl", `{"f:spec":{"f:replicas":{}}}`), entry(7, "helm", template), entry(8, "flux", template))
	if !slices.Equal(got, []FieldManager{flux, helm}) {
		t.Errorf("managers of the template = %d, want %d", got, []FieldManager{flux, helm})
	}
	var many []metav1.ManagedFieldsEntry
	for i := range 1000 {
		many = append(many, entry(5, strconv.Itoa(i), template))
	}
	if got := templateBy(many...); len(got) != maxManagers {
		t.Errorf("%d of %d managers kept, want %d", len(got), len(many), maxManagers)
	}
}

// The time of the last write of a client is known for each namespace, for content and templates.
func TestLastWriteBy(t *testing.T) {
	g := NewGraph()
	start := time.Unix(1000, 0)
	managed := func(manager, fields string) []metav1.ManagedFieldsEntry {
		return []metav1.ManagedFieldsEntry{{Manager: manager, Time: new(at(5)), FieldsV1: metav1.NewFieldsV1(fields)}}
	}
	version := 0
	configMap := func(namespace, manager, value string, seen time.Time) FieldManager {
		version++
		s := read(testDigester(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "settings", UID: "u", ResourceVersion: strconv.Itoa(version), CreationTimestamp: at(0),
			ManagedFields: managed(manager, `{"f:data":{}}`),
		}, Data: map[string]string{"a": value}})
		s.Remember(g.Source(s.SourceKey), g, Arrival{Live: !seen.IsZero(), Seen: seen})
		g.SetSource(s)
		return s.ChangedBy
	}
	daemonSet := func(manager, image string, seen time.Time) {
		version++
		o := &appsv1.DaemonSet{ObjectMeta: workloadMeta()}
		o.ResourceVersion, o.ManagedFields = strconv.Itoa(version), managed(manager, `{"f:spec":{"f:template":{}}}`)
		o.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Image: image}}
		w := readDaemonSet(o)
		w.After(g.Workload(w.WorkloadKey), Arrival{Live: !seen.IsZero(), Seen: seen})
		g.SetWorkload(w, Patterns{})
	}
	namespace := workloadMeta().Namespace
	helm := configMap(namespace, "helm", "1", time.Time{})
	expect := func(what string, namespace string, want time.Time) {
		t.Helper()
		if got := g.LastWriteBy(namespace, helm); !got.Equal(want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	expect("first list", namespace, time.Time{})
	configMap(namespace, "helm", "2", start)
	expect("changed content", namespace, start)
	configMap(namespace, "helm", "2", start.Add(time.Second))
	expect("unchanged content", namespace, start)
	configMap(namespace, "flux", "3", start.Add(2*time.Second))
	expect("content that another manager changed", namespace, start)
	configMap("elsewhere", "helm", "1", start.Add(3*time.Second))
	expect("content in another namespace", namespace, start)
	expect("the other namespace", "elsewhere", start.Add(3*time.Second))
	daemonSet("helm", "app:1", start.Add(4*time.Second))
	expect("new template", namespace, start.Add(4*time.Second))
	daemonSet("helm", "app:1", start.Add(5*time.Second))
	expect("unchanged template", namespace, start.Add(4*time.Second))
	daemonSet("helm", "app:2", start.Add(6*time.Second))
	expect("changed template", namespace, start.Add(6*time.Second))
	configMap(namespace, "helm", "3", start.Add(7*time.Second))
	expect("unchanged content after a change by another manager", namespace, start.Add(6*time.Second))
	g.SetSource(&Source{SourceKey: SourceKey{ConfigMap, namespace, "unmanaged"}, before: start})
	if at := g.LastWriteBy(namespace, 0); !at.IsZero() {
		t.Errorf("last write of an unknown manager = %v, want none", at)
	}
	for i := range maxWriterNamespaces + 1 {
		configMap("of-"+strconv.Itoa(i), "helm", "1", start)
	}
	if n := g.writers.Len(); n != maxWriterNamespaces {
		t.Errorf("writers of %d namespaces kept, want %d", n, maxWriterNamespaces)
	}
}

// A client that writes with many names does not displace the writers of other namespaces.
func TestLastWriteBy_IsBounded(t *testing.T) {
	g := NewGraph()
	start := time.Unix(1000, 0)
	g.noteWrite("shop", 1, start)
	for i := range 10 * maxWriters {
		g.noteWrite("busy", FieldManager(i+1), start)
	}
	if got := g.LastWriteBy("shop", 1); !got.Equal(start) {
		t.Errorf("last write = %v, want it kept", got)
	}
	if n := g.writersOf("busy").Len(); n != maxWriters {
		t.Errorf("%d writers kept, want %d", n, maxWriters)
	}
	if got := g.LastWriteBy("busy", FieldManager(10*maxWriters)); !got.Equal(start) {
		t.Errorf("last write of the last of many writers = %v, want it kept", got)
	}
	if got := g.LastWriteBy("other", 1); !got.IsZero() {
		t.Errorf("last write in another namespace = %v, want none", got)
	}
}
