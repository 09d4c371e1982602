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
	before func() // called before each change, for tests that stop there
}

func (r root) step() {
	if r.before != nil {
		r.before()
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
	r.step()
	return r.Root.Mkdir(name, mode)
}

func (r root) OpenFile(name string, flag int, mode fs.FileMode) (*os.File, error) {
	r.step()
	return r.Root.OpenFile(name, flag, mode)
}

func (r root) Chmod(name string, mode fs.FileMode) error {
	r.step()
	return r.Root.Chmod(name, mode)
}

func (r root) Lchown(name string, uid, gid int) error {
	r.step()
	return r.Root.Lchown(name, uid, gid)
}

func (r root) Symlink(target, name string) error {
	r.step()
	return r.Root.Symlink(target, name)
}

func (r root) Rename(from, to string) error {
	r.step()
	return r.Root.Rename(from, to)
}

func (r root) Remove(name string) error {
	r.step()
	return r.Root.Remove(name)
}

func (r root) RemoveAll(name string) error {
	r.step()
	return r.Root.RemoveAll(name)
}

// open opens a file or a directory for reading. Without O_NONBLOCK, package os makes five more system calls.
func (r root) open(name string) (*os.File, error) {
	return r.Root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
}

func (r root) sync(name string) error {
	f, err := r.open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
