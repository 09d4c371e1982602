// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/configdep/configdep/pkg/kind"
)

const (
	header = "apiVersion: config.configdep.io/v1alpha1\nkind: WorkloadKinds\nkinds:\n"
	harbor = "- {group: goharbor.io, kind: HarborCluster, resource: harborclusters, versions: [v1beta1], reload: {by: Event}}\n"
)

func TestParseFile(t *testing.T) {
	kinds, errs := kind.ParseFile([]byte(header + harbor + `- group: example.com
  kind: Deployment
  alias: ExampleDeployment
  resource: deployments
  versions: [v2, v1]
  podTemplates: [{path: .spec.template}]
  pods: {}
  reload: {by: TemplateAnnotation}
`))
	if len(errs) > 0 || len(kinds) != 2 {
		t.Fatalf("%d kinds, errors = %v", len(kinds), errs)
	}
	k := kinds[1]
	if k.Name != "ExampleDeployment" || k.GroupVersionKind().String() != "example.com/v2, Kind=Deployment" || !k.Traits.Rollable || k.Traits.Restart != nil || !k.Traits.Custom {
		t.Errorf("kind = %+v", k)
	}
	if kinds[0].Restarted() || !kinds[0].Traits.OnlyReported() {
		t.Errorf("a HarborCluster can be restarted")
	}
}

func TestParseFile_Errors(t *testing.T) {
	for content, want := range map[string]string{
		"":                    `must be a WorkloadKinds of config.configdep.io/v1alpha1, got a "" of ""`,
		"kind: Notifications": `got a "Notifications" of ""`,
		"- a":                 "must be an object, got array",
		"text":                "must be an object, got string",
		header + "  a: b":     "kinds: must be a list, got object",
		header + harbor + strings.Replace(harbor, "[v1beta1]", "v1", 1):                                                "kinds[1].versions: must be a list, got string",
		header + harbor + strings.Replace(harbor, "{by: Event}", "Event", 1):                                           "kinds[1].reload: must be an object, got string",
		header + strings.Replace(harbor, "reload:", "fields: 'true', reload:", 1):                                      "kinds[0].fields: must be true or false, got string",
		header + harbor + strings.Replace(harbor, "reload:", "status: {complete: [{path: .a, value: 5}]}, reload:", 1): `kinds[1].status.complete.value: must be a text, got number: write it in quotes`,
		header + strings.Replace(harbor, "reload:", "status: {complete: [{path: .a, value: true}]}, reload:", 1):       `kinds[0].status.complete.value: must be a text, got bool: write it in quotes`,
		header + "- a":                      "kinds[0]: must be an object, got string",
		"a: [":                              "yaml:",
		"kind: a\nkind: b":                  `key "kind" already set`,
		header:                              "kinds: must have 1 to 64 elements, got 0",
		header + strings.Repeat(harbor, 65): "kinds: must have 1 to 64 elements, got 65",
		header + harbor + harbor:            `kinds[1]: Duplicate value: "HarborCluster (harborclusters.goharbor.io)"`,
		header + harbor + "---\n" + header + harbor:               "must have one YAML document",
		header + strings.Replace(harbor, "reload:", "relaod:", 1): `unknown field "kinds[0].relaod"`,
		header + strings.Replace(harbor, "v1beta1", "V1", 1):      "kinds[0].versions[0]",
		header + strings.Replace(harbor, "Event", "Magic", 1):     "kinds[0].reload.by",
	} {
		kinds, errs := kind.ParseFile([]byte(content))
		if len(errs) == 0 || !strings.Contains(errs[0].Error(), want) || kinds != nil {
			t.Errorf("%.120q: errors = %v, want %q", content, errs, want)
		}
	}
}

func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kinds.yaml")
	if _, errs := kind.ReadFile(path); len(errs) != 1 || !os.IsNotExist(errs[0]) {
		t.Errorf("errors = %v", errs)
	}
	write := func(content string) {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(header + harbor)
	if kinds, errs := kind.ReadFile(path); len(errs) > 0 || len(kinds) != 1 {
		t.Errorf("kinds = %v, errors = %v", kinds, errs)
	}
	write(header)
	if _, errs := kind.ReadFile(path); len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), path+": kinds: ") {
		t.Errorf("errors = %v", errs)
	}
	write(strings.Repeat("#", 1<<20+1))
	if _, errs := kind.ReadFile(path); len(errs) != 1 || !strings.Contains(errs[0].Error(), "must not have more than 1048576 bytes") {
		t.Errorf("errors = %v", errs)
	}
}

func TestNewTable(t *testing.T) {
	parse := func(text string) []*kind.Kind {
		kinds, errs := kind.ParseFile([]byte(header + text))
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		return kinds
	}
	own := "- {group: argoproj.io, kind: Rollout, resource: rollouts, versions: [v1alpha1], reload: {by: Event}}\n"
	for name, tt := range map[string]struct {
		presets []string
		others  string
		want    string // the last kind, and whether it can be restarted
		problem string
	}{
		"nothing":                  {nil, "", "Pod false", ""},
		"a preset":                 {[]string{"argo-rollout"}, "", "Rollout true", ""},
		"another":                  {nil, harbor, "HarborCluster false", ""},
		"in the place of a preset": {[]string{"argo-rollout"}, own, "Rollout false", ""},
		"no preset":                {[]string{"argo"}, "", "", `"argo" is no preset: must be any of argo-rollout, `},
		"twice":                    {[]string{"argo-rollout", "argo-rollout"}, "", "", "the preset argo-rollout is named twice"},
		"the name of a preset": {
			[]string{"argo-rollout"}, "- {group: example.com, kind: ROllout, resource: rolls, versions: [v1], reload: {by: Event}}\n", "",
			"the kind ROllout (rolls.example.com) has the same name or resource as Rollout (rollouts.argoproj.io): set alias to another name",
		},
	} {
		var others []*kind.Kind
		if tt.others != "" {
			others = parse(tt.others)
		}
		table, err := kind.NewTable(tt.presets, others)
		if tt.problem != "" {
			if err == nil || !strings.Contains(err.Error(), tt.problem) {
				t.Errorf("%s: error = %v, want %s", name, err, tt.problem)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		last := table[len(table)-1]
		if got := string(last.Name) + map[bool]string{true: " true", false: " false"}[last.Restarted()]; got != tt.want {
			t.Errorf("%s: the last kind is %s, want %s", name, got, tt.want)
		}
		if table.OfReference("apps/v1", "Deployment") == nil || table.OfReference("x/y/z", "Deployment") != nil {
			t.Errorf("%s: Deployments are not found as they should", name)
		}
	}
	if _, err := kind.NewTable(kind.PresetNames(), nil); err != nil {
		t.Error(err)
	}
}
