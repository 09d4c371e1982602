// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"path"
	"path/filepath"

	"github.com/configdep/configdep/test/controlplane"
)

// Build builds a program of the repository, such as ./cmd/configdep-apiserver, and returns the path of the binary.
// The binary with the race detector has another path, and neither is the path of make build, whose binaries have a
// version.
func Build(ctx context.Context, program string, race bool) (string, error) {
	root, err := controlplane.RepositoryRoot()
	if err != nil {
		return "", err
	}
	return build(ctx, root, race, program)
}

// open opens the folders with what programs and manifests are made of. Otherwise "go test" would take the result of an earlier run
// for that of a program that has changed since: it knows what a test opens, but not what the commands do that it runs.
func open(root string) error {
	for _, dir := range []string{"cmd", "pkg", "artifacts", "hack"} {
		if err := filepath.WalkDir(filepath.Join(root, dir), func(_ string, _ fs.DirEntry, err error) error { return err }); err != nil {
			return err
		}
	}
	return nil
}

func build(ctx context.Context, root string, race bool, program string) (string, error) {
	if err := open(root); err != nil {
		return "", err
	}
	binary := filepath.Join(root, ".cache", "bin", path.Base(program)+"-devel")
	args := []string{"build", "-trimpath", "-tags", "grpcnotrace"} // as in hack/build.sh
	if race {
		binary += "-race"
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "-o", binary, program)...)
	cmd.Dir = root
	if !race {
		cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w: %s", program, err, out)
	}
	return binary, nil
}

// BuildTools builds tools of hack/tools, such as helm, unless they have been built already. The first build takes
// minutes, so TestMain calls BuildTools before any time limit starts. Progress goes to log.
func BuildTools(ctx context.Context, log io.Writer, names ...string) error {
	root, err := controlplane.RepositoryRoot()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(root, "hack", "tools", "build.sh"), names...)
	cmd.Stderr = log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("building %v: %w", names, err)
	}
	return nil
}
