// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
)

// Stale names what is known to have changed since the pods were started, whatever the
// mode. Known is false when nothing comparable is recorded.
func (e *Evaluation) Stale() (ids []string, known bool) {
	changed, _ := e.stale()
	for i := range changed {
		ids = append(ids, changed[i].trackedSource.id)
	}
	if len(ids) == 0 && e.superseded() != nil {
		ids = []string{TriggerUnknown} // what the pods that were not evicted were started with
	}
	return ids, e.Comparable()
}

// stale returns what has changed since the pods were started, and which of it to name as
// the trigger.
func (e *Evaluation) stale() (changed []change, trigger string) {
	if e.known.stale == nil {
		e.known.stale = new(e.findStale())
	}
	if changed = *e.known.stale; len(changed) == 0 {
		return nil, ""
	}
	if r := &e.Record; e.Comparable() && r.Sources == nil {
		return changed, TriggerUnknown
	}
	return changed, changed[0].trackedSource.id
}

func (e *Evaluation) findStale() (changed []change) {
	r := &e.Record
	switch {
	case !e.Comparable():
		changed = e.changedUnrecorded()
	case r.Sources == nil && r.Hash == e.Hash:
	case r.Sources == nil:
		// Only the hash is left, so it is not known which source has changed.
		for i := range e.tracked {
			changed = append(changed, e.change(&e.tracked[i]))
		}
		if len(e.unread(changed)) == 0 {
			return nil
		}
		return changed
	case e.Workload.Reruns && e.Workload.Recurring:
		changed = e.differing()
	default:
		changed = e.changed()
	}
	return e.unread(changed)
}

// Comparable reports whether there is a record that can be compared with the current content: a
// record that was made with the same key of the hash, or one that says with any key that pods are
// left.
func (e *Evaluation) Comparable() bool {
	return e.Record.abandoned() || e.Record.Hash != "" && dependency.KeyOf(e.Record.Hash) == dependency.KeyOf(e.Hash)
}

// InDoubt reports whether it is unknown with which content the pods were started: nothing is
// recorded, the pods have to be looked up, or not all that they read is known.
func (e *Evaluation) InDoubt() bool {
	return e.Workload.Truncated || !e.Comparable() || e.inquires()
}

// inquires reports whether the pods have to be looked up.
func (e *Evaluation) inquires() bool { return len(e.inquiries()) > 0 }

// inquiries returns for which periods they have to be. The result must not be changed.
func (e *Evaluation) inquiries() []Excursion {
	if e.Workload.ByRecord() {
		return nil
	}
	if e.known.inquiries == nil {
		all := slices.Concat(e.doubts(), e.undone(), e.excursions())
		e.known.inquiries = &all
	}
	return *e.known.inquiries
}

// unread returns the changes that the pods may not have read. It drops those that were made before
// the pods started, and those that the webhook adopted.
func (e *Evaluation) unread(changes []change) []change {
	return slices.DeleteFunc(slices.Clone(changes), func(c change) bool {
		if e.recordedMixed(c.trackedSource) && !e.outdated(c.trackedSource) && !e.broughtBack(c.trackedSource) {
			return false
		}
		return e.startedAfter(&c) || e.adoptedByWebhook(c.at)
	})
}

// recordedMixed reports whether pods were found to have been started with different
// content.
func (e *Evaluation) recordedMixed(u *trackedSource) bool {
	return e.Record.Sources[u.id] == u.mixedEntry() || e.Record.abandoned()
}

// broughtBack reports whether the record was written no later than the pods started: in one write with
// their template, as kubectl rollout undo does, or before. Then it says nothing about the pods, unless
// some are older. Pods that had to wait for a source started no earlier than the version behind its
// change, which may be that of the record: then nothing shows that the record is older.
func (e *Evaluation) broughtBack(u *trackedSource) bool {
	written, started := e.recordVersion(), e.started(u)
	return written > 0 && (written < started || written == started && started == e.Workload.StartVersion)
}

// recordVersion returns an upper bound of the version with which the record was last written; 0: it
// was written before the workload was first read.
func (e *Evaluation) recordVersion() uint64 {
	return max(e.Workload.RecordedAt.Version, e.Workload.RecordedAgain, e.written)
}

// adoptedByWebhook reports whether a change at a moment was adopted by the webhook: the workload
// opted in and got its record in one write, after that moment. The record may have older content, if
// the replica that made it had not read the change yet. A write that also changed the template does
// not count: kubectl rollout undo may have restored all three, with the record of earlier pods. And
// with several revision counters, it is not known which came first: the order of reading does not
// show it.
func (e *Evaluation) adoptedByWebhook(at dependency.Moment) bool {
	w := e.Workload
	return w.OptedAt.Version > 0 && w.OptedAt == w.RecordedAt && !w.RecordedWithTemplate &&
		!e.graph.SeveralCounters() && e.graph.Before(at, w.OptedAt)
}

// started returns a lower bound of when the first container that reads a tracked source started, as a
// resourceVersion; 0: it is not known.
func (e *Evaluation) started(u *trackedSource) uint64 {
	if u.start == nil {
		u.start = new(e.findStart(u))
	}
	return *u.start
}

func (e *Evaluation) findStart(u *trackedSource) uint64 {
	if e.graph.SeveralCounters() {
		return 0
	}
	if u.glob != nil {
		return e.Workload.StartVersion
	}
	least, found := uint64(0), false
	for i := range u.counted.Uses {
		if !u.counted.Uses[i].Reads() {
			continue
		}
		if start := e.graph.Started(e.Workload, &u.counted.Uses[i]); !found || start < least {
			least, found = start, true
		}
	}
	return least
}

// startedAfter reports whether the first container that reads a tracked source started after a change. If the lower
// bound of the template equals the upper bound of the change, it did as well: two writes do not have the same revision.
func (e *Evaluation) startedAfter(c *change) bool {
	started := e.started(c.trackedSource)
	return started > c.at.Version || started > 0 && started == c.at.Version && started == e.Workload.StartVersion
}

// afterRecord reports whether the record cannot know a change: this process read it after it decided
// on the record, or, where that is not known, it was made after the record was written.
func (e *Evaluation) afterRecord(c *change) bool {
	if e.decided != 0 {
		return c.order > e.decided
	}
	return e.graph.Before(e.Workload.RecordedAt, c.at)
}

// hashDiffers reports whether only a hash is recorded, and it is not the current one: any tracked source may differ.
func (e *Evaluation) hashDiffers() bool { return e.Record.Sources == nil && e.Record.Hash != e.Hash }

// toldByRecord reports whether a change that a list showed may be the one for which another replica made the record:
// then the record tells the outcome.
func (e *Evaluation) toldByRecord(c *change) bool {
	u, recorded := c.trackedSource, e.Workload.RecordedAt
	if e.decided != 0 || e.graph.SeveralCounters() || c.after == 0 || c.after >= recorded.Version || !e.knows(u) || e.differs(u) {
		return false
	}
	_, _, times, _ := e.timesChanged(u, recorded, 0)
	return times == 1
}

// outdated reports whether the record was written before the pods that read a tracked source were started,
// so that it says nothing about them.
func (e *Evaluation) outdated(u *trackedSource) bool { return e.recordVersion() < e.started(u) }

// changed returns the tracked sources whose pods run with other content. A tracked source that the record does not
// contain must have changed since it began to count; one whose record is older than the pods, since they started; any
// other must differ from the record.
func (e *Evaluation) changed() (changed []change) {
	for i := range e.tracked {
		u := &e.tracked[i]
		var found bool
		switch {
		case !e.knows(u):
			found = e.changedSinceCounted(u)
		case e.appeared(u): // content that came after that is a change
			found = e.sawChangeAfter(u)
		case e.outdated(u):
			found = e.sawChangeAfter(u) && !e.restored(u) || e.differs(u) && e.unordered(u)
		default:
			found = e.differs(u)
		}
		if found {
			changed = append(changed, e.change(u))
		}
	}
	return changed
}

// changedSinceCounted reports whether a tracked source that the record does not know changed after it began to count, which is
// no earlier than the workload opted in.
func (e *Evaluation) changedSinceCounted(u *trackedSource) (found bool) {
	if u.glob == nil {
		c := e.change(u)
		return e.countedWhenChanged(&c, u.counted.source, e.countedBefore(u))
	}
	known := e.knowsOtherwise(u)
	changed := func(c change, s *dependency.Source, countedBefore bool) bool {
		return e.countedWhenChanged(&c, s, countedBefore) && (!known || e.afterRecord(&c))
	}
	var c change // the last that was looked at
	recent := func(s *dependency.Source) bool {
		c = u.changedWith(s.Change)
		found = found || u.matched.Has(s.Name) && changed(c, s, e.countedBeforeInGlob(u, s.Name))
		return !found && e.sawAfter(&c) // what changed before that was not seen either
	}
	if !u.matched.EachRecent(recent) {
		// Those that are left changed earlier. If that was before the annotations, only what counted before these can count;
		// else, and if these are too many as well, it is not known.
		found = found || e.sawAfter(&c, e.Workload.OptedAt, e.Workload.ScopedAt)
		complete := e.eachNamedBefore(u.glob.Kind, recent)
		found = found || !complete
	}
	u.matched.EachGone(func(name string, gone dependency.Change) bool {
		found = found || changed(u.changedWith(gone), nil, name == "" || e.countedBeforeInGlob(u, name))
		return !found
	})
	return found
}

// countedWhenChanged reports whether this process saw a change of a source when it already counted. The source is
// nil if it no longer exists.
//
// One that counted before the annotations said what counts now, in this tracked source or in another, counts since then, so that
// the record may know the change: what was read after that was decided on is one. Any other record, however late
// it was written, was decided on before the source counted. With several revision counters only the order of reading
// tells that, if the template or the policy may be what makes it count.
func (e *Evaluation) countedWhenChanged(c *change, s *dependency.Source, countedBefore bool) bool {
	w := e.Workload
	switch {
	case countedBefore && e.sawAfter(c, e.markedAt(s, true)) && e.afterRecord(c):
		return true
	case countedBefore && !w.RecordedSinceScoped():
		return false
	case !e.sawAfter(c, e.markedAt(s, false), w.OptedAt, w.ScopedAt):
		return false
	}
	return !e.graph.SeveralCounters() || e.afterRecord(c) || c.order > max(w.TemplateOrder, w.OptedAt.Order, w.ScopedAt.Order)
}

// unordered reports whether a tracked source last changed before this process had read everything, and perhaps
// after the pods had started.
func (e *Evaluation) unordered(u *trackedSource) bool {
	c := e.change(u)
	return (c.seen.IsZero() || !e.graph.Before(e.since(), c.at)) && !e.startedAfter(&c)
}

// changedUnrecorded returns what pods cannot have read, where nothing is recorded that can be compared: what changed
// after the pods started, after the workload opted in, and since this process began to watch; and of what a record says,
// with any key, that the pods differ.
func (e *Evaluation) changedUnrecorded() (changed []change) {
	for i := range e.tracked {
		if u := &e.tracked[i]; e.sawChangeAfter(u, e.Workload.OptedAt) || e.returnedSinceOptedIn(u) || e.recordedMixed(u) {
			changed = append(changed, e.change(u))
		}
	}
	return changed
}

// returnedSinceOptedIn reports whether content may have been missing when the workload opted in, so that this adopted
// something else. For pods that cannot start without it, its return is no change.
func (e *Evaluation) returnedSinceOptedIn(u *trackedSource) bool {
	if u.glob != nil || u.counted.source == nil {
		return false
	}
	c := e.change(u)
	c.at = u.counted.source.LastReturned(&u.counted.Reference)
	return e.sawAfter(&c, e.Workload.OptedAt)
}

// sawChangeAfter reports whether this process saw a tracked source change after its pods started and after
// all of the moments.
func (e *Evaluation) sawChangeAfter(u *trackedSource, moments ...dependency.Moment) bool {
	c := e.change(u)
	return e.sawAfter(&c, moments...)
}

func (e *Evaluation) sawAfter(c *change, moments ...dependency.Moment) bool {
	moments = append(moments, e.since())
	return !c.seen.IsZero() && e.graph.Before(e.graph.Latest(moments...), c.at) && !e.startedAfter(c)
}

// since returns when this process began to read the workload and all that it consumes: with the first lists, or later, if
// its kind could not be read then. What changed before that was not a change for it, unless a record shows it.
func (e *Evaluation) since() dependency.Moment {
	return e.graph.Latest(e.graph.Since(), e.Workload.ListedAt)
}

// markedAt returns when an annotation of a source, which may be nil, last said whether it counts. One that
// counted before the mode was Matched needed no mark until then.
func (e *Evaluation) markedAt(s *dependency.Source, countedBefore bool) dependency.Moment {
	switch {
	case s == nil:
		return dependency.Moment{}
	case e.Policy.modeOf(s.Kind) == Matched && (!countedBefore || e.graph.Before(e.Workload.ScopedAt, s.MatchAt)):
		return e.graph.Latest(s.IgnoredAt, s.MatchAt)
	default:
		return s.IgnoredAt
	}
}

// knows reports whether the record knows a tracked source, by the same keys.
func (e *Evaluation) knows(u *trackedSource) bool {
	before, known := e.Record.Sources[u.id]
	scope, _, _ := strings.Cut(before, ".")
	return known && scope == u.summary().scope
}

func (e *Evaluation) differs(u *trackedSource) bool {
	return e.Record.abandoned() || e.knows(u) && !u.isCurrent(e.Record.Sources[u.id]) && !e.appeared(u)
}

// change is what is known of the last change of a tracked source.
type change struct {
	trackedSource *trackedSource
	// at is an upper bound of when; seen is when this process saw it, and written when
	// clients last wrote the content. The last two are zero when they are not known.
	at            dependency.Moment
	seen, written time.Time
	order         uint64 // of when this process read the last change
	// after is the version after which the last change was made, if a list showed it; 0: that is not known.
	after uint64
}

func (e *Evaluation) change(u *trackedSource) change {
	if u.changed == nil {
		u.changed = new(e.findChange(u))
	}
	return *u.changed
}

func (e *Evaluation) findChange(u *trackedSource) change {
	c := change{trackedSource: u}
	if u.glob != nil {
		u.matched.EachRecent(func(s *dependency.Source) bool {
			c.addChange(e, s.Change)
			return false
		})
		u.matched.EachGone(func(_ string, gone dependency.Change) bool {
			c.addChange(e, gone)
			return false
		})
		return c
	}
	switch earlier, ignored := e.ignored(u); {
	case ignored:
		return c
	case earlier != nil:
		c.addChange(e, *earlier)
		return c
	}
	r := e.lookUp(u.counted)
	c.at, c.order, c.seen, c.after = e.graph.Latest(r.written), r.written.Order, r.last.Seen, r.last.After
	if r.source != nil && !e.undated(u) {
		c.written = r.source.LastChanged.Time
	}
	return c
}

// undated reports whether it may not be known when the content of an existing source last changed: a key may
// have been removed, and such an update leaves no time.
func (e *Evaluation) undated(u *trackedSource) bool {
	entry := e.Record.Sources[u.id]
	switch {
	case entry == u.mixedEntry(): // pods differ, whenever it changed
		return true
	case e.knows(u), e.Record.Sources == nil && e.Comparable() && !e.Record.abandoned(): // a hash alone does not say which keys there were
		return u.undatedSince(entry)
	default:
		return u.undatedSince("." + noKeys)
	}
}

// undatedSince is undated for what has changed since an entry was made.
func (u *trackedSource) undatedSince(entry string) bool {
	if names, all := u.counted.Keys(); !all && len(u.counted.keys) == len(names) { // all are there
		return false
	}
	return u.counted.source.Undated(u.counted.written) || u.hadOtherKeys(entry)
}

// changedWith returns a change of a tracked source with that of one of its sources.
func (u *trackedSource) changedWith(s dependency.Change) change {
	return change{trackedSource: u, at: s.Moment(), seen: s.Seen, order: s.Order}
}

func (c *change) addChange(e *Evaluation, other dependency.Change) {
	c.at, c.order = e.graph.Latest(c.at, other.Moment()), max(c.order, other.Order)
	c.seen = later(c.seen, other.Seen)
	if other.Order == c.order {
		c.after = other.After
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (e *Evaluation) sourceKey(r *dependency.Reference) dependency.SourceKey {
	return dependency.SourceKey{Kind: r.Kind, Namespace: e.Workload.Namespace, Name: r.Name}
}
