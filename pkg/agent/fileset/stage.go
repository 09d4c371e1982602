// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package fileset

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// Digest returns the digest that a set of these files would have. It does not read the directory.
func (d *Dir) Digest(files []File) Digest {
	return d.hasher.digest(d.ordered(files))
}

// ordered returns files in the order of fs.WalkDir, each with its permissions.
func (d *Dir) ordered(files []File) []File {
	files = slices.Clone(files)
	for i := range files {
		files[i].Mode = cmp.Or(files[i].Mode, d.options.Mode)
	}
	slices.SortFunc(files, func(a, b File) int { return comparePaths(a.Path, b.Path) })
	return files
}

// comparePaths compares paths element by element.
func comparePaths(a, b string) int {
	for i := range min(len(a), len(b)) {
		switch {
		case a[i] == b[i]:
		case a[i] == '/':
			return -1
		case b[i] == '/':
			return 1
		default:
			return cmp.Compare(a[i], b[i])
		}
	}
	return cmp.Compare(len(a), len(b))
}

// CheckPath returns an error that tells why a file must not have a path.
func CheckPath(p string) error {
	switch {
	case len(p) > MaxPathLength:
		return fmt.Errorf("a path of %d bytes: at most %d are allowed", len(p), MaxPathLength)
	case !fs.ValidPath(p) || p == ".":
		return fmt.Errorf("path %q: it must be relative to the directory, with single slashes, and without the names \".\" and \"..\"", p)
	}
	for element := range strings.SplitSeq(p, "/") {
		switch {
		case strings.HasPrefix(element, ".."):
			return fmt.Errorf("path %q: names that begin with two dots are reserved", p)
		case len(element) > 255:
			return fmt.Errorf("path %q: a name of %d bytes: at most 255 are allowed", p, len(element))
		case strings.ContainsFunc(element, func(r rune) bool { return r < ' ' || r == 0x7f }):
			return fmt.Errorf("path %q: names must not have control characters", p)
		}
	}
	return nil
}

// Stage writes a set beside the current one, and makes sure that it is on the disk. The errors are those of CheckPath, ErrForeign,
// which names the file, and those of package os, as for a path that occurs twice. Nothing is left of a set that could not be written.
func (d *Dir) Stage(files []File) (_ *Set, err error) {
	var size int64
	for _, f := range files {
		if err := CheckPath(f.Path); err != nil {
			return nil, err
		}
		size += int64(len(f.Data))
	}
	if size > d.options.MaxBytes {
		return nil, fmt.Errorf("the files have %d bytes: at most %d are allowed", size, d.options.MaxBytes)
	}
	if d.leftSets > MaxLeft {
		if d.left = d.clean(); d.leftSets > MaxLeft {
			return nil, fmt.Errorf("%d old sets cannot be removed: at most %d are kept: %w", d.leftSets, MaxLeft, d.left)
		}
	}
	files = d.ordered(files)
	s := &Set{dir: d, name: setPrefix + strings.ToLower(rand.Text()[:16]), digest: d.hasher.digest(files)}
	for _, f := range files {
		first, _, _ := strings.Cut(f.Path, "/")
		s.first = append(s.first, first)
	}
	s.first = slices.Compact(s.first)
	for _, first := range s.first {
		if d.current.has(first) {
			continue // Switch looks
		}
		if _, err := d.checkLink(first); err != nil {
			return nil, err
		}
	}
	if err := d.root.Mkdir(s.name, 0o700); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Discard(s))
		}
	}()
	if err := d.fill(s, files); err != nil {
		return nil, err
	}
	return s, nil
}

// enter returns the permissions of a directory that those may list and enter who may read its files.
func enter(mode fs.FileMode) fs.FileMode {
	read := mode & 0o444
	return read | read>>2 | 0o700
}

// Discard removes a set, unless it is current or applied.
func (d *Dir) Discard(s *Set) error {
	if s == nil || s.is(d.current) || s.is(d.applied) {
		return nil
	}
	return d.remove(s)
}

// is reports whether both have the same directory.
func (s *Set) is(other *Set) bool { return s != nil && other != nil && s.name == other.name }
