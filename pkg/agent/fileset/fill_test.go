// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package fileset

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func stat(t *testing.T, s *Set, name string) fs.FileInfo {
	t.Helper()
	info, err := os.Lstat(filepath.Join(s.Path(), name))
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// setImmutable makes a file or a directory one that even root can neither change nor link nor remove.
func setImmutable(name string, immutable bool) error {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // it may be a pipe by now
	if err != nil {
		return err
	}
	defer f.Close()
	flags := 0
	if immutable {
		flags = 0x10 // FS_IMMUTABLE_FL
	}
	return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags)
}

// Files that have not changed are linked, and no others.
func TestStage_LinksUnchangedFiles(t *testing.T) {
	large := strings.Repeat("0123456789", 10_000)
	dir := tempDir(t)
	d := open(t, dir, Options{})
	first := show(t, d, append(files("same", large, "sub/same", "s", "sub/deep/same", "s", "empty", "", "end", large, "shorter", large, "longer", "12", "moved", "m"),
		File{Path: "mode", Data: []byte("m"), Mode: 0o640}))
	before := visible(t, dir)
	set := append(files("same", large, "sub/same", "s", "sub/deep/same", "s", "empty", "", "end", large[1:]+"x", "shorter", large[1:], "longer", "123", "sub/moved", "m"),
		File{Path: "mode", Data: []byte("m")})
	second := show(t, d, set)
	expect(t, dir, map[string]string{
		"same": large, "sub/same": "s", "sub/deep/same": "s", "empty": "", "end": large[1:] + "x", "shorter": large[1:], "longer": "123", "sub/moved": "m", "mode": "m",
	})
	for name, want := range map[string]bool{
		"same": true, "sub/same": true, "sub/deep/same": true, "empty": true, "end": false, "shorter": false, "longer": false, "mode": false,
	} {
		if got := os.SameFile(stat(t, first, name), stat(t, second, name)); got != want {
			t.Errorf("%s is linked: %t", name, got)
		}
	}
	if got := stat(t, second, "mode").Mode(); got != 0o600 {
		t.Errorf("a file whose permissions changed has %v", got)
	}
	for name, want := range before { // the set before stays as it was
		if got, err := os.ReadFile(filepath.Join(first.Path(), name)); err != nil || string(got) != want {
			t.Errorf("%s in the set before has %d bytes, %v", name, len(got), err)
		}
	}
	if got := stat(t, first, "mode").Mode(); got != 0o640 {
		t.Errorf("a file in the set before has %v", got)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if again := open(t, dir, Options{}); again.Current().Digest() != again.Digest(set) {
		t.Error("the set on the disk counts as another")
	}
}

// What others have done to a file of the current set does not get into the next one.
func TestStage_ReplacesWhatOthersChanged(t *testing.T) {
	for name, change := range map[string]func(file string) error{
		"content":     func(file string) error { return os.WriteFile(file, []byte("x"), 0o600) },
		"longer":      func(file string) error { return os.WriteFile(file, []byte("12"), 0o600) },
		"permissions": func(file string) error { return os.Chmod(file, 0o644) },
		"set-uid":     func(file string) error { return os.Chmod(file, 0o600|fs.ModeSetuid) },
		"removed":     os.Remove,
		"unreadable":  func(file string) error { return os.Chmod(file, 0) },
		"a link": func(file string) error {
			other := file + ".other"
			return errors.Join(os.Rename(file, other), os.Symlink(filepath.Base(other), file))
		},
		"a pipe":      func(file string) error { return errors.Join(os.Remove(file), syscall.Mkfifo(file, 0o600)) },
		"a directory": func(file string) error { return errors.Join(os.Remove(file), os.Mkdir(file, 0o600)) },
		"its directory": func(file string) error {
			return os.RemoveAll(filepath.Dir(file))
		},
		"a link to its directory": func(file string) error {
			sub := filepath.Dir(file)
			other := filepath.Join(filepath.Dir(filepath.Dir(sub)), "other")
			return errors.Join(os.Rename(sub, other), os.Symlink(other, sub))
		},
		"what cannot be linked": func(file string) error { return setImmutable(file, true) },
		"the set":               func(file string) error { return os.RemoveAll(filepath.Dir(filepath.Dir(file))) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := tempDir(t)
			d := open(t, dir, Options{})
			first := show(t, d, files("sub/a", "1", "b", "2"))
			before := stat(t, first, "sub/a")
			file := filepath.Join(first.Path(), "sub", "a")
			t.Cleanup(func() { _ = setImmutable(file, false) })
			if err := change(file); errors.Is(err, syscall.EPERM) && os.Getuid() != 0 {
				t.Skip("only root may make files immutable") //nolint:forbidigo // the kernel refuses it to others; CI in a container, or any run as root, tests it
			} else if err != nil {
				t.Fatal(err)
			}
			second := show(t, d, files("sub/a", "1", "b", "3"))
			info := stat(t, second, "sub/a")
			if info.Mode() != 0o600 || os.SameFile(before, info) {
				t.Errorf("the file has %v, and is the one from before: %t", info.Mode(), os.SameFile(before, info))
			}
			if data, err := os.ReadFile(filepath.Join(second.Path(), "sub", "a")); err != nil || string(data) != "1" {
				t.Errorf("the file has %q, %v", data, err)
			}
		})
	}
}

// Files of another owner are written for the right one.
func TestStage_ReplacesFilesOfOthers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may give files to others") //nolint:forbidigo // the kernel refuses it to others; CI in a container, or any run as root, tests it
	}
	const id = 1234
	for name, c := range map[string]struct {
		uid, gid int
		linked   bool
	}{
		"of this process":  {0, 0, true},
		"of another user":  {id, 0, false},
		"of another group": {0, id, true}, // a directory may give its group to its files
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t, tempDir(t), Options{})
			first := show(t, d, files("a", "1"))
			if err := os.Chown(filepath.Join(first.Path(), "a"), c.uid, c.gid); err != nil {
				t.Fatal(err)
			}
			second := show(t, d, files("a", "1", "b", "1"))
			if linked := os.SameFile(stat(t, first, "a"), stat(t, second, "a")); linked != c.linked {
				t.Errorf("linked: %t", linked)
			}
			if got := stat(t, second, "a").Sys().(*syscall.Stat_t); got.Uid != 0 {
				t.Errorf("the file is of %d", got.Uid)
			}
		})
	}
}

// What happens to a file between the comparison and the link does not get into the new set either, and a file that cannot be linked is
// written.
func TestStage_WhileOthersChange(t *testing.T) {
	for name, change := range map[string]func(file string) error{
		"removed":  os.Remove,
		"replaced": func(file string) error { return errors.Join(os.Remove(file), os.WriteFile(file, []byte("x"), 0o600)) },
		"a link":   func(file string) error { return errors.Join(os.Remove(file), os.Symlink("/etc/passwd", file)) },
	} {
		t.Run(name, func(t *testing.T) {
			for step := 0; ; step++ {
				dir := tempDir(t)
				d := open(t, dir, Options{})
				file := filepath.Join(show(t, d, files("a", "1", "b", "1")).Path(), "a")
				steps, changed := 0, false
				d.root.before = func(string, string) {
					if steps == step {
						changed = true
						if err := change(file); err != nil {
							t.Error(err)
						}
					}
					steps++
				}
				second, err := d.Stage(files("a", "1", "b", "2"))
				if err != nil {
					t.Fatal(err)
				}
				if !changed {
					if step < 5 {
						t.Errorf("only %d steps", step)
					}
					return
				}
				if data, err := os.ReadFile(filepath.Join(second.Path(), "a")); err != nil || string(data) != "1" || stat(t, second, "a").Mode() != 0o600 {
					t.Errorf("after %d steps the file has %q, %v", step, data, err)
				}
			}
		})
	}
}

// The directory of a set can be entered by others only once everything in it has its permissions.
func TestStage_OpensTheSetLast(t *testing.T) {
	dir := tempDir(t)
	d := open(t, dir, Options{Mode: 0o644})
	d.parallel = 1
	opened := 0
	d.root.before = func(string, string) {
		sets, err := filepath.Glob(filepath.Join(dir, setPrefix+"*"))
		if err != nil || len(sets) != 1 {
			return // it has not been made yet
		}
		modes := map[string]fs.FileMode{}
		for _, name := range []string{".", "-a", "-a/b", "c"} {
			if info, err := os.Stat(filepath.Join(sets[0], name)); err == nil {
				modes[name] = info.Mode().Perm()
			}
		}
		for _, below := range []string{"-a", "-a/b", "c"} {
			if modes["."] != 0 && modes["."] != 0o700 && modes[below] != 0o755 {
				t.Errorf("the set has %v before %s has more than %v", modes["."], below, modes[below])
			}
		}
		if modes["c"] == 0o755 {
			opened++
		}
	}
	s, err := d.Stage(files("-a/b/f", "1", "c/f", "1", "f", "1"))
	if err != nil {
		t.Fatal(err)
	}
	if info := stat(t, s, "."); info.Mode().Perm() != 0o755 || opened == 0 {
		t.Errorf("the set has %v, after %d steps", info.Mode(), opened)
	}
}

// Before a set takes its place, all that was made for it is on the disk, and so is the switch itself before it is told of.
func TestStage_Syncs(t *testing.T) {
	for _, parallel := range []int{1, 8} {
		dir := tempDir(t)
		d := open(t, dir, Options{})
		d.parallel, d.volatile = parallel, false
		var mu sync.Mutex
		var unsynced []string
		d.root.before = func(what, name string) {
			mu.Lock()
			defer mu.Unlock()
			dirty := func(names ...string) {
				for _, name := range names {
					if !strings.HasPrefix(path.Base(name), tempPrefix) && !slices.Contains(unsynced, name) {
						unsynced = append(unsynced, name)
					}
				}
			}
			switch what {
			case "mkdir":
				if !strings.HasPrefix(name, setPrefix) {
					dirty(name, path.Dir(name))
				}
			case "write":
				dirty(name, path.Dir(name))
			case "link":
				dirty(path.Dir(name))
			case "rename":
				if len(unsynced) != 0 {
					t.Errorf("not synced before the switch: %v", unsynced)
				}
				dirty(".")
			case "sync":
				unsynced = slices.DeleteFunc(unsynced, func(other string) bool { return other == name })
			}
		}
		for n := range 3 {
			set := files("same", "s", "changed", fmt.Sprint(n), "deep/er/changed", fmt.Sprint(n), fmt.Sprintf("empty-%d/below", n), "")
			for i := range 20 {
				set = append(set, files(fmt.Sprintf("dir-%d/same", i), "s")...)
			}
			show(t, d, set)
			if err := d.MarkApplied(); err != nil {
				t.Fatal(err)
			}
			if len(unsynced) != 0 {
				t.Errorf("not synced at the end: %v", unsynced)
			}
		}
	}
}
