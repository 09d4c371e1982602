// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func reading(name string, sources ...corev1.EnvFromSource) corev1.Container {
	return corev1.Container{Name: name, EnvFrom: sources}
}

func fromSecret(name string, optional bool) corev1.EnvFromSource {
	return corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Optional: &optional}}
}

func mounting(secret, volume, at string) *corev1.PodSpec {
	return &corev1.PodSpec{
		Containers: []corev1.Container{{Name: "app", VolumeMounts: []corev1.VolumeMount{{Name: volume, MountPath: at}}}},
		Volumes:    []corev1.Volume{{Name: volume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}}}},
	}
}

func TestReferences_OfSeveralTemplates(t *testing.T) {
	envFrom := func(c string) Use { return Use{Type: EnvFrom, Container: c} }
	for name, tt := range map[string]struct {
		named []Named
		pods  []*corev1.PodSpec
		want  []Reference
	}{
		"nothing": {nil, nil, nil},
		"what templates have in common is one use": {
			nil,
			[]*corev1.PodSpec{
				{Containers: []corev1.Container{reading("app", fromSecret("db", false))}},
				{Containers: []corev1.Container{reading("app", fromSecret("db", false)), reading("side", fromSecret("db", false), fromSecret("more", false))}},
				{Containers: []corev1.Container{reading("app", fromSecret("db", true))}},
			},
			[]Reference{
				{Kind: Secret, Name: "db", Uses: []Use{envFrom("app"), envFrom("side"), {Type: EnvFrom, Container: "app", Optional: true}}},
				{Kind: Secret, Name: "more", Uses: []Use{envFrom("side")}},
			},
		},
		"a volume is one of its template": {
			nil, []*corev1.PodSpec{mounting("one", "v", "/a"), mounting("two", "v", "/b"), {Volumes: mounting("three", "v", "").Volumes}},
			[]Reference{
				{Kind: Secret, Name: "one", Uses: []Use{{Type: Volume, Container: "app", Volume: "v", MountPath: "/a"}}},
				{Kind: Secret, Name: "three", Uses: []Use{{Type: Volume, Volume: "v", Optional: true}}},
				{Kind: Secret, Name: "two", Uses: []Use{{Type: Volume, Container: "app", Volume: "v", MountPath: "/b"}}},
			},
		},
		"named by the object": {
			[]Named{
				{Kind: Secret, Name: "db", Key: "password", Path: ".spec.a"}, {Kind: Secret, Name: "db", Key: "user", Path: ".spec.a"},
				{Kind: Secret, Name: "db", Key: "password", Path: ".spec.a"}, {Kind: Secret, Name: "db", Key: "password", Optional: true, Path: ".spec.b"},
				{Kind: ConfigMap, Name: "settings", Optional: true, Path: ".spec.c"}, {Kind: Secret, Path: ".spec.d"}, {Kind: Secret, Name: strings.Repeat("x", 254)},
			},
			[]*corev1.PodSpec{{Containers: []corev1.Container{reading("app", fromSecret("db", false))}}},
			[]Reference{
				{Kind: ConfigMap, Name: "settings", Uses: []Use{{Type: ByObject, MountPath: ".spec.c", Optional: true}}},
				{Kind: Secret, Name: "db", RequiredKeys: []string{"password", "user"}, Uses: []Use{
					{Type: ByObject, MountPath: ".spec.a", Keys: []string{"password"}}, {Type: ByObject, MountPath: ".spec.a", Keys: []string{"user"}},
					{Type: ByObject, MountPath: ".spec.b", Keys: []string{"password"}, Optional: true}, envFrom("app"),
				}},
			},
		},
		"all keys, and one": {
			[]Named{{Kind: Secret, Name: "db"}, {Kind: Secret, Name: "db", Key: "a"}}, nil,
			[]Reference{{Kind: Secret, Name: "db", RequiredKeys: []string{"a"}, Uses: []Use{{Type: ByObject}, {Type: ByObject, Keys: []string{"a"}}}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, truncated := References(tt.named, tt.pods...)
			if diff := cmp.Diff(tt.want, got); diff != "" || truncated {
				t.Errorf("truncated: %v (-want +got):\n%s", truncated, diff)
			}
		})
	}
}

func TestReferences_NamedAreBounded(t *testing.T) {
	named := make([]Named, MaxSources+1)
	for i := range named {
		named[i] = Named{Kind: Secret, Name: fmt.Sprint("s", i)}
	}
	if got, truncated := References(named); len(got) != MaxSources || !truncated {
		t.Errorf("%d references, truncated: %v", len(got), truncated)
	}
	if got, truncated := References(named[1:]); len(got) != MaxSources || truncated {
		t.Errorf("%d references, truncated: %v", len(got), truncated)
	}
}

// What a field names is content that the workload reads.
func TestReference_ByObjectReads(t *testing.T) {
	references, _ := References([]Named{{Kind: Secret, Name: "db", Key: "password"}})
	if keys, all := references[0].Keys(); len(keys) != 1 || all || !references[0].Reads() {
		t.Errorf("keys = %v, all: %v", keys, all)
	}
	source := &Source{Keys: []KeyDigest{{Key: "password"}}}
	if r := Resolve(&references[0], source); r.Missing {
		t.Errorf("missing: %v", r.MissingKeys)
	}
	if shown := source.Shown(&references[0]); len(shown) != 1 {
		t.Errorf("shown: %v", shown)
	}
}

func objectWith(templates ...*corev1.PodTemplateSpec) *Object {
	return &Object{
		Meta: &metav1.ObjectMeta{Name: "web", CreationTimestamp: metav1.Unix(1000, 0)}, Template: templates[0], Others: templates[1:],
		Traits: Traits{Rollable: true},
	}
}

func templateOf(image string) *corev1.PodTemplateSpec {
	return &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: image}}}}
}

// Every template counts, and in its place.
func TestNewWorkload_SeveralTemplates(t *testing.T) {
	seen := map[uint64]string{}
	for name, templates := range map[string][]*corev1.PodTemplateSpec{
		"none":             {{}},
		"one":              {templateOf("a")},
		"two":              {templateOf("a"), templateOf("b")},
		"another order":    {templateOf("b"), templateOf("a")},
		"three":            {templateOf("a"), templateOf("b"), templateOf("a")},
		"an empty one too": {templateOf("a"), {}},
	} {
		w := NewWorkload(objectWith(templates...), Annotations{})
		if other := seen[w.template]; other != "" || w.template == 0 {
			t.Errorf("%s: the fingerprint is %d, as of %q", name, w.template, other)
		}
		seen[w.template] = name
		if again := NewWorkload(objectWith(templates...), Annotations{}); again.template != w.template {
			t.Errorf("%s: two fingerprints of the same templates", name)
		}
	}
	o := objectWith(&corev1.PodTemplateSpec{}, &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{reading("app", fromSecret("db", false))}}})
	o.Named = []Named{{Kind: Secret, Name: "named"}}
	if w := NewWorkload(o, Annotations{}); len(w.References) != 2 || w.Truncated {
		t.Errorf("references: %v, truncated: %v", w.References, w.Truncated)
	}
	o.Truncated = true
	if w := NewWorkload(o, Annotations{}); !w.Truncated {
		t.Error("not truncated")
	}
}

// The time of a template is that of the fields in which the kind has templates.
func TestNewWorkload_FieldsOfTemplates(t *testing.T) {
	at := func(seconds int64, fields string) metav1.ManagedFieldsEntry {
		when := metav1.Unix(seconds, 0)
		return metav1.ManagedFieldsEntry{Manager: fmt.Sprint("m", seconds), Time: &when, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	for name, tt := range map[string]struct {
		fields []string
		want   int64
		by     int
	}{
		"by default":        {nil, 2000, 1},
		"another field":     {[]string{`"f:workerTemplate"`}, 3000, 1},
		"two fields":        {[]string{`"f:template"`, `"f:workerTemplate"`}, 3000, 2},
		"no template":       {[]string{}, 1000, 0},
		"a field not there": {[]string{`"f:pods"`}, 1000, 0},
	} {
		o := objectWith(&corev1.PodTemplateSpec{})
		o.TemplateFields = tt.fields
		o.Meta.ManagedFields = []metav1.ManagedFieldsEntry{
			at(2000, `{"f:spec":{"f:template":{}}}`), at(3000, `{"f:spec":{"f:workerTemplate":{}}}`), at(4000, `{"f:spec":{"f:replicas":{}}}`),
		}
		if w := NewWorkload(o, Annotations{}); !w.TemplateWritten.Equal(time.Unix(tt.want, 0)) || len(w.TemplateBy) != tt.by {
			t.Errorf("%s: written at %v by %d managers", name, w.TemplateWritten, len(w.TemplateBy))
		}
	}
}
