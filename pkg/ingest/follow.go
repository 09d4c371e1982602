// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/kind"
)

// pace is how often the API server is asked about optional kinds.
type pace struct {
	request time.Duration // the longest request for the discovery
	// least is between two such requests; absent while a kind is not served; settled when all are.
	least, absent, settled time.Duration
	retry                  time.Duration // of a list that failed: at first, and doubled each time up to settled
	patience               time.Duration // the first lists wait no longer for optional kinds once all others have been read
	// denied is for how long a right must be missing before what was read counts as absent: a kube-apiserver that has just started
	// refuses what it allows as soon as it has read the roles.
	denied time.Duration
}

var defaultPace = pace{
	request: 30 * time.Second, least: time.Second, absent: 10 * time.Second, settled: 30 * time.Second,
	retry: time.Second, patience: 30 * time.Second, denied: 30 * time.Second,
}

// followed reads the streams of optional kinds while their definitions are served. One goroutine starts and ends them.
type followed struct {
	index  *Index
	reader *Reader
	always *stream // the stream that is always read
	synced chan struct{}
	ask    chan struct{} // a definition may be gone
	kinds  []*followedKind
}

type followedKind struct {
	*kind.Kind
	streams []*stream // one, or one for each namespace
	version string    // in which they are read; empty: they are not
	end     func()    // ends the reading, and waits for that
	missing atomic.Bool
	told    string // what was logged last
}

// add adds a stream.
func (f *followed) add(s *stream) {
	if n := len(f.kinds); n > 0 && f.kinds[n-1].Kind == s.optional {
		f.kinds[n-1].streams = append(f.kinds[n-1].streams, s)
		return
	}
	f.kinds = append(f.kinds, &followedKind{Kind: s.optional, streams: []*stream{s}, end: func() {}})
}

// run follows the definitions until the context is done.
func (f *followed) run(ctx context.Context) {
	var groups []string
	for _, k := range f.kinds {
		groups = append(groups, k.Resource.Group)
	}
	var waiting sync.WaitGroup
	waiting.Go(func() { f.limitWait(ctx) })
	defer waiting.Wait()
	defer func() {
		for _, k := range f.kinds {
			k.end()
		}
	}()
	logger := klog.FromContext(ctx)
	var known *discovery
	for failures := 0; ; {
		now, err := f.reader.discover(ctx, known, groups)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if failures++; failures == 1 {
				logger.Error(err, "Which optional kinds are served is not known, will retry")
			}
		default:
			known, failures = now, 0
			for _, k := range f.kinds {
				f.follow(ctx, k, now)
			}
		}
		if !f.rest(ctx, failures) {
			return
		}
	}
}

// rest waits until it is time to ask again, or a definition may be gone; false: the context is done.
func (f *followed) rest(ctx context.Context, failures int) bool {
	p := f.reader.pace
	delay := p.settled
	switch absent := slices.ContainsFunc(f.kinds, func(k *followedKind) bool { return k.version == "" }); {
	case failures > 0:
		delay = min(p.least<<min(failures, 10), p.settled)
	case absent:
		delay = p.absent
	}
	select {
	case <-time.After(p.least):
	case <-ctx.Done():
		return false
	}
	select {
	case <-time.After(wait.Jitter(delay, 0.2)):
	case <-f.ask:
	case <-ctx.Done():
		return false
	}
	return true
}

// follow begins or ends to read a kind, or changes the version in which it is read.
func (f *followed) follow(ctx context.Context, k *followedKind, now *discovery) {
	served, err := now.served(k.Kind)
	if err != nil {
		return // what is read is kept
	}
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "resource", k.Resource.GroupResource().String())
	switch version := served.version; {
	case version == "" && served.another == "" && k.version != "" && !k.missing.Load():
		// It can still be read. Another API server may have answered, which has not read the definition yet.
	case version == "":
		k.end()
		k.version, k.end = "", func() {}
		for _, s := range k.streams {
			f.index.deny(s, verbList, false)
			f.index.deny(s, verbWatch, false)
			f.index.awaitPolicies(s, served.another != "" || len(served.others) > 0) // first, so that nothing begins without policies
			tell(f.synced, f.index.leave(s))
		}
		switch what := served.another + strings.Join(served.others, ","); {
		case !k.tells("not served " + what):
		case served.another != "":
			logger.Error(nil, "The resource is not what its kind describes, so its objects are not read", "served", served.another)
		case what != "":
			logger.Error(nil, "The kind is not served in a version that can be read, so its objects are not read", "served", served.others, "readable", k.Versions)
		default:
			logger.Info("The kind is not served, so it has no objects")
		}
	case version != k.version:
		k.end()
		k.SetServed(version)
		if k.version == "" {
			f.index.awaitPolicies(k.streams[0], true)
		}
		f.begin(ctx, k, version)
		if k.tells("version " + version) {
			logger.Info("The kind is served: reading its objects", "version", version)
		}
	}
}

// tells reports whether something has not been logged yet.
func (k *followedKind) tells(what string) bool {
	before := k.told
	k.told = what
	return before != what
}

// begin reads the streams of a kind in a version.
func (f *followed) begin(ctx context.Context, k *followedKind, version string) {
	again := k.version != ""
	k.missing.Store(false)
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for _, s := range k.streams {
		s := s.served(again)
		wg.Go(func() { f.read(ctx, k, s) })
	}
	k.version, k.end = version, func() {
		cancel()
		wg.Wait()
	}
}

// read reads a stream until the context is done.
func (f *followed) read(ctx context.Context, k *followedKind, s *stream) {
	watches, listed := make(chan time.Duration, 1), make(chan struct{})
	into := &store{f.index, s, f.synced}
	r := cache.NewReflectorWithOptions(f.lister(k, into, watches, sync.OnceFunc(func() { close(listed) })), nil, into, cache.ReflectorOptions{
		Name:            "configdep",
		TypeDescription: s.name,
		Backoff:         new(f.backoff(1)),
	})
	var wg sync.WaitGroup
	wg.Go(func() { r.RunWithContext(ctx) })
	wg.Go(func() {
		select {
		case <-listed: // what cannot be listed has no revision
			f.index.probe(ctx, s, f.synced, watches, f.reader.revision)
		case <-ctx.Done():
		}
	})
	wg.Wait()
}

// backoff returns the delays between requests of a stream that fail.
func (f *followed) backoff(jitter float64) wait.Backoff {
	p := f.reader.pace
	return wait.Backoff{Duration: p.retry, Factor: 2, Jitter: jitter, Steps: 100, Cap: p.settled}
}

// The verbs that the server needs.
const (
	verbList  = "list"
	verbWatch = "watch"
)

// lister returns what a reflector of the stream lists and watches by. A list that fails is retried here, and not by the
// reflector, which would log each failure. Listed is called when the first list has been applied.
func (f *followed) lister(k *followedKind, into *store, watches chan time.Duration, listed func()) cache.ListerWatcher {
	s := into.stream
	inner := f.reader.listWatch(s, watches, into.apply)
	return whole{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (list runtime.Object, err error) {
			failures, denied := 0, time.Time{}
			backoff := f.backoff(0.5)
			err = backoff.DelayFunc().Until(ctx, true, false, func(ctx context.Context) (bool, error) {
				list, err = inner.ListWithContext(ctx, options)
				if err == nil {
					err = f.index.admit(ctx, s, f.always, f.reader.revision)
				}
				if ctx.Err() == nil {
					f.listed(ctx, k, s, err, &failures, &denied)
				}
				return err == nil, nil
			})
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			listed()
			w, err := inner.WatchWithContext(ctx, options)
			switch {
			case err == nil:
				f.may(ctx, s, verbWatch, true)
			case apierrors.IsForbidden(err):
				f.may(ctx, s, verbWatch, false)
				err = io.EOF // the reflector logs nothing, and lists again after a while
			case apierrors.IsNotFound(err):
				f.askFor(k)
				err = io.EOF
			}
			return w, err
		},
	}}
}

// listed notes the outcome of a list. Failures and denied are how often lists in a row have failed, and since when they have been refused.
func (f *followed) listed(ctx context.Context, k *followedKind, s *stream, err error, failures *int, denied *time.Time) {
	if !apierrors.IsForbidden(err) {
		*denied = time.Time{}
	}
	switch {
	case err == nil:
		k.missing.Store(false)
		f.may(ctx, s, verbList, true)
		return
	case apierrors.IsForbidden(err):
		if denied.IsZero() {
			*denied = f.index.clock.Now()
		}
		if f.index.reads(s) && f.index.clock.Since(*denied) < f.reader.pace.denied {
			klog.FromContext(ctx).V(2).Info("A list was refused, will retry", "resource", s.name, "err", err)
			return
		}
		f.index.awaitPolicies(s, true) // first, so that nothing begins without policies
		tell(f.synced, f.index.leave(s))
		f.may(ctx, s, verbList, false)
		return
	case apierrors.IsNotFound(err):
		f.askFor(k)
	}
	if *failures++; *failures == 1 && !apierrors.IsNotFound(err) {
		klog.FromContext(ctx).Error(err, "The objects of a kind cannot be listed, will retry", "resource", s.name)
	}
}

// may notes whether the server has the right to list or watch a stream. The log tells of the first stream of a kind that it
// may not read, and when it may read all.
func (f *followed) may(ctx context.Context, s *stream, verb string, is bool) {
	if !f.index.deny(s, verb, !is) {
		return
	}
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "resource", s.optional.Resource.GroupResource().String())
	if is {
		logger.Info("The server may read the objects of the kind now")
		return
	}
	logger.Error(nil, "The server may not read the objects of the kind; grant list and watch to its service account", "verb", verb, "namespace", s.namespace)
}

// askFor asks soon whether a kind is still served.
func (f *followed) askFor(k *followedKind) {
	k.missing.Store(true)
	select {
	case f.ask <- struct{}{}:
	default:
	}
}

// limitWait lets the first sync not wait for optional kinds forever: neither for an answer to the discovery nor for a list
// that does not end.
func (f *followed) limitWait(ctx context.Context) {
	optional := sets.Set[string]{}
	for _, k := range f.kinds {
		optional.Insert(namesOf(k.streams)...)
	}
	others := func(context.Context) (bool, error) { return !f.index.awaitsOthers(optional), nil }
	for f.index.Synced() != nil {
		if wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, others) != nil {
			return // the context is done
		}
		select {
		case <-f.synced:
			return
		case <-ctx.Done():
			return
		case <-time.After(f.reader.pace.patience):
		}
		for _, k := range f.kinds {
			for _, s := range k.streams {
				tell(f.synced, f.index.giveUp(s))
			}
		}
	}
}
