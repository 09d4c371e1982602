// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/configdep/configdep/pkg/agent/action"
	"github.com/configdep/configdep/pkg/agent/fileset"
)

// changes are the paths of files that the application may have read in another version than the set has that was applied last.
type changes struct {
	unknown bool            // of an earlier process, which may have tried any
	paths   map[string]bool // of sets that were tried and not applied
}

// changedFiles returns the paths of the files that the current set changes, adds or removes, compared with all that the application may have
// read since a set was applied last. nil: they are too many.
func (a *Agent) changedFiles() ([]string, error) {
	if a.changes.paths == nil {
		a.changes.paths = map[string]bool{}
	}
	if err := a.changes.compare(a.dir.Applied(), a.dir.Current()); err != nil {
		return nil, err
	}
	if len(a.changes.paths) > action.MaxChanged {
		return nil, nil
	}
	return append([]string{}, slices.Sorted(maps.Keys(a.changes.paths))...), nil
}

// compare adds the paths of files that differ between two sets, as long as they are not too many.
func (c *changes) compare(before, after *fileset.Set) (err error) {
	var roots [2]*os.Root // nil: there is no such set
	for i, set := range []*fileset.Set{before, after} {
		if set == nil {
			continue
		}
		if roots[i], err = os.OpenRoot(set.Path()); err != nil {
			return err
		}
		defer roots[i].Close()
	}
	for i, root := range roots {
		if root == nil {
			continue
		}
		err := fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
			switch {
			case err != nil || e.IsDir():
				return err
			case len(c.paths) > action.MaxChanged:
				return fs.SkipAll
			case c.paths[path]:
			case c.unknown || !same(path, roots[1-i], root, i == 1):
				c.paths[path] = true
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// same reports whether two sets have the same file: usually it is one with two links. If the content is not to be compared, it is enough
// that both have one.
func same(path string, a, b *os.Root, content bool) bool {
	if a == nil {
		return false
	}
	infoA, errA := a.Lstat(path)
	infoB, errB := b.Lstat(path)
	switch {
	case errA != nil || errB != nil:
		return false
	case !content || os.SameFile(infoA, infoB):
		return true
	case !infoA.Mode().IsRegular() || infoA.Mode() != infoB.Mode() || infoA.Size() != infoB.Size():
		return false
	}
	fileA, errA := open(a, path)
	if errA != nil {
		return false
	}
	defer fileA.Close()
	fileB, errB := open(b, path)
	if errB != nil {
		return false
	}
	defer fileB.Close()
	const piece = 32 << 10
	bufferA, bufferB := make([]byte, piece), make([]byte, piece)
	for {
		nA, errA := io.ReadFull(fileA, bufferA)
		nB, errB := io.ReadFull(fileB, bufferB)
		if !bytes.Equal(bufferA[:nA], bufferB[:nB]) {
			return false
		}
		if errA != nil || errB != nil {
			return ended(errA) && ended(errB)
		}
	}
}

func ended(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// open opens a file, and waits for no pipe that an application has put in its place.
func open(root *os.Root, path string) (*os.File, error) {
	return root.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}
