// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package documents tests that files, tests and targets to which the documents refer exist.
package documents

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

var (
	fence   = regexp.MustCompile("(?s)```.*?```")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	inTree  = regexp.MustCompile("`((?:artifacts|cmd|docs|hack|pkg|test)/[^` ]+)`")
	aTest   = regexp.MustCompile("`((?:Test|Fuzz)[A-Z][A-Za-z0-9_]*)`")
	target  = regexp.MustCompile("`make ([a-z0-9-]+)|(?m:^make ([a-z0-9-]+))")
)

func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	checked := 0
	for file, text := range documents(t) {
		for _, found := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			to := found[1]
			if strings.Contains(to, "://") {
				continue
			}
			path, anchor, _ := strings.Cut(to, "#")
			path = filepath.Join(filepath.Dir(file), path)
			if strings.HasPrefix(to, "#") {
				path = file
			}
			checked++
			content, err := os.ReadFile(filepath.Join(root, path))
			if info, statErr := os.Stat(filepath.Join(root, path)); statErr == nil && info.IsDir() && anchor == "" {
				continue
			}
			if err != nil {
				t.Errorf("%s: %s does not exist", file, to)
				continue
			}
			if anchor != "" && !anchors(string(content))[anchor] {
				t.Errorf("%s: no heading for %s", file, to)
			}
		}
	}
	if checked < 30 {
		t.Errorf("found only %d links", checked)
	}
}

func TestMakeHasTheTargets(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for file, text := range documents(t) {
		for _, found := range target.FindAllStringSubmatch(text, -1) {
			name := found[1] + found[2]
			checked++
			if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `:`).Match(makefile) {
				t.Errorf("%s: the Makefile has no target %s", file, name)
			}
		}
	}
	if checked < 10 {
		t.Errorf("found only %d references", checked)
	}
}

// Files and tests that a document names exist.
func TestFilesAndTestsExist(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{}
	for _, found := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllStringSubmatch(read(t, "*_test.go"), -1) {
		tests[found[1]] = true
	}
	checked := 0
	for file, text := range documents(t) {
		text = fence.ReplaceAllString(text, "")
		for _, found := range inTree.FindAllStringSubmatch(text, -1) {
			checked++
			if paths, err := filepath.Glob(filepath.Join(root, found[1])); err != nil || len(paths) == 0 {
				t.Errorf("%s: %s does not exist (%v)", file, found[1], err)
			}
		}
		for _, found := range aTest.FindAllStringSubmatch(text, -1) {
			checked++
			if !tests[found[1]] && found[1] != "TestX" {
				t.Errorf("%s: the test %s does not exist", file, found[1])
			}
		}
	}
	if checked < 60 {
		t.Errorf("found only %d references", checked)
	}
}

// read returns the content of all files of the tree that match a pattern.
func read(t *testing.T, pattern string) string {
	t.Helper()
	var all strings.Builder
	for _, file := range files(t, pattern) {
		content, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		all.Write(content)
		all.WriteByte('\n')
	}
	return all.String()
}

// documents returns the Markdown files of the tree.
func documents(t *testing.T) map[string]string {
	t.Helper()
	documents := map[string]string{}
	for _, file := range files(t, "*.md") {
		content, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		documents[file] = string(content)
	}
	return documents
}

// files returns the files of the tree that match a pattern.
func files(t *testing.T, pattern string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", pattern)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

// anchors returns the anchors that GitHub creates for headings.
func anchors(text string) map[string]bool {
	made := map[string]bool{}
	for _, found := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		name := strings.ToLower(strings.TrimSpace(found[1]))
		name = regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(name, "")
		made[strings.ReplaceAll(name, " ", "-")] = true
	}
	return made
}
