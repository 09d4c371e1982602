// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"slices"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
)

// Excursion is a period in which content differed from the current content. Containers that were
// started in it have read other content. If content changed and changed back, the period lasted from
// one change to the other; if content changed before a rollback to pods that may never have been
// replaced, it lasted until that change.
//
// There are three kinds, each for pods that may have been started with other content although the record says
// that nothing differs:
//   - excursions: a key goes from 1 to 2 and back to 1 while a container is restarted.
//   - doubts: a key changes, and then the template does before its last rollout is complete, so that pods from
//     before the change may be left.
//   - undone: a key changes, the workload is restarted for it, and that restart is undone before all pods are replaced.
type Excursion struct {
	// ID names the source or the glob.
	ID string
	// From is when the period began, zero if that is not known; To is when it ended.
	From, To time.Time
	// Containers are the containers that read the content; nil: any container may.
	Containers []string
	// OlderPods: only pods that are older than the current template may have been started in it.
	OlderPods bool
	// Witnessed: this process saw each of its changes as an event, so it knows better than a process that did
	// not.
	Witnessed bool
	// order is the place of the last change in the order of reading, because several changes
	// may have the same time.
	order uint64
}

func (x Excursion) same(other Excursion) bool {
	return x.ID == other.ID && x.order == other.order && x.From.Equal(other.From) && x.To.Equal(other.To) && x.OlderPods == other.OlderPods
}

// doubts returns the changes since the record that the pods are assumed to have read, because
// their template is newer, although some pods may be older than the template.
func (e *Evaluation) doubts() (out []Excursion) {
	if !e.Workload.StartUnsure {
		return nil
	}
	for i := range e.tracked {
		if x, doubted := e.doubt(&e.tracked[i]); doubted {
			out = append(out, x)
		}
	}
	return out
}

// doubt returns the time up to which pods that are older than the current template may have read other content of a
// tracked source than now, if there may be such pods.
func (e *Evaluation) doubt(u *trackedSource) (x Excursion, doubted bool) {
	c, since := e.change(u), e.podsSince()
	changed := !c.seen.IsZero() && e.graph.Before(since, c.at)
	// A record that is newer than the template knows what changed before it; one that came back
	// with the template does not.
	if e.recordVersion() > e.Workload.StartVersion {
		changed = changed && e.afterRecord(&c) && !e.toldByRecord(&c)
	}
	// Or the record shows it: one that is older than the template, as those pods may be, one that
	// came back with the template, and is about those pods, or a newer one of another replica.
	differs := e.Comparable() && (e.differs(u) || e.hashDiffers())
	if !changed && !differs || !e.beforeTemplate(&c) {
		return x, false
	}
	x = Excursion{ID: u.id, To: later(c.seen, c.written), Containers: u.containers(), OlderPods: true, order: c.order}
	if x.To.IsZero() { // it was removed while no template named it
		x.To = e.Workload.TemplateWritten
	}
	from, _, times, live := e.timesChanged(u, since, 0)
	x.Witnessed = e.Workload.CameBack && live
	// Pods of a template that has the hash were created with that content. If the content was
	// different in between, their containers may have been restarted in place with it.
	back := differs && e.broughtBack(u) && !e.outdated(u)
	if !back && e.Workload.Marks.TemplateHash == e.Hash {
		x.From = from
		return x, times > 1
	}
	return x, true
}

// podsSince returns a moment that this process saw and after which all pods of the workload started, or its opting
// in: content that changed before was read, or adopted.
func (e *Evaluation) podsSince() dependency.Moment {
	w := e.Workload
	since := e.graph.Latest(w.CreatedAt, w.PodsAfter, e.since())
	if !e.Comparable() { // else opting in adopts nothing
		since = e.graph.Latest(since, w.OptedAt)
	}
	if w.OfRecordedRestart() {
		since = e.graph.Latest(since, w.RecordedAt)
	}
	return since
}

// beforeTemplate reports whether a change was made before the template, as far as is known, but not before all pods.
func (e *Evaluation) beforeTemplate(c *change) bool {
	if e.graph.SeveralCounters() {
		return e.startedAfter(c) || c.order <= e.Workload.TemplateOrder
	}
	return e.startedAfter(c) && (c.at.Version == 0 || c.at.Version > e.Workload.PodsAfter.Version)
}

// undone returns what had changed when the workload was restarted, if that restart was undone: some pods may never
// have been replaced. Without a record from before it, that is what has changed since they started; with one that
// cannot be compared, all that they read.
func (e *Evaluation) undone() (out []Excursion) {
	hash, sources, reload, is := e.Workload.Undone()
	last := lastReloadFrom(reload)
	if !is || last == nil {
		return nil
	}
	before := recordFrom(hash, sources)
	for i := range e.tracked {
		u := &e.tracked[i]
		entry, known := before.Sources[u.id]
		var differs bool
		switch {
		case before.Hash == "":
			differs = e.sawChangeAfter(u, e.Workload.OptedAt)
		case before.Sources == nil, dependency.KeyOf(before.Hash) != dependency.KeyOf(e.Hash):
			differs = before.Hash != e.Hash
		default:
			differs = known && !u.isCurrent(entry) && !u.appearedSince(entry)
		}
		if !differs {
			continue
		}
		c := e.change(u)
		x := Excursion{ID: u.id, To: c.written, Containers: u.containers(), OlderPods: true, order: c.order, Witnessed: e.Workload.CameBack}
		if x.To.IsZero() || u.undatedSince(entry) { // the time of the restart is by the clock of who made it
			x.To = later(last.Time.Time, e.Workload.TemplateWritten)
		}
		out = append(out, x)
	}
	return out
}

// containers returns the containers that read a tracked source; nil: any may.
func (u *trackedSource) containers() (names []string) {
	if u.glob != nil {
		return nil
	}
	for i := range u.counted.Uses {
		if use := &u.counted.Uses[i]; use.Reads() && use.Container != "" {
			names = append(names, use.Container)
		}
	}
	return names
}

// excursions returns what has changed and changed back since the record was made, or since the pods were started
// if the record is older.
func (e *Evaluation) excursions() (out []Excursion) {
	// A hash that is only on the template, and differs from the current one, is about earlier pods.
	bare := e.Record.Sources == nil
	if !e.Comparable() || bare && e.Record.Hash != e.Hash {
		return nil
	}
	for i := range e.tracked {
		u := &e.tracked[i]
		if u.isClass() && u.keepsMounted() { // the next update tells more
			continue
		}
		switch {
		case bare:
		case !e.knows(u), e.outdated(u) && !e.restored(u), !e.outdated(u) && e.differs(u):
			continue
		}
		c := e.change(u)
		adopted := e.adoptedUnseen(&c)
		if c.seen.IsZero() || !e.graph.Before(e.since(), c.at) || (!e.afterRecord(&c) || e.toldByRecord(&c)) && !adopted {
			continue
		}
		if e.startedAfter(&c) && !e.Workload.StartUnsure {
			continue // it was over when the pods started
		}
		x := Excursion{ID: u.id, Containers: u.containers(), order: c.order}
		var times int
		switch {
		case adopted:
			if x.From, x.To, times, x.Witnessed = e.timesChanged(u, e.Workload.OptedAt, 0); !e.restored(u) {
				x.From = time.Time{}
			}
		case e.outdated(u) && !e.Workload.StartUnsure:
			x.From, x.To, times, x.Witnessed = e.timesChanged(u, dependency.Moment{Version: e.started(u)}, 0)
		default:
			x.From, x.To, times, x.Witnessed = e.timesChanged(u, e.Workload.RecordedAt, e.decided)
			if e.otherWhenRecorded(u) || e.otherBeforeFirstRecord(u) {
				x.From = time.Time{}
			}
		}
		x.To = later(x.To, c.seen)
		if e.decided == 0 && !e.graph.Before(e.since(), e.Workload.RecordedAt) && e.wasOther(u) {
			x.From, times, x.Witnessed = time.Time{}, times+1, false // it had changed before this process began to look
		}
		if e.Workload.StartUnsure && e.Workload.RecordedAt.Version < e.Workload.StartVersion {
			x.From = time.Time{} // pods that the template found may be older than the record
		}
		if e.graph.SeveralCounters() && e.decided == 0 && !e.cameBack(u) {
			if times < 2 {
				continue // the change that the record was made for was read after it
			}
			x.Witnessed = x.Witnessed && !e.wasOther(u) // else perhaps all of them were
		}
		out = append(out, x)
	}
	return out
}

// adoptedUnseen reports whether the first record of the pods was made after a change that this process saw and that, as
// far as it knows, they have not read: a leader that had seen the change too would have restarted them.
func (e *Evaluation) adoptedUnseen(c *change) bool {
	return e.Workload.RecordedFirst && !e.graph.SeveralCounters() && !e.afterRecord(c) && e.sawAfter(c, e.Workload.OptedAt) && !e.mayHaveWaited()
}

// mayHaveWaited reports whether the containers may not have been started yet when this process first read their template,
// because something that they require was absent: another replica may know that they have read what came.
func (e *Evaluation) mayHaveWaited() bool {
	return e.Workload.StartVersion == 0 && slices.ContainsFunc(e.Sources, func(s Source) bool {
		first, known := e.graph.First(e.sourceKey(s.Reference))
		if first != nil && len(first.Keys) == 0 {
			first = nil // it was absent
		}
		return s.Observed && (!known || dependency.Resolve(s.Reference, first).Missing)
	})
}

// otherBeforeFirstRecord reports whether pods may have been started with other content of a tracked source that this process saw
// change before another replica made their first record.
func (e *Evaluation) otherBeforeFirstRecord(u *trackedSource) bool {
	w := e.Workload
	if !w.RecordedFirst || u.glob != nil || e.graph.SeveralCounters() {
		return false
	}
	r, since := &u.counted.Reference, max(w.OptedAt.Version, e.since().Version, e.started(u))
	return slices.ContainsFunc(e.graph.Past(e.sourceKey(r)), func(p dependency.Past) bool {
		return since < p.Until.Version && p.Until.Version <= w.RecordedAt.Version && !bytes.Equal(u.counted.content, dependency.AppendContent(nil, r, p.Source))
	})
}

// timesChanged returns when the content of a tracked source first and last changed, and how often: after a
// place in the order of reading, or, if that is 0, after a moment. The first is zero if it is not
// known, as of a glob. Live reports whether each of these changes came by an event; it is false if there are more than are
// looked at.
func (e *Evaluation) timesChanged(u *trackedSource, since dependency.Moment, order uint64) (first, last time.Time, times int, live bool) {
	since = e.graph.Latest(since, e.since())
	changed := func(key dependency.SourceKey) (first, last time.Time, times int, live bool) {
		if order != 0 {
			return e.graph.ReadSince(key, order)
		}
		return e.graph.ChangedSince(key, since)
	}
	if u.glob == nil {
		return changed(e.sourceKey(&u.counted.Reference))
	}
	live = true
	complete := u.matched.EachRecent(func(s *dependency.Source) bool {
		_, at, n, seen := changed(s.SourceKey)
		last, times, live = later(last, at), times+n, live && seen
		return n > 0
	})
	live = live && complete
	u.matched.EachGone(func(_ string, gone dependency.Change) bool {
		counts := gone.Order > order && (order != 0 || e.graph.Before(since, gone.Moment()))
		if counts {
			last, times, live = later(last, gone.Seen), times+1, live && gone.After == 0
		}
		return counts
	})
	return time.Time{}, last, times, live
}

// cameBack reports whether a ConfigMap or Secret of a tracked source has returned to content that it had before, as far
// as this process remembers.
func (e *Evaluation) cameBack(u *trackedSource) (found bool) {
	had := func(r *dependency.Reference, s *dependency.Source) bool {
		now := dependency.AppendContent(nil, r, s)
		same := func(s *dependency.Source) bool { return bytes.Equal(now, dependency.AppendContent(nil, r, s)) }
		past := e.graph.Past(e.sourceKey(r))
		if slices.ContainsFunc(past, func(p dependency.Past) bool { return same(p.Source) }) {
			return true
		}
		first, known := e.graph.First(e.sourceKey(r)) // it may have been absent, which is none of its contents
		return len(past) > 0 && (!known || same(first))
	}
	if u.glob == nil {
		return had(&u.counted.Reference, u.counted.source)
	}
	u.matched.EachRecent(func(s *dependency.Source) bool {
		_, _, times, _ := e.graph.ChangedSince(s.SourceKey, e.Workload.RecordedAt)
		found = times > 0 && had(&dependency.Reference{Kind: s.Kind, Name: s.Name, Uses: dependency.Wholly}, s)
		return times > 0 && !found
	})
	return found
}

// restored reports whether a tracked source has changed since its pods started and now has the same content as then,
// as far as this process remembers.
func (e *Evaluation) restored(u *trackedSource) bool {
	started := e.started(u)
	if u.glob != nil || started == 0 {
		return false
	}
	r := &u.counted.Reference
	return slices.ContainsFunc(e.graph.Past(e.sourceKey(r)), func(p dependency.Past) bool {
		return p.Change.Version <= started && started < p.Until.Version && p.Until.Exact &&
			bytes.Equal(u.counted.content, dependency.AppendContent(nil, r, p.Source))
	})
}

// otherWhenRecorded reports whether the content of a tracked source differed, or may have differed, from the record
// when the record was written: the record came back with a template, or was written by a replica that lagged.
func (e *Evaluation) otherWhenRecorded(u *trackedSource) bool {
	if e.decided != 0 || u.glob != nil || e.graph.SeveralCounters() {
		return false
	}
	r, recorded := &u.counted.Reference, e.Workload.RecordedAt.Version
	return slices.ContainsFunc(e.graph.Past(e.sourceKey(r)), func(p dependency.Past) bool {
		from := p.Change.Version
		if !p.Change.Exact {
			from = p.Change.After
		}
		return from <= recorded && recorded < p.Until.Version && !bytes.Equal(u.counted.content, dependency.AppendContent(nil, r, p.Source))
	})
}

// wasOther reports whether a tracked source had, or may have had, other content when this process began to
// watch.
func (e *Evaluation) wasOther(u *trackedSource) bool {
	if u.glob == nil {
		c := u.counted
		first, known := e.graph.First(e.sourceKey(&c.Reference))
		return !known || !bytes.Equal(c.content, dependency.AppendContent(nil, &c.Reference, first))
	}
	c := e.change(u)
	return !c.seen.IsZero()
}
