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

// Who writes the content is known by a number that stands for the name.
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
		t.Errorf("nothing is noted: %d", got)
	}
	if got := by(entry(5, "flux", data), entry(7, "helm", data), entry(6, "flux", data), entry(8, "flux", template)); got != helm {
		t.Errorf("the last of several: %d, want %d", got, helm)
	}
	if got := by(entry(7, "helm", data), entry(7, "flux", data)); got != flux {
		t.Errorf("the last in the list, of two in one second: %d, want %d", got, flux)
	}
	got := templateBy(entry(5, "flux", template), entry(6, "kubectl", `{"f:spec":{"f:replicas":{}}}`), entry(7, "helm", template), entry(8, "flux", template))
	if !slices.Equal(got, []FieldManager{flux, helm}) {
		t.Errorf("the template is by %d, want %d", got, []FieldManager{flux, helm})
	}
	var many []metav1.ManagedFieldsEntry
	for i := range 1000 {
		many = append(many, entry(5, strconv.Itoa(i), template))
	}
	if got := templateBy(many...); len(got) != maxManagers {
		t.Errorf("%d of %d managers are kept, want %d", len(got), len(many), maxManagers)
	}
}

// When a client last changed something is known for each namespace, of content and templates.
func TestLastWriteBy(t *testing.T) {
	g := NewGraph()
	start := time.Unix(1000, 0)
	managed := func(manager, fields string) []metav1.ManagedFieldsEntry {
		return []metav1.ManagedFieldsEntry{{Manager: manager, Time: new(at(5)), FieldsV1: metav1.NewFieldsV1(fields)}}
	}
	version := 0
	configMap := func(namespace, manager, value string, seen time.Time) FieldManager {
		version++
		s := FromConfigMap(testDigester(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "settings", UID: "u", ResourceVersion: strconv.Itoa(version), CreationTimestamp: at(0),
			ManagedFields: managed(manager, `{"f:data":{}}`),
		}, Data: map[string]string{"a": value}}, SourceMarks{})
		s.After(g.Source(s.SourceKey), nil, Arrival{Live: !seen.IsZero(), Seen: seen, Order: uint64(version)})
		g.SetSource(s)
		return s.ChangedBy
	}
	daemonSet := func(manager, image string, seen time.Time) {
		version++
		o := &appsv1.DaemonSet{ObjectMeta: workloadMeta()}
		o.ResourceVersion, o.ManagedFields = strconv.Itoa(version), managed(manager, `{"f:spec":{"f:template":{}}}`)
		o.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Image: image}}
		w := readDaemonSet(o)
		w.After(g.Workload(w.WorkloadKey), Arrival{Live: !seen.IsZero(), Seen: seen, Order: uint64(version)})
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
	expect("the first list says nothing", namespace, time.Time{})
	configMap(namespace, "helm", "2", start)
	expect("content", namespace, start)
	configMap(namespace, "helm", "2", start.Add(time.Second))
	expect("the same content", namespace, start)
	configMap(namespace, "flux", "3", start.Add(2*time.Second))
	expect("of another manager", namespace, start)
	configMap("elsewhere", "helm", "1", start.Add(3*time.Second))
	expect("elsewhere", namespace, start)
	expect("there", "elsewhere", start.Add(3*time.Second))
	daemonSet("helm", "app:1", start.Add(4*time.Second))
	expect("a template", namespace, start.Add(4*time.Second))
	daemonSet("helm", "app:1", start.Add(5*time.Second))
	expect("the same template", namespace, start.Add(4*time.Second))
	daemonSet("helm", "app:2", start.Add(6*time.Second))
	expect("another template", namespace, start.Add(6*time.Second))
	configMap(namespace, "helm", "3", start.Add(7*time.Second))
	expect("content that changed before", namespace, start.Add(6*time.Second))
	g.SetSource(&Source{SourceKey: SourceKey{ConfigMap, namespace, "unmanaged"}, Change: Change{Seen: start}})
	if at := g.LastWriteBy(namespace, 0); !at.IsZero() {
		t.Errorf("of no known manager: %v", at)
	}
	for i := range maxWriterNamespaces + 1 {
		configMap("of-"+strconv.Itoa(i), "helm", "1", start)
	}
	if n := g.writers.Len(); n != maxWriterNamespaces {
		t.Errorf("writers of %d namespaces are remembered, want %d", n, maxWriterNamespaces)
	}
}

// Who writes under many names has nothing forgotten of other namespaces.
func TestLastWriteBy_IsBounded(t *testing.T) {
	g := NewGraph()
	start := time.Unix(1000, 0)
	g.noteWrite("shop", 1, start)
	for i := range 10 * maxWriters {
		g.noteWrite("busy", FieldManager(i+1), start)
	}
	if got := g.LastWriteBy("shop", 1); !got.Equal(start) {
		t.Errorf("the write is forgotten: %v", got)
	}
	if n := g.writersOf("busy").Len(); n != maxWriters {
		t.Errorf("%d are remembered, want %d", n, maxWriters)
	}
	if got := g.LastWriteBy("busy", FieldManager(10*maxWriters)); !got.Equal(start) {
		t.Errorf("the last of many is forgotten: %v", got)
	}
	if got := g.LastWriteBy("other", 1); !got.IsZero() {
		t.Errorf("in another namespace: %v", got)
	}
}
