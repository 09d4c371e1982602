// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package documents

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// Workflows pin actions to commits, because a tag can be moved to other code, which would then run with the permissions
// of the workflow. A comment has the version for readers. All scripts that a workflow calls exist, which actionlint does
// not check.
func TestWorkflows(t *testing.T) {
	t.Parallel()
	var (
		uses   = regexp.MustCompile(`(?m)\buses: (.*)$`)
		local  = regexp.MustCompile(`^\./\.github/workflows/\S+$`)
		pinned = regexp.MustCompile(`^[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
		script = regexp.MustCompile(`(?:hack|\.ci|\.github)/[\w./-]*\w`)
	)
	workflows, actions, scripts := files(t, ".github/workflows/*"), 0, 0
	for _, file := range workflows {
		content, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range uses.FindAllStringSubmatch(string(content), -1) {
			actions++
			if !local.MatchString(found[1]) && !pinned.MatchString(found[1]) {
				t.Errorf("%s: %s is not pinned to a commit with its version in a comment", file, found[1])
			}
		}
		for _, path := range script.FindAllString(string(content), -1) {
			scripts++
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("%s: %s does not exist (%v)", file, path, err)
			}
		}
	}
	if len(workflows) < 2 || actions < 10 || scripts < 10 {
		t.Errorf("found only %d workflows with %d actions and %d scripts", len(workflows), actions, scripts)
	}
}

// Dependabot silently ignores modules that its configuration does not list. It also ignores a tool whose module is not
// allowed by name, because all requirements of a module of tools count as indirect.
func TestDependabotKnowsAllModules(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(filepath.Join(root, ".github", "dependabot.yml"))
	if err != nil {
		t.Fatal(err)
	}
	type update struct {
		Ecosystem   string   `json:"package-ecosystem"`
		Directory   string   `json:"directory"`
		Directories []string `json:"directories"`
		Limit       *int     `json:"open-pull-requests-limit"`
		Allow       []struct {
			Name string `json:"dependency-name"`
			Type string `json:"dependency-type"`
		} `json:"allow"`
		Ignore   []any          `json:"ignore"`
		Groups   map[string]any `json:"groups"`
		Schedule map[string]any `json:"schedule"`
	}
	var dependabot struct {
		Version int      `json:"version"`
		Updates []update `json:"updates"`
	}
	if err := yaml.UnmarshalStrict(content, &dependabot); err != nil {
		t.Fatal(err)
	}
	var got, want []string
	of := map[string]update{}
	for _, u := range dependabot.Updates {
		if u.Ecosystem != "gomod" {
			continue
		}
		folders := u.Directories
		if u.Directory != "" {
			folders = append(folders, u.Directory)
		}
		for _, folder := range folders {
			got, of[folder] = append(got, folder), u
		}
	}
	tool := regexp.MustCompile(`(?m)^(?:tool|\t)\s?([\w.-]+\.[\w./-]+)$`)
	tools := 0
	for _, file := range files(t, "*go.mod") {
		folder := path.Join("/", path.Dir(file))
		want = append(want, folder)
		content, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range tool.FindAllStringSubmatch(string(content), -1) {
			tools++
			u := of[folder]
			updated := u.Limit != nil && *u.Limit == 0 || strings.HasPrefix(found[1], "k8s.io/kube-openapi/") // updated manually
			for _, allowed := range u.Allow {
				updated = updated || allowed.Type == "all" && strings.HasPrefix(found[1]+"/", allowed.Name+"/")
			}
			if !updated {
				t.Errorf("%s: dependabot.yml does not allow updates of the tool %s", file, found[1])
			}
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" || len(want) < 5 {
		t.Errorf("folders with a go.mod (-want +got):\n%s", diff)
	}
	if tools < 10 {
		t.Errorf("found only %d tools", tools)
	}
}

// GitHub silently ignores invalid issue forms.
func TestIssueForms(t *testing.T) {
	t.Parallel()
	forms := 0
	for _, file := range files(t, ".github/ISSUE_TEMPLATE/*.yml") {
		content, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		if path.Base(file) == "config.yml" {
			var config struct {
				Blank bool `json:"blank_issues_enabled"`
				Links []struct {
					Name  string `json:"name"`
					URL   string `json:"url"`
					About string `json:"about"`
				} `json:"contact_links"`
			}
			if err := yaml.UnmarshalStrict(content, &config); err != nil || !strings.Contains(string(content), "/security/advisories/new") {
				t.Errorf("%s has no link for private reports (%v)", file, err)
			}
			continue
		}
		var form struct {
			Name        string   `json:"name"`
			Description string   `json:"description"`
			Labels      []string `json:"labels"`
			Body        []struct {
				Type       string `json:"type"`
				ID         string `json:"id"`
				Attributes struct {
					Label       string `json:"label"`
					Description string `json:"description"`
					Placeholder string `json:"placeholder"`
					Render      string `json:"render"`
					Value       string `json:"value"`
				} `json:"attributes"`
				Validations struct {
					Required bool `json:"required"`
				} `json:"validations"`
			} `json:"body"`
		}
		if err := yaml.UnmarshalStrict(content, &form); err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		forms++
		if form.Name == "" || form.Description == "" || len(form.Body) == 0 {
			t.Errorf("%s has no name, description or fields", file)
		}
		ids := map[string]bool{}
		for _, field := range form.Body {
			switch field.Type {
			case "markdown":
				if field.Attributes.Value == "" {
					t.Errorf("%s has a markdown field without a value", file)
				}
			case "textarea", "input":
				if field.ID == "" || ids[field.ID] || field.Attributes.Label == "" {
					t.Errorf("%s: the field %q has no label or no unique ID", file, field.ID)
				}
				ids[field.ID] = true
			default:
				t.Errorf("%s: unknown type %q of a field", file, field.Type)
			}
		}
	}
	if forms < 2 {
		t.Errorf("found only %d forms", forms)
	}
}
