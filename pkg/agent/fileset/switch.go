// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package fileset

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Switch makes a set the current one. If it fails, the old one still is; what goes wrong after the switch is told by Left. The set before
// is kept until the next switch, for readers that have begun to read it.
func (d *Dir) Switch(s *Set) error {
	if s.is(d.current) {
		return nil
	}
	var made []string
	for _, first := range s.first {
		switch fresh, err := d.link(first); {
		case err != nil:
			return errors.Join(err, d.unlink(made))
		case fresh:
			made = append(made, first)
		}
	}
	if err := d.point(currentLink, s); err != nil {
		return errors.Join(err, d.unlink(made))
	}
	d.current, d.previous = s, d.current
	d.left = errors.Join(d.sync(d.root, "."), d.clean())
	return nil
}

// Left is why something could not be removed that is not needed anymore, or not be synced, or nil. It is tried again at each switch.
func (d *Dir) Left() error { return d.left }

// MarkApplied remembers that the application has accepted the current set, also for processes that open the directory later.
func (d *Dir) MarkApplied() error {
	if !d.Doubtful() {
		return nil
	}
	if !d.current.is(d.applied) {
		if err := d.point(appliedLink, d.current); err != nil {
			return err
		}
		d.applied = d.current
	}
	if d.restored {
		if err := d.root.Remove(restoredLink); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		d.restored = false
	}
	return d.sync(d.root, ".")
}

// Restore switches back to the set that was marked as applied. Until it is marked again it is Doubtful, also for processes that open the
// directory later: the application may still work with what it was given since.
func (d *Dir) Restore() error {
	if err := d.point(restoredLink, d.applied); err != nil {
		return err
	}
	d.restored = true
	if err := d.sync(d.root, "."); err != nil {
		return err
	}
	return d.Switch(d.applied)
}

// Doubtful reports whether there is a current set, and the application may have read something else than the applied one since that was
// marked.
func (d *Dir) Doubtful() bool { return d.current != nil && (d.restored || !d.current.is(d.applied)) }

// point lets a link lead to a set, at once.
func (d *Dir) point(link string, s *Set) error {
	temp := tempPrefix + strings.TrimLeft(link, ".")
	if err := d.root.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := d.root.Symlink(s.name, temp); err != nil {
		return err
	}
	return d.root.Rename(temp, link)
}

// ours reports whether a name is a link into the current set, and whether anything has that name.
func (d *Dir) ours(first string) (ours, exists bool, err error) {
	target, err := d.root.Readlink(first)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, false, nil
	case errors.Is(err, unix.EINVAL): // it is no link
		return false, true, nil
	}
	return err == nil && target == currentLink+"/"+first, err == nil, err
}

// checkLink reports whether a link exists. The error tells that something else has its name.
func (d *Dir) checkLink(first string) (exists bool, err error) {
	ours, exists, err := d.ours(first)
	if err == nil && exists && !ours {
		err = fmt.Errorf("file %q in %s: %w", first, d.name, ErrForeign)
	}
	return exists, err
}

// Foreign reports whether something that is not of the set has a name in the directory. It is safe for concurrent use.
func (d *Dir) Foreign(first string) bool {
	_, err := d.checkLink(first)
	return errors.Is(err, ErrForeign)
}

// link makes a link into the current set, unless it exists.
func (d *Dir) link(first string) (fresh bool, err error) {
	if exists, err := d.checkLink(first); exists || err != nil {
		return false, err
	}
	err = d.root.Symlink(currentLink+"/"+first, first)
	if errors.Is(err, fs.ErrExist) { // since a moment
		_, err = d.checkLink(first)
		return false, err
	}
	return err == nil, err
}

// unlink removes links into the current set. What others have put in their place stays.
func (d *Dir) unlink(names []string) error {
	var errs []error
	for _, first := range names {
		ours, _, err := d.ours(first)
		if err == nil && ours {
			err = d.root.Remove(first)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// clean removes the links and the sets that are not needed anymore, and files that a killed process left.
func (d *Dir) clean() error {
	entries, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return err
	}
	var gone []string
	var errs []error
	d.leftSets = 0
	for _, entry := range entries {
		s := &Set{name: entry.Name()}
		switch {
		case strings.HasPrefix(s.name, tempPrefix):
			errs = append(errs, d.root.Remove(s.name))
		case strings.HasPrefix(s.name, setPrefix):
			if !s.is(d.current) && !s.is(d.applied) && !s.is(d.previous) {
				errs = append(errs, d.remove(s))
			}
		case entry.Type() == fs.ModeSymlink && !d.current.has(s.name):
			gone = append(gone, s.name) // unlink spares the links of others
		}
	}
	return errors.Join(append(errs, d.unlink(gone))...)
}

// has reports whether a set needs a link.
func (s *Set) has(first string) bool {
	if s == nil {
		return false
	}
	_, has := slices.BinarySearch(s.first, first)
	return has
}

// remove removes a set. As much of it as possible is gone also if that fails.
func (d *Dir) remove(s *Set) error {
	err := d.root.RemoveAll(s.name)
	if err != nil {
		d.leftSets++
	}
	return err
}

// repair makes the links those of the current set, and removes what a killed process left.
func (d *Dir) repair() error {
	d.left = d.clean()
	if d.current == nil {
		return nil
	}
	var errs []error
	for _, first := range d.current.first {
		if _, err := d.link(first); err != nil && !errors.Is(err, ErrForeign) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
