// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The notes of a release are the section of its version in the changelog, and a release without one is refused.
func TestReleaseNotes(t *testing.T) {
	t.Parallel()
	tree := t.TempDir()
	copyFile(t, "../../../hack/release-notes.sh", filepath.Join(tree, "hack", "release-notes.sh"))
	changelog := "# Changelog\n\n## [Unreleased]\n\n- later\n\n## [0.2.0] - 2027-01-02\n\n### Added\n\n- more\n\n" +
		"## [0.1.0] - 2027-01-01\n\n- all\n\n## [0.0.9]\n\n[0.1.0]: https://example.com\n"
	if err := os.WriteFile(filepath.Join(tree, "CHANGELOG.md"), []byte(changelog), 0o600); err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string]string{
		"v0.2.0":     "### Added\n\n- more\n",
		"v0.1.0":     "- all\n",
		"v0.0.9":     "",
		"v0.1":       "",
		"v0.1.0-rc1": "",
		"Unreleased": "",
	} {
		cmd := exec.CommandContext(t.Context(), "hack/release-notes.sh", version)
		cmd.Dir = tree
		out, err := cmd.Output()
		if diff := cmp.Diff(want, string(out)); diff != "" || (err == nil) != (want != "") {
			t.Errorf("notes of %s (-want +got), error = %v:\n%s", version, err, diff)
		}
	}
}
