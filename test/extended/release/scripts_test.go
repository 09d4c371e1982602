// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// The script finds the digests of base images by their tags, and prints the variables that a release needs.
func TestBaseImages(t *testing.T) {
	t.Parallel()
	root, bin := "../../..", t.TempDir()
	digest := "sha256:" + strings.Repeat("1", 64)
	docker := "#!/bin/sh\n[ \"$2 $3\" != 'imagetools inspect' ] || echo \"$DIGEST\"\n"
	if err := os.WriteFile(filepath.Join(bin, "docker"), []byte(docker), 0o700); err != nil {
		t.Fatal(err)
	}
	with := func(digest string) []string {
		return append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "DIGEST="+digest)
	}
	goVersion := strings.TrimSpace(execute(t, root, os.Environ(), "hack/go-version.sh"))
	want := "BUILD_IMAGE=golang:" + goVersion + "@" + digest + "\nBASE_IMAGE=gcr.io/distroless/static-debian12:nonroot@" + digest + "\n"
	if diff := cmp.Diff(want, execute(t, root, with(digest), "hack/base-images.sh")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	cmd := exec.CommandContext(t.Context(), "hack/base-images.sh")
	cmd.Dir, cmd.Env = root, with("none")
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Errorf("without a digest, the script succeeded: %s", out)
	}
}

// The images of server and agent are built from one commit, and each is described in a file of its own.
func TestImagesByDocker(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	log := filepath.Join(bin, "log")
	docker := "#!/bin/sh\n[ \"$2\" != build ] || echo \"$@\" >>" + log + "\n"
	if err := os.WriteFile(filepath.Join(bin, "docker"), []byte(docker), 0o700); err != nil {
		t.Fatal(err)
	}
	execute(t, "../../..", append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "VERSION=v0.0.0-test", "IMAGE=example.com:5000/server:x",
		"METADATA=server.json", "AGENT_METADATA=agent.json", "BASE_IMAGE=example.com/base"), "hack/image.sh")
	content, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	builds := strings.Split(strings.TrimSpace(string(content)), "\n")
	ends := []string{
		" --load --target server --tag example.com:5000/server:x --metadata-file server.json .",
		" --load --target agent --tag example.com:5000/configdep-agent:x --metadata-file agent.json .",
	}
	if len(builds) != len(ends) {
		t.Fatalf("builds = %q, want two", builds)
	}
	var common [2]string
	for i, end := range ends {
		var found bool
		if common[i], found = strings.CutSuffix(builds[i], end); !found {
			t.Errorf("docker %s, want it to end with %s", builds[i], end)
		}
	}
	if common[0] != common[1] || !strings.Contains(common[0], "VERSION=v0.0.0-test") || !strings.Contains(common[0], "BASE_IMAGE=example.com/base") {
		t.Errorf("docker %s\ndocker %s\nwant the same arguments, with the version and the base image", common[0], common[1])
	}
}
