// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/agent/fileset"
	"github.com/configdep/configdep/pkg/agent/process"
	"github.com/configdep/configdep/pkg/agent/source"
)

// ErrInterrupted is returned by Run if the context ends before the files of an init container are there, or an application starts.
var ErrInterrupted = errors.New("interrupted before the files were complete")

// Patience is how long an agent waits for what its sources have, if an earlier process has left a set: then the application starts with
// that one. It is less than startup probes take to fail.
const Patience = 10 * time.Second

// Run applies what the sources have, until the context ends, or the application. With Once it ends after the first set. The exit is how
// the application ended, if it did.
func (a *Agent) Run(ctx context.Context) (exit *process.Exit, err error) {
	if a.dir, err = fileset.Open(a.config.Dir, a.config.Files); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.dir.Close()) }()
	a.cleaned(ctx)
	a.compose.Foreign = a.dir.Foreign
	// An earlier process may have ended while the application read the current set.
	a.touched = a.dir.Doubtful()
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, r := range a.readers {
		running.Go(func() { r.Run(ctx) })
	}
	var ended <-chan process.Exit
	if a.config.Application != nil {
		ended = a.config.Application.Ended()
		defer func() { err = errors.Join(err, a.config.Application.Stop()) }() //nolint:contextcheck // the context has ended
	}
	a.wake() // with no sources, nothing else would
	l := loop{Agent: a}
	if a.canResume() {
		l.patience = time.After(Patience)
	}
	defer l.stop()
	for {
		select {
		case <-a.changed:
			l.change(ctx)
		case <-l.again:
			l.change(ctx)
		case <-l.due:
			l.due = nil
			l.begin(ctx)
		case <-l.patience:
			l.resumes = true
			if err := l.resume(ctx); err != nil {
				return nil, err
			}
		case err := <-l.done:
			if _, is := errors.AsType[startError](err); is {
				l.done = nil // stop has nothing to wait for
				return nil, err
			}
			l.finish(ctx, err)
			if a.config.Once && err == nil {
				return nil, nil //nolint:nilnil // there is no application
			}
			if err := l.resume(ctx); err != nil {
				return nil, err
			}
		case e := <-ended:
			return &e, nil
		case <-ctx.Done():
			l.stop()
			switch application := a.config.Application; {
			case a.config.Once, application != nil && !application.Started():
				return nil, ErrInterrupted
			case application != nil: // it was started in the same moment
				return application.End() //nolint:contextcheck // the context has ended
			}
			return nil, nil //nolint:nilnil // there is no application
		}
	}
}

// loop is the state of the goroutine that applies sets.
type loop struct {
	*Agent
	first    time.Time        // of the changes since a set was begun; zero: there are none
	due      <-chan time.Time // when to begin
	wanted   *wanted
	done     chan error       // of the set that is being applied; nil: none is
	applying *wanted          // that set
	pending  bool             // the time of another set came meanwhile
	again    <-chan time.Time // when to look whether the files of others are still in the way
	cancel   context.CancelCauseFunc
	canceled int // in a row, of the attempts
	failures int // in a row, of the same set
	refusals int // those of them that are failures of the reload or the probe

	patience <-chan time.Time // ends when the set of an earlier process shall do
	resumes  bool             // it has ended
}

var errSuperseded = errors.New("something newer is wanted")

// maxCanceled is how many attempts in a row newer content may interrupt. Otherwise nothing would ever be applied of content that changes
// more often than it takes to apply it.
const maxCanceled = 3

// change takes note of a change of a source.
func (l *loop) change(ctx context.Context) {
	w, err := l.want()
	l.again = nil
	if err != nil {
		// A set that was complete is still applied.
		l.update(ctx, func(s *Status) { s.Unread = err })
		return
	}
	if len(w.set.Rejected) != 0 {
		l.again = time.After(l.config.RetryMax)
	}
	if l.wanted != nil && l.wanted.digest == w.digest {
		l.update(ctx, func(s *Status) {
			s.Unread, s.Rejected = nil, w.set.Rejected
			if l.done == nil && s.Applied == w.digest {
				s.Versions = w.set.Versions
			}
		})
		l.wanted.versions.Store(&w.set.Versions)
		return
	}
	l.wanted, l.failures, l.refusals = w, 0, 0
	if ignored := w.set.Ignored; len(ignored) != 0 {
		klog.FromContext(ctx).Info("Keys that cannot be environment variables are ignored", "keys", ignored)
	}
	if l.canceled < maxCanceled {
		l.interrupt()
	}
	started := false
	l.update(ctx, func(s *Status) { s.Wanted, s.Unread, s.Rejected, started = w.digest, nil, w.set.Rejected, s.Started })
	now := time.Now()
	if l.first.IsZero() {
		l.first = now
	}
	settle := l.config.Settle
	if !started {
		settle = 0
	}
	l.due = time.After(min(settle, time.Until(l.first.Add(10*settle))))
}

// canResume reports whether the application can start with the set of an earlier process: it must be whole, and variables are in no set.
// The files of an init container would stay as they are, so it waits.
func (a *Agent) canResume() bool {
	return !a.config.Once && !a.hasVariables() && a.dir.Current().Digest() != (fileset.Digest{})
}

func (a *Agent) hasVariables() bool {
	return slices.ContainsFunc(a.config.Sources, func(s source.Spec) bool { return s.Env })
}

// resume lets the application start with the set of an earlier process, if there is no newer one by now: a container that restarts while
// the API server is away, or while its sources have content that cannot be applied, has what it had before.
func (l *loop) resume(ctx context.Context) error {
	if !l.resumes || l.done != nil || l.Status().Started || ctx.Err() != nil {
		return nil
	}
	klog.FromContext(ctx).Info("Nothing newer could be applied, so the application starts with the files of before")
	if l.config.Application == nil {
		l.update(ctx, func(s *Status) { s.Started = true })
		return nil
	}
	if l.config.Rollback > 0 && l.dir.Applied().Digest() != (fileset.Digest{}) {
		err := l.startApplied(ctx)
		failure, is := errors.AsType[*FailureError](err)
		if !is {
			return err
		}
		klog.FromContext(ctx).Error(failure.Err, "The files that were applied last cannot come back, so the application starts with those that are there")
	}
	return l.startWithOlder(ctx)
}

// interrupt ends the attempt to apply what is not wanted anymore.
func (l *loop) interrupt() {
	if l.cancel != nil {
		l.cancel(errSuperseded)
	}
}

// stop waits for the end of an attempt.
func (l *loop) stop() {
	if l.done != nil {
		l.interrupt()
		<-l.done //nolint:errcheck // it does not count anymore
		l.done = nil
	}
}

// begin begins to apply what is wanted.
func (l *loop) begin(ctx context.Context) {
	l.first = time.Time{}
	if l.pending = l.done != nil; l.pending {
		return // finish begins again
	}
	ctx, l.cancel = context.WithCancelCause(ctx)
	l.done = make(chan error, 1)
	l.applying = l.wanted
	w, refusals, done := l.wanted, l.refusals, l.done
	go func() { done <- l.apply(ctx, w, refusals) }()
}

// finish takes note of the end of an attempt.
func (l *loop) finish(ctx context.Context, err error) {
	if l.canceled++; !errors.Is(err, errSuperseded) {
		l.canceled = 0
	}
	l.cancel(nil)
	l.done, l.cancel = nil, nil
	if err == nil && l.applying == l.wanted {
		// A version that came meanwhile, with the same content.
		l.update(ctx, func(s *Status) { s.Versions = *l.wanted.versions.Load() })
	}
	// A failure of what is not wanted anymore does not count.
	if failure, is := errors.AsType[*FailureError](err); is && l.applying == l.wanted {
		l.failures++
		if failure.Step == Reload || failure.Step == Probe {
			l.refusals++
		}
		back := l.refused != nil && l.refused.back
		l.update(ctx, func(s *Status) { s.fail(failure, back) })
		if l.due == nil && !l.pending && !back {
			l.due = time.After(l.backOff())
		}
		if errors.Is(err, fileset.ErrForeign) {
			l.wake() // an object of a selector with such a file is left out
		}
	}
	if l.pending {
		l.begin(ctx)
	}
}

// backOff returns how long to wait before the next try.
func (l *loop) backOff() time.Duration {
	d := l.config.RetryMin << min(l.failures-1, 20)
	if d > l.config.RetryMax || d <= 0 {
		d = l.config.RetryMax
	}
	return d/2 + rand.N(d/2+1) //nolint:gosec // no secret
}
