// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/configdep/configdep/pkg/dependency"
)

// podStatusStream returns the stream, with a digester.
func podStatusStream() *stream {
	return podStatuses()
}

func TestPodStatuses_AreReadWhileTheyAreServed(t *testing.T) {
	for _, s := range (Scope{}).streams(nil) {
		if s.part == (podStatusPart{}) {
			t.Errorf("%s is read without being asked for", s.name)
		}
	}
	streams := (Scope{PodStatuses: true, Namespaces: []string{"a", "b"}}).streams(nil)
	var names []string
	for _, s := range streams {
		if s.part == (podStatusPart{}) {
			names = append(names, s.name)
			if s.optional == nil || !s.json || s.namespaces() {
				t.Errorf("%+v", s)
			}
		}
	}
	if got, want := strings.Join(names, " "), "a/"+PodStatuses+" b/"+PodStatuses; got != want {
		t.Errorf("streams = %s, want %s", got, want)
	}
}

// Of a status, the class and the versions are kept, of pods that have mounted the class.
func TestPodStatuses_Decode(t *testing.T) {
	const metadata = `"metadata":{"namespace":"shop","name":"web-1-shop-keys","resourceVersion":"7","generation":1,"creationTimestamp":"2026-03-01T12:00:00Z"}`
	status := func(class, mounted, objects string) string {
		return fmt.Sprintf(`{"kind":"SecretProviderClassPodStatus","apiVersion":"secrets-store.csi.x-k8s.io/v1",%s,"status":{"podName":"web-1","secretProviderClassName":%q,"mounted":%s,"targetPath":"/x","objects":%s}}`,
			metadata, class, mounted, objects)
	}
	for name, tt := range map[string]struct {
		raw  string
		want string // the class and its objects; empty: nothing is kept
	}{
		"mounted":        {status("keys", "true", `[{"id":"secret/b","version":"1"},{"id":"secret/a","version":"2"}]`), "keys secret/a secret/b"},
		"not mounted":    {status("keys", "false", `[{"id":"a","version":"1"}]`), ""},
		"no objects":     {status("keys", "true", `[]`), ""},
		"null":           {status("keys", "true", `null`), ""},
		"no class":       {status("", "true", `[{"id":"a","version":"1"}]`), ""},
		"no valid class": {status("a/b", "true", `[{"id":"a","version":"1"}]`), ""},
		"no status":      {"{" + metadata + "}", ""},
		"listed twice":   {status("keys", "true", `[{"id":"a","version":"1"},{"id":"a","version":"2"}]`), "keys a"},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := podStatusStream().decode([]byte(tt.raw))
			if err != nil {
				t.Fatal(err)
			}
			if o.ResourceVersion != "7" || (o.value != nil) != (tt.want != "") {
				t.Fatalf("%+v", o)
			}
			if tt.want == "" {
				return
			}
			p := o.value.(*dependency.PodStatus)
			got := []string{p.Class}
			for _, k := range p.Keys {
				got = append(got, k.Key)
			}
			if got := strings.Join(got, " "); got != tt.want {
				t.Errorf("kept %q, want %q", got, tt.want)
			}
		})
	}
	for name, raw := range map[string]string{"no JSON": "{", "objects of another type": status("keys", "true", `{"a":1}`)} {
		if o, err := podStatusStream().decode([]byte(raw)); err == nil {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// However many objects a status has, and however long their names are, what is kept of it is bounded.
func TestPodStatuses_AreBounded(t *testing.T) {
	decode := func(n int, id, version string) *dependency.PodStatus {
		var objects []string
		for i := range n {
			objects = append(objects, fmt.Sprintf(`{"id":%q,"version":%q}`, fmt.Sprintf("%s-%04d", id, i), version))
			version = "1"
		}
		raw := fmt.Sprintf(`{"metadata":{"namespace":"a","name":"b","resourceVersion":"1"},"status":{"secretProviderClassName":"keys","mounted":true,"objects":[%s]}}`, strings.Join(objects, ","))
		o, err := podStatusStream().decode([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		return o.value.(*dependency.PodStatus)
	}
	long := strings.Repeat("é", 5000)
	many := decode(1000, long, long)
	bytes := 0
	for _, k := range many.Keys {
		bytes += len(k.Key)
	}
	if len(many.Keys) == 0 || len(many.Keys) > 64 || bytes > 64*300 {
		t.Errorf("%d keys of %d bytes are kept", len(many.Keys), bytes)
	}
}

func FuzzPodStatus(f *testing.F) {
	f.Add([]byte(`{"metadata":{"namespace":"a","name":"b"},"status":{"secretProviderClassName":"keys","mounted":true,"objects":[{"id":"a","version":"1"}]}}`))
	s := podStatusStream()
	f.Fuzz(func(t *testing.T, raw []byte) {
		o, err := s.decode(raw)
		if err != nil || o.value == nil {
			return
		}
		g := dependency.NewGraph()
		g.SetDigester(dependency.NewDigester(make([]byte, dependency.KeySize)))
		for _, class := range g.SetPodStatus(o.value.(*dependency.PodStatus)) {
			if g.Source(class) == nil {
				t.Errorf("%v has no content", class)
			}
		}
		g.DeletePodStatus(o.Namespace, o.Name)
		if _, sources := g.Size(); sources > 0 {
			t.Errorf("%d classes are left", sources)
		}
	})
}
