// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files")

const goldenSuffix = ".golden.yaml"

// goldenReference is a Reference in the format of the golden files.
type goldenReference struct {
	Source   string      `json:"source"`
	Optional bool        `json:"optional"`
	Reads    any         `json:"reads"` // keys, "all keys" or "nothing"
	Requires []string    `json:"requires,omitempty"`
	Uses     []goldenUse `json:"uses"`
}

type goldenUse struct {
	Type      UseType  `json:"type"`
	Container string   `json:"container,omitempty"`
	Env       string   `json:"env,omitempty"`
	Prefix    string   `json:"prefix,omitempty"`
	Volume    string   `json:"volume,omitempty"`
	MountPath string   `json:"mountPath,omitempty"`
	Keys      []string `json:"keys,omitempty"`
	SubPath   bool     `json:"subPath,omitempty"`
	Optional  bool     `json:"optional,omitempty"`
}

func toGolden(references []Reference) []goldenReference {
	out := []goldenReference{}
	for i := range references {
		r := &references[i]
		g := goldenReference{Source: string(r.Kind) + "/" + r.Name, Optional: r.Optional(), Requires: r.RequiredKeys}
		switch keys, all := r.Keys(); {
		case !r.Reads():
			g.Reads = "nothing"
		case all:
			g.Reads = "all keys"
		default:
			g.Reads = keys
		}
		for _, u := range r.Uses {
			g.Uses = append(g.Uses, goldenUse(u))
		}
		out = append(out, g)
	}
	return out
}

// templates returns the pod templates in testdata by the behaviour that they demonstrate.
func templates(t *testing.T) map[string]*corev1.PodSpec {
	t.Helper()
	paths, err := filepath.Glob("testdata/references/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*corev1.PodSpec{}
	for _, path := range paths {
		if strings.HasSuffix(path, goldenSuffix) {
			continue
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		pod := &corev1.PodSpec{}
		if err := yaml.UnmarshalStrict(raw, pod); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		out[strings.TrimSuffix(filepath.Base(path), ".yaml")] = pod
	}
	if len(out) < 20 {
		t.Fatalf("found %d pod templates in testdata, want more", len(out))
	}
	return out
}

// referencesOf returns the references of a template within the bounds.
func referencesOf(pod *corev1.PodSpec) []Reference {
	references, truncated := References(nil, pod)
	if truncated {
		panic("more references than the bound")
	}
	return references
}

func TestReferencesOfPodTemplates(t *testing.T) {
	for behaviour, pod := range templates(t) {
		t.Run(behaviour, func(t *testing.T) {
			before := pod.DeepCopy()
			got, err := yaml.Marshal(toGolden(referencesOf(pod)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, pod); diff != "" {
				t.Errorf("ReferencesOf changed the template (-before +after):\n%s", diff)
			}
			path := filepath.Join("testdata", "references", behaviour+goldenSuffix)
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("%v (write the golden file with -update, and review it)", err)
			}
			if diff := cmp.Diff(string(bytes.TrimSpace(want)), string(bytes.TrimSpace(got))); diff != "" {
				t.Errorf("references (-want +got):\n%s", diff)
			}
		})
	}
}

// A field of a pod template that names a ConfigMap or a Secret must be set by a template in testdata. A new
// version of Kubernetes may have added the field.
func TestTemplatesHaveEveryFieldThatNamesASource(t *testing.T) {
	want := map[string]bool{}
	fieldsNamingSources(reflect.TypeFor[corev1.PodSpec](), "", want)
	if len(want) < 20 {
		t.Fatalf("found only %d fields that name a source: the search is broken", len(want))
	}
	for _, pod := range templates(t) {
		fieldsSet(reflect.ValueOf(pod).Elem(), "", want)
	}
	for field, set := range want {
		if !set {
			t.Errorf("no template in testdata/references sets %s", field)
		}
	}
}

// Fields whose names suggest that they name a source, but that do not.
var notASource = []string{
	"secretFile", // a path on the node
}

func namesSource(field reflect.StructField) (name string, names bool) {
	name, _, _ = strings.Cut(field.Tag.Get("json"), ",")
	lower := strings.ToLower(name)
	return name, (strings.Contains(lower, "secret") || strings.Contains(lower, "configmap")) && !slices.Contains(notASource, name)
}

func fieldsNamingSources(t reflect.Type, path string, found map[string]bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		fieldsNamingSources(t.Elem(), path, found)
	case reflect.Struct:
		for field := range t.Fields() {
			name, names := namesSource(field)
			if below := join(path, name); names {
				found[below] = false
			} else {
				fieldsNamingSources(field.Type, below, found)
			}
		}
	}
}

func fieldsSet(v reflect.Value, path string, found map[string]bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			fieldsSet(v.Elem(), path, found)
		}
	case reflect.Slice:
		for i := range v.Len() {
			fieldsSet(v.Index(i), path, found)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			name, names := namesSource(v.Type().Field(i))
			if below := join(path, name); !names {
				fieldsSet(v.Field(i), below, found)
			} else if !v.Field(i).IsZero() {
				found[below] = true
			}
		}
	}
}

// join omits the empty names of embedded structs, as JSON does.
func join(path, name string) string {
	if name == "" {
		return path
	}
	return path + "." + name
}

// A small template can have many references: each source of a volume counts at each mount, and so does each key.
func TestReferencesAreBounded(t *testing.T) {
	repeat := func(n int, f func(i int)) {
		for i := range n {
			f(i)
		}
	}
	variables := func(n int, name func(i int) string) *corev1.PodSpec {
		c := corev1.Container{Name: "app"}
		repeat(n, func(i int) {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("V", i), ValueFrom: &corev1.EnvVarSource{
				SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name(i)}, Key: "k"}}})
		})
		return &corev1.PodSpec{Containers: []corev1.Container{c}}
	}
	one := func(int) string { return "db" }
	each := func(i int) string { return fmt.Sprint("s-", i) }
	volume := func(sources, items, mounts int, subPath string) *corev1.PodSpec {
		projected := &corev1.ProjectedVolumeSource{}
		repeat(sources, func(i int) {
			s := &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: each(i)}}
			repeat(items, func(j int) {
				s.Items = append(s.Items, corev1.KeyToPath{Key: fmt.Sprint("k-", j), Path: fmt.Sprint("k-", j)})
			})
			projected.Sources = append(projected.Sources, corev1.VolumeProjection{Secret: s})
		})
		c := corev1.Container{Name: "app"}
		repeat(mounts, func(i int) {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "all", MountPath: fmt.Sprint("/", i), SubPath: subPath})
		})
		return &corev1.PodSpec{
			Containers: []corev1.Container{c},
			Volumes:    []corev1.Volume{{Name: "all", VolumeSource: corev1.VolumeSource{Projected: projected}}},
		}
	}
	for name, tt := range map[string]struct {
		pod           *corev1.PodSpec
		truncated     bool
		sources, uses int
	}{
		"the maximum number of sources":                  {variables(MaxSources, each), false, MaxSources, MaxSources},
		"one source more":                                {variables(MaxSources+1, each), true, MaxSources, MaxSources},
		"the maximum number of variables":                {variables(MaxUses, one), false, 1, MaxUses},
		"one variable more":                              {variables(MaxUses+1, one), true, 1, MaxUses},
		"the maximum number of mounts":                   {volume(10, 0, MaxUses/10, ""), false, 10, MaxUses},
		"one mount more":                                 {volume(10, 0, MaxUses/10+1, ""), true, 10, MaxUses},
		"the maximum number of keys of mounts":           {volume(10, 50, MaxUses/500, ""), false, 10, MaxUses / 50},
		"one mount with keys more":                       {volume(10, 50, MaxUses/500+1, ""), true, 10, MaxUses / 50},
		"many sources, keys and mounts":                  {volume(2000, 20, 2000, ""), true, 1, MaxUses / 20},
		"the maximum number of mounts that show nothing": {volume(50, 1, maxLooks/50, "other"), false, 50, 50},
		"one mount that shows nothing more":              {volume(51, 1, maxLooks/50, "other"), true, 50, 50},
		"a name that is too long":                        {variables(1, func(int) string { return strings.Repeat("a", maxName+1) }), false, 0, 0},
		"the longest name":                               {variables(1, func(int) string { return strings.Repeat("a", maxName) }), false, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			references, truncated := References(nil, tt.pod)
			uses := 0
			for i := range references {
				uses += len(references[i].Uses)
			}
			if truncated != tt.truncated || len(references) != tt.sources || uses != tt.uses {
				t.Errorf("got %d sources and %d uses, truncated = %v; want %d, %d, %v", len(references), uses, truncated, tt.sources, tt.uses, tt.truncated)
			}
			if w := readDeployment(&appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: *tt.pod}}}); w.Truncated != tt.truncated {
				t.Errorf("truncated workload = %v", w.Truncated)
			}
		})
	}
}
