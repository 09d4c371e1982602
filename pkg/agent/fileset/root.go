// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package fileset

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// root is the directory, outside of which nothing can be changed.
type root struct {
	*os.Root
	before func(what, name string) // called before each change and each sync, for tests that stop there or take note of it
}

func (r root) step(what, name string) {
	if r.before != nil {
		r.before(what, name)
	}
}

// OpenRoot opens a directory below.
func (r root) OpenRoot(name string) (root, error) {
	below, err := r.Root.OpenRoot(name)
	if err != nil {
		return root{}, err
	}
	return root{Root: below, before: r.before}, nil
}

func (r root) Mkdir(name string, mode fs.FileMode) error {
	r.step("mkdir", name)
	return r.Root.Mkdir(name, mode)
}

func (r root) OpenFile(name string, flag int, mode fs.FileMode) (*os.File, error) {
	r.step("write", name)
	return r.Root.OpenFile(name, flag, mode)
}

func (r root) Symlink(target, name string) error {
	r.step("symlink", name)
	return r.Root.Symlink(target, name)
}

func (r root) Rename(from, to string) error {
	r.step("rename", to)
	return r.Root.Rename(from, to)
}

func (r root) Remove(name string) error {
	r.step("remove", name)
	return r.Root.Remove(name)
}

func (r root) RemoveAll(name string) error {
	r.step("removeall", name)
	return r.Root.RemoveAll(name)
}

// open opens a file or a directory for reading. Without O_NONBLOCK, package os makes five more system calls.
func (r root) open(name string) (*os.File, error) {
	return r.Root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
}

func (r root) sync(name string) error {
	r.step("sync", name)
	f, err := r.open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
