// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package fileset

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// directory is one directory of a set that is written.
type directory struct {
	path  string
	files []File      // in it
	all   fs.FileMode // the permissions of all files below it
	// written are the files that are not linked, by their paths.
	written []string
}

// directories returns the directories of a set, each one before those below it. The first is that of the set.
func directories(files []File) []*directory {
	top := &directory{path: "."}
	byPath := map[string]*directory{top.path: top}
	for _, f := range files {
		for dir := path.Dir(f.Path); ; dir = path.Dir(dir) {
			in := byPath[dir]
			if in == nil {
				in = &directory{path: dir}
				byPath[dir] = in
			}
			in.all |= f.Mode
			if dir == path.Dir(f.Path) {
				in.files = append(in.files, f)
			}
			if in == top {
				break
			}
		}
	}
	delete(byPath, top.path)
	out := []*directory{top}
	for _, name := range slices.Sorted(maps.Keys(byPath)) {
		out = append(out, byPath[name])
	}
	return out
}

// fill writes the files of a set into its directory, and makes sure that they are on the disk. A file that the current set has too is
// linked instead of written: it is on the disk already, so that a set with one changed file costs one file.
func (d *Dir) fill(s *Set, files []File) error {
	set, err := d.root.OpenRoot(s.name)
	if err != nil {
		return err
	}
	defer set.Close()
	var old *os.File // the directory of the current set, or nil
	if d.current != nil {
		if old, err = d.root.open(d.current.name); err == nil {
			defer old.Close()
		}
	}
	dirs := directories(files)
	for _, dir := range dirs[1:] {
		if err := set.Mkdir(dir.path, 0o700); err != nil {
			return err
		}
	}
	// The directory of the set is the last to get its permissions: before that, nothing below it can be read.
	if err := d.each(dirs[1:], func(dir *directory) error { return d.fillDirectory(set, old, dir) }); err != nil {
		return err
	}
	if err := d.fillDirectory(set, old, dirs[0]); err != nil {
		return err
	}
	// Everything is written before the first is synced, so that the file system can write it together.
	return d.each(dirs, func(dir *directory) error {
		for _, name := range append(dir.written, dir.path) {
			if err := d.sync(set, name); err != nil {
				return err
			}
		}
		return nil
	})
}

// each calls a function for all directories. Several parts of them, in turn, are worked on at a time.
func (d *Dir) each(dirs []*directory, do func(*directory) error) error {
	var group errgroup.Group
	for part := range slices.Chunk(dirs, max(minPart, (len(dirs)+d.parallel-1)/d.parallel)) {
		work := func() error {
			for _, dir := range part {
				if err := do(dir); err != nil {
					return err
				}
			}
			return nil
		}
		if len(part) == len(dirs) {
			return work()
		}
		group.Go(work)
	}
	return group.Wait()
}

// fillDirectory writes the files of one directory, and gives it its owner and permissions.
func (d *Dir) fillDirectory(set root, old *os.File, dir *directory) (err error) {
	to, err := set.open(dir.path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	for _, f := range dir.files {
		switch linked, err := d.reuse(old, set, to, f); {
		case err != nil:
			return err
		case !linked:
			if err := d.write(set, f); err != nil {
				return err
			}
			dir.written = append(dir.written, f.Path)
		}
	}
	set.step("chmod", to.Name())
	return to.Chmod(enter(dir.all))
}

func (d *Dir) write(set root, f File) (err error) {
	file, err := set.OpenFile(f.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := file.Write(f.Data); err != nil {
		return err
	}
	set.step("chmod", file.Name())
	return file.Chmod(f.Mode)
}

// reuse links a file of the current set into a directory of a new one, if it is what the new file would be. A file that cannot be linked
// is to be written, whatever the reason: there are file systems without hard links, and with a limit of them.
func (d *Dir) reuse(old *os.File, set root, to *os.File, f File) (linked bool, err error) {
	if old == nil {
		return false, nil
	}
	stat, same := d.same(int(old.Fd()), f)
	if !same {
		return false, nil
	}
	name := path.Base(f.Path)
	set.step("link", f.Path)
	if err := unix.Linkat(int(old.Fd()), f.Path, int(to.Fd()), name, 0); err != nil {
		return false, nil //nolint:nilerr // it is written instead
	}
	// It must be the file that has been compared, and no other that was put in its place meanwhile.
	var is unix.Stat_t
	if err := unix.Fstatat(int(to.Fd()), name, &is, unix.AT_SYMLINK_NOFOLLOW); err != nil || is.Ino != stat.Ino || is.Dev != stat.Dev {
		return false, set.Remove(f.Path)
	}
	return true, nil
}

// minPart is how many directories are worth another goroutine.
const minPart = 4

// same reports whether a file of the current set is what it would be if it were written. Applications may have changed it in its place,
// which must not get into another set, so its content is compared.
func (d *Dir) same(old int, f File) (stat unix.Stat_t, same bool) {
	fd, err := unix.Openat2(old, f.Path, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return stat, false
	}
	defer unix.Close(fd)
	if err := unix.Fstat(fd, &stat); err != nil || stat.Mode != unix.S_IFREG|uint32(f.Mode) || stat.Size != int64(len(f.Data)) {
		return stat, false
	}
	if int(stat.Uid) != d.uid {
		return stat, false
	}
	var buffer [16 << 10]byte
	for rest := f.Data; len(rest) != 0; {
		n, err := unix.Read(fd, buffer[:min(len(rest), len(buffer))])
		if err != nil || n == 0 || !bytes.Equal(buffer[:n], rest[:n]) {
			return stat, false
		}
		rest = rest[n:]
	}
	return stat, true
}
