// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"math"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
)

const (
	// ClockMargin allows for the difference between the clocks of a node, the API server and configdep, which are assumed to be synchronized; for
	// the delay of a watch of configdep or the kubelet; and for the time between reading an environment and starting the process. Each is far below
	// a second in a healthy cluster.
	ClockMargin = 5 * time.Second
	// VolumeMargin replaces ClockMargin for files of a volume that may have been mounted before the container started: the kubelet refreshes volumes once
	// a minute by default, with a jitter of half a minute.
	VolumeMargin = 2 * time.Minute
	// second is the precision of the times of API objects.
	second = time.Second
)

// window is when a container may have read content.
type window struct {
	// from and to are the bounds, by any of the clocks.
	from, to time.Time
	// created: from is when the pod was created, by the API server's clock.
	created bool
	// release is the second in which a release wrote both the template and the pod, if the container first started after that second, and has not restarted;
	// zero: none.
	release time.Time
	started time.Time
	// complete is Facts.Complete.
	complete time.Time
	// broken: the clock of the node is wrong, so only the creation time of the pod counts.
	broken bool
}

// window returns when a container may have read content, as files or not.
func (j *Judge) window(p *dependency.Pod, c *dependency.PodContainer, file bool) window {
	w, last := window{started: c.Started, complete: j.Complete}, c.Started
	if c.Started.IsZero() && c.Restarts == 0 { // its kubelet does not know any longer
		w.started, last = p.Created, j.lastStart(p, c)
	}
	if last.IsZero() || last.Add(ClockMargin).Before(p.Created) || last.After(j.Now.Add(ClockMargin)) {
		return window{from: p.Created, to: j.Now.Add(math.MaxInt64), created: true, broken: true, started: p.Created}
	}
	margin := ClockMargin
	if file {
		margin = VolumeMargin
	}
	w.from, w.to = w.started.Add(-margin), last.Add(second+ClockMargin)
	if !p.Created.Before(w.from) {
		w.from, w.created = p.Created, true
		if c.Restarts == 0 && p.Created.Truncate(second).Equal(j.Released.Truncate(second)) && !j.IsOlder(p) &&
			w.started.Truncate(second).After(p.Created.Truncate(second)) {
			w.release = p.Created.Truncate(second)
		}
	}
	return w
}

// lastStart returns an upper bound on the start time of a container that has not been restarted. Init containers and sidecars start before the others.
func (j *Judge) lastStart(p *dependency.Pod, c *dependency.PodContainer) time.Time {
	last := j.Now
	for i := range p.Containers {
		other := &p.Containers[i]
		if c.Role != dependency.RegularContainer && other.Role == dependency.RegularContainer && !other.Started.IsZero() && other.Started.Before(last) {
			last = other.Started
		}
	}
	return last
}

// isAfterBegin reports whether the window is after the beginning of a period, so that no earlier content can have been read.
func (w *window) isAfterBegin(p *content) bool {
	if !p.Written.IsZero() {
		written := p.Written.Truncate(second)
		return !w.from.Before(written.Add(second)) || !w.release.IsZero() && !w.release.Before(written)
	}
	before := p.Before
	if w.created {
		before = before.Add(ClockMargin)
	}
	return !p.Before.IsZero() && w.from.After(before)
}

// oldest returns the index of the oldest period that a container can have read; -1: it can have read all of them, and earlier content.
func (w *window) oldest(r *reading) int {
	for i := len(r.periods) - 1; i >= 0; i-- {
		if p := &r.periods[i]; (p.startable || !r.file && i > 0) && w.isAfterBegin(p) {
			return i
		}
	}
	return -1
}

// isBefore reports whether the window is before a period. The time at which configdep read the period counts only if the time of the write is unknown,
// because a watch may be late.
func (w *window) isBefore(p *content) bool {
	if !p.Written.IsZero() {
		return w.to.Before(p.Written.Truncate(second))
	}
	return !p.After.IsZero() && w.to.Before(p.After.Add(-ClockMargin))
}
