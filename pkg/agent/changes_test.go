// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/configdep/configdep/pkg/agent/action"
)

// telling is a reload that notes which files it is told of, and refuses content with "bad".
func telling(b *bench) (told func() string) {
	var mu sync.Mutex
	var all []string
	b.reload.will(func(ctx context.Context, content string) error {
		text, err := action.ExpandChanged(ctx, "{changed}")
		mu.Lock()
		defer mu.Unlock()
		if all = append(all, text); err != nil {
			return err
		}
		return no(ctx, content)
	})
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		defer func() { all = nil }()
		return strings.Join(all, " ")
	}
}

// A reload tells which files differ from all that the application may have read.
func TestChanged(t *testing.T) {
	var told func() string
	run(t, func(b *bench) { b.config.ReloadFirst, told = true, telling(b) }, func(b *bench) {
		step := func(what, want string, pairs ...string) {
			b.Helper()
			b.source.set(pairs...)
			b.after(1500 * time.Millisecond)
			if got := told(); got != want {
				b.Errorf("%s: told %s, want %s", what, got, want)
			}
		}
		step("the first set", `["a","b"]`, "a", "1", "b", "1")
		step("one changes", `["a"]`, "a", "2", "b", "1")
		step("one is new, and one vanishes", `["b","c"]`, "a", "2", "c", "1")
		step("the same", ``, "a", "2", "c", "1")
		step("as large as before", `["c"]`, "a", "2", "c", "2")
		step("a failure", `["a"]`, "a", "bad", "c", "2")
		b.after(3 * time.Second)
		if got := told(); !strings.HasPrefix(got, `["a"]`) {
			b.Errorf("another try: told %s", got)
		}
		step("after a failure, what it changed too", `["a","c"]`, "a", "2", "c", "3")
		step("after a success, not that", `["c"]`, "a", "2", "c", "4")
		step("a failure", `["b"]`, "a", "2", "b", "bad", "c", "4")
		b.after(time.Minute)
		told()
		step("back to what was applied", `["b"]`, "a", "2", "c", "4")
	})
}

func TestChanged_Rollback(t *testing.T) {
	var told func() string
	run(t, func(b *bench) { b.config.Rollback, told = 1, telling(b) }, func(b *bench) {
		b.source.set("a", "1", "b", "1")
		synctest.Wait()
		b.source.set("a", "bad", "b", "1")
		b.after(time.Hour)
		if got := told(); got != `["a"] ["a"]` {
			b.Errorf("told %s, want a for the newer set, and for the older one", got)
		}
		b.source.set("a", "1", "b", "2")
		b.after(time.Hour)
		if got := told(); got != `["b"]` {
			b.Errorf("told %s, want b: a is as the application has read it last", got)
		}
	})
}

// An agent that starts compares with what was applied before. It does not know what else an earlier process tried.
func TestChanged_Restart(t *testing.T) {
	var told func() string
	run(t, func(b *bench) { told = telling(b) }, func(b *bench) {
		restart := func(pairs ...string) {
			b.Helper()
			b.stop()
			b.source = nil
			b.start()
			b.source.set(pairs...)
			b.after(time.Hour)
		}
		b.source.set("a", "1", "b", "1", "c", "1")
		synctest.Wait()
		restart("a", "1", "b", "2", "c", "1")
		if got := told(); got != `["b"]` {
			b.Errorf("told %s, want b", got)
		}
		b.source.set("a", "bad", "b", "2", "c", "1")
		b.after(time.Minute)
		told()
		restart("a", "1", "b", "2", "d", "1")
		if got := told(); got != `["a","b","c","d"]` {
			b.Errorf("after a try of an earlier process: told %s, want all", got)
		}
	})
}

// More than can be told are told as null, until content is applied.
func TestChanged_Many(t *testing.T) {
	var told func() string
	run(t, func(b *bench) { b.config.ReloadFirst, told = true, telling(b) }, func(b *bench) {
		set := func(n int, more ...string) {
			b.Helper()
			for i := range n {
				more = append(more, fmt.Sprintf("%04d", i), "1")
			}
			b.source.set(more...)
			b.after(time.Second)
		}
		set(action.MaxChanged)
		if got := told(); strings.Count(got, ",") != action.MaxChanged-1 {
			b.Errorf("told %s", got)
		}
		set(action.MaxChanged-1, "0", "bad")
		if got := told(); got != `["0","0999"]` {
			b.Errorf("told %s", got)
		}
		set(0, "x", "1")
		if got := told(); got != "null" {
			b.Errorf("%d files vanish: told %s", action.MaxChanged, got)
		}
		set(1, "x", "1")
		if got := told(); got != `["0000"]` {
			b.Errorf("told %s", got)
		}
	})
}

// Files that an application or an operator has changed count, whatever takes their place.
func TestChanged_Touched(t *testing.T) {
	var told func() string
	run(t, func(b *bench) { told = telling(b) }, func(b *bench) {
		b.source.set("a", "1", "b", "1", "c", "1", "d", "1", "e", "1")
		synctest.Wait()
		set, err := filepath.EvalSymlinks(filepath.Join(b.dir, "..data"))
		b.must(err)
		name := func(file string) string { return filepath.Join(set, file) }
		b.must(errors.Join(os.Remove(name("a")), syscall.Mkfifo(name("a"), 0o600)))
		b.must(errors.Join(os.Remove(name("b")), os.Symlink("c", name("b"))))
		b.must(os.WriteFile(name("c"), []byte("2"), 0o600))
		b.must(os.Chmod(name("d"), 0o644))
		b.source.set("a", "1", "b", "1", "c", "1", "d", "1", "e", "1", "f", "1")
		b.after(time.Second)
		if got := told(); got != `["a","b","c","d","f"]` {
			b.Errorf("told %s", got)
		}
	})
}

// Files are compared by their content where the file system has no hard links.
func TestSame(t *testing.T) {
	big := strings.Repeat("x", 64<<10)
	for name, tt := range map[string]struct {
		a, b string
		same bool
	}{
		"equal":                 {"1", "1", true},
		"empty":                 {"", "", true},
		"other content":         {"1", "2", false},
		"longer":                {"1", "12", false},
		"two buffers":           {big, big, true},
		"the last byte differs": {big + "1", big + "2", false},
		"the first one differs": {"1" + big, "2" + big, false},
	} {
		var roots []*os.Root
		for _, text := range []string{tt.a, tt.b} {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "f"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			roots = append(roots, root)
		}
		if got := same("f", roots[0], roots[1], true); got != tt.same {
			t.Errorf("%s: %t", name, got)
		}
	}
}
