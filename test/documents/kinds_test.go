// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package documents

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
)

// update writes what is generated: go test ./test/documents -run TestDescriptorsOfPresets -update.
var update = flag.Bool("update", false, "write the descriptors of presets into docs/kinds.md")

const (
	beginPresets = "<!-- presets -->\n"
	endPresets   = "<!-- end of presets -->\n"
)

// docs/kinds.md has the descriptor of each preset, as a file can have it.
func TestDescriptorsOfPresets(t *testing.T) {
	path := filepath.Join(root, "docs", "kinds.md")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(raw), beginPresets)
	got, after, ended := strings.Cut(rest, endPresets)
	if !found || !ended {
		t.Fatalf("%s lacks %q or %q", path, beginPresets, endPresets)
	}
	var want strings.Builder
	for _, p := range kind.Presets() {
		descriptor, err := yaml.Marshal([]kind.Descriptor{p.Descriptor})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&want, "### `%s`\n\n```yaml\n%s```\n\n", p.Name, descriptor)
		file := fmt.Sprintf("apiVersion: %s\nkind: %s\nkinds:\n%s", kind.FileAPIVersion, kind.FileKind, descriptor)
		kinds, errs := kind.ParseFile([]byte(file))
		if len(errs) > 0 || len(kinds) != 1 || kinds[0].Name != workloadtest.Preset(p.Name).Name {
			t.Errorf("%s cannot be read from a file: %v", p.Name, errs)
		}
	}
	if *update {
		if err := os.WriteFile(path, []byte(before+beginPresets+want.String()+endPresets+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want.String(), got); diff != "" {
		t.Errorf("%s is not up to date: run go test ./test/documents -run TestDescriptorsOfPresets -update (-want +got):\n%s", path, diff)
	}
}

// The table of presets has a row for each of them, with its resource.
func TestTableOfPresets(t *testing.T) {
	t.Parallel()
	text := documents(t)["docs/kinds.md"]
	var got, want []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| `([a-z0-9.-]+)` \\|").FindAllStringSubmatch(text, -1) {
		got = append(got, row[1]+" "+row[2])
	}
	for _, p := range kind.Presets() {
		want = append(want, p.Name+" "+p.Descriptor.Resource+"."+p.Descriptor.Group)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A file with the example can be read.
func TestExampleOfKinds(t *testing.T) {
	t.Parallel()
	found := regexp.MustCompile("(?s)<!-- example -->\n```yaml\n(.*?)```\n").FindStringSubmatch(documents(t)["docs/kinds.md"])
	if found == nil {
		t.Fatal("docs/kinds.md has no example")
	}
	kinds, errs := kind.ParseFile([]byte(found[1]))
	if len(errs) > 0 || len(kinds) != 1 {
		t.Fatalf("kinds = %v, errors: %v", kinds, errs)
	}
}
