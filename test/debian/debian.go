// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package debian unpacks packages of Debian into the cache of the repository, for tests with real applications. Nothing is installed, and
// no root is needed.
package debian

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNone is returned on a system without packages of Debian.
var ErrNone = errors.New("there is no apt-get and dpkg-deb: this is not Debian or a relative")

// Unpack downloads packages, in the versions of this system, and unpacks them into one folder, whose path it returns. The packages that
// they depend on must be installed, or be named too.
func Unpack(ctx context.Context, names ...string) (string, error) {
	return unpack(ctx, false, names)
}

// UnpackAll is Unpack for packages with many dependencies: it adds those that are not installed.
func UnpackAll(ctx context.Context, names ...string) (string, error) {
	return unpack(ctx, true, names)
}

func unpack(ctx context.Context, dependencies bool, names []string) (string, error) {
	for _, program := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", ErrNone
		}
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	names = slices.Sorted(slices.Values(names))
	of := strings.Join(names, " ")
	if dependencies {
		of += " and all"
	}
	root := filepath.Join(cache, fmt.Sprintf("%x", sha256.Sum256([]byte(of)))[:12])
	unlock, err := lock(filepath.Join(cache, "lock")) // apt-get cannot run twice with the same lists
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	work, err := os.MkdirTemp(cache, "unpack-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	debs := filepath.Join(work, "debs")
	lists := filepath.Join(cache, "lists")
	for _, dir := range []string{debs, filepath.Join(work, "root"), filepath.Join(lists, "partial"), filepath.Join(work, "archives", "partial")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return "", err
		}
	}
	// With lists of our own, which need no root and do not change those of the system.
	apt := func(args ...string) ([]byte, error) {
		c := exec.CommandContext(ctx, "apt-get", append([]string{
			"-q", "-o", "Dir::State::lists=" + lists, "-o", "Dir::Cache=" + work, "-o", "Dir::Cache::archives=" + filepath.Join(work, "archives"),
			"-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=", "-o", "Acquire::Retries=3",
		}, args...)...)
		c.Dir = debs
		out, err := c.CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("apt-get %v: %w: %s", args, err, out)
		}
		return out, nil
	}
	download := func() error {
		wanted := names
		if dependencies {
			out, err := apt(append([]string{"install", "--simulate", "--no-install-recommends"}, names...)...)
			if err != nil {
				return err
			}
			wanted = slices.Clone(names)
			for line := range strings.Lines(string(out)) {
				if f := strings.Fields(line); len(f) > 1 && f[0] == "Inst" && !slices.Contains(wanted, f[1]) {
					wanted = append(wanted, f[1])
				}
			}
		}
		_, err := apt(append([]string{"download"}, wanted...)...)
		return err
	}
	if download() != nil { // there are no lists yet, or they are old
		_, err := apt("update")
		if err := errors.Join(os.RemoveAll(debs), os.Mkdir(debs, 0o755), err); err != nil {
			return "", err
		}
		if err := download(); err != nil {
			return "", err
		}
	}
	files, err := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err != nil {
		return "", err
	}
	for _, file := range files {
		if out, err := exec.CommandContext(ctx, "dpkg-deb", "--extract", file, filepath.Join(work, "root")).CombinedOutput(); err != nil {
			return "", fmt.Errorf("unpacking %s: %w: %s", filepath.Base(file), err, out)
		}
	}
	return root, os.Rename(filepath.Join(work, "root"), root)
}

// Environment returns the environment of this process, in which programs find the libraries of unpacked packages.
func Environment(root string) []string {
	var dirs []string
	for _, pattern := range []string{"usr/lib/*-linux-*", "lib/*-linux-*", "usr/lib/*-linux-*/pulseaudio"} {
		found, _ := filepath.Glob(filepath.Join(root, pattern)) // the pattern is valid
		dirs = append(dirs, found...)
	}
	return append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(dirs, ":"))
}

// lock waits until no other process unpacks the same.
func lock(name string) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// cacheDir returns the folder for packages in the cache of the repository.
func cacheDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("not in the repository")
		}
		dir = parent
	}
	cache := filepath.Join(dir, ".cache", "debian")
	return cache, os.MkdirAll(cache, 0o755)
}
