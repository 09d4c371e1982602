// Package documents tests that the documents refer to nothing that does not exist.
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
	target  = regexp.MustCompile("`make ([a-z-]+)|(?m:^make ([a-z-]+))")
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
				t.Errorf("%s: %s is not there", file, to)
				continue
			}
			if anchor != "" && !anchors(string(content))[anchor] {
				t.Errorf("%s: %s has no heading of that name", file, to)
			}
		}
	}
	if checked < 30 {
		t.Errorf("there are %d links only", checked)
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
				t.Errorf("%s: there is no make %s", file, name)
			}
		}
	}
	if checked < 10 {
		t.Errorf("there are %d only", checked)
	}
}

// documents returns the Markdown files of the tree.
func documents(t *testing.T) map[string]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for file := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		files[file] = string(content)
	}
	return files
}

// anchors returns those that GitHub makes of headings.
func anchors(text string) map[string]bool {
	made := map[string]bool{}
	for _, found := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		name := strings.ToLower(strings.TrimSpace(found[1]))
		name = regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(name, "")
		made[strings.ReplaceAll(name, " ", "-")] = true
	}
	return made
}
