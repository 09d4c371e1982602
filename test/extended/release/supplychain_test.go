// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const signature = "SHA256SUMS.sig"

// signingKey creates a key, and a list of signers with only that key.
func signingKey(t *testing.T) (key, signers string) {
	t.Helper()
	dir := t.TempDir()
	key, signers = filepath.Join(dir, "key"), filepath.Join(dir, "signers")
	execute(t, dir, os.Environ(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key)
	public, err := os.ReadFile(key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(signers, fmt.Appendf(nil, "jane@example.com namespaces=\"configdep-release\" %s", public), 0o600); err != nil {
		t.Fatal(err)
	}
	return key, signers
}

// verify verifies a signature as docs/install.md describes.
func verify(t *testing.T, signers, signature string, content []byte) error {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "ssh-keygen", "-Y", "verify", "-f", signers, "-I", "jane@example.com", "-n", "configdep-release", "-s", signature)
	cmd.Stdin = bytes.NewReader(content)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// A release is refused before anything is built unless it can be traced to a commit, to base images and to a signer.
func TestReleaseIsRefused(t *testing.T) {
	const tag = "v0.0.1"
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	tree := filepath.Join(t.TempDir(), "tree")
	for _, file := range tracked(t, root) {
		copyFile(t, filepath.Join(root, file), filepath.Join(tree, file))
	}
	// In a hook, or a command of git rebase, variables name the repository of the tests.
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GIT_DIR=") || strings.HasPrefix(v, "GIT_WORK_TREE=") })
	git := func(args ...string) {
		t.Helper()
		execute(t, tree, env, append([]string{"git", "-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "init.defaultBranch=main"}, args...)...)
	}
	if err := os.Mkdir(filepath.Join(tree, ".cache"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, ".cache", "tools"), filepath.Join(tree, ".cache", "tools")); err != nil {
		t.Fatal(err)
	}
	key, signers := signingKey(t)
	other, _ := signingKey(t)
	copyFile(t, signers, filepath.Join(tree, "hack", "release-signers"))
	git("init", "--quiet")
	if err := os.WriteFile(filepath.Join(tree, ".git", "info", "exclude"), []byte("ignored.go\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	prepare := func(version string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "hack/release-prepare.sh", version)
		cmd.Dir, cmd.Env = tree, slices.Concat(env, []string{"DATE=2027-01-31"})
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	git("add", "--all")
	if out, err := prepare(tag); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	git("add", "--all")
	git("commit", "--quiet", "--message", "x")
	git("tag", tag)
	git("tag", "v0.0.3")
	// The scripts are made to see the Go version of the Dockerfile.
	content, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(content), "ARG GO_VERSION=")
	goVersion, _, _ := strings.Cut(after, "\n")
	bin := t.TempDir()
	fake := "#!/bin/sh\n[ \"$*\" != 'env GOVERSION' ] || { echo go" + goVersion + "; exit; }\nexec \"$REAL_GO\" \"$@\"\n"
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte(fake), 0o700); err != nil {
		t.Fatal(err)
	}
	path, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	digest := "@sha256:" + strings.Repeat("0", 64)
	usual := map[string]string{
		"VERSION": tag, "IMAGE": "example.com/image", "IMAGE_DIGEST": digest[1:], "AGENT_IMAGE_DIGEST": digest[1:], "BUILD_IMAGE": "golang:" + goVersion + digest, "BASE_IMAGE": "example.com/static" + digest, "SIGNING_KEY": key,
		"PATH": bin + ":" + os.Getenv("PATH"), "REAL_GO": path, "SOURCE_DATE_EPOCH": "1", "HTTPS_PROXY": "http://127.0.0.1:1", "NO_PROXY": "", "GOPROXY": "off",
	}
	run := func(ctx context.Context, script string, change map[string]string) (string, error) {
		cmd := exec.CommandContext(ctx, script)
		cmd.Dir, cmd.Env = tree, os.Environ()
		for _, values := range []map[string]string{usual, change} {
			for name, value := range values {
				cmd.Env = append(cmd.Env, name+"="+value)
			}
		}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for name, test := range map[string]struct {
		change map[string]string
		says   string
	}{
		"no notes of the version":        {map[string]string{"VERSION": "v0.0.3"}, "CHANGELOG.md says nothing of v0.0.3"},
		"no tag":                         {map[string]string{"VERSION": "v0.0.2"}, "v0.0.2 is not the tag of this commit"},
		"a base image by its tag":        {map[string]string{"BASE_IMAGE": "example.com/static:nonroot"}, "BASE_IMAGE=example.com/static:nonroot names no image by its digest"},
		"no digest of an image":          {map[string]string{"AGENT_IMAGE_DIGEST": ""}, "AGENT_IMAGE_DIGEST is not set: a release installs its images by digest"},
		"an image by its tag":            {map[string]string{"IMAGE_DIGEST": tag}, "IMAGE_DIGEST=v0.0.1 is no digest"},
		"no build image":                 {map[string]string{"BUILD_IMAGE": ""}, "BUILD_IMAGE= names no image by its digest"},
		"a build image with another Go":  {map[string]string{"BUILD_IMAGE": "golang:1.20.1" + digest}, "has another Go than " + goVersion},
		"no key":                         {map[string]string{"SIGNING_KEY": ""}, "a release is signed: SIGNING_KEY names the key"},
		"an unknown key":                 {map[string]string{"SIGNING_KEY": other}, "is not in hack/release-signers"},
		"other signers":                  {map[string]string{"RELEASE_SIGNERS": signers}, "RELEASE_SIGNERS is not for a release"},
		"a subset of platforms":          {map[string]string{"PLATFORMS": "linux/amd64"}, "PLATFORMS is not for a release"},
		"another vulnerability database": {map[string]string{"GOVULNDB": "file://" + t.TempDir()}, "GOVULNDB is not for a release"},
		"no vulnerability database":      {nil, "it has to be, as GOVULNCHECK=required"},
		"a build without a signature passes these checks": {map[string]string{"SIGNING_KEY": "none", "PLATFORMS": "none/none"}, "nothing is built for PLATFORMS=none/none"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := run(t.Context(), "hack/release.sh", test.change)
			if err == nil || !strings.Contains(out, test.says) {
				t.Errorf("error = %v, want another message; output:\n%s", err, out)
			}
		})
	}
	for name, images := range map[string]map[string]string{
		"an image with the version of another tag":         {"VERSION": "v0.0.1-dirty", "IMAGE": "example.com:5000/image:" + tag},
		"an image of the agent with another tag":           {"IMAGE": "example.com/image:" + tag, "AGENT_IMAGE": "example.com/agent:v0.0.2"},
		"an image of the agent with the tag of no release": {"IMAGE": "example.com/image:" + tag, "AGENT_IMAGE": "example.com/agent:latest"},
	} {
		t.Run(name+" is not pushed", func(t *testing.T) {
			images["PUSH"] = "true"
			out, err := run(t.Context(), "hack/image.sh", images)
			if err == nil || !strings.Contains(out, "VERSION and the tag in IMAGE have to be the same") {
				t.Errorf("error = %v, want another message; output:\n%s", err, out)
			}
		})
	}
	t.Run("an image whose base image is named by tag is not pushed", func(t *testing.T) {
		out, err := run(t.Context(), "hack/image.sh", map[string]string{"PUSH": "true", "IMAGE": "example.com/image:" + tag, "BASE_IMAGE": "example.com/static:nonroot"})
		if err == nil || !strings.Contains(out, "BASE_IMAGE=example.com/static:nonroot names no image by its digest") {
			t.Errorf("error = %v, want another message; output:\n%s", err, out)
		}
	})
	for name, file := range map[string]string{"an uncommitted file": "more", "an ignored file": "pkg/version/ignored.go"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(tree, file)
			if err := os.WriteFile(path, []byte("package version\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := run(t.Context(), "hack/release.sh", nil)
			if err == nil || !strings.Contains(out, "a release is made of what is committed") || !strings.Contains(out, file) {
				t.Errorf("error = %v, want another message; output:\n%s", err, out)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Run("examples with the image of another version", func(t *testing.T) {
		example := filepath.Join(tree, "artifacts", "argo-cd", "wait.yaml")
		content, err := os.ReadFile(example)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(example, bytes.ReplaceAll(content, []byte(":"+tag), []byte(":v0.0.11")), 0o600); err != nil {
			t.Fatal(err)
		}
		git("commit", "--quiet", "--all", "--message", "x")
		git("tag", "--force", tag)
		out, err := run(t.Context(), "hack/release.sh", nil)
		if err == nil || !strings.Contains(out, "these are images of another version than "+tag) || !strings.Contains(out, "artifacts/argo-cd/wait.yaml:") {
			t.Errorf("error = %v, want another message; output:\n%s", err, out)
		}
	})
	t.Run("a version is prepared once", func(t *testing.T) {
		if out, err := prepare(tag); err == nil || !strings.Contains(out, "CHANGELOG.md already has a heading for "+tag) {
			t.Errorf("error = %v, want another message; output:\n%s", err, out)
		}
	})
}
