// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// Before a watch ends, the API server sends a bookmark, even if nothing is written to the
// resource. It has a newer revision only if the API server has learned of one, which it
// does when a client asks for the current state.
const (
	bookmarkBeforeEnd = 2 * time.Second
	probeBeforeEnd    = bookmarkBeforeEnd + 2*time.Second
	// firstWatch is how long the first watch of a stream lasts: so long, the watermark is
	// that of the first lists.
	firstWatch = 5 * time.Second
)

// MinVersionLag is the minimum duration of a watch.
const MinVersionLag = firstWatch

// probe asks for the current revision of a stream, until the context is done: once after
// the sync, and then shortly before the end of each watch, unless an event has just
// arrived.
//
// If all resources share one revision counter, an answer must be at least as new as
// everything seen before the request: so this also detects when they do not.
func (x *Index) probe(ctx context.Context, s *stream, synced <-chan struct{}, watches <-chan time.Duration, revision func(context.Context, *stream) (uint64, error)) {
	select {
	case <-synced:
	case <-ctx.Done():
		return
	}
	try := func(ctx context.Context) (bool, error) {
		before, own := x.latest(s)
		asked := x.clock.Now()
		now, err := revision(ctx, s)
		if err != nil {
			klog.FromContext(ctx).V(2).Info("Asking for the current revision failed, will retry", "resource", s.name, "err", err)
			return false, nil
		}
		x.probed(ctx, s, asked, now, before, own)
		return true, nil
	}
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 100, Cap: 10 * time.Second}
	if backoff.DelayFunc().Until(ctx, true, false, try) != nil {
		return // the context is done
	}
	for {
		select {
		case lasts := <-watches:
			select {
			case <-time.After(lasts - probeBeforeEnd):
			case <-ctx.Done():
				return
			}
			if x.silent(s, x.clock.Now().Add(-bookmarkBeforeEnd)) {
				_, _ = try(ctx)
			}
		case <-ctx.Done():
			return
		}
	}
}

// latest returns the highest revision that has been applied, and the highest of a stream.
func (x *Index) latest(s *stream) (latest, own uint64) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.progress.Latest, x.seen.of(s.name).revision
}

// silent reports whether a stream has received nothing since a time.
func (x *Index) silent(s *stream, since time.Time) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return !x.seen.of(s.name).at.After(since)
}

// probed notes the current revision of a stream. Before is the highest that was seen before
// it was asked for, and own the highest of the stream.
func (x *Index) probed(ctx context.Context, s *stream, asked time.Time, now, before, own uint64) {
	defer x.tellSinks()
	x.change()
	defer x.mu.Unlock()
	known := x.progress
	switch {
	case now < own:
		x.regressed(s.name, now, own)
	case now < before && !x.progress.SeveralCounters:
		klog.FromContext(ctx).Error(nil, "Resources do not share one etcd revision counter; clients that switch replicas must relist",
			"resource", s.name, "revision", now, "seenBefore", before)
		x.progress.SeveralCounters = true
	}
	x.isProbed(s.name)
	if x.progress.OneCounter {
		x.progress.Current, x.progress.Asked = now, asked
	}
	if x.progress != known {
		x.note(touched{})
	}
}

// isProbed notes that the current revision of a stream is known, or that it is not read.
func (x *Index) isProbed(name string) {
	delete(x.unprobed, name)
	x.progress.OneCounter = len(x.unprobed) == 0 && !x.progress.SeveralCounters
}
