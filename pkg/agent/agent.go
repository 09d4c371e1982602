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
	"os"
	"path/filepath"
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
	// Rejected are the objects of selectors that are left out of what is wanted.
	Rejected []source.Rejected
	// Failures counts the failures of each step, and Successes those of all.
	Failures  map[Step]int
	Successes int
}

// InSync reports whether the application works with what is wanted.
func (s *Status) InSync() bool {
	return s.Started && s.Unread == nil && s.Failure == nil && s.Wanted == s.Applied
}

func (s *Status) fail(f *FailureError, rolledBack bool) {
	s.count(f.Step)
	s.Failure, s.RolledBack = f, rolledBack
}

func (s *Status) count(step Step) {
	s.Failures = maps.Clone(s.Failures) // copies of the status have the old one
	s.Failures[step]++
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
	compose *source.Composer
	changed chan struct{} // has room for one

	key     [32]byte // of digests of environments
	loaded  string   // digest of what the application works with, also if that could not be noted in the directory; "": unknown
	touched bool     // the application may have read something else than the set that was applied last
	// unproven is the digest of the set that the application has read last, if the probe failed then; "": it did not.
	unproven string
	// startedWith is the digest of the set with which the application was started first, until it reads another; "": none.
	startedWith string
	starting    time.Time // when the application was started with a set that is not the wanted one; zero: it was not, or is ready
	refused     *refusal  // of the wanted set, after which the one that was applied last came back, or shall; nil: none

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
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return nil, err
	}
	a.compose = source.NewComposer(a.config.Sources, dir, maxBytes, os.LookupEnv)
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
	if after.Unread != nil && !errors.Is(after.Unread, ErrNotRead) && text(before.Unread) != after.Unread.Error() {
		logger.Error(after.Unread, "Sources are missing or cannot be used, so the files stay as they are")
	}
	if why := source.Rejections(after.Rejected); why != "" && why != source.Rejections(before.Rejected) {
		logger.Error(nil, "Objects of a selector are left out", "why", why)
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

// ErrNotRead is in the status while a source has not been read for the first time, and nothing has failed.
var ErrNotRead = errors.New("has not been read yet")

// want composes what is wanted.
func (a *Agent) want() (*wanted, error) {
	objects := make([][]*source.Object, len(a.readers))
	var errs []error
	for i, r := range a.readers {
		var synced bool
		if objects[i], synced = r.Objects(); !synced {
			err := ErrNotRead
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
	set, err := a.compose.Compose(func(i int) []*source.Object { return objects[i] })
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
