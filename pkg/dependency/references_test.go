package dependency

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files")

const goldenSuffix = ".golden.yaml"

// goldenReference is a Reference as the golden files show it.
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
	SubPath   bool     `json:"subPath,omitempty"`
	Keys      []string `json:"keys,omitempty"`
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

// templates returns the pod templates in testdata by the behaviour that they show.
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
		t.Fatalf("found %d pod templates in testdata: where are the others?", len(out))
	}
	return out
}

func TestReferencesOfPodTemplates(t *testing.T) {
	for behaviour, pod := range templates(t) {
		t.Run(behaviour, func(t *testing.T) {
			before := pod.DeepCopy()
			got, err := yaml.Marshal(toGolden(References(pod)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, pod); diff != "" {
				t.Errorf("the template was changed (-before +after):\n%s", diff)
			}
			path := filepath.Join("testdata", "references", behaviour+goldenSuffix)
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("%v (write it with -update, and read it)", err)
			}
			if diff := cmp.Diff(string(bytes.TrimSpace(want)), string(bytes.TrimSpace(got))); diff != "" {
				t.Errorf("references (-want +got):\n%s", diff)
			}
		})
	}
}

// A field of a pod template that names a ConfigMap or a Secret, and that no template in
// testdata sets, is an unexpected one: a new version of Kubernetes may have
// brought it.
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

// Fields that look as if they named a source, and do not.
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

// join leaves out the empty names of embedded structs, as JSON does.
func join(path, name string) string {
	if name == "" {
		return path
	}
	return path + "." + name
}
