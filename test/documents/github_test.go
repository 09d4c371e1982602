package documents

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// A tag can be moved to other code, which would then run with the rights of a workflow; what a comment says is for people.
// Every script that a workflow calls exists, which actionlint does not look at.
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
				t.Errorf("%s: %s does not name a commit, with its version in a comment", file, found[1])
			}
		}
		for _, path := range script.FindAllString(string(content), -1) {
			scripts++
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("%s: there is no %s (%v)", file, path, err)
			}
		}
	}
	if len(workflows) < 2 || actions < 10 || scripts < 10 {
		t.Errorf("there are %d workflows with %d actions and %d scripts only", len(workflows), actions, scripts)
	}
}
