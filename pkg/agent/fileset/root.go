// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package fileset

import (
	"io/fs"
	"os"
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

func (r root) Mkdir(name string, mode fs.FileMode) error {
	r.step()
	return r.Root.Mkdir(name, mode)
}

func (r root) MkdirAll(name string, mode fs.FileMode) error {
	r.step()
	return r.Root.MkdirAll(name, mode)
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
