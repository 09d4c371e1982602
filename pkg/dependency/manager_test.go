// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The field manager that wrote the content, and those of the template, are known.
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
	if helm != "helm" || flux != "flux" {
		t.Fatalf("helm %q, flux %q", helm, flux)
	}
	if got := by(); got != "" {
		t.Errorf("without managed fields: manager %q, want none", got)
	}
	if got := by(entry(0, strings.Repeat("x", 1000), data)); len(got) != maxManager {
		t.Errorf("%d bytes of a name are kept, want %d", len(got), maxManager)
	}
	if got := by(entry(5, "flux", data), entry(7, "helm", data), entry(6, "flux", data), entry(8, "flux", template)); got != helm {
		t.Errorf("latest of several: manager %q, want %q", got, helm)
	}
	if got := by(entry(7, "helm", data), entry(7, "flux", data)); got != flux {
		t.Errorf("last of two in one second: manager %q, want %q", got, flux)
	}
	got := templateBy(entry(5, "flux", template), entry(6, "kubectl", `{"f:spec":{"f:replicas":{}}}`), entry(7, "helm", template), entry(8, "flux", template))
	if !slices.Equal(got, []FieldManager{flux, helm}) {
		t.Errorf("managers of the template = %q, want %q", got, []FieldManager{flux, helm})
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
		if got := g.LastWriteBy(helm, SourceKey{Secret, namespace, "settings"}); !got.Equal(want) {
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
	if at := g.LastWriteBy("", SourceKey{Secret, namespace, "settings"}); !at.IsZero() {
		t.Errorf("last write of an unknown manager = %v, want none", at)
	}
	for i := range maxWriterNamespaces + 1 {
		configMap("of-"+strconv.Itoa(i), "helm", "1", start)
	}
	if n := g.writers.Len(); n != maxWriterNamespaces {
		t.Errorf("writers of %d namespaces kept, want %d", n, maxWriterNamespaces)
	}
}

// What a client writes of an object is told apart from what it writes of others.
func TestLastWriteBy_OfAnotherObject(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	type seen struct {
		name string
		at   int
	}
	for name, tt := range map[string]struct {
		writes []seen
		of     string
		want   time.Time
	}{
		"nothing":                        {nil, "a", time.Time{}},
		"that object alone":              {[]seen{{"a", 1}, {"a", 2}}, "a", time.Time{}},
		"another one":                    {[]seen{{"b", 1}, {"a", 2}}, "a", at(1)},
		"another one, later":             {[]seen{{"a", 1}, {"b", 2}}, "a", at(2)},
		"another one, at once":           {[]seen{{"a", 1}, {"b", 1}}, "a", at(1)},
		"it was written again":           {[]seen{{"a", 1}, {"b", 2}, {"a", 3}, {"a", 4}}, "a", at(2)},
		"the other one was, too":         {[]seen{{"a", 1}, {"b", 2}, {"a", 3}, {"b", 4}}, "a", at(4)},
		"the last of others":             {[]seen{{"c", 1}, {"a", 2}, {"b", 3}}, "a", at(3)},
		"the last of others, before":     {[]seen{{"c", 1}, {"b", 2}, {"a", 3}}, "a", at(2)},
		"a write is told again":          {[]seen{{"b", 1}, {"a", 2}, {"b", 1}, {"a", 2}}, "a", at(1)},
		"an earlier write is told again": {[]seen{{"c", 1}, {"b", 2}, {"a", 3}, {"c", 1}}, "a", at(2)},
		"none of two":                    {[]seen{{"a", 1}, {"b", 2}}, "c", at(2)},
	} {
		g := NewGraph()
		for _, w := range tt.writes {
			g.noteWrite("shop", "helm", maphash.Comparable(seed, SourceKey{ConfigMap, "shop", w.name}), at(w.at))
		}
		if got := g.LastWriteBy("helm", SourceKey{ConfigMap, "shop", tt.of}); !got.Equal(tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// A client that writes with many names does not displace the writers of other namespaces.
func TestLastWriteBy_IsBounded(t *testing.T) {
	g := NewGraph()
	start := time.Unix(1000, 0)
	g.noteWrite("shop", "1", 1, start)
	for i := range 10 * maxWriters {
		g.noteWrite("busy", FieldManager(strconv.Itoa(i+1)), 1, start)
	}
	if got := g.LastWriteBy("1", SourceKey{Namespace: "shop"}); !got.Equal(start) {
		t.Errorf("last write = %v, want it kept", got)
	}
	if n := g.writersOf("busy").Len(); n != maxWriters {
		t.Errorf("%d writers kept, want %d", n, maxWriters)
	}
	if got := g.LastWriteBy(FieldManager(strconv.Itoa(10*maxWriters)), SourceKey{Namespace: "busy"}); !got.Equal(start) {
		t.Errorf("last write of the last of many writers = %v, want it kept", got)
	}
	if got := g.LastWriteBy("1", SourceKey{Namespace: "other"}); !got.IsZero() {
		t.Errorf("last write in another namespace = %v, want none", got)
	}
}
