// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/pkg/render"
)

func renderYAML(t *testing.T, path string) []byte {
	t.Helper()
	var out [][]byte
	for _, view := range renderFile(t, path, 123) {
		b, err := yaml.Marshal(view)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b)
	}
	return bytes.Join(out, []byte("---\n"))
}

// What users get for a workload: each file in testdata/render beside its golden file.
func TestRenderedViews(t *testing.T) {
	paths, err := filepath.Glob("testdata/render/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	tested := 0
	for _, path := range paths {
		if strings.HasSuffix(path, ".golden.yaml") {
			continue
		}
		tested++
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		t.Run(name, func(t *testing.T) {
			got := renderYAML(t, path)
			golden(t, filepath.Join("render", name+".golden.yaml"), got)
			// Every replica must show the same bytes, whatever the order of its maps.
			for range 10 {
				if again := renderYAML(t, path); !bytes.Equal(got, again) {
					t.Fatalf("the same objects were shown differently:\n%s\n%s", got, again)
				}
			}
		})
	}
	if tested == 0 {
		t.Error("no files in testdata/render")
	}
}

// The UID is that of the view as long as the workload lives, and another afterwards.
func TestUIDFollowsTheWorkload(t *testing.T) {
	a, b := render.UID("one"), render.UID("two")
	if a == b || a != render.UID("one") {
		t.Errorf("UIDs %s, %s, %s", a, b, render.UID("one"))
	}
	if want := "0023068f"; !strings.HasPrefix(string(a), want) {
		t.Errorf("UID %s: clients that hold the one that it was before take this for a new object", a)
	}
}

// A client may write any time into the managedFields of a source.
func TestLastChangedThatClientsCannotReadIsLeftOut(t *testing.T) {
	w := workload(kind.Deployment, "shop", "w", nil, "Secret/db")
	view := newCluster(t, w, secret("db", "one", metav1.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))).render(w, 1)
	if got := view.Status.Sources[0].LastChangeTime; got != nil {
		t.Errorf("last changed %v", got)
	}
	checkReadable(t, view)
}

// checkReadable fails when clients cannot read a view.
func checkReadable(t *testing.T, view *v1alpha1.ConfigDependency) {
	t.Helper()
	raw, err := yaml.Marshal(view)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(raw, &v1alpha1.ConfigDependency{}); err != nil {
		t.Errorf("clients cannot read it: %v", err)
	}
}

// An annotation is written by every client that may edit the workload; what it says must not make
// a list unreadable to others. A year beyond 9999 cannot be written as a time in JSON so
// that clients can read it.
func TestLastReloadThatClientsCannotReadIsLeftOut(t *testing.T) {
	for name, tt := range map[string]struct {
		annotation string
		shown      bool
	}{
		"a proper record":         {`{"time":"2026-01-02T03:04:05.678901Z","trigger":"Request"}`, true},
		"the last year":           {`{"time":"9999-12-31T23:59:59.000000Z"}`, true},
		"a year with five digits": {`{"time":"9999-12-31T23:59:59.000000-23:59"}`, false},
		"a year before the first": {`{"time":"0000-01-01T00:00:00.000000+23:59"}`, false},
		"no time":                 {`{"trigger":"Request"}`, false},
		"no JSON":                 {`x`, false},
		"JSON of something else":  {`[1]`, false},
		"an empty value":          {``, false},
		"fields that are unknown": {`{"time":"2026-01-02T03:04:05.678901Z","x":1}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := workload(kind.Deployment, "ns", "w", nil)
			w.SetAnnotations(map[string]string{record.LastReloadAnnotation: tt.annotation})
			view := newCluster(t, w).render(w, 1)
			if shown := view.Status.LastReload != nil; shown != tt.shown {
				t.Errorf("shown: %v, want %v", shown, tt.shown)
			}
			checkReadable(t, view)
		})
	}
}

// The largest templates that are looked at make objects of a bounded size, in which what is not listed is counted.
func TestRenderedObjectIsBounded(t *testing.T) {
	const most = 1 << 20
	long := func(name string, i int) string {
		return fmt.Sprintf("%s-%0*d", name, validation.DNS1123SubdomainMaxLength-len(name)-1, i)
	}
	sources, keys := dependency.MaxSources, dependency.MaxUses/dependency.MaxSources
	pod := corev1.PodSpec{Containers: []corev1.Container{{Name: strings.Repeat("c", 63)}}}
	c := newCluster(t)
	for i := range sources {
		for j := range keys {
			pod.Containers[0].Env = append(pod.Containers[0].Env, corev1.EnvVar{Name: long("V", i*keys+j), ValueFrom: &corev1.EnvVarSource{
				SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: long("s", i)}, Key: long("k", j)},
			}})
		}
		c.Set(ingesttest.Secret(long("s", i)))
	}
	var named []string
	for i := range 256 {
		named = append(named, "configmap/"+long("m", i))
	}
	d := ingesttest.Deployment("web", pod)
	d.Annotations[policy.SourcesAnnotation] = strings.Join(named, ",")
	c.Set(d)
	o := c.render(d, 1)
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	if len(raw) > most {
		t.Errorf("the object has %d bytes, want at most %d", len(raw), most)
	}
	var got struct{ listed, usages, keys, missing int64 }
	for i := range o.Spec.Sources {
		s, status := &o.Spec.Sources[i], &o.Status.Sources[i]
		if s.Kind != v1alpha1.SourceSecret {
			continue
		}
		got.listed += int64(len(s.Usages) * len(s.Keys) * len(status.MissingKeys))
		got.usages += int64(len(s.Usages)) + s.MoreUsages
		got.keys += int64(len(s.Keys)) + s.MoreKeys
		got.missing += int64(len(status.MissingKeys)) + status.MoreMissingKeys
	}
	if all := int64(dependency.MaxUses); got.usages != all || got.keys != all || got.missing != all || got.listed == 0 || len(o.Spec.Sources) != sources+256 {
		t.Errorf("%d sources, and %+v, want %d usages, keys and missing keys", len(o.Spec.Sources), got, all)
	}
	for what, text := range map[string]string{"message": o.Status.Message, "condition": o.Status.Conditions[0].Message} {
		if len(text) == 0 || len(text) > 32<<10 { // of a condition no more is valid
			t.Errorf("the %s has %d bytes", what, len(text))
		}
	}
}
