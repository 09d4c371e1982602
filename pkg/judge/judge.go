// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
)

// Judge judges the pods of one workload.
type Judge struct {
	Facts

	reads map[string][]reading // by container
	any   []reading            // of sources that the template does not name, which any container may read
}

// New returns a Judge.
func New(f Facts) *Judge {
	j := &Judge{Facts: f, reads: map[string][]reading{}}
	for i := range f.Sources {
		j.add(i)
	}
	return j
}

// Container judges a container. It calls f, unless it is nil, with the verdicts on each source that the container reads.
func (j *Judge) Container(p *dependency.Pod, c *dependency.PodContainer, f func(SourceVerdict)) Verdict {
	out := Verdict{State: Current, Reason: ReasonNothingRead}
	if c.Waiting != "" {
		return Verdict{State: NotStarted, Reason: c.Waiting}
	}
	some := [][]reading{j.reads[c.Name], j.any}
	if c.Role == dependency.InitContainer {
		some = some[:1]
	}
	if j.Containers != nil && c.Role == dependency.RegularContainer && j.IsOlder(p) && !slices.Contains(j.Containers, c.Name) {
		out = Verdict{State: Unknown, Reason: ReasonOlderTemplate}
	}
	for _, readings := range some {
		for i := range readings {
			r := &readings[i]
			v := j.judge(p, c, r)
			if j.Sources[r.source].New && (v.State == Stale || v.Doubt) && j.IsOlder(p) {
				v = Verdict{State: Unknown, Reason: ReasonOlderTemplate, Local: v.Local}
			}
			out.worsen(v)
			if f != nil {
				f(SourceVerdict{v, &j.Sources[r.source], r.source, r.file})
			}
		}
	}
	return out
}

// Cost returns the number of comparisons for a pod: each of its containers with each source that the container reads.
func (j *Judge) Cost(p *dependency.Pod) (n int) {
	for i := range p.Containers {
		n += len(j.reads[p.Containers[i].Name]) + len(j.any)
	}
	return n
}

// IsOlder reports whether a pod is known to have an older template than the current one.
func (j *Judge) IsOlder(p *dependency.Pod) bool {
	return j.Revision != "" && p.Revision != "" && p.Revision != j.Revision
}

// Pod judges a pod by its worst container. It calls f, unless it is nil, with the verdicts on each source that each container reads.
func (j *Judge) Pod(p *dependency.Pod, f func(*dependency.PodContainer, SourceVerdict)) Verdict {
	out := Verdict{State: Current, Reason: ReasonNothingRead}
	for i := range p.Containers {
		c := &p.Containers[i]
		var each func(SourceVerdict)
		if f != nil {
			each = func(s SourceVerdict) { f(c, s) }
		}
		out.worsen(j.Container(p, c, each))
	}
	return out
}

// judge judges what a container has read.
func (j *Judge) judge(p *dependency.Pod, c *dependency.PodContainer, r *reading) Verdict {
	s := &j.Sources[r.source]
	v := Verdict{State: Unknown, Reason: ReasonSourceMissing}
	switch {
	case s.Mounted != nil:
		v = j.mounted(p, c, s.Mounted(p))
	case r.current >= 0:
		w := j.window(p, c, r.file)
		v = j.compare(p, c, r, &w)
		v.Local = r.isLocal(v.Reason) || !j.isComplete(&w)
	}
	if r.file && j.SeenFiles && (v.State == Stale || v.Doubt) && !onlyParts(r.reference.Uses) {
		return Verdict{State: Unknown, Reason: ReasonFilesChanged, Since: v.Since, Local: v.Local}
	}
	return v
}

// isLocal reports whether a verdict with the reason rests on what was seen since this process began to read.
func (r *reading) isLocal(reason string) bool {
	current := &r.periods[r.current]
	switch {
	case reason == ReasonCreatedFor, reason == ReasonRecorded:
		return false
	case current.Source != nil && !current.Written.Equal(current.LastChangeTime.Time): // it has been written since, with the same content
		return true
	default:
		return len(r.periods) > 1 && (reason != ReasonStartedAfter || current.Written.IsZero())
	}
}

// onlyParts reports whether all uses are of parts of volumes, which are not updated in a running container.
func onlyParts(uses []dependency.Use) bool {
	return !slices.ContainsFunc(uses, func(u dependency.Use) bool { return !u.SubPath })
}

// mounted judges a container by what its pod has mounted of a SecretProviderClass.
func (j *Judge) mounted(p *dependency.Pod, c *dependency.PodContainer, m dependency.Mounted) Verdict {
	w := j.window(p, c, true)
	switch {
	case !m.Updated, w.from.After(m.Written):
		return Verdict{State: Current, Reason: ReasonStartedAfter}
	case w.broken:
		return Verdict{State: Unknown, Reason: ReasonNodeClock, Since: m.Written}
	case w.to.Before(m.Written):
		return Verdict{State: Stale, Reason: ReasonStartedBefore, Since: m.Written}
	default:
		return Verdict{State: Unknown, Reason: ReasonClockMargin, Doubt: true, Since: m.Written}
	}
}

// compare judges a container by the contents that the source had while the container may have read it.
func (j *Judge) compare(p *dependency.Pod, c *dependency.PodContainer, r *reading, w *window) Verdict {
	recorded := j.Sources[r.source].Recorded
	if r.current < len(r.periods)-1 {
		recorded = nil // it is about the absence of what the container requires
	}
	createdFor := j.createdFor(p, c, r, recorded)
	before := createdFor // the template was written
	// lost: configdep has missed or forgotten content of a time since it began to read the source.
	var same, other, unknown, lost, onlyLast bool
	var since time.Time
	onlyLast = true
	first := &r.periods[0]
	begin := first // of what it can have read
	if !first.startable {
		begin = r.next(0)
	}
	hidden := j.hidden(r, w, recorded)
	oldest := w.oldest(r)
	seen := oldest >= 0 || first.After.IsZero() && j.isComplete(w) && (first.startable || !r.file || w.created) // all that it can have read
	// Before the first period, the source may have had any content, unless it was absent in that period and had been since before configdep read it.
	if !createdFor && (hidden || !seen && (first.Source != nil || first.Unknown || !first.After.IsZero()) && !r.isFirst(first, w)) {
		unknown, lost = true, !first.After.IsZero()
		other = !lost && first.startable && !first.same && !first.Unknown // it may have begun long before it was written
	}
	for i := range r.periods {
		period := &r.periods[i]
		begins := before && period.same // it was there when the template was written, even if it has been written since
		if before = before && !period.same; before || !period.startable || !begins && w.isBefore(period) {
			continue
		}
		// If the pod itself brings the source, a restart because of this doubt would lead to the same doubt, and to another restart.
		if i < oldest || period.gap && !period.same && !w.broken && !w.isBefore(&r.periods[i+1]) {
			continue
		}
		switch {
		case period.Unknown:
			unknown, lost = true, true
		case period.same:
			same = !hidden || !w.to.Before(recorded.At)
		default:
			other = true
			if changed := r.changed(i); changed != nil {
				since = later(since, began(changed)) // whatever it has read, it has not read that
			}
		}
		onlyLast = onlyLast && i == r.current
	}
	unknown = unknown || !same && !other // it started when nothing could be read, as far as is known
	if lost {
		since = time.Time{}
	}
	switch {
	case w.broken && (other || unknown): // no doubt, since a restart on this node would be as uncertain
		return Verdict{State: Unknown, Reason: ReasonNodeClock, Since: since}
	case unknown:
		if since.IsZero() && !lost { // nothing that was seen to change
			since = began(begin)
		}
		return w.byRecord(p, r, recorded, same, other, lost, since)
	case same && other:
		return Verdict{State: Unknown, Reason: ReasonClockMargin, Doubt: true, Since: since}
	case other:
		return Verdict{State: Stale, Reason: ReasonStartedBefore, Since: since}
	case onlyLast && createdFor && !w.isAfterBegin(&r.periods[r.current]):
		return Verdict{State: Current, Reason: ReasonCreatedFor}
	case onlyLast:
		return Verdict{State: Current, Reason: ReasonStartedAfter}
	default:
		return Verdict{State: Current, Reason: ReasonSameContent}
	}
}

// hidden reports whether, according to the record, the source or a key of it may have been removed after the container started and before configdep began
// to read the source. A removal leaves no timestamp.
func (j *Judge) hidden(r *reading, w *window, recorded *Recorded) bool {
	return recorded != nil && !recorded.Same && len(r.periods) == 1 && !r.periods[0].Written.After(recorded.At) && j.Complete.After(recorded.At) && !j.isComplete(w)
}

// isComplete reports whether a window begins after everything had been read.
func (j *Judge) isComplete(w *window) bool {
	return w.isAfterBegin(&content{Period: dependency.Period{Before: j.Complete}})
}

// isFirst reports whether a container can only have read the content that the source was created with: it cannot be started without the source, it
// started after the second in which the source was created, and the source has not been written since. Within that second, the source may have been
// written twice. isFirst assumes that it was not deleted and created again in it.
func (r *reading) isFirst(first *content, w *window) bool {
	s := first.Source
	return s != nil && !s.Created.IsZero() && first.Written.Equal(s.Created.Time) && !w.from.Before(s.Created.Truncate(second)) &&
		w.started.Truncate(second).After(s.Created.Time) && dependency.Resolve(&r.reference, nil).Missing
}

// createdFor reports whether the template of a pod was written for the current content, or a container was restarted in place for it, so that it cannot
// have read earlier content. It returns false if that was done before this content began: then it was done for an earlier time with the same content.
func (j *Judge) createdFor(p *dependency.Pod, c *dependency.PodContainer, r *reading, recorded *Recorded) bool {
	hash, at := p.StartedFor(c)
	if j.Sources[r.source].Unhashed || r.current < len(r.periods)-1 || hash == "" || hash != j.Hash && (recorded == nil || !recorded.Same || recorded.For != hash && recorded.Hash != hash) {
		return false
	}
	i := slices.IndexFunc(r.periods, func(p content) bool { return p.same })
	for i > 0 && r.periods[i-1].Unknown {
		i-- // it may have begun then
	}
	created := window{to: at}
	return i == 0 && r.periods[0].After.IsZero() || !created.isBefore(&r.periods[i])
}

// byRecord uses the record of the workload to judge a container that may have read content that configdep does not know.
func (w *window) byRecord(p *dependency.Pod, of *reading, r *Recorded, same, other, lost bool, since time.Time) Verdict {
	v := Verdict{State: Unknown, Reason: ReasonWrittenSinceStart, Doubt: other, Since: since}
	if r == nil {
		return v
	}
	later := w.from.After(r.At.Add(second)) && w.started.After(r.At.Add(second+ClockMargin))
	earlier := w.to.Before(r.At)
	covered := r.Proven && (r.For == "" || r.For == p.Hash && !earlier) // an earlier template may have had the same hash
	switch {
	case r.Same && !other && (covered && earlier || !lost && (covered || later)): // if nothing was lost, content has not changed since then, except there and back unseen
		return Verdict{State: Current, Reason: ReasonRecorded}
	case !r.Same && covered && of.whole && earlier && !same:
		return Verdict{State: Stale, Reason: ReasonRecordDiffers, Since: since}
	case !r.Same, w.complete.After(r.At) && r.For != "" && !covered && !later: // the rollout with which it was recorded has not replaced the pod
		v.Doubt = true
	}
	return v
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Earlier returns the earlier of two times; zero means none.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
