// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package restarter

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

const limit = 5 * time.Minute

// pod is a volume of the downward API, and a restarter that reads it.
type pod struct {
	*testing.T
	dir       string
	restarter *Restarter
	cancel    context.CancelCauseFunc
	ended     chan error
}

var errStopped = errors.New("stopped")

// start starts a restarter in a pod with a value of the annotation; "": there is none.
func start(t *testing.T, value string, change func(*Config)) *pod {
	t.Helper()
	p := &pod{T: t, dir: t.TempDir(), ended: make(chan error, 1)}
	if value != "" {
		p.annotate(value)
	}
	p.run(change)
	return p
}

func (p *pod) run(change func(*Config)) {
	c := Config{File: filepath.Join(p.dir, "restart"), Poll: 5 * time.Millisecond}
	if change != nil {
		change(&c)
	}
	p.restarter = New(c)
	ctx, cancel := context.WithCancelCause(klog.NewContext(p.Context(), klog.Logger{}))
	p.cancel = cancel
	if code := p.probe("/startupz"); code != http.StatusServiceUnavailable {
		p.Errorf("startup probe %d before the annotation was read", code)
	}
	go func() { p.ended <- p.restarter.Run(ctx) }()
	p.await(Waiting)
	if code := p.probe("/startupz"); code != http.StatusOK {
		p.Errorf("startup probe %d after the annotation was read", code)
	}
}

// annotate writes the value as the kubelet does.
func (p *pod) annotate(value string) {
	p.Helper()
	set, err := os.MkdirTemp(p.dir, "..2026_")
	if err != nil {
		p.Fatal(err)
	}
	temp, link := filepath.Join(p.dir, "..data_tmp"), filepath.Join(p.dir, "restart")
	if err := errors.Join(os.WriteFile(filepath.Join(set, "restart"), []byte(value), 0o600), os.Symlink(filepath.Base(set), temp), os.Rename(temp, filepath.Join(p.dir, "..data"))); err != nil {
		p.Fatal(err)
	}
	if err := os.Symlink("..data/restart", link); err != nil && !errors.Is(err, os.ErrExist) {
		p.Fatal(err)
	}
}

// restarts fails unless the containers restart.
func (p *pod) restarts() {
	p.Helper()
	select {
	case err := <-p.ended:
		if err != nil {
			p.Errorf("ended with %v", err)
		}
	case <-time.After(limit):
		p.Fatal("no restart")
	}
}

// stop ends the restarter, and fails if the containers were to restart.
func (p *pod) stop() {
	p.Helper()
	p.cancel(errStopped)
	select {
	case err := <-p.ended:
		if !errors.Is(err, errStopped) {
			p.Errorf("ended with %v, want no restart", err)
		}
	case <-time.After(limit):
		p.Fatal("it does not stop")
	}
}

// await waits until the state is one of those given.
func (p *pod) await(states ...State) {
	p.Helper()
	err := wait.PollUntilContextTimeout(p.Context(), time.Millisecond, limit, true, func(context.Context) (bool, error) {
		return slices.Contains(states, p.restarter.State()), nil
	})
	if err != nil {
		p.Fatalf("state %s, want %s", p.restarter.State(), states)
	}
}

// probe returns the status code of a probe.
func (p *pod) probe(path string) int {
	w := httptest.NewRecorder()
	p.restarter.Handler().ServeHTTP(w, httptest.NewRequestWithContext(p.Context(), http.MethodGet, path, nil))
	return w.Code
}

func (p *pod) ready() int { return p.probe("/readyz") }

// A new value restarts, what was there at the start does not: not the first time, and not after the restart that it asked for.
func TestRestart(t *testing.T) {
	t.Parallel()
	p := start(t, "", nil)
	p.annotate("one")
	p.restarts()
	p.run(nil) // in the same pod, after the restart
	p.annotate("two")
	p.restarts()
	p.run(func(c *Config) { c.Poll = time.Hour }) // notified
	p.annotate("three")
	p.restarts()
	p.run(nil)
	p.annotate("")      // removed
	p.annotate("three") // a new one, if the removal was seen
	p.annotate("four")
	p.restarts()
}

func TestNoRestart(t *testing.T) {
	t.Parallel()
	// Each value is there when a restarter starts, so it was done, and stays so when the volume is written again.
	for _, value := range []string{"", "one", "two\n"} {
		p := start(t, value, nil)
		if p.ready() != http.StatusOK {
			t.Error("not ready")
		}
		p.annotate(strings.TrimSpace(value))
		p.stop()
	}
	// It is too long to be the value of an annotation of ours.
	p := &pod{T: t, dir: t.TempDir()}
	p.annotate(strings.Repeat("x", maxValue+1))
	if err := New(Config{File: filepath.Join(p.dir, "restart")}).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "more than 4096 bytes") {
		t.Errorf("ended with %v", err)
	}
}

// try is an action of a test.
type try func(ctx context.Context) error

func (t try) Do(ctx context.Context) error { return t(ctx) }
func (t try) String() string               { return "try" }

// Before a restart the pod is not ready, and the drain is done once. A drain that fails keeps nothing.
func TestDrain(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	var calls atomic.Int32
	p := start(t, "", func(c *Config) {
		c.Drain = try(func(context.Context) error {
			calls.Add(1)
			<-release
			return errors.New("not possible")
		})
	})
	p.annotate("one")
	p.await(Draining)
	if p.ready() != http.StatusServiceUnavailable {
		t.Error("ready while it drains")
	}
	p.annotate("two")
	close(release)
	p.restarts()
	if n := calls.Load(); n != 1 {
		t.Errorf("drained %d times", n)
	}
	// The end of the pod comes first.
	p = start(t, "", func(c *Config) { c.Unready = time.Hour })
	p.annotate("one")
	p.await(Draining)
	p.stop()
	p = start(t, "", func(c *Config) {
		c.Drain = try(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	})
	p.annotate("one")
	p.await(Draining)
	p.stop()
}

// A change that is taken back while the restart waits makes no restart, and the next one does.
func TestTakenBack(t *testing.T) {
	t.Parallel()
	var p *pod
	// On a busy machine the time may be over before the change is taken back: then it needs more.
	for uptime, late := 3*time.Second, true; late; uptime *= 4 {
		began := time.Now()
		p = start(t, "", func(c *Config) { c.MinUptime = uptime })
		p.annotate("one")
		p.await(Held, Draining)
		p.annotate("")
		late = time.Since(began) >= uptime
	}
	p.await(Waiting)
	p.annotate("one")
	p.restarts()
}

// Containers that have just started do not restart at once.
func TestMinUptime(t *testing.T) {
	t.Parallel()
	p := start(t, "", func(c *Config) { c.MinUptime = time.Hour })
	p.annotate("one")
	p.await(Held)
	if p.ready() != http.StatusOK {
		t.Error("not ready while the restart waits")
	}
	p.stop()
	const uptime = 500 * time.Millisecond
	began := time.Now() // it counts from a moment after this
	p = start(t, "", func(c *Config) { c.MinUptime = uptime })
	p.annotate("one")
	p.restarts()
	if took := time.Since(began); took < uptime {
		t.Errorf("restarted after %v", took)
	}
}

func TestOptions(t *testing.T) {
	for args, want := range map[string]string{
		"":                                 "",
		"--drain=http://a:1/x":             "",
		"--drain=curl -X POST https://a/x": "",
		"--drain=sleep 5":                  "",
		"--file=":                          "--file: it is required",
		"--min-uptime=9s":                  "--min-uptime: 9s must be 10s or more",
		"--unready=-1s":                    "--unready",
		"--drain-timeout=0s":               "--drain-timeout",
		"--drain=https://a":                "--drain",
		"--drain=http://u:p@a":             "without credentials",
		"--drain=://a":                     "--drain",
		"--drain=[]":                       "--drain",
	} {
		o, f := NewOptions(), pflag.NewFlagSet("", pflag.ContinueOnError)
		o.AddFlags(f)
		var all []string
		if args != "" {
			all = append(all, args)
		}
		if err := f.Parse(all); err != nil {
			t.Fatal(err)
		}
		c, err := o.Config()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
		if err == nil && (c.Drain != nil) != strings.Contains(args, "drain") {
			t.Errorf("%s: %+v", args, c)
		}
	}
}

// The flags call a URL, or run a command.
func TestOptions_Drain(t *testing.T) {
	var called []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		called = append(called, r.Method+" "+r.URL.String())
	}))
	defer server.Close()
	drain := func(flag string) error {
		t.Helper()
		o, f := NewOptions(), pflag.NewFlagSet("", pflag.ContinueOnError)
		o.AddFlags(f)
		if err := f.Parse([]string{flag}); err != nil {
			t.Fatal(err)
		}
		c, err := o.Config()
		if err != nil {
			t.Fatal(err)
		}
		return c.Drain.Do(t.Context())
	}
	if err := drain("--drain=" + server.URL + "/drain?x=y"); err != nil || !slices.Equal(called, []string{"POST /drain?x=y"}) {
		t.Errorf("called %q, %v", called, err)
	}
	file := filepath.Join(t.TempDir(), "a file")
	if err := drain(`--drain=["touch", "` + file + `"]`); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the command has not run: %v", err)
	}
}
