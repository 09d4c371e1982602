// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package documents

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"testing"

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

// Dependabot silently ignores modules that its configuration does not list.
func TestDependabotKnowsAllModules(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(filepath.Join(root, ".github", "dependabot.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var dependabot struct {
		Updates []struct {
			Ecosystem   string   `json:"package-ecosystem"`
			Directory   string   `json:"directory"`
			Directories []string `json:"directories"`
		} `json:"updates"`
	}
	if err := yaml.Unmarshal(content, &dependabot); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, update := range dependabot.Updates {
		for _, folder := range append(update.Directories, update.Directory) {
			known[folder] = known[folder] || update.Ecosystem == "gomod"
		}
	}
	for _, file := range files(t, "*go.mod") {
		if folder := path.Join("/", path.Dir(file)); !known[folder] {
			t.Errorf("dependabot.yml does not list %s", folder)
		}
	}
}
