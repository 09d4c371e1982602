// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// buildScript builds the binaries if they do not exist yet, and prints their folder.
const buildScript = "hack/controlplane/build.sh"

// RepositoryRoot returns the nearest folder upwards that has the build script. Tests run in the folder of their
// package, and programs in any folder of the repository.
func RepositoryRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, buildScript)); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find the repository: no %s in %s or above", buildScript, start)
		}
	}
}

// binaries returns the folder with the binaries of all components. The first call takes minutes; progress is written to
// log.
func binaries(ctx context.Context, root string, log io.Writer) (string, error) {
	unlock, err := lockBuild(ctx, root)
	if err != nil {
		return "", err
	}
	defer unlock()

	// The build ends with its compilers, even if this process is killed meanwhile.
	group, err := newGuard("")
	if err != nil {
		return "", err
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "bash", filepath.Join(root, buildScript))
	cmd.Stdout, cmd.Stderr = &stdout, io.MultiWriter(&stderr, log)
	cmd.Cancel = group.terminate
	cmd.WaitDelay = stopLimit
	group.adopt(cmd)
	err = cmd.Run()
	if err := group.release(); err != nil {
		return "", err
	}
	if err != nil {
		return "", fmt.Errorf("build the control plane: %w\n%s", err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(stdout.String()), nil
}

// lockBuild lets only one process build at a time: "go test ./..." starts several processes, and a build uses all
// processors.
func lockBuild(ctx context.Context, root string) (unlock func(), err error) {
	path := filepath.Join(root, ".cache", "controlplane.lock")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("create cache folder: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open build lock: %w", err)
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil // closing unlocks the file
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = f.Close()
			return nil, fmt.Errorf("lock the build: %w", err)
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("wait for another build to end: %w", context.Cause(ctx))
		case <-time.After(200 * time.Millisecond):
		}
	}
}
