// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package fileset

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// crash stops a change in the middle.
type crash struct{}

// The process may be killed before any change to the directory: then readers see one whole set, as if they had come before or after the
// switch, and the next process repairs the rest.
func TestCrashAtEveryStep(t *testing.T) {
	sets := [][]File{
		files("app.conf", "1", "tls/tls.crt", "1", "tls/tls.key", "1", "only-1", "1", "same/deep", "s", "same.conf", "s"),
		files("app.conf", "2", "tls/tls.crt", "2", "only-2/deep/file", "2", "same/deep", "s", "same.conf", "s"),
		nil,
		files("app.conf", "3", "tls", "3", "same/deep", "s"),
	}
	type step struct{ mark, rollback bool }
	for number, how := range []step{{}, {mark: true}, {mark: true, rollback: true}} {
		for from := range sets {
			to := (from + 1) % len(sets)
			t.Run(fmt.Sprintf("%d from %d to %d", number, from, to), func(t *testing.T) {
				for steps := 0; ; steps++ {
					dir := tempDir(t)
					write(t, dir, "foreign", "f")
					first := open(t, dir, Options{})
					show(t, first, sets[from])
					if how.rollback {
						if err := first.MarkApplied(); err != nil {
							t.Fatal(err)
						}
					}
					if err := first.Close(); err != nil {
						t.Fatal(err)
					}
					restoring := false
					finished := crashAfter(t, dir, steps, func(d *Dir) {
						show(t, d, sets[to])
						if how.rollback {
							restoring = true
							if err := d.Restore(); err != nil {
								t.Fatal(err)
							}
						} else if how.mark {
							if err := d.MarkApplied(); err != nil {
								t.Fatal(err)
							}
						}
					})
					before, after := content(sets[from]), content(sets[to])
					got := visible(t, dir)
					if !maps.Equal(got, before) && !maps.Equal(got, after) {
						t.Fatalf("killed after %d steps, readers see %v", steps, got)
					}
					repaired := open(t, dir, Options{})
					expect(t, dir, got)
					if restoring && !repaired.Doubtful() {
						t.Fatalf("killed after %d steps, what was restored counts as applied", steps)
					}
					kept := map[string]bool{}
					for _, s := range []*Set{repaired.Current(), repaired.Applied()} {
						if s != nil {
							kept[s.name] = true
						}
					}
					expectSets(t, dir, len(kept))
					expectLinks(t, dir, repaired.Current())
					if digest := repaired.Current().Digest(); digest != repaired.Digest(sets[from]) && digest != repaired.Digest(sets[to]) {
						t.Fatalf("killed after %d steps, the set has another digest", steps)
					}
					show(t, repaired, sets[to])
					expect(t, dir, after)
					if finished {
						if steps < 5 {
							t.Errorf("only %d steps", steps)
						}
						return
					}
				}
			})
		}
	}
}

func content(set []File) map[string]string {
	out := map[string]string{"foreign": "f"}
	for _, f := range set {
		out[f.Path] = string(f.Data)
	}
	return out
}

// expectLinks fails unless the links of a directory are those of a set.
func expectLinks(t *testing.T, dir string, s *Set) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var links []string
	for _, e := range entries {
		if e.Type() == fs.ModeSymlink && !strings.HasPrefix(e.Name(), "..") {
			links = append(links, e.Name())
		}
	}
	var want []string
	if s != nil {
		want = s.first
	}
	if !slices.Equal(links, want) {
		t.Errorf("links %v, want %v", links, want)
	}
}

// crashAfter opens a directory, and runs a function that ends before the change after a number of changes. It reports whether the
// function came to its end.
func crashAfter(t *testing.T, dir string, steps int, run func(*Dir)) (finished bool) {
	t.Helper()
	d, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		// As the end of a process does, this lets go of the lock.
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if r := recover(); r != nil && r != any(crash{}) {
			panic(r)
		}
	}()
	d.parallel = 1
	d.root.before = func(string, string) {
		if steps == 0 {
			panic(crash{})
		}
		steps--
	}
	run(d)
	return true
}
