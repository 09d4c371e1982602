// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/agent/fileset"
)

// refusal is a set that the application did not accept.
type refusal struct {
	of   *wanted
	err  error // why
	back bool  // the application works with the set that was applied last
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
	if err := a.startOlder(ctx, w); err != nil {
		return err
	}
	if err := a.awaitStart(ctx); err != nil {
		return err
	}
	fresh := a.dir.Current() == nil
	if err := a.write(ctx, w); err != nil {
		if !errors.Is(err, errSuperseded) {
			a.endIfDown() // an earlier set may have stopped it, and nothing else starts it again
		}
		return err
	}
	start := a.config.Application != nil && !a.config.Application.Started()
	if err := superseded(ctx, nil); start && err != nil {
		return err
	}
	a.mu.Lock()
	a.environment = w.set.Env
	applied := a.status.Applied
	a.mu.Unlock()
	a.update(ctx, func(s *Status) { s.Started = true })
	switch {
	case start:
		if err := a.start(); err != nil {
			return err
		}
		a.touched, a.startedWith = true, w.digest // it has read what is not marked as applied
		if err := a.probe(ctx, w.digest); err != nil {
			return a.giveUp(ctx, w, refusals, err)
		}
	case applied == w.digest && !a.touched:
	case applied == "" && !a.touched && a.dir.Applied().Digest() == w.files: // an earlier process has applied it
	case fresh && !a.config.ReloadFirst:
	case a.loaded == w.digest: // an earlier try has come so far
	default:
		a.touched, a.loaded = true, ""
		if err := a.reload(ctx, w.digest); err != nil {
			return a.giveUp(ctx, w, refusals, err)
		}
	}
	a.loaded = w.digest
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

// reload has the application read the current set, which has a digest, and sees whether it works with that. If it has read that before, and
// the probe failed, it may only have needed more time, so the probe is tried again first: another restart would begin that time again. What
// it was started with it has read, and may not be ready yet for a signal.
func (a *Agent) reload(ctx context.Context, digest string) error {
	if a.unproven == digest {
		if err := a.probe(ctx, digest); err == nil || errors.Is(err, errSuperseded) || a.startedWith == digest {
			return err
		}
	}
	a.unproven, a.startedWith = "", ""
	for _, do := range a.config.Reload {
		if err := do.Do(ctx); err != nil {
			return superseded(ctx, &FailureError{Reload, err})
		}
	}
	return a.probe(ctx, digest)
}

// probe sees whether the application works with the set that it has read, which has a digest.
func (a *Agent) probe(ctx context.Context, digest string) error {
	if a.config.Probe == nil {
		return nil
	}
	err := a.config.Probe.Do(ctx)
	if err == nil {
		a.unproven = ""
		return nil
	}
	if err = superseded(ctx, &FailureError{Probe, err}); !errors.Is(err, errSuperseded) {
		a.unproven = digest
	}
	return err
}

// restored stands for the digest of the set that was applied last, after a rollback.
const restored = "restored"

// giveUp lets the set that was applied last come back after enough refusals.
func (a *Agent) giveUp(ctx context.Context, w *wanted, refusals int, err error) error {
	if errors.Is(err, errSuperseded) {
		return err
	}
	a.mu.Lock()
	sameEnvironment, known := slices.Equal(a.applied, w.set.Env), a.status.Applied != ""
	a.mu.Unlock()
	good := a.dir.Applied()
	// The variables that an earlier process applied are not known.
	if a.config.Rollback == 0 || good == nil || good == a.dir.Current() && sameEnvironment || a.hasVariables() && !known {
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
	if err := a.dir.Restore(); err != nil {
		return &FailureError{Rollback, errors.Join(a.refused.err, err)}
	}
	a.cleaned(ctx)
	a.mu.Lock()
	a.environment = a.applied
	a.mu.Unlock()
	a.loaded = ""
	if err := a.reload(ctx, restored); err != nil {
		if errors.Is(err, errSuperseded) {
			return err
		}
		a.endIfDown()
		return &FailureError{Rollback, errors.Join(a.refused.err, err)}
	}
	if err := a.dir.MarkApplied(); err != nil {
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

// startOlder starts the application with the set that was applied last if another one is wanted, so that the older one can come back if the
// application refuses the newer. Variables are in no set, so with them it starts with what is wanted.
func (a *Agent) startOlder(ctx context.Context, w *wanted) error {
	good := a.dir.Applied().Digest()
	if a.config.Application == nil || a.config.Application.Started() || a.config.Rollback == 0 ||
		good == (fileset.Digest{}) || good == w.files || a.hasVariables() {
		return nil
	}
	if err := superseded(ctx, nil); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("The application starts with the files that were applied last, and then gets newer ones")
	return a.startApplied(ctx)
}

// startTime is how long an application without a probe has for its start before it gets newer files.
const startTime = 10 * time.Second

// awaitStart waits until an application that was started with older files is ready for newer ones: a signal before that would end it.
func (a *Agent) awaitStart(ctx context.Context) error {
	switch {
	case a.starting.IsZero():
		return nil
	case a.config.Probe != nil:
		_ = a.config.Probe.Do(ctx) // newer files may be what it needs
	default:
		select {
		case <-time.After(time.Until(a.starting.Add(startTime))):
		case <-ctx.Done():
		}
	}
	if err := superseded(ctx, nil); err != nil {
		return err
	}
	a.starting = time.Time{}
	return nil
}

// startApplied starts the application with the set that was applied last.
func (a *Agent) startApplied(ctx context.Context) error {
	if err := a.dir.Switch(a.dir.Applied()); err != nil {
		return &FailureError{Write, err}
	}
	if err := a.dir.MarkApplied(); err != nil {
		return &FailureError{Write, err}
	}
	a.cleaned(ctx)
	a.touched = false
	return a.startWithOlder(ctx)
}

// startWithOlder starts the application with the current set, although that is not what is wanted.
func (a *Agent) startWithOlder(ctx context.Context) error {
	a.update(ctx, func(s *Status) { s.Started = true })
	a.starting = time.Now()
	return a.start()
}

// start starts the application.
func (a *Agent) start() error {
	if err := a.config.Application.Start(); err != nil {
		return startError{err}
	}
	return nil
}

// startError: the application could not be started for the first time, unlike by a restart, which is tried again.
type startError struct{ error }

func (e startError) Unwrap() error { return e.error }
