// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// withAssets runs the build script, in a copy that has built nothing yet, with a value of KUBEBUILDER_ASSETS. Names in the
// value are relative to a folder with the assets bin.
func withAssets(t *testing.T, value string) (folder, messages string, err error) {
	t.Helper()
	root, err := RepositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "hack", "controlplane"), os.DirFS(filepath.Join(root, "hack", "controlplane"))); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"etcd", "kubectl", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"} {
		if err := os.WriteFile(filepath.Join(dir, "bin", name), []byte("#!/bin/sh\necho given "+name+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var stderr strings.Builder
	cmd := exec.CommandContext(t.Context(), "bash", filepath.Join(dir, buildScript))
	cmd.Dir, cmd.Stderr, cmd.Env = dir, &stderr, append(os.Environ(), "KUBEBUILDER_ASSETS="+value)
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), stderr.String(), err
}

// Binaries that are there already are used and not built, wherever the script is called.
func TestBuild_UsesKubebuilderAssets(t *testing.T) {
	folder, messages, err := withAssets(t, "bin")
	if err != nil || strings.Contains(messages, "building (") {
		t.Fatalf("%v, with the messages\n%s", err, messages)
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kwok"} {
		out, err := exec.CommandContext(t.Context(), filepath.Join(folder, name)).CombinedOutput()
		if err != nil || string(out) != "given "+name+"\n" {
			t.Errorf("%s prints %q, %v; want the binary of the assets", name, out, err)
		}
	}
}

func TestBuild_RefusesAssetsThatAreNoFolder(t *testing.T) {
	if folder, messages, err := withAssets(t, "nowhere"); err == nil || !strings.Contains(messages, "KUBEBUILDER_ASSETS is not a folder: nowhere") {
		t.Errorf("folder %q, error %v, with the messages\n%s", folder, err, messages)
	}
}
