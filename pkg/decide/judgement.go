// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"slices"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/judge"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// Judgement is what the pods of a workload run with.
type Judgement struct {
	// Total is the number of pods that are not being deleted. Each of them also counts in one of the other fields.
	Total, Current, Stale, Unknown, NotStarted int
	// StaleSince is when the first change was made that a container has not read; zero: each has read all, or it is not known.
	StaleSince time.Time
	// StalePods are the numbers of stale pods for each source, in the order of Evaluation.Sources.
	StalePods []int
	// Names are the names of the first pods that are stale, or of which it is not known.
	Names []string
	// Reason is the reason of the worst verdict.
	Reason string
	// Local: a process that began to read the sources at another time may judge otherwise.
	Local bool
	// Again: a pod with the hash of the current content may not have read it. A template marked with nothing but this hash could keep the pod.
	Again bool

	now     time.Time
	due     []*due          // in the order of the sources
	unread  map[string]bool // the IDs of sources that a container has not read, or may not have
	pending int             // pods that are being deleted
	excused int             // stale pods that are about to be replaced
	waiting bool            // a container has yet to start, perhaps with files that were mounted earlier
	former  int             // current pods that have the hash of the current content, and an older template
	older   bool            // a pod has an older template, which may read what the current one does not
	taken   bool            // a container of the current template has started
	started bool            // a container has started
	limited bool            // not all pods were judged
	clock   bool            // a container started when it cannot have been
	halted  int             // pods that wait for something
	waits   []string        // the first of them, and for what
	stuck   stuck
	ready   time.Time // since when the last pod of the current template has been ready
	failing failing
}

// due is a source for whose content a restart is due.
type due struct {
	*tracked

	// since is when the first change was made that a container has not read; zero: it is not known.
	since time.Time
	// doubt: no container is certain not to have read the content.
	doubt bool
	// assumed: it has not changed; see Change.
	assumed bool
}

// maxPodNames is how many pods a message names.
const maxPodNames = 3

// Judge returns a judge of the pods of the workload at a time.
func (e *Evaluation) Judge(now time.Time) *judge.Judge { return judge.New(e.allFacts(now)) }

// allFacts returns what is known about the workload, for a judge.
func (e *Evaluation) allFacts(now time.Time) judge.Facts {
	w, p := e.Workload, &e.Policy
	f := judge.Facts{
		Now: now, Complete: e.graph.Complete(), Hash: e.Hash, Revision: e.graph.CurrentRevision(w), Released: w.Released(), Containers: w.Containers,
		LiveFiles: p.LiveVolumes && p.Mode != policy.Off, SeenFiles: p.Mode == policy.Off, Sources: make([]judge.Source, len(e.Sources)),
	}
	for i := range e.Sources {
		f.Sources[i] = e.facts(&e.Sources[i])
	}
	return f
}

// facts returns what is known about a source, for a judge. The content of a source counts if it reaches a container and no annotation excludes it; whether a
// change restarts the workload is another question.
func (e *Evaluation) facts(s *Source) judge.Source {
	out := judge.Source{Reference: *s.Reference, Unhashed: s.tracked == nil}
	if s.Source == nil && s.Kind.Observed() && e.graph.SelectedByLabel() { // it may be there, and not read
		out.Uses = nil
		return out
	}
	if s.tracked != nil {
		_, known := e.Record.Sources[s.tracked.id]
		out.New = !known && e.Comparable() && e.Policy.Mode != policy.Off && e.Record.Scope == e.scope() &&
			!s.tracked.matched && !e.Workload.PerNode // what a glob alone names, any template reads; a DaemonSet numbers templates
		out.Reference, out.Recorded = s.tracked.counted, e.recorded(s.tracked)
	} else if s.Reason == policy.ReasonIgnored || s.Reason == policy.ReasonExcluded || s.Reason == policy.ReasonNotObserved {
		out.Uses = nil
		return out
	}
	if s.Kind == dependency.SecretProviderClass {
		g, name := e.graph, s.Name
		out.Mounted = func(p *dependency.Pod) dependency.Mounted { return g.Mounted(p, name) }
		return out
	}
	out.Periods, out.Brought = e.graph.Periods(e.sourceKey(s.Reference)), e.mayBring(s.Reference)
	return out
}

func (e *Evaluation) sourceKey(r *dependency.Reference) dependency.SourceKey {
	return dependency.SourceKey{Kind: r.Kind, Namespace: e.Workload.Namespace, Name: r.Name}
}

// recorded returns what the record says about a source; nil: nothing that can be compared.
func (e *Evaluation) recorded(t *tracked) *judge.Recorded {
	r := &e.Record
	entry, known := r.Sources[t.id]
	if !known || !e.Comparable() || e.Policy.Mode == policy.Off || scopeIn(entry.Content) != scopeIn(t.Content()) {
		return nil
	}
	out := &judge.Recorded{Same: entry.Content == t.Content(), At: r.At, Proven: entry.Adopted.IsZero(), For: r.For, Hash: r.Hash}
	if !out.Proven {
		out.At = entry.Adopted
	}
	return out
}

// Comparable reports whether there is a record that can be compared with the current content: one that was made with the same key of the hash.
func (e *Evaluation) Comparable() bool {
	return e.Record.Sources != nil && dependency.KeyOf(e.Record.Hash) == dependency.KeyOf(e.Hash)
}

// maxJudged limits the comparisons of a container with a source in one judgement. Pods are judged in the order of their names until it is reached.
const maxJudged = 500_000

// judge judges all pods of the workload.
func (e *Evaluation) judge(j *judge.Judge) *Judgement {
	out := &Judgement{now: j.Now, StalePods: make([]int, len(e.Sources)), unread: map[string]bool{}, Reason: judge.ReasonNothingRead}
	if len(e.Sources) == 0 { // changes of its pods are not told
		return out
	}
	worst := judge.Verdict{State: judge.Current, Reason: judge.ReasonNothingRead}
	found := map[*tracked]*due{}
	stale, left := make([]bool, len(e.Sources)), maxJudged
	e.graph.PodsOf(e.Workload, func(p *dependency.Pod) bool {
		out.stuck.add(e, j, p)
		out.addHealth(e, j, p)
		if !p.Deleted.IsZero() {
			out.pending++
			return true
		}
		if why := p.WaitsFor(); why != "" {
			if out.halted++; len(out.waits) < maxPodNames {
				out.waits = append(out.waits, p.Name+" ("+why+")")
			}
		}
		if left -= j.Cost(p); left < 0 {
			out.limited = true
			out.count(p, &judge.Verdict{State: judge.Unknown})
			return true
		}
		clear(stale)
		v := j.Pod(p, func(c *dependency.PodContainer, s judge.SourceVerdict) {
			stale[s.Index] = stale[s.Index] || s.State == judge.Stale
			out.clock = out.clock || s.Reason == judge.ReasonNodeClock
			t := e.Sources[s.Index].tracked
			if t == nil || s.State != judge.Stale && s.State != judge.Unknown {
				return
			}
			out.unread[t.id] = true
			out.Again = out.Again || p.Hash == e.Hash
			if e.isDue(j, p, c, t, &s) {
				if found[t] == nil {
					found[t] = &due{tracked: t, doubt: true}
				}
				found[t].doubt, found[t].since = found[t].doubt && s.Doubt, judge.Earlier(found[t].since, s.Since)
			}
		})
		for i, is := range stale {
			if is {
				out.StalePods[i]++
			}
		}
		if out.count(p, &v); v.State == judge.Stale && e.isExcused(j, p) {
			out.excused++
		}
		if !e.isOlder(j, p) {
			out.taken = out.taken || v.State != judge.NotStarted
		} else if out.older = true; v.State == judge.Current && p.Hash == e.Hash {
			out.former++
		}
		for i := range p.Containers {
			waits := p.Containers[i].Waiting != ""
			out.waiting, out.started = out.waiting || waits, out.started || !waits
		}
		if v.Compare(&worst) > 0 {
			worst = v
		}
		out.Local = out.Local || v.Local
		return true
	})
	if out.Reason = worst.Reason; out.limited && worst.State != judge.Stale {
		out.Reason = judge.ReasonTooManyPods
	}
	for i := range e.Sources {
		if d := found[e.Sources[i].tracked]; d != nil {
			out.due = append(out.due, d)
		}
	}
	return out
}

// count counts a pod.
func (out *Judgement) count(p *dependency.Pod, v *judge.Verdict) {
	out.Total++
	switch v.State {
	case judge.Current:
		out.Current++
		return
	case judge.NotStarted:
		out.NotStarted++
		return
	case judge.Stale:
		out.Stale++
		out.StaleSince = judge.Earlier(out.StaleSince, v.Since)
	case judge.Unknown:
		out.Unknown++
	}
	if len(out.Names) < maxPodNames {
		out.Names = append(out.Names, p.Name)
	}
}

// certain reports whether all pods are known to run with the current content, or to read it when they start.
func (out *Judgement) certain() bool { return out.Stale == 0 && out.Unknown == 0 }

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// isDue reports whether a restart is due because a container has not read the current content of a source, or may not have.
//
// What was adopted when the workload opted in, or when the source began to count, restarts nothing. Nor does a pod that is about to be replaced.
func (e *Evaluation) isDue(j *judge.Judge, p *dependency.Pod, c *dependency.PodContainer, t *tracked, v *judge.SourceVerdict) bool {
	w := e.Workload
	switch {
	case e.Policy.Mode == policy.Off, w.Rollout.Reason == dependency.ReasonNotObserved:
		return false
	case e.isExcused(j, p):
		return false
	case e.defaults.Observe && !e.Comparable(): // nothing is ever recorded
		return v.State == judge.Stale || v.Doubt
	case !e.Comparable():
		return false
	}
	entry, known := e.Record.Sources[t.id]
	unread := v.State == judge.Stale || v.Doubt
	switch {
	case !known && e.Record.Scope != e.scope(): // it begins to count
		return false
	case !known: // the template names it now, or it has come
		return (unread || t.matched) && !t.isIgnored(nil)
	case t.isIgnored(&entry):
		return false
	case t.counted.Kind == dependency.SecretProviderClass && !entry.Adopted.IsZero(): // its content is told by the pods alone
		return unread && v.Since.After(entry.Adopted) || e.isMissed(j, p, c, v, &entry)
	case t.counted.Kind == dependency.SecretProviderClass:
		return unread && (!v.Since.Before(e.Record.At.Truncate(time.Second)) || !e.isRestarted(p, c, v))
	case scopeIn(entry.Content) != scopeIn(t.Content()): // the policy or the template has another scope now
		return unread && e.Record.Scope == e.scope() && (entry.Adopted.IsZero() || changedAfter(v, e.Record.AdoptedBy(&entry)))
	case entry.Content != t.Content():
		return true
	case !unread:
		return false
	case !entry.Adopted.IsZero() && (ranBefore(p, c, entry.Adopted) || !changedAndBack(v, e.Record.AdoptedBy(&entry))),
		!v.Since.IsZero() && !v.Since.After(entry.Adopted):
		return e.isMissed(j, p, c, v, &entry) // what it has not read was adopted, or was the reason for the last restart
	case v.State != judge.Stale && entry.Adopted.IsZero() && e.isProven(p, c, v): // for a leader that had no doubt
		return false
	default: // it has read other content since the last restart for this content
		return !e.isRestarted(p, c, v)
	}
}

// ranBefore reports whether a container had started long before a time of configdep's clock.
func ranBefore(p *dependency.Pod, c *dependency.PodContainer, at time.Time) bool {
	started := c.Started
	if started.IsZero() { // its kubelet does not know any longer
		started = p.Created
	}
	return started.Before(at.Add(-judge.ClockMargin))
}

// controllerTime is how long the controller of a custom resource may take to restart pods, until it is told again.
const controllerTime = 10 * time.Minute

// isMissed reports whether a container is still stale because the restart of the workload has not reached it: whatever the clock of its node says, its
// pod existed before the restart, and was not restarted in place.
func (e *Evaluation) isMissed(j *judge.Judge, p *dependency.Pod, c *dependency.PodContainer, v *judge.SourceVerdict, entry *record.Entry) bool {
	began, missed := e.missedBy(entry)
	inPlace := p.InPlace != nil && !p.InPlace.At.Before(began.Truncate(time.Second))
	return !began.IsZero() && v.State == judge.Stale && p.Created.Before(began) && c.Started.Before(began) && !inPlace && !j.Now.Before(missed)
}

// missedBy returns when the last restart began, if it is no rollout and adopted the content, and from when on an older pod counts as missed; zero: none
// does. A restart that names pods misses pods that were not known yet. Other clients can undo what tells a controller to restart, such as a field of the
// specification.
func (e *Evaluation) missedBy(entry *record.Entry) (began, missed time.Time) {
	began = e.restartedAt(entry)
	switch s := e.Policy.RestartsBy(e.Workload); {
	case began.IsZero(), s.MarksTemplate(), record.UnderWay(e.Workload) != nil:
		return time.Time{}, time.Time{}
	case record.IsOfKind(s):
		return began, began.Add(controllerTime)
	default:
		return began, began
	}
}

// restartedAt returns when the workload was last restarted, if the content was adopted with that; zero: it was not.
func (e *Evaluation) restartedAt(entry *record.Entry) time.Time {
	last := record.LastReloadOf(e.Workload)
	if last == nil || entry.Adopted.Unix() != last.Time.Unix() {
		return time.Time{}
	}
	return last.Time.Time
}

// isExcused reports whether a pod is about to be replaced: by the running rollout or, if the template has been written for the current content, by
// whatever unblocks that rollout. If the rollout is complete, the pod is already gone, which configdep has yet to read, or it is on a node where a
// DaemonSet should have none. But a DaemonSet keeps pods of an earlier template that is the current one again.
func (e *Evaluation) isExcused(j *judge.Judge, p *dependency.Pod) bool {
	w := e.Workload
	complete := w.Rollout.Phase == dependency.RolloutComplete
	if complete && w.PerNode {
		return j.IsOlder(p) && p.Hash != w.Marks.TemplateHash
	}
	return e.isOlder(j, p) && (w.Rollout.Phase == dependency.RolloutRunning || w.Marks.TemplateHash == e.Hash) || j.IsOlder(p) && complete
}

// RestartHelps reports whether pods are known to run with old content, and are not about to be replaced anyway.
func (e *Evaluation) RestartHelps(d *Decision) bool {
	return len(d.due) > 0 || e.superseded() != nil || record.UnderWay(e.Workload) == nil && d.Pods.Stale > d.Pods.excused
}

// isRestarted reports whether the workload was restarted for the current content after a container had started, or at about the same time if there are only
// doubts about it: another restart would change nothing, whether or not the pod is replaced.
func (e *Evaluation) isRestarted(p *dependency.Pod, c *dependency.PodContainer, v *judge.SourceVerdict) bool {
	r := &e.Record
	if r.For == "" || r.For != e.Workload.Marks.TemplateHash || changedAndBack(v, r.At) {
		return false
	}
	if v.State == judge.Stale { // long after it had started, or it would be in doubt
		return !c.Started.After(r.At.Add(-judge.ClockMargin))
	}
	started := c.Started
	if c.Restarts == 0 && p.Created.Before(started) { // it may have taken long to start
		started = p.Created
	}
	return !started.After(r.At.Add(judge.ClockMargin))
}

// isProven reports whether a container was already running when a record about all pods was made, and the source has not changed since.
func (e *Evaluation) isProven(p *dependency.Pod, c *dependency.PodContainer, v *judge.SourceVerdict) bool {
	r := &e.Record
	return r.For == "" && !c.Started.IsZero() && c.Started.Before(r.At) && p.Created.Before(r.At) && !changedAndBack(v, r.At)
}

// changedAfter reports whether the source was seen to change after a time of configdep's clock.
func changedAfter(v *judge.SourceVerdict, at time.Time) bool {
	return len(v.Periods) > 0 && v.Periods[len(v.Periods)-1].Before.After(at)
}

// seenAfter is the age from which a leader that makes a record has certainly seen a change, even if watches lag.
const seenAfter = 4 * time.Second

// changedAndBack reports whether a source was seen to change, and to change back, after its content was recorded. A single change was made before that
// and seen late. So were all of them if the last write is older by the API server's clock.
func changedAndBack(v *judge.SourceVerdict, at time.Time) bool {
	n := len(v.Periods)
	if n < 2 || !v.Periods[n-2].Before.After(at) {
		return false
	}
	written := v.Periods[n-1].Written
	return written.IsZero() || !written.Before(at.Add(-seenAfter))
}

// isOlder reports whether a pod has an older template than the current one, as far as that is known.
func (e *Evaluation) isOlder(j *judge.Judge, p *dependency.Pod) bool {
	hash := e.Workload.Marks.TemplateHash
	return j.IsOlder(p) || j.Revision == "" && hash != "" && p.Hash != hash
}

// scopeIn returns the scope in Entry.Content.
func scopeIn(content string) string {
	for i := range content {
		if content[i] == '.' {
			return content[:i]
		}
	}
	return content
}

// isIgnored reports whether a source has only appeared or disappeared since it was recorded, which the policy does not count as a change. Entry is nil if
// the source is not recorded, because only a glob names it.
func (t *tracked) isIgnored(entry *record.Entry) bool {
	p := &t.of.Policy
	if entry == nil {
		return p.IgnoreCreated && t.matched
	}
	return t.isGone() || p.IgnoreCreated && t.source != nil && entry.Content == t.absent()
}

// isGone reports whether the source is absent, which is no change.
func (t *tracked) isGone() bool { return (t.of.Policy.IgnoreDeleted || t.awaited) && t.gone() }

// Next returns the record that the workload should have if nothing is to be restarted, and whether it differs from the current one.
func (e *Evaluation) Next(j *Judgement, now time.Time) (next record.Record, changed bool) {
	r, scope := &e.Record, e.scope()
	adopts := !e.Comparable() || r.Scope != scope
	w := e.Workload
	older := j.older || w.Paused && w.Rollout.Phase != dependency.RolloutComplete // no ReplicaSet says what the template is
	allSeen := w.UnknownPods || j.Total >= int(w.Replicas) && !j.waiting && !j.limited && !older && w.Rollout.Reason != dependency.ReasonNotObserved
	changed = adopts || e.Workload.RecordDropped
	next = record.Record{Hash: e.Hash, At: now, Scope: scope, Sources: make(map[string]record.Entry, len(e.tracked))}
	for i := range e.tracked {
		t := &e.tracked[i]
		entry, known := r.Sources[t.id]
		known = known && e.Comparable()
		proven := allSeen && !j.unread[t.id]
		switch {
		case t.matched && t.gone() && !e.Policy.IgnoreDeleted: // it is remembered until pods have read its absence
			if !known || proven {
				changed = changed || known
				continue
			}
		case known && entry.Content == t.Content() && !proven && !adopts && r.For != "": // the rollout has yet to replace pods, or has been reverted
			return *r, e.Workload.RecordDropped
		case known && entry.Content == t.Content():
			if !proven && entry.Adopted.IsZero() {
				entry.Adopted = r.At
			} else if proven {
				changed = changed || !e.restartedAt(&entry).IsZero() && !e.byRecord(j)
				entry.Adopted = time.Time{}
			}
		case known && t.isGone():
		case proven:
			entry, changed = record.Entry{Content: t.Content()}, true
		case known && t.isIgnored(&entry), !known && t.isIgnored(nil), adopts && (!known || scopeIn(entry.Content) != scopeIn(t.Content())): // it begins to count
			entry, changed = record.Entry{Content: t.Content(), Adopted: now}, true
		case !known: // it is told by the pods, once they have read it
			continue
		default: // pods have yet to read it, so that the record is still about earlier content
			return *r, e.Workload.RecordDropped
		}
		next.Sources[t.id] = entry
	}
	for id := range r.Sources {
		if _, kept := next.Sources[id]; !kept && !slices.ContainsFunc(e.tracked, func(t tracked) bool { return t.id == id }) {
			changed = true
		}
	}
	return next, changed
}

// nextWithoutMissing returns the first record of a workload, without missing sources: once they exist, the pods tell what they have read.
func (e *Evaluation) nextWithoutMissing(j *Judgement, now time.Time) record.Record {
	next, _ := e.Next(j, now)
	for i := range e.Sources {
		if s := &e.Sources[i]; s.Missing && s.tracked != nil {
			delete(next.Sources, s.tracked.id)
		}
	}
	return next
}

// Present returns the record which says that the pods run with the current content.
func (e *Evaluation) Present() record.Record {
	r := record.Record{Hash: e.Hash, Scope: e.scope(), Sources: make(map[string]record.Entry, len(e.tracked))}
	for i := range e.tracked {
		t := &e.tracked[i]
		entry, known := e.Record.Sources[t.id]
		switch known = known && e.Comparable(); {
		case t.awaited && !known: // its absence is no content
		case t.matched && t.gone() && !e.Policy.IgnoreDeleted:
		case known && t.isGone():
			r.Sources[t.id] = entry // what comes back is compared with it
		default:
			r.Sources[t.id] = record.Entry{Content: t.Content()}
		}
	}
	return r
}
