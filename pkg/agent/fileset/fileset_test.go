// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package fileset

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// tempDir returns a directory in memory, if there is such a file system, since each set is synced to the disk.
func tempDir(t testing.TB) string {
	t.Helper()
	if _, err := os.Stat("/dev/shm"); err != nil {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp("/dev/shm", "fileset-") //nolint:usetesting // in memory
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// files returns a set of files: path, content.
func files(pairs ...string) (out []File) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, File{Path: pairs[i], Data: []byte(pairs[i+1])})
	}
	return out
}

func open(t *testing.T, dir string, o Options) *Dir {
	t.Helper()
	d, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// show stages a set and switches to it.
func show(t *testing.T, d *Dir, files []File) *Set {
	t.Helper()
	s, err := d.Stage(files)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Switch(s); err != nil {
		t.Fatal(err)
	}
	return s
}

// visible returns the content of all files that can be read through names that do not begin with two dots.
func visible(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	var walk func(name string)
	walk = func(name string) {
		info, err := os.Stat(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			return // a link to a file that the set does not have
		}
		if err != nil {
			t.Fatal(err)
		}
		if !info.IsDir() {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			out[name] = string(data)
			return
		}
		entries, err := os.ReadDir(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), "..") {
				walk(filepath.Join(name, e.Name()))
			}
		}
	}
	walk(".")
	return out
}

func expect(t testing.TB, dir string, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, visible(t, dir)); diff != "" {
		t.Errorf("files in %s (-want +got):\n%s", dir, diff)
	}
}

func TestSwitch(t *testing.T) {
	dir := tempDir(t)
	write(t, dir, "mine", "of another")
	d := open(t, dir, Options{})
	if d.Current() != nil || d.Current().Digest() != (Digest{}) || d.Current().Digest().String() != "none" {
		t.Errorf("an empty directory has the set %v", d.Current())
	}
	first := show(t, d, files("app.conf", "1", "tls/tls.crt", "c", "tls/tls.key", "k", "gone", "x"))
	expect(t, dir, map[string]string{"mine": "of another", "app.conf": "1", "tls/tls.crt": "c", "tls/tls.key": "k", "gone": "x"})
	second := show(t, d, files("app.conf", "2", "tls", "now a file", "more/deep/file", "new"))
	expect(t, dir, map[string]string{"mine": "of another", "app.conf": "2", "tls": "now a file", "more/deep/file": "new"})
	if d.Current() != second || d.Applied() != nil {
		t.Errorf("current is %v, applied %v", d.Current(), d.Applied())
	}
	// A reader that has begun with the first set still finds all of it.
	if data, err := os.ReadFile(filepath.Join(first.Path(), "tls", "tls.key")); err != nil || string(data) != "k" {
		t.Errorf("the set before: %q, %v", data, err)
	}
	show(t, d, nil)
	expect(t, dir, map[string]string{"mine": "of another"})
	if _, err := os.Stat(first.Path()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the first set is still there after two more: %v", err)
	}
}

func write(t testing.TB, dir, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// An old set that cannot be removed does not fail the switch, is told, and is removed once that is possible. There are never many.
func TestSwitch_LeavesWhatCannotBeRemoved(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may make files immutable") //nolint:forbidigo // the kernel refuses it to others; CI in a container, or any run as root, tests it
	}
	dir := tempDir(t)
	d := open(t, dir, Options{})
	show(t, d, files("a", "0"))
	var kept []string
	keep := func(s *Set) {
		file := filepath.Join(s.Path(), "a")
		if err := setImmutable(file, true); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = setImmutable(file, false) })
		kept = append(kept, file)
	}
	keep(d.Current())
	show(t, d, files("a", "1", "b", "1"))
	if err := d.Left(); err != nil {
		t.Errorf("the set before is still needed: %v", err)
	}
	show(t, d, files("a", "2"))
	expect(t, dir, map[string]string{"a": "2"})
	if err := d.Left(); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("left: %v", err)
	}
	expectSets(t, dir, 3)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	// Nor does it keep the next process from starting.
	d = open(t, dir, Options{})
	if err := d.Left(); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("left after the start: %v", err)
	}
	// At last nothing is written, rather than more and more.
	var err error
	n := 3
	for ; n < 100 && err == nil; n++ {
		var s *Set
		if s, err = d.Stage(files("a", fmt.Sprint(n))); err == nil {
			keep(s)
			err = d.Switch(s)
		}
	}
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "11 old sets cannot be removed: at most 10") {
		t.Errorf("the set %d: %v", n, err)
	}
	expectSets(t, dir, MaxLeft+3)
	for _, file := range kept {
		if err := setImmutable(file, false); err != nil {
			t.Fatal(err)
		}
	}
	show(t, d, files("a", "free"))
	expect(t, dir, map[string]string{"a": "free"})
	if err := d.Left(); err != nil {
		t.Error(err)
	}
	expectSets(t, dir, 2)
}

// What was applied last survives the process, and can be shown again.
func TestApplied(t *testing.T) {
	dir := tempDir(t)
	d := open(t, dir, Options{})
	good := show(t, d, files("a", "good"))
	if err := d.MarkApplied(); err != nil {
		t.Fatal(err)
	}
	show(t, d, files("a", "bad", "b", "bad"))
	show(t, d, files("a", "worse"))
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = open(t, dir, Options{})
	if d.Current().is(d.Applied()) || !d.Applied().is(good) {
		t.Fatalf("current is %v, applied %v", d.Current(), d.Applied())
	}
	if got, want := d.Applied().Digest(), d.Digest(files("a", "good")); got != want {
		t.Errorf("the applied set has the digest %v, its files have %v", got, want)
	}
	if got, want := d.Current().Digest(), d.Digest(files("a", "worse")); got != want {
		t.Errorf("the current set has the digest %v, its files have %v", got, want)
	}
	if err := d.Switch(d.Applied()); err != nil {
		t.Fatal(err)
	}
	expect(t, dir, map[string]string{"a": "good"})
}

// The digest is that of the files on the disk, in any order, and depends on all that counts.
func TestDigest(t *testing.T) {
	dir := tempDir(t)
	d := open(t, dir, Options{})
	base := files("a", "1", "a.b", "2", "a/b", "3")[:2]
	base = append(base, files("c/d", "4", "c-d", "5")...)
	want := d.Digest(base)
	backwards := slices.Clone(base)
	slices.Reverse(backwards)
	if d.Digest(backwards) != want {
		t.Error("the digest depends on the order")
	}
	if got := show(t, d, backwards).Digest(); got != want {
		t.Error("the set has another digest than its files")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, dir, Options{})
	if again.Current().Digest() != again.Digest(base) {
		t.Error("the set on the disk has another digest than its files")
	}
	for name, other := range map[string][]File{
		"content":     append(files("a", "x"), base[1:]...),
		"path":        append(files("x", "1"), base[1:]...),
		"a file less": base[1:],
		"permissions": append([]File{{Path: "a", Data: []byte("1"), Mode: 0o640}}, base[1:]...),
		"boundaries":  append(files("a", "", "1a.b", "2"), base[2:]...),
	} {
		if again.Digest(other) == again.Digest(base) {
			t.Errorf("the digest does not depend on: %s", name)
		}
	}
	// What others do to the files of a set is noticed at the next start.
	for name, change := range map[string]func(file string) error{
		"content":     func(file string) error { return os.WriteFile(file, []byte("changed"), 0o600) },
		"permissions": func(file string) error { return os.Chmod(file, 0o644) },
		"removed":     os.Remove,
		"a link": func(file string) error {
			return errors.Join(os.Remove(file), os.Symlink("/etc/passwd", file))
		},
		"a pipe":               func(file string) error { return errors.Join(os.Remove(file), syscall.Mkfifo(file, 0o600)) },
		"another in it":        func(file string) error { return os.WriteFile(file+".more", nil, 0o600) },
		"a file of a terabyte": func(file string) error { return os.Truncate(file, 1<<40) }, // which reading would take too long
	} {
		t.Run(name, func(t *testing.T) {
			dir := tempDir(t)
			d := open(t, dir, Options{})
			set := files("a", "1", "b", "2")
			s := show(t, d, set)
			if err := errors.Join(d.Close(), change(filepath.Join(s.Path(), "a"))); err != nil {
				t.Fatal(err)
			}
			d = open(t, dir, Options{})
			if d.Current().Digest() == d.Digest(set) {
				t.Error("not noticed")
			}
			show(t, d, set)
			expect(t, dir, map[string]string{"a": "1", "b": "2"})
		})
	}
}

func TestPaths(t *testing.T) {
	for path, want := range map[string]string{
		"a": "", "a/b": "", "tls.crt": "", ".hidden": "", "-": "", "a b": "", "ä": "",
		"": "relative", ".": "relative", "/a": "relative", "a/": "relative", "a//b": "relative", "../a": "relative", "a/../b": "relative", "a/./b": "relative",
		"..data": "reserved", "a/..b": "reserved", "..set-1/a": "reserved",
		"a\x00": "control", "a\nb": "control",
		strings.Repeat("x", 256):           "at most 255",
		strings.Repeat("x/", 600) + "x":    "at most 1024",
		"\xff":                             "relative",
		strings.Repeat("y", 255) + "/tail": "",
	} {
		err := CheckPath(path)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("CheckPath(%q) = %v, want %q", path, err, want)
		}
	}
	for _, set := range [][]File{
		files("a", "1", "b", "2", "a", "3"), files("a", "1", "a/b", "2"), files("a/b/c", "1", "a", "2"), files("ok", "", "../x", ""),
	} {
		dir := tempDir(t)
		d := open(t, dir, Options{})
		show(t, d, files("kept", "k"))
		if _, err := d.Stage(set); err == nil {
			t.Errorf("Stage(%v) succeeds", set)
		}
		expect(t, dir, map[string]string{"kept": "k"})
		expectSets(t, dir, 1)
	}
}

// expectSets fails unless a directory has a number of sets, and nothing that a killed process left.
func expectSets(t testing.TB, dir string, want int) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var sets []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), setPrefix) {
			sets = append(sets, e.Name())
		}
		if strings.HasPrefix(e.Name(), tempPrefix) {
			t.Errorf("%s is left", e.Name())
		}
	}
	if len(sets) != want {
		t.Errorf("sets %v, want %d", sets, want)
	}
}

func TestTooLarge(t *testing.T) {
	dir := tempDir(t)
	d := open(t, dir, Options{MaxBytes: 10})
	show(t, d, files("a", "12345", "b", "67890"))
	if _, err := d.Stage(files("a", "123456", "b", "67890")); err == nil || !strings.Contains(err.Error(), "have 11 bytes: at most 10") {
		t.Errorf("Stage = %v", err)
	}
	expectSets(t, dir, 1)
}

// Files of others are in the way, and stay as they are.
func TestForeignFiles(t *testing.T) {
	for name, place := range map[string]func(path string) error{
		"a file":      func(path string) error { return os.WriteFile(path, []byte("mine"), 0o600) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"a link":      func(path string) error { return os.Symlink("..data/other", path) },
		"a pipe":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := tempDir(t)
			d := open(t, dir, Options{})
			show(t, d, files("a", "1"))
			if err := place(filepath.Join(dir, "b")); err != nil {
				t.Fatal(err)
			}
			before, err := os.Lstat(filepath.Join(dir, "b"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := d.Stage(files("a", "2", "b", "2")); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), `"b"`) {
				t.Errorf("Stage = %v", err)
			}
			expectSets(t, dir, 1)
			// It may come between the two steps.
			s, err := d.Stage(files("a", "2", "c", "2", "d", "2"))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(dir, "b"), filepath.Join(dir, "d")); err != nil {
				t.Fatal(err)
			}
			if err := d.Switch(s); !errors.Is(err, ErrForeign) {
				t.Errorf("Switch = %v", err)
			}
			if data, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(data) != "1" {
				t.Errorf("a is %q, %v", data, err)
			}
			if _, err := os.Lstat(filepath.Join(dir, "c")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the link c is left: %v", err)
			}
			if after, err := os.Lstat(filepath.Join(dir, "d")); err != nil || !os.SameFile(before, after) {
				t.Errorf("the other's file: %v, %v", after, err)
			}
		})
	}
}

// A process that is being started has a copy of each file descriptor until its program runs: that must not hold the lock.
func TestOpen_WhileAProcessStarts(t *testing.T) {
	dir := tempDir(t)
	d, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	duplicate, err := unix.Dup(int(d.lock.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(duplicate)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, dir, Options{})
}

func TestOpenRefuses(t *testing.T) {
	dir := tempDir(t)
	open(t, dir, Options{})
	if _, err := Open(dir, Options{}); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), dir) {
		t.Errorf("opened twice: %v", err)
	}
	volume := tempDir(t)
	if err := os.Symlink("..2026_11_26", filepath.Join(volume, currentLink)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(volume, Options{}); err == nil || !strings.Contains(err.Error(), "not to a set of files") {
		t.Errorf("opened a volume of the kubelet: %v", err)
	}
	write(t, dir, "file", "")
	if _, err := Open(filepath.Join(dir, "file"), Options{}); err == nil {
		t.Error("opened a file")
	}
}

func TestPermissions(t *testing.T) {
	for name, c := range map[string]struct {
		options      Options
		file, script fs.FileMode
		dir          fs.FileMode
	}{
		"by default":  {Options{}, 0o600, 0o755, 0o700},
		"for a group": {Options{Mode: 0o640}, 0o640, 0o755, 0o750},
		"for all":     {Options{Mode: 0o444}, 0o444, 0o755, 0o755},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tempDir(t)
			d := open(t, dir, c.options)
			set := append(files("f", "1", "sub/f", "2"), File{Path: "script", Data: []byte("3"), Mode: 0o755})
			s := show(t, d, set)
			for path, want := range map[string]fs.FileMode{".": c.dir | fs.ModeDir, "sub": c.dir | fs.ModeDir, "f": c.file, "sub/f": c.file, "script": c.script} {
				info, err := os.Stat(filepath.Join(s.Path(), path))
				if err != nil {
					t.Fatal(err)
				}
				if path == "." {
					want |= 0o055 // for the script
				}
				if info.Mode() != want {
					t.Errorf("%s has %v, want %v", path, info.Mode(), want)
				}
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			again := open(t, dir, c.options)
			if again.Current().Digest() != again.Digest(set) {
				t.Error("the set on the disk counts as another")
			}
		})
	}
}

// Those who may read a file can enter its directory, and no other.
func TestPermissions_OfDirectories(t *testing.T) {
	dir := tempDir(t)
	d := open(t, dir, Options{})
	set := append(files("own/f", "1"), File{Path: "group/deep/f", Mode: 0o640}, File{Path: "all/f", Mode: 0o604})
	s := show(t, d, set)
	for path, want := range map[string]fs.FileMode{".": 0o755, "own": 0o700, "group": 0o750, "group/deep": 0o750, "all": 0o705} {
		if info, err := os.Stat(filepath.Join(s.Path(), path)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has %v (%v), want %v", path, info.Mode(), err, want)
		}
	}
}
