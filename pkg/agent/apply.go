// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/agent/action"
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
	case a.loaded == w.digest: // an earlier try has come so far
	default:
		a.touched, a.loaded = true, ""
		if err := a.reload(ctx); err != nil {
			return a.giveUp(ctx, w, refusals, err)
		}
	}
	a.loaded = w.digest
	if err := a.dir.MarkApplied(); err != nil {
		return &FailureError{Write, err}
	}
	a.touched, a.changes = false, changes{}
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
	ctx = action.WithChanged(ctx, a.changedFiles)
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
	a.loaded = ""
	if err := a.reload(ctx); err != nil {
		if errors.Is(err, errSuperseded) {
			return err
		}
		a.endIfDown()
		return &FailureError{Rollback, errors.Join(a.refused.err, err)}
	}
	a.refused.back, a.changes = true, changes{} // it has read all of the set that was applied last
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
