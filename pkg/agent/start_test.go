// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/agent/fileset"
	"github.com/configdep/configdep/pkg/agent/process"
	"github.com/configdep/configdep/pkg/agent/source"
)

// limit is how long anything may take.
const limit = 5 * time.Minute

// starting is an agent with a real application, in real time.
type starting struct {
	*Agent
	t       *testing.T
	source  *fakeSource
	reload  *fakeAction
	changes chan struct{} // has a value after changes of the status
	ended   chan struct{} // closed at the end of Run
	stop    func()
}

// startWith runs an agent with an application, a probe and content.
func startWith(t *testing.T, dir string, env bool, rollback int, probe func(context.Context) error, content string) *starting {
	t.Helper()
	s := &starting{t: t, source: &fakeSource{}, reload: &fakeAction{dir: dir}, changes: make(chan struct{}, 1), ended: make(chan struct{})}
	application := process.NewApplication([]string{"sleep", "1000"}, nil, time.Second)
	var err error
	s.Agent, err = New(Config{
		Dir: dir, Application: application, Rollback: rollback, RetryMin: time.Millisecond, RetryMax: time.Millisecond,
		Probe: actionFunc(probe), Sources: []source.Spec{{Kind: source.Volume, Name: "/settings", Env: env}},
	}, func() {
		select {
		case s.changes <- struct{}{}:
		default:
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	s.config.Reload = append(s.config.Reload, s.reload)
	s.readers, s.source.agent = []reader{s.source}, s.Agent
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	go func() {
		defer close(s.ended)
		if exit, err := s.Run(ctx); ctx.Err() == nil {
			t.Errorf("the agent ends with %v, %v", exit, err)
		}
	}()
	s.stop = func() { cancel(); <-s.ended }
	t.Cleanup(s.stop)
	s.source.set("a", content)
	return s
}

type actionFunc func(context.Context) error

func (f actionFunc) Do(ctx context.Context) error { return f(ctx) }
func (actionFunc) String() string                 { return "function" }

// inSync waits until the content is applied.
func (s *starting) inSync() {
	s.t.Helper()
	for {
		if status := s.Status(); status.InSync() {
			return
		}
		select {
		case <-s.changes:
		case <-s.ended:
			s.t.FailNow()
		case <-time.After(limit):
			s.t.Fatalf("status %+v", s.Status())
		}
	}
}

// An application that takes long for its first start is probed until it works, and not reloaded before.
func TestStart_TakesLong(t *testing.T) {
	t.Parallel()
	var probes atomic.Int32
	s := startWith(t, t.TempDir(), false, 0, func(context.Context) error {
		if probes.Add(1) < 10 {
			return errors.New("it starts")
		}
		return nil
	}, "1")
	s.inSync()
	if got := s.reload.calls(); len(got) != 0 {
		t.Errorf("reloads of %q while it starts", got)
	}
}

// An application that starts with older files gets no newer ones before its probe succeeds, however often these change meanwhile.
func TestStart_WithOlderFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d, err := fileset.Open(dir, fileset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	older, err := d.Stage([]fileset.File{{Path: "a", Data: []byte("1")}})
	if err == nil {
		err = errors.Join(d.Switch(older), d.MarkApplied(), d.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	probes, ready := make(chan string), make(chan struct{})
	probed := func(s *starting) string {
		select {
		case content := <-probes:
			return content
		case <-s.ended:
			t.FailNow()
		case <-time.After(limit):
			t.Fatalf("no probe; status %+v", s.Status())
		}
		return ""
	}
	s := startWith(t, dir, false, 1, func(ctx context.Context) error {
		select {
		case <-ready:
			return nil
		default:
		}
		select {
		case probes <- show(dir):
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case <-ready:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}, "2")
	for _, content := range []string{"3", "4"} {
		if got := probed(s); got != "a=1" {
			t.Errorf("it starts with %q", got)
		}
		s.source.set("a", content)
	}
	if got := probed(s); got != "a=1" || len(s.reload.calls()) != 0 {
		t.Errorf("it has %q before it is ready", got)
	}
	close(ready)
	s.inSync()
	if got := s.reload.calls(); len(got) != 1 || got[0] != "a=4" {
		t.Errorf("reloads of %q", got)
	}
}

// An interruption in the moment of the start ends the application, and its end is that of the agent.
func TestStart_IsInterrupted(t *testing.T) {
	t.Parallel()
	var a *Agent
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	a, err := New(Config{Dir: t.TempDir(), Application: process.NewApplication([]string{"sleep", "1000"}, nil, time.Minute)}, func() {
		if status := a.Status(); status.Started {
			cancel()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := a.Run(ctx); exit == nil || exit.Status() != 143 || err != nil {
		t.Errorf("it ends with %v, %v", exit, err)
	}
}

// The next process does not know which variables were applied: there is nothing to return to, and the application keeps those that are wanted.
func TestStart_KeepsVariables(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startWith(t, dir, true, 1, func(context.Context) error { return nil }, "1")
	s.inSync()
	s.stop()
	var probes atomic.Int32
	s = startWith(t, dir, true, 1, func(context.Context) error {
		if probes.Add(1) < 10 {
			return errors.New("it starts")
		}
		return nil
	}, "1")
	s.inSync()
	if got := s.Environment(); !slices.Equal(got, []string{"a=1"}) {
		t.Errorf("variables %q", got)
	}
}

// Without a probe, it has ten seconds for its start.
func TestStart_WithoutAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &Agent{starting: time.Now()}
		interrupted, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := a.awaitStart(interrupted); !errors.Is(err, errSuperseded) {
			t.Errorf("newer content interrupts the wait with %v", err)
		}
		began := a.starting
		for range 2 {
			if err := a.awaitStart(t.Context()); err != nil || time.Since(began) != 10*time.Second {
				t.Errorf("ready after %v, %v", time.Since(began), err)
			}
		}
	})
}
