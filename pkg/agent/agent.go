// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package agent keeps the files of an application equal to ConfigMaps, Secrets and volumes, and has it read them again. It runs beside
// the application, as a sidecar, or is its parent process.
//
// One goroutine applies sets: it composes what is wanted from the sources, writes it beside the current set, has it checked, switches to
// it, and has the application reload. A step that fails is tried again, until it succeeds or something newer is wanted.
package agent

import (
	"cmp"
	"context"
	"crypto/hmac"
	crand "crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/agent/action"
	"github.com/configdep/configdep/pkg/agent/fileset"
	"github.com/configdep/configdep/pkg/agent/process"
	"github.com/configdep/configdep/pkg/agent/source"
)

// Config is what an agent does.
type Config struct {
	// Dir is the directory of the files.
	Dir   string
	Files fileset.Options
	// Sources are what is read; those that are no Volumes with Client.
	Sources []source.Spec
	Client  *source.Client
	// Poll is how often volumes are read that do not tell of changes.
	Poll time.Duration
	// Settle is for how long nothing must have changed before a set is applied. It waits for at most ten times as long.
	Settle time.Duration
	// Check gets a new set before it is switched to, and may refuse it. nil: each set is good.
	Check *action.Command
	// Reload has the application read the current set, in this order.
	Reload []action.Action
	// ReloadFirst: the application reloads also after the first set.
	ReloadFirst bool
	// Probe succeeds if the application works with the current set. nil: it does if it has reloaded.
	Probe action.Action
	// Rollback: after so many failures of the reload or the probe, the set that was applied last comes back. 0: never.
	Rollback int
	// RetryMin and RetryMax are between two tries, which double from one to the other.
	RetryMin, RetryMax time.Duration
	// Application is the child, which starts once the first set is there. nil: there is none.
	Application *process.Application
	// Once: the agent ends after the first set.
	Once bool
}

// Step is a part of applying a set.
type Step string

// The steps.
const (
	Write    Step = "write"
	Check    Step = "check"
	Reload   Step = "reload"
	Probe    Step = "probe"
	Rollback Step = "rollback"
	Clean    Step = "clean"
)

// Steps are all steps, in their order. A failure of the last one fails nothing else.
var Steps = []Step{Write, Check, Reload, Probe, Rollback, Clean}

// FailureError is a step that failed.
type FailureError struct {
	Step Step
	Err  error
}

func (f *FailureError) Error() string { return string(f.Step) + ": " + f.Err.Error() }
func (f *FailureError) Unwrap() error { return f.Err }

// Status is how an agent gets on.
type Status struct {
	// Wanted and Applied are digests of the content that the sources have, and of the one with which the application works. They can be
	// compared within this process alone.
	Wanted, Applied string
	// Started: the first set is there.
	Started bool
	// Unread is why it is not known what is wanted, or nil.
	Unread error
	// Failure is why wanted content is not applied, or nil.
	Failure *FailureError
	// RolledBack: the application works with older content on purpose, until there is something newer.
	RolledBack bool
	// AppliedAt is when content was applied last.
	AppliedAt time.Time
	// Versions are those of the sources whose content is applied.
	Versions []source.Version
	// Failures counts the failures of each step, and Successes those of all.
	Failures  map[Step]int
	Successes int
}

// InSync reports whether the application works with what is wanted.
func (s *Status) InSync() bool {
	return s.Started && s.Unread == nil && s.Failure == nil && s.Wanted == s.Applied
}

// refusal is a set that the application did not accept.
type refusal struct {
	of   *wanted
	err  error // why
	back bool  // the application works with the set that was applied last
}

// reader reads a source.
type reader interface {
	Run(ctx context.Context)
	Objects() ([]*source.Object, bool)
	Health() source.Health
}

// Agent keeps the files of one directory.
type Agent struct {
	config  Config
	dir     *fileset.Dir
	readers []reader
	changed chan struct{} // has room for one

	key     [32]byte // of digests of environments
	touched bool     // the application may have read something else than the set that was applied last
	refused *refusal // of the wanted set, after which the one that was applied last came back, or shall; nil: none

	mu          sync.Mutex
	status      Status
	environment []string // with which the application is started
	applied     []string // the environment of the set that was applied last
	notify      func()
}

// New returns an agent, which has not read anything. It calls notify, which must not wait, whenever its status changes.
func New(c Config, notify func()) (*Agent, error) {
	a := &Agent{config: c, changed: make(chan struct{}, 1), notify: notify, status: Status{Failures: map[Step]int{}}}
	_, _ = crand.Read(a.key[:]) // never fails
	maxBytes := cmp.Or(c.Files.MaxBytes, fileset.DefaultMaxBytes)
	for i := range c.Sources {
		s := &c.Sources[i]
		switch {
		case s.Kind == source.Volume:
			a.readers = append(a.readers, source.NewMount(s, c.Poll, maxBytes, a.wake))
		case c.Client == nil:
			return nil, fmt.Errorf("%s: there is no client of the API server", s)
		default:
			a.readers = append(a.readers, source.NewWatcher(c.Client, s, int(maxBytes), a.wake))
		}
	}
	return a, nil
}

// wake tells the loop that a source has changed.
func (a *Agent) wake() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// Status returns how the agent gets on.
func (a *Agent) Status() Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status
}

// Health returns how each source gets on, in the order of the sources.
func (a *Agent) Health() []source.Health {
	out := make([]source.Health, 0, len(a.readers))
	for _, r := range a.readers {
		out = append(out, r.Health())
	}
	return out
}

func (a *Agent) update(ctx context.Context, change func(*Status)) {
	a.mu.Lock()
	before := a.status
	change(&a.status)
	after := a.status
	a.mu.Unlock()
	logger := klog.FromContext(ctx)
	if after.Unread != nil && !errors.Is(after.Unread, errNotRead) && text(before.Unread) != after.Unread.Error() {
		logger.Error(after.Unread, "Sources are missing, so the files stay as they are")
	}
	if after.Failure != nil && before.Failure != after.Failure {
		logger.Error(after.Failure.Err, "Configuration is not applied", "step", after.Failure.Step, "rolledBack", after.RolledBack)
	}
	if a.notify != nil {
		a.notify()
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// wanted is what the sources have.
type wanted struct {
	set      *source.Set
	versions atomic.Pointer[[]source.Version] // the newest ones with this content
	files    fileset.Digest
	digest   string // of the files and the environment
}

// errNotRead: a source has not been read for the first time.
var errNotRead = errors.New("has not been read yet")

// want composes what is wanted.
func (a *Agent) want() (*wanted, error) {
	objects := make([][]*source.Object, len(a.readers))
	var errs []error
	for i, r := range a.readers {
		var synced bool
		if objects[i], synced = r.Objects(); !synced {
			err := errNotRead
			if h := r.Health(); h.Err != nil {
				err = h.Err
			}
			errs = append(errs, fmt.Errorf("%s: %w", &a.config.Sources[i], err))
		} else if limit, is := errors.AsType[*source.LimitError](r.Health().Err); is {
			errs = append(errs, fmt.Errorf("%s: %w", &a.config.Sources[i], limit))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	set, err := source.Compose(a.config.Sources, func(i int) []*source.Object { return objects[i] })
	if err != nil {
		return nil, err
	}
	w := &wanted{set: set, files: a.dir.Digest(set.Files)}
	w.versions.Store(&set.Versions)
	h := hmac.New(sha256.New, a.key[:])
	_, _ = h.Write(w.files[:])
	for _, v := range set.Env {
		_, _ = fmt.Fprintf(h, "%d:%s", len(v), v)
	}
	w.digest = hex.EncodeToString(h.Sum(nil)[:8])
	return w, nil
}

// Environment returns the variables of the set with which the application is started.
func (a *Agent) Environment() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.environment
}

// ErrInterrupted is returned by Run if the context ends before the files of an init container are there, or an application starts.
var ErrInterrupted = errors.New("interrupted before the files were complete")

// Run applies what the sources have, until the context ends, or the application. With Once it ends after the first set. The exit is how
// the application ended, if it did.
func (a *Agent) Run(ctx context.Context) (exit *process.Exit, err error) {
	if a.dir, err = fileset.Open(a.config.Dir, a.config.Files); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.dir.Close()) }()
	a.cleaned(ctx)
	// An earlier process may have ended while the application read the current set.
	a.touched = a.dir.Current() != a.dir.Applied()
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
	defer l.stop()
	for {
		select {
		case <-a.changed:
			l.change(ctx)
		case <-l.due:
			l.due = nil
			l.begin(ctx)
		case err := <-l.done:
			if notStarted, is := errors.AsType[startError](err); is {
				return nil, notStarted.error
			}
			l.finish(ctx, err)
			if a.config.Once && err == nil {
				return nil, nil //nolint:nilnil // there is no application
			}
		case e := <-ended:
			return &e, nil
		case <-ctx.Done():
			if a.config.Once || a.config.Application != nil && !a.config.Application.Started() {
				return nil, ErrInterrupted
			}
			return nil, nil //nolint:nilnil // the application has not ended
		}
	}
}

// loop is the state of the goroutine that applies sets.
type loop struct {
	*Agent
	first    time.Time        // of the changes since a set was begun; zero: there are none
	due      <-chan time.Time // when to begin
	wanted   *wanted
	done     chan error // of the set that is being applied; nil: none is
	applying *wanted    // that set
	pending  bool       // the time of another set came meanwhile
	cancel   context.CancelCauseFunc
	failures int // in a row, of the same set
	refusals int // those of them that are failures of the reload or the probe
}

var errSuperseded = errors.New("something newer is wanted")

// change takes note of a change of a source.
func (l *loop) change(ctx context.Context) {
	w, err := l.want()
	if err != nil {
		// A set that was complete is still applied.
		l.update(ctx, func(s *Status) { s.Unread = err })
		return
	}
	if l.wanted != nil && l.wanted.digest == w.digest {
		l.update(ctx, func(s *Status) {
			s.Unread = nil
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
	l.interrupt()
	started := false
	l.update(ctx, func(s *Status) { s.Wanted, s.Unread, started = w.digest, nil, s.Started })
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

func (s *Status) fail(f *FailureError, rolledBack bool) {
	s.count(f.Step)
	s.Failure, s.RolledBack = f, rolledBack
}

func (s *Status) count(step Step) {
	s.Failures = maps.Clone(s.Failures) // copies of the status have the old one
	s.Failures[step]++
}

// apply applies a set, as far as it is not applied. Only one set is applied at a time. The application has refused it so many times.
func (a *Agent) apply(ctx context.Context, w *wanted, refusals int) error {
	switch {
	case a.refused == nil:
	case a.refused.of == w:
		return a.putBack(ctx)
	default: // there was something else meanwhile
		a.refused = nil
	}
	fresh := a.dir.Current() == nil
	if err := a.write(ctx, w); err != nil {
		return err
	}
	start := a.config.Application != nil && !a.config.Application.Started()
	a.mu.Lock()
	a.environment = w.set.Env
	applied := a.status.Applied
	a.mu.Unlock()
	a.update(ctx, func(s *Status) { s.Started = true })
	switch {
	case start:
		if err := a.config.Application.Start(); err != nil {
			return startError{err}
		}
	case applied == w.digest && !a.touched:
	case applied == "" && !a.touched && a.dir.Applied().Digest() == w.files: // an earlier process has applied it
	case fresh && !a.config.ReloadFirst:
	default:
		a.touched = true
		if err := a.reload(ctx); err != nil {
			return a.giveUp(ctx, w, refusals, err)
		}
	}
	if err := a.dir.MarkApplied(); err != nil {
		return &FailureError{Write, err}
	}
	a.touched = false
	a.update(ctx, func(s *Status) {
		s.Applied, s.Failure, s.RolledBack, s.Versions = w.digest, nil, false, *w.versions.Load()
		s.AppliedAt = time.Now()
		s.Successes++
		a.applied = w.set.Env
	})
	klog.FromContext(ctx).Info("Configuration is applied", "files", len(w.set.Files), "variables", len(w.set.Env))
	return nil
}

// write makes a set the current one, if it is good.
func (a *Agent) write(ctx context.Context, w *wanted) error {
	if a.dir.Current().Digest() == w.files {
		return nil
	}
	staged, err := a.dir.Stage(w.set.Files)
	if err != nil {
		return &FailureError{Write, err}
	}
	if a.config.Check != nil {
		check := *a.config.Check
		check.Dir = staged.Path()
		if err := check.Do(ctx); err != nil {
			return errors.Join(superseded(ctx, &FailureError{Check, err}), a.dir.Discard(staged))
		}
	}
	if err := superseded(ctx, nil); err != nil {
		return errors.Join(err, a.dir.Discard(staged))
	}
	if err := a.dir.Switch(staged); err != nil {
		return &FailureError{Write, errors.Join(err, a.dir.Discard(staged))}
	}
	a.cleaned(ctx)
	return nil
}

// cleaned tells of old files that could not be removed.
func (a *Agent) cleaned(ctx context.Context) {
	if err := a.dir.Left(); err != nil {
		klog.FromContext(ctx).Error(err, "Old files cannot be removed, will retry at the next change")
		a.update(ctx, func(s *Status) { s.count(Clean) })
	}
}

// superseded returns an error, unless it comes from the interruption of an attempt.
func superseded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errSuperseded
	}
	return err
}

// reload has the application read the current set.
func (a *Agent) reload(ctx context.Context) error {
	for _, do := range a.config.Reload {
		if err := do.Do(ctx); err != nil {
			return superseded(ctx, &FailureError{Reload, err})
		}
	}
	if a.config.Probe != nil {
		if err := a.config.Probe.Do(ctx); err != nil {
			return superseded(ctx, &FailureError{Probe, err})
		}
	}
	return nil
}

// giveUp lets the set that was applied last come back after enough refusals.
func (a *Agent) giveUp(ctx context.Context, w *wanted, refusals int, err error) error {
	if errors.Is(err, errSuperseded) {
		return err
	}
	a.mu.Lock()
	sameEnvironment := slices.Equal(a.applied, w.set.Env)
	a.mu.Unlock()
	good := a.dir.Applied()
	if a.config.Rollback == 0 || good == nil || good == a.dir.Current() && sameEnvironment {
		a.endIfDown()
		return err
	}
	if refusals+1 < a.config.Rollback {
		return err
	}
	a.refused = &refusal{of: w, err: err}
	return a.putBack(ctx)
}

// putBack lets the set that was applied last come back, and has the application read it. It returns why the newer one is refused, or what
// went wrong, and then is tried again.
func (a *Agent) putBack(ctx context.Context) error {
	if err := a.dir.Switch(a.dir.Applied()); err != nil {
		return &FailureError{Rollback, errors.Join(a.refused.err, err)}
	}
	a.cleaned(ctx)
	a.mu.Lock()
	a.environment = a.applied
	a.mu.Unlock()
	if err := a.reload(ctx); err != nil {
		if errors.Is(err, errSuperseded) {
			return err
		}
		a.endIfDown()
		return &FailureError{Rollback, errors.Join(a.refused.err, err)}
	}
	a.refused.back = true
	return a.refused.err
}

// endIfDown ends the agent if its child is not running, as the child would end a container.
func (a *Agent) endIfDown() {
	if a.config.Application != nil {
		a.config.Application.GiveUp()
	}
}

// startError: the child could not be started at all.
type startError struct{ error }

func (e startError) Unwrap() error { return e.error }
