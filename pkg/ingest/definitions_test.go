// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
)

// While nothing changes, the discovery is not sent again.
func TestDiscover(t *testing.T) {
	api := newHarbour(t)
	api.versions = []string{"v1", "v3"}
	reader, err := NewReader(&rest.Config{Host: api.URL}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	groups := []string{"sea.example.com"}
	first, err := reader.discover(t.Context(), nil, groups)
	if err != nil || len(first.groups) != 1 {
		t.Fatalf("%v: %+v", err, first)
	}
	if again, err := reader.discover(t.Context(), first, groups); err != nil || again != first {
		t.Errorf("unchanged: %v: %+v", err, again)
	}
	api.change(func() { api.versions = nil })
	if again, err := reader.discover(t.Context(), first, groups); err != nil || again == first {
		t.Errorf("changed: %v: %+v", err, again)
	}
	for name, answer := range map[string]string{
		"another document":       `{"kind":"APIGroupList","items":[]}`,
		"half of it":             `{"kind":"APIGroupDiscoveryList","items":[`,
		"no items of that shape": `{"kind":"APIGroupDiscoveryList","items":[1]}`,
	} {
		if found, err := readDiscovery(strings.NewReader(answer), groups); err == nil {
			t.Errorf("%s: %+v", name, found)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"kind":"`)
		chunk := []byte(strings.Repeat("x", 1<<20))
		for range maxDiscovery >> 20 {
			_, _ = w.Write(chunk)
		}
	}))
	defer server.Close()
	reader, err = NewReader(&rest.Config{Host: server.URL}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	var tooLarge *http.MaxBytesError
	if _, err := reader.discover(t.Context(), nil, groups); !errors.As(err, &tooLarge) {
		t.Errorf("too large: %v", err)
	}
}

// The first of the versions of a kind that is served counts, and without an answer it is not known.
func TestDiscovery_Served(t *testing.T) {
	const list = `{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"sea.example.com"},"versions":[%s]}]}`
	has := func(v, resource, freshness string) string {
		return fmt.Sprintf(`{"version":%q,"freshness":%q,"resources":[{"resource":%q}]}`, v, freshness, resource)
	}
	another := func(v, what string) string {
		return fmt.Sprintf(`{"version":%q,"freshness":"Current","resources":[{"resource":"boats",%s}]}`, v, what)
	}
	const whole, canoe = `"scope":"Cluster"`, `"responseKind":{"kind":"Canoe"}`
	for name, tt := range map[string]struct {
		versions []string
		want     service
		unknown  bool
	}{
		"none":                       {nil, service{}, false},
		"one":                        {[]string{has("v1", "boats", "Current")}, service{version: "v1"}, false},
		"both":                       {[]string{has("v1", "boats", "Current"), has("v2", "boats", "Current")}, service{version: "v2"}, false},
		"another":                    {[]string{has("v3", "boats", "Current")}, service{others: []string{"v3"}}, false},
		"another resource":           {[]string{has("v1", "piers", "Current")}, service{}, false},
		"stale, but known":           {[]string{has("v1", "boats", "Stale")}, service{version: "v1"}, false},
		"stale":                      {[]string{`{"version":"v1","freshness":"Stale"}`}, service{}, true},
		"the preferred one is stale": {[]string{`{"version":"v2","freshness":"Stale"}`, has("v1", "boats", "Current")}, service{version: "v1"}, false},
		"without namespaces":         {[]string{another("v1", whole)}, service{another: "a resource without namespaces"}, false},
		"with namespaces":            {[]string{another("v1", `"scope":"Namespaced"`)}, service{version: "v1"}, false},
		"another kind":               {[]string{another("v1", canoe)}, service{another: "the kind Canoe"}, false},
		"a kind without a name":      {[]string{another("v1", `"responseKind":{"kind":""}`)}, service{version: "v1"}, false},
		"another kind in one":        {[]string{another("v2", canoe), has("v1", "boats", "Current")}, service{version: "v1"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := readDiscovery(strings.NewReader(fmt.Sprintf(list, strings.Join(tt.versions, ","))), []string{"sea.example.com"})
			if err != nil {
				t.Fatal(err)
			}
			got, err := d.served(boats())
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(service{})); diff != "" || (err != nil) != tt.unknown {
				t.Errorf("error %v, served (-want +got):\n%s", err, diff)
			}
		})
	}
	one := boats()
	one.Versions = nil
	d, err := readDiscovery(strings.NewReader(fmt.Sprintf(list, has("v1", "boats", "Current"))), []string{"sea.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := d.served(one); got.version != "v1" {
		t.Errorf("without versions: %+v", got)
	}
}
