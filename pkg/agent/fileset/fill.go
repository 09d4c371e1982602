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

	"golang.org/x/sys/unix"
)

// fill writes the files of a set into its directory, and makes sure that they are on the disk. A file that the current set has too is
// linked instead of written: it is on the disk already, so that a set with one changed file costs one file.
func (d *Dir) fill(s *Set, files []File) error {
	set, err := d.root.OpenRoot(s.name)
	if err != nil {
		return err
	}
	defer set.Close()
	var old root // the current set; its Root is nil if there is none
	if d.current != nil {
		if old, err = d.root.OpenRoot(d.current.name); err == nil {
			defer old.Close()
		}
	}
	var all fs.FileMode
	modes := map[string]fs.FileMode{} // of the files below each directory
	byDir := map[string][]File{}
	for _, f := range files {
		all |= f.Mode
		dir := path.Dir(f.Path)
		byDir[dir] = append(byDir[dir], f)
		for ; dir != "."; dir = path.Dir(dir) {
			modes[dir] |= f.Mode
		}
	}
	dirs := slices.Insert(slices.Sorted(maps.Keys(modes)), 0, ".") // each one before those below it
	modes["."] = all
	var written []string
	buffer := make([]byte, 32<<10)
	for _, dir := range dirs {
		if dir != "." {
			if err := set.Mkdir(dir, 0o700); err != nil {
				return err
			}
		}
		missing := byDir[dir]
		if old.Root != nil && len(missing) != 0 {
			if missing, err = d.reuse(old, set, dir, missing, buffer); err != nil {
				return err
			}
		}
		for _, f := range missing {
			if err := d.write(set, f); err != nil {
				return err
			}
			written = append(written, f.Path)
		}
	}
	// The innermost directories first, so that the content can be read only once everything has its permissions.
	slices.Reverse(dirs)
	for _, dir := range dirs {
		if err := d.own(set, dir, enter(modes[dir])); err != nil {
			return err
		}
	}
	// Everything is written before the first is synced, so that the file system can write it together.
	for _, name := range slices.Concat(written, dirs) {
		if err := set.sync(name); err != nil {
			return err
		}
	}
	return nil
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
	return d.own(set, f.Path, f.Mode)
}

// reuse links files of one directory of the current set into a new one, as far as they are what new files would be, and returns the others.
// A file that cannot be linked is one of them, whatever the reason: there are file systems without hard links, and with a limit of them.
func (d *Dir) reuse(old, set root, dir string, files []File, buffer []byte) (others []File, err error) {
	from, err := old.open(dir)
	if err != nil {
		return files, nil //nolint:nilerr // the current set does not have the directory
	}
	defer from.Close()
	to, err := set.open(dir)
	if err != nil {
		return nil, err
	}
	defer to.Close()
	for _, f := range files {
		name := path.Base(f.Path)
		stat, same := d.same(int(from.Fd()), name, f, buffer)
		if !same {
			others = append(others, f)
			continue
		}
		set.step()
		if err := unix.Linkat(int(from.Fd()), name, int(to.Fd()), name, 0); err != nil {
			others = append(others, f)
			continue
		}
		// It must be the file that has been compared, and no other that was put in its place meanwhile.
		var linked unix.Stat_t
		if err := unix.Fstatat(int(to.Fd()), name, &linked, unix.AT_SYMLINK_NOFOLLOW); err != nil || linked.Ino != stat.Ino || linked.Dev != stat.Dev {
			if err := set.Remove(f.Path); err != nil {
				return nil, err
			}
			others = append(others, f)
		}
	}
	return others, nil
}

// same reports whether a file in a directory is what it would be if it were written. Applications may have changed it in its place, which
// must not get into another set, so its content is compared.
func (d *Dir) same(dir int, name string, f File, buffer []byte) (stat unix.Stat_t, same bool) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return stat, false
	}
	defer unix.Close(fd)
	if err := unix.Fstat(fd, &stat); err != nil || stat.Mode != unix.S_IFREG|uint32(f.Mode) || stat.Size != int64(len(f.Data)) {
		return stat, false
	}
	uid := os.Geteuid()
	if d.options.UID != nil {
		uid = *d.options.UID
	}
	if int(stat.Uid) != uid || d.options.GID != nil && int(stat.Gid) != *d.options.GID {
		return stat, false
	}
	for rest := f.Data; len(rest) != 0; {
		n, err := unix.Read(fd, buffer[:min(len(rest), len(buffer))])
		if err != nil || n == 0 || !bytes.Equal(buffer[:n], rest[:n]) {
			return stat, false
		}
		rest = rest[n:]
	}
	return stat, true
}
