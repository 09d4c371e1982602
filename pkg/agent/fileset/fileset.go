// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package fileset keeps a set of files in a directory. A new set is written beside the old one, and takes its place with one atomic
// switch of a symbolic link, as the kubelet does in volumes:
//
//	..data -> ..set-0f3a    the current set
//	..applied -> ..set-0f3a the last set that the application accepted
//	..restored -> ..set-0f3a only after a rollback, until the application has accepted that set again
//	..set-0f3a/app.conf
//	..set-0f3a/tls/tls.crt
//	app.conf -> ..data/app.conf
//	tls -> ..data/tls
//
// At every moment the links outside of the sets show all files of one set and no others, also if the process is killed at that
// moment: a link to a file that only the new set has is made before the switch, and one to a file that only the old set has is removed
// after it; in between it leads to nothing. The directory may have other files, which are never touched.
package fileset

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	currentLink = "..data"
	appliedLink = "..applied"
	// restoredLink exists while the applied set is the current one again, and has not been marked as applied since.
	restoredLink = "..restored"
	setPrefix    = "..set-"
	tempPrefix   = "..tmp-"
)

const (
	// MaxPathLength is the maximum length of the path of a file, in bytes.
	MaxPathLength = 1024
	// DefaultMaxBytes is how much the files of a set may have together, unless the options say otherwise: 64 MiB.
	DefaultMaxBytes = 64 << 20
	// MaxLeft is how many old sets may be left that cannot be removed. With more of them no set is written.
	MaxLeft = 10
)

// File is one file of a set.
type File struct {
	// Path is where it is, below the directory, with slashes.
	Path string
	// Data must not change afterwards.
	Data []byte
	// Mode has the permissions. 0: those of the options.
	Mode fs.FileMode
}

// Options are the options of Open.
type Options struct {
	// Mode has the permissions of files, 0600 by default. Directories can be entered by those who may read files.
	Mode fs.FileMode
	// MaxBytes is how much the files of a set may have together, DefaultMaxBytes by default.
	MaxBytes int64
}

// Errors of Open and Stage.
var (
	// ErrInUse: another process keeps a set of files in the directory.
	ErrInUse = errors.New("another process writes to the directory")
	// ErrForeign: a file that the set does not own has the name of one of the set.
	ErrForeign = errors.New("exists already, and is not of the set")
)

// Dir is a directory with a set of files. It is not safe for concurrent use.
type Dir struct {
	name    string
	root    root
	lock    *os.File
	options Options
	uid     int // of the process
	hasher  hasher
	// parallel is how many directories are written at a time.
	parallel int
	// volatile: what is written here is in memory alone, so that there is no disk to wait for.
	volatile bool

	current, applied, previous *Set
	restored                   bool // restoredLink exists

	left     error // of what comes after a switch
	leftSets int   // that could not be removed
}

// Set is a set of files below the directory.
type Set struct {
	dir    *Dir
	name   string // of its directory
	digest Digest
	first  []string // the first elements of the paths, in order
}

// Path is the absolute path of the directory of the set. Others can read the set there before it is switched to.
func (s *Set) Path() string { return filepath.Join(s.dir.name, s.name) }

// Digest is the digest of the set; that of nil is the zero value.
func (s *Set) Digest() Digest {
	if s == nil {
		return Digest{}
	}
	return s.digest
}

// Open opens a directory, which it creates if it is missing, and repairs what a process left that was killed while it wrote. It reads the
// set that is there. The errors wrap those of package os, and ErrInUse.
func Open(dir string, o Options) (_ *Dir, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	o.Mode, o.MaxBytes = cmp.Or(o.Mode, 0o600), cmp.Or(o.MaxBytes, DefaultMaxBytes)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	d := &Dir{name: dir, options: o, uid: os.Geteuid(), parallel: runtime.GOMAXPROCS(0)}
	_, _ = rand.Read(d.hasher.key[:]) // never fails
	if d.root.Root, err = os.OpenRoot(dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("directory %s: %w", dir, err), d.Close())
		}
	}()
	if d.lock, err = d.root.Open("."); err != nil {
		return nil, err
	}
	var system unix.Statfs_t
	if err := unix.Fstatfs(int(d.lock.Fd()), &system); err != nil {
		return nil, err
	}
	d.volatile = system.Type == unix.TMPFS_MAGIC
	switch err := unix.Flock(int(d.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, ErrInUse
	case errors.Is(err, unix.ENOTSUP), errors.Is(err, unix.ENOLCK): // a file system without locks
	case err != nil:
		return nil, fmt.Errorf("lock: %w", err)
	}
	if d.current, err = d.linked(currentLink); err != nil {
		return nil, err
	}
	if d.applied, err = d.linked(appliedLink); err != nil {
		return nil, err
	}
	switch _, err := d.root.Lstat(restoredLink); {
	case err == nil:
		d.restored = true
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	return d, d.repair()
}

// Close lets other processes write to the directory. The files stay.
func (d *Dir) Close() error {
	var errs []error
	if d.lock != nil {
		// A process that is being started has a copy of the descriptor, which would hold the lock for longer.
		_ = unix.Flock(int(d.lock.Fd()), unix.LOCK_UN)
		errs = append(errs, d.lock.Close())
	}
	return errors.Join(append(errs, d.root.Close())...)
}

// Current is the set that is shown, or nil.
func (d *Dir) Current() *Set { return d.current }

// Applied is the set that was last marked as applied, or nil.
func (d *Dir) Applied() *Set { return d.applied }

// linked returns the set to which a link leads, or nil if there is none.
func (d *Dir) linked(link string) (*Set, error) {
	target, err := d.root.Readlink(link)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil //nolint:nilnil // there is none
		}
		return nil, err
	}
	if !strings.HasPrefix(target, setPrefix) || strings.Contains(target, "/") {
		return nil, fmt.Errorf("%s leads to %s, not to a set of files of configdep-agent: choose another directory, or remove it", link, target)
	}
	if d.current != nil && d.current.name == target {
		return d.current, nil
	}
	s, err := d.read(target)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // there is none
	}
	return s, err
}

// read reads a set. What it reads may have been changed by others: then its digest is that of no set, so that the next set replaces it.
func (d *Dir) read(name string) (*Set, error) {
	s, h, same, left := &Set{dir: d, name: name}, d.hasher.begin(), true, d.options.MaxBytes
	err := fs.WalkDir(d.root.FS(), name, func(p string, entry fs.DirEntry, err error) error {
		if err != nil || p == name {
			return err
		}
		if path.Dir(p) == name {
			s.first = append(s.first, entry.Name())
		}
		if entry.IsDir() {
			return nil
		}
		if !entry.Type().IsRegular() {
			same = false
			return nil
		}
		f, err := d.root.OpenFile(p, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		if left -= info.Size(); left < 0 {
			same = false
			return nil
		}
		content := sha256.New()
		if n, err := io.CopyN(content, f, info.Size()); err != nil && !errors.Is(err, io.EOF) {
			return err
		} else if n != info.Size() {
			same = false
		}
		h.add(strings.TrimPrefix(p, name+"/"), info.Mode().Perm(), [sha256.Size]byte(content.Sum(nil)))
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(s.first)
	if same {
		s.digest = h.sum()
	}
	return s, nil
}

// sync makes sure that a file or a directory is on the disk.
func (d *Dir) sync(in root, name string) error {
	if d.volatile {
		return nil
	}
	return in.sync(name)
}
