// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/configdep/configdep/pkg/agent/process"
	"github.com/configdep/configdep/pkg/agent/source"
)

// fakeSource is a source whose content a test sets.
type fakeSource struct {
	agent *Agent
	mu    sync.Mutex
	data  map[string][]byte // nil: the object does not exist
	read  bool
	n     int
	err   error
}

func (f *fakeSource) Run(ctx context.Context) { <-ctx.Done() }

func (f *fakeSource) Health() source.Health {
	f.mu.Lock()
	defer f.mu.Unlock()
	return source.Health{Err: f.err}
}

// fail lets the source fail, with what it has read last.
func (f *fakeSource) fail(err error) {
	f.mu.Lock()
	f.err = err
	f.mu.Unlock()
	f.agent.wake()
}

func (f *fakeSource) Objects() ([]*source.Object, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.data == nil {
		return nil, f.read
	}
	return []*source.Object{{Namespace: "shop", Name: "settings", UID: "u", ResourceVersion: fmt.Sprint(f.n), Data: f.data}}, f.read
}

// set sets the content: key, value.
func (f *fakeSource) set(pairs ...string) {
	data := map[string][]byte{}
	for i := 0; i < len(pairs); i += 2 {
		data[pairs[i]] = []byte(pairs[i+1])
	}
	f.replace(data)
}

func (f *fakeSource) remove() { f.replace(nil) }

func (f *fakeSource) replace(data map[string][]byte) {
	f.mu.Lock()
	f.data, f.read = data, true
	f.n++
	f.mu.Unlock()
	f.agent.wake()
}

// fakeAction is a reload or a probe of a test. It notes which content it found.
type fakeAction struct {
	dir   string
	mu    sync.Mutex
	found []string
	do    func(ctx context.Context, content string) error // nil: it succeeds
}

func (f *fakeAction) String() string { return "fake" }

func (f *fakeAction) Do(ctx context.Context) error {
	content := show(f.dir)
	f.mu.Lock()
	f.found = append(f.found, content)
	do := f.do
	f.mu.Unlock()
	if do == nil {
		return nil
	}
	return do(ctx, content)
}

// calls returns what the action has found since the last time.
func (f *fakeAction) calls() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.found
	f.found = nil
	return out
}

func (f *fakeAction) will(do func(ctx context.Context, content string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.do = do
}

// show returns the files of a directory: "a=1 b=2".
func show(dir string) string {
	var out []string
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "..") {
			if data, err := os.ReadFile(filepath.Join(dir, e.Name())); err == nil {
				out = append(out, e.Name()+"="+string(data))
			}
		}
	}
	return strings.Join(out, " ")
}

// bench is an agent with one source and one reload, in a bubble of synctest.
type bench struct {
	*testing.T
	dir    string
	config Config
	source *fakeSource
	reload *fakeAction
	agent  *Agent
	logger klog.Logger
	cancel context.CancelFunc
	ended  chan error
}

// run runs a test in a bubble, with time that passes only when all wait.
func run(t *testing.T, change func(*bench), test func(*bench)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, dir: dir, reload: &fakeAction{dir: dir}}
		b.config = Config{
			Dir: dir, Settle: time.Second, RetryMin: time.Second, RetryMax: time.Minute,
			Sources: []source.Spec{{Kind: source.Volume, Name: "/settings"}},
		}
		b.config.Reload = append(b.config.Reload, b.reload)
		if change != nil {
			change(b)
		}
		b.start()
		defer b.stop()
		test(b)
	})
}

func (b *bench) start() {
	b.Helper()
	var err error
	if b.agent, err = New(b.config, nil); err != nil {
		b.Fatal(err)
	}
	if b.source == nil {
		b.source = &fakeSource{}
	}
	b.source.agent = b.agent
	b.agent.readers = []reader{b.source}
	var ctx context.Context
	ctx, b.cancel = context.WithCancel(klog.NewContext(context.Background(), b.logger))
	b.ended = make(chan error, 1)
	go func() {
		_, err := b.agent.Run(ctx)
		b.ended <- err
	}()
	synctest.Wait()
}

func (b *bench) stop() {
	b.Helper()
	b.cancel()
	if err := <-b.ended; err != nil {
		b.Error(err)
	}
}

// after lets time pass until nothing happens anymore.
func (b *bench) after(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // of the clock of synctest: all goroutines wait when it passes, and it takes no time
	synctest.Wait()
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// want fails unless the files are as given, the action has found the given contents since the last time, and the failure contains a text.
func (b *bench) want(files, failure string, calls ...string) {
	b.Helper()
	if got := show(b.dir); got != files {
		b.Errorf("files %q, want %q", got, files)
	}
	if got := b.reload.calls(); !slices.Equal(got, calls) {
		b.Errorf("reloads of %q, want %q", got, calls)
	}
	s := b.agent.Status()
	got := ""
	if s.Failure != nil {
		got = s.Failure.Error()
	}
	if s.Unread != nil {
		got += s.Unread.Error()
	}
	if failure == "" && got != "" || !strings.Contains(got, failure) {
		b.Errorf("failure %q, want %q", got, failure)
	}
	if s.InSync() != (failure == "") {
		b.Errorf("in sync: %t with failure %q, status %+v", s.InSync(), failure, s)
	}
}

// An object of a selector that cannot be used keeps nothing else from being applied, and comes as soon as it can be used.
func TestRejectedObjects(t *testing.T) {
	run(t, func(b *bench) {
		b.config.Sources = []source.Spec{{Kind: source.ConfigMap, Namespace: "shop", Selector: labels.Everything()}}
		b.config.Client = &source.Client{}
		b.must(os.WriteFile(filepath.Join(b.dir, "theirs"), nil, 0o600))
	}, func(b *bench) {
		left := func(want string) {
			b.Helper()
			s := b.agent.Status()
			if got := source.Rejections(s.Rejected); got != want {
				b.Errorf("left out: %q, want %q", got, want)
			}
		}
		const why = `ConfigMap shop/settings is left out: "theirs" exists already, and is not of the set`
		b.source.set("theirs", "1")
		synctest.Wait()
		b.want("theirs=", "")
		left(why)
		b.must(os.Remove(filepath.Join(b.dir, "theirs")))
		b.after(b.config.RetryMax + b.config.Settle)
		b.want("theirs=1", "", "theirs=1")
		left("")
		// A file that takes the place before the object's is written.
		b.source.set("theirs", "2", "mine", "2")
		synctest.Wait()
		b.must(os.WriteFile(filepath.Join(b.dir, "mine"), nil, 0o600))
		b.after(10 * time.Second)
		b.want("mine=", "", "mine=")
		left(`ConfigMap shop/settings is left out: "mine" exists already, and is not of the set`)
		// A digest that stays the same.
		b.source.set("theirs", "3")
		b.after(b.config.Settle)
		b.want("mine= theirs=3", "", "mine= theirs=3")
		left("")
		b.source.remove()
		b.after(b.config.Settle)
		b.want("mine=", "", "mine=")
		b.source.set("mine", "4")
		b.after(b.config.Settle)
		b.want("mine=", "")
		left(`ConfigMap shop/settings is left out: "mine" exists already, and is not of the set`)
	})
}

func TestContentIsApplied(t *testing.T) {
	run(t, nil, func(b *bench) {
		b.want("", "has not been read yet")
		b.source.set("a", "1", "b", "1")
		synctest.Wait() // the first set waits for nothing
		b.want("a=1 b=1", "")
		if !b.agent.Status().Started {
			b.Error("not started")
		}
		b.source.set("a", "2")
		b.after(999 * time.Millisecond)
		if got := show(b.dir); got != "a=1 b=1" {
			b.Errorf("before it settled: %s", got)
		}
		b.after(time.Millisecond)
		b.want("a=2", "", "a=2")
		// The same content again is nothing new, whatever its version.
		b.source.set("a", "2")
		b.after(time.Hour)
		b.want("a=2", "")
		if s := b.agent.Status(); s.Successes != 2 || s.Applied != s.Wanted || s.Applied == "" {
			b.Errorf("status %+v", s)
		}
	})
}

// What counts is what content unpacks to.
func TestContentIsApplied_Unpacked(t *testing.T) {
	pack := func(comment, text string) string {
		var out strings.Builder
		w := gzip.NewWriter(&out)
		w.Comment = comment
		_, err := w.Write([]byte(text))
		if err := errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	run(t, func(b *bench) { b.config.Sources[0].Gunzip = true }, func(b *bench) {
		b.source.set("a.gz", pack("one", "1"))
		b.after(time.Second)
		b.want("a=1", "")
		// Other bytes that unpack to the same are no change.
		b.source.set("a.gz", pack("two", "1"))
		b.after(time.Hour)
		b.want("a=1", "")
		b.source.set("a.gz", "damaged")
		b.after(time.Hour)
		b.want("a=1", `key "a.gz" is not a`)
		b.source.set("a.gz", pack("three", "2"))
		b.after(time.Second)
		b.want("a=2", "", "a=2")
	})
}

// After the first set, the application is about to read it.
func TestFirstReload(t *testing.T) {
	run(t, func(b *bench) { b.config.ReloadFirst = true }, func(b *bench) {
		b.source.set("a", "1")
		synctest.Wait()
		b.want("a=1", "", "a=1")
	})
}

// Many changes in a moment make one reload, and changes that never end one every ten settle times.
func TestSettle(t *testing.T) {
	run(t, nil, func(b *bench) {
		b.source.set("a", "0")
		synctest.Wait()
		for i := range 20 {
			b.source.set("a", fmt.Sprint(i))
			b.after(100 * time.Millisecond)
		}
		b.after(900 * time.Millisecond)
		b.want("a=19", "", "a=19")
		for i := range 150 {
			b.source.set("a", fmt.Sprint("x", i))
			b.after(100 * time.Millisecond)
		}
		if got := b.reload.calls(); len(got) != 1 {
			b.Errorf("reloads of %q within 15 seconds", got)
		}
	})
}

// A reload that fails is tried again, less and less often, until it succeeds or something newer is wanted.
func TestReloadFails(t *testing.T) {
	run(t, nil, func(b *bench) {
		b.source.set("a", "1")
		synctest.Wait()
		b.reload.will(func(_ context.Context, content string) error {
			if content == "a=bad" {
				return errors.New("it said no")
			}
			return nil
		})
		b.source.set("a", "bad")
		b.after(time.Second)
		b.want("a=bad", "reload: it said no", "a=bad")
		b.after(10 * time.Minute)
		calls := b.reload.calls()
		if len(calls) < 12 || len(calls) > 30 { // about one a minute, after 1, 2, 4, … seconds
			b.Errorf("%d tries in ten minutes", len(calls))
		}
		if n := b.agent.Status().Failures[Reload]; n != len(calls)+1 {
			b.Errorf("%d failures are counted, want %d", n, len(calls)+1)
		}
		b.source.set("a", "2")
		b.after(time.Second)
		b.want("a=2", "", "a=2")
		// A failure that ends by itself.
		fails := 3
		b.reload.will(func(context.Context, string) error {
			if fails--; fails >= 0 {
				return errors.New("not now")
			}
			return nil
		})
		b.source.set("a", "3")
		b.after(time.Minute)
		b.want("a=3", "", "a=3", "a=3", "a=3", "a=3")
	})
}

// An agent that is interrupted before it has done its work has not succeeded: an init container or a Job would count as complete.
func TestInterrupted(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"an init container": func(c *Config) { c.Once = true },
		"a parent process":  func(c *Config) { c.Application = process.NewApplication([]string{"true"}, nil, time.Second) },
		"a sidecar":         func(*Config) {},
	} {
		t.Run(name, func(t *testing.T) {
			c := Config{Dir: t.TempDir(), Sources: []source.Spec{{Kind: source.Volume, Name: "/settings"}}}
			change(&c)
			a, err := New(c, nil)
			if err != nil {
				t.Fatal(err)
			}
			a.readers = []reader{&fakeSource{agent: a}}
			ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
			cancel()
			if _, err := a.Run(ctx); errors.Is(err, ErrInterrupted) != (name != "a sidecar") {
				t.Errorf("error %v", err)
			}
		})
	}
}

// An application that cannot be started ends the agent, which says why: with new content, and with the files of before.
func TestApplicationCannotStart(t *testing.T) {
	for name, earlier := range map[string]bool{"new content": false, "the files of before": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				run := func(c *Config, s *fakeSource) error {
					c.Dir, c.Sources = dir, []source.Spec{{Kind: source.Volume, Name: "/settings"}}
					a, err := New(*c, nil)
					if err != nil {
						t.Fatal(err)
					}
					s.agent = a
					a.readers = []reader{s}
					_, err = a.Run(klog.NewContext(t.Context(), klog.Logger{}))
					return err
				}
				content := &fakeSource{data: map[string][]byte{"a": []byte("1")}, read: true}
				if earlier {
					if err := run(&Config{Once: true}, content); err != nil {
						t.Fatal(err)
					}
					content = &fakeSource{}
				}
				absent := process.NewApplication([]string{filepath.Join(dir, "absent")}, nil, time.Second)
				err := run(&Config{Application: absent}, content)
				if _, is := errors.AsType[*process.StartError](err); !is || !errors.Is(err, os.ErrNotExist) {
					t.Errorf("error %v", err)
				}
			})
		})
	}
}

// What is newer takes the place of what is being applied, which is interrupted.
func TestSuperseded(t *testing.T) {
	run(t, nil, func(b *bench) {
		b.source.set("a", "1")
		synctest.Wait()
		b.reload.will(func(ctx context.Context, content string) error {
			if content == "a=slow" {
				<-ctx.Done()
				return fmt.Errorf("interrupted: %w", ctx.Err())
			}
			return nil
		})
		b.source.set("a", "slow")
		b.after(time.Hour)
		if s := b.agent.Status(); s.InSync() || s.Failure != nil {
			b.Errorf("while it is applied: %+v", s)
		}
		b.source.set("a", "2")
		b.after(time.Second)
		b.want("a=2", "", "a=slow", "a=2")
		if n := b.agent.Status().Failures[Reload]; n != 0 {
			b.Errorf("%d failures", n)
		}
		// It may also take its time to end.
		b.reload.will(func(_ context.Context, content string) error {
			if content == "a=stubborn" {
				time.Sleep(time.Minute) //nolint:forbidigo // as d above: the action takes its time
			}
			return nil
		})
		b.source.set("a", "stubborn")
		b.after(10 * time.Second)
		b.source.set("a", "3")
		b.after(10 * time.Second)
		b.source.set("a", "4")
		b.after(time.Minute)
		b.want("a=4", "", "a=stubborn", "a=4")
	})
}

// A source that is missing leaves the files as they are.
func TestMissingSource(t *testing.T) {
	run(t, nil, func(b *bench) {
		b.source.remove()
		b.after(time.Hour)
		b.want("", "Volume /settings does not exist")
		b.source.set("a", "1")
		synctest.Wait()
		b.want("a=1", "")
		b.source.remove()
		b.after(time.Hour)
		b.want("a=1", "Volume /settings does not exist")
		b.source.set("a", "1")
		b.after(time.Hour)
		b.want("a=1", "")
		b.source.remove()
		b.source.set("a", "2")
		b.after(time.Second)
		b.want("a=2", "", "a=2")
		// A set that was complete is applied until it succeeds, also while a source is missing.
		b.reload.will(func(context.Context, string) error { return errors.New("not now") })
		b.source.set("a", "3")
		b.after(time.Second)
		b.source.remove()
		b.after(time.Minute)
		b.reload.will(nil)
		b.after(2 * time.Minute)
		if s := b.agent.Status(); s.Failure != nil || s.Unread == nil || s.Applied != s.Wanted {
			b.Errorf("status %+v", s)
		}
	})
}

// While the API server does not answer, the application works with what is known; but not if newer content is known to be refused.
func TestSourceFails(t *testing.T) {
	run(t, nil, func(b *bench) {
		b.source.set("a", "1")
		synctest.Wait()
		b.source.fail(errors.New("no answer"))
		b.after(time.Hour)
		b.want("a=1", "")
		b.source.fail(&source.LimitError{})
		b.after(time.Hour)
		b.want("a=1", "Volume /settings: ")
		b.source.fail(nil)
		b.after(time.Hour)
		b.want("a=1", "")
	})
}

// Versions are those of the applied content, also when they change without it.
func TestVersions(t *testing.T) {
	run(t, func(b *bench) {
		b.config.Sources[0] = source.Spec{Kind: source.Volume, Name: "x"}
	}, func(b *bench) {
		b.config.Sources[0] = source.Spec{Kind: source.ConfigMap, Namespace: "shop", Name: "settings"}
		version := func() string {
			s := b.agent.Status()
			if len(s.Versions) != 1 {
				return fmt.Sprint(s.Versions)
			}
			return s.Versions[0].ResourceVersion
		}
		b.source.set("a", "1")
		b.after(time.Second)
		if version() != "1" {
			b.Errorf("version %s, want 1", version())
		}
		b.source.set("a", "1")
		b.after(time.Second)
		if version() != "2" {
			b.Errorf("version %s of the same content, want 2", version())
		}
		b.reload.will(func(context.Context, string) error { return errors.New("no") })
		b.source.set("a", "3")
		b.source.set("a", "3")
		b.after(time.Hour)
		if version() != "2" {
			b.Errorf("version %s while the next is not applied, want 2", version())
		}
		b.reload.will(nil)
		b.after(time.Hour)
		if version() != "4" {
			b.Errorf("version %s, want 4", version())
		}
	})
}

// A version that comes in the moment in which its content counts as applied is not lost.
func TestVersions_InTheMoment(t *testing.T) {
	run(t, nil, func(b *bench) {
		b.config.Sources[0] = source.Spec{Kind: source.ConfigMap, Namespace: "shop", Name: "settings"}
		gate := make(chan struct{})
		var blocked atomic.Bool
		b.agent.notify = func() {
			if b.agent.Status().Successes == 1 && !blocked.Swap(true) {
				<-gate
			}
		}
		b.source.set("a", "1")
		synctest.Wait()
		b.source.set("a", "1")
		synctest.Wait()
		close(gate)
		synctest.Wait()
		if v := b.agent.Status().Versions; len(v) != 1 || v[0].ResourceVersion != "2" {
			b.Errorf("versions %v", v)
		}
	})
}

// Keys that cannot be environment variables are named in the log, without what they have.
func TestIgnoredKeys(t *testing.T) {
	var log bytes.Buffer
	run(t, func(b *bench) {
		b.config.Sources[0].Env = true
		b.logger = textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))
	}, func(b *bench) {
		b.source.set("GOOD", "1", "a key", "CONTENT")
		b.after(time.Second)
		b.want("", "")
	})
	if text := log.String(); !strings.Contains(text, "a key") || strings.Contains(text, "CONTENT") {
		t.Errorf("log: %s", text)
	}
}

// Content that changes more often than a reload takes is applied now and then.
func TestSuperseded_AgainAndAgain(t *testing.T) {
	run(t, nil, func(b *bench) {
		b.source.set("a", "0")
		synctest.Wait()
		b.reload.will(func(ctx context.Context, _ string) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(5 * time.Second):
				return nil
			}
		})
		for n := range 100 {
			b.source.set("a", fmt.Sprint(n+1))
			b.after(2 * time.Second)
		}
		if n := b.agent.Status().Successes; n < 8 || n > 20 { // of reloads, each of which may be interrupted three times
			b.Errorf("applied %d times", n)
		}
		b.after(time.Minute)
		b.reload.calls()
		b.want("a=100", "")
	})
}

// Changes settle too while a failed reload waits for its next try.
func TestSettle_WhileItFails(t *testing.T) {
	run(t, func(b *bench) { b.config.RetryMin, b.config.RetryMax = time.Hour, time.Hour }, func(b *bench) {
		b.source.set("a", "1")
		synctest.Wait()
		b.reload.will(no)
		b.source.set("a", "bad")
		b.after(time.Minute)
		b.source.set("a", "2")
		b.after(100 * time.Millisecond)
		b.source.set("a", "3")
		b.after(time.Second)
		b.want("a=3", "", "a=bad", "a=3")
	})
}
