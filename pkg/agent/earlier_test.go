// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/configdep/configdep/pkg/agent/action"
	"github.com/configdep/configdep/pkg/agent/fileset"
	"github.com/configdep/configdep/pkg/agent/process"
	"github.com/configdep/configdep/pkg/agent/source"
)

// The next process knows what the last one has applied.
func TestNextProcess(t *testing.T) {
	run(t, nil, func(b *bench) {
		b.source.set("a", "1")
		synctest.Wait()
		b.stop()
		b.start()
		b.after(time.Hour)
		b.want("a=1", "") // nothing to do
		b.reload.will(func(context.Context, string) error { return errors.New("not now") })
		b.source.set("a", "2")
		b.after(time.Second)
		b.want("a=2", "not now", "a=2")
		b.stop()
		b.reload.will(nil)
		b.start()
		b.after(time.Hour)
		b.want("a=2", "", "a=2") // the application has not read it
		b.stop()
		b.source.mu.Lock()
		b.source.data = map[string][]byte{"a": []byte("3")} // changed meanwhile
		b.source.mu.Unlock()
		b.start()
		b.after(time.Second)
		b.want("a=3", "", "a=3")
	})
}

// An application starts with what an earlier process left if nothing newer can be applied.
func TestResume(t *testing.T) {
	never := func(b *bench) {
		b.Helper()
		b.after(time.Hour)
		if b.agent.Status().Started {
			b.Error("started")
		}
	}
	soon := func(b *bench) {
		b.Helper()
		b.after(Patience - 1)
		if b.agent.Status().Started {
			b.Error("started at once")
		}
		b.after(1)
		if s := b.agent.Status(); !s.Started || s.InSync() || s.Successes != 0 {
			b.Errorf("status %+v", s)
		}
		if got := show(b.dir); got != "a=1" {
			b.Errorf("files %q", got)
		}
	}
	for name, c := range map[string]struct {
		change func(b *bench) // between the two processes
		want   func(b *bench)
	}{
		"the API server is away": {func(*bench) {}, soon},
		"a source is gone":       {func(b *bench) { b.source.data, b.source.read = nil, true }, soon},
		"content is refused": {func(b *bench) {
			b.source.data, b.source.read, b.config.Check = map[string][]byte{"a": []byte("2")}, true, &action.Command{Args: []string{"false"}, Timeout: time.Minute}
		}, soon},
		"there are no files": {func(b *bench) { b.must(os.Remove(filepath.Join(b.dir, "..data"))) }, never},
		"the files are not whole": {func(b *bench) {
			file := filepath.Join(b.dir, "..data", "a")
			b.must(errors.Join(os.Remove(file), os.Symlink("/etc/passwd", file)))
		}, never},
		"an init container": {func(b *bench) { b.config.Once = true }, never},
		"variables are needed as well": {func(b *bench) {
			b.config.Sources = append(b.config.Sources, source.Spec{Kind: source.Volume, Name: "/env", Env: true})
		}, never},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, nil, func(b *bench) {
				b.source.set("a", "1")
				synctest.Wait()
				b.stop()
				b.source.data, b.source.read = nil, false
				once := b.config.Once
				c.change(b)
				b.start()
				c.want(b)
				if b.config.Once != once { // it has not ended by itself
					b.cancel()
					if err := <-b.ended; !errors.Is(err, ErrInterrupted) {
						b.Error(err)
					}
					b.config.Once = once
					b.start()
				}
			})
		})
	}
}

// If the files that were applied last cannot come back, the application starts with those that are there.
func TestResume_WithWhatIsThere(t *testing.T) {
	dir := t.TempDir()
	d, err := fileset.Open(dir, fileset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"applied", "newer"} {
		s, err := d.Stage([]fileset.File{{Path: name}})
		if err == nil {
			err = d.Switch(s)
		}
		if err == nil && name == "applied" {
			err = d.MarkApplied()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(d.Close(), os.WriteFile(filepath.Join(dir, "applied"), nil, 0o600)); err != nil { // of another, in the way
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		absent := process.NewApplication([]string{filepath.Join(dir, "absent")}, nil, time.Second)
		a, err := New(Config{Dir: dir, Application: absent, Rollback: 1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		a.config.Sources, a.readers = []source.Spec{{Kind: source.Volume, Name: "/settings"}}, []reader{&fakeSource{agent: a}}
		if _, err := a.Run(klog.NewContext(t.Context(), klog.Logger{})); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the application was not started: %v", err)
		}
	})
}

// Once the sources can be read, the application reads what is new, and only that.
func TestResume_AndGoOn(t *testing.T) {
	for content, calls := range map[string][]string{"1": nil, "2": {"a=2"}} {
		run(t, nil, func(b *bench) {
			b.source.set("a", "1")
			synctest.Wait()
			b.stop()
			b.source.data, b.source.read = nil, false
			b.start()
			b.after(time.Hour)
			b.source.set("a", content)
			b.after(time.Minute)
			b.want("a="+content, "", calls...)
		})
	}
}

// Old files that cannot be removed do not fail what has been applied.
func TestOldFilesCannotBeRemoved(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may make files immutable") //nolint:forbidigo // the kernel refuses it to others; CI in a container, or any run as root, tests it
	}
	var log bytes.Buffer
	run(t, func(b *bench) { b.logger = textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))) }, func(b *bench) {
		b.source.set("a", "1")
		synctest.Wait()
		file, err := os.Open(filepath.Join(b.dir, "..data", "a"))
		if err != nil {
			b.Fatal(err)
		}
		defer file.Close()
		const immutable = 0x10 // FS_IMMUTABLE_FL
		if err := unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, immutable); err != nil {
			b.Fatal(err)
		}
		defer func() { _ = unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, 0) }()
		for _, content := range []string{"2", "3", "4"} {
			b.source.set("a", content)
			b.after(time.Second)
			b.want("a="+content, "", "a="+content)
		}
		if s := b.agent.Status(); s.Failures[Clean] != 2 || s.Successes != 4 {
			b.Errorf("status %+v", s)
		}
		if n := strings.Count(log.String(), "Old files cannot be removed"); n != 2 {
			b.Errorf("%d lines of the log in:\n%s", n, log.String())
		}
		b.stop()
		b.start() // a start is no reason to give up either
		b.after(time.Second)
		b.want("a=4", "")
		if s := b.agent.Status(); s.Failures[Clean] != 1 {
			b.Errorf("status after the start %+v", s)
		}
	})
}

// What could not be noted in the directory, as on a full disk, is no reason to reload again.
func TestAppliedCannotBeNoted(t *testing.T) {
	run(t, nil, func(b *bench) {
		b.source.set("a", "1")
		synctest.Wait()
		b.want("a=1", "")
		inTheWay := filepath.Join(b.dir, "..tmp-applied")
		b.must(os.MkdirAll(filepath.Join(inTheWay, "x"), 0o700))
		b.source.set("a", "2")
		b.after(time.Second)
		b.want("a=2", "write: ", "a=2")
		b.after(time.Hour)
		b.want("a=2", "write: ")
		// Other content is another matter, also if the first one comes back.
		b.source.set("a", "3")
		b.after(time.Minute)
		b.source.set("a", "2")
		b.after(time.Minute)
		b.want("a=2", "write: ", "a=3", "a=2")
		b.must(os.RemoveAll(inTheWay))
		b.after(time.Hour)
		b.want("a=2", "")
	})
}
