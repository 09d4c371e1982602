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
		ids = append(ids, changed[i].unit.id)
	}
	if len(ids) == 0 && e.recreating() && !e.Policy.Recreates() {
		ids = []string{TriggerUnknown} // with what some pods were started that were not evicted
	}
	return ids, e.comparable()
}

// stale returns what has changed since the pods were started, and which of it to name as
// the trigger.
func (e *Evaluation) stale() (changed []change, trigger string) {
	r := &e.Record
	switch {
	case !e.comparable():
		changed = e.changedUnrecorded()
	case r.Sources == nil && r.Hash == e.Hash:
	case r.Sources == nil:
		// Only the hash is left, so that it cannot be told which source has changed.
		for i := range e.units {
			changed = append(changed, e.change(&e.units[i]))
		}
		if len(e.unread(changed)) == 0 {
			return nil, ""
		}
		return changed, TriggerUnknown
	default:
		changed = e.changed()
	}
	changed = e.unread(changed)
	if len(changed) == 0 {
		return nil, ""
	}
	return changed, changed[0].unit.id
}

// comparable reports whether there is a record that can be compared with what is there.
func (e *Evaluation) comparable() bool {
	return e.Record.Hash != "" && sameKey(e.Record.Hash, e.Hash)
}

// InDoubt reports whether it is not known with which content the pods were started: nothing
// is recorded, or pods have to be looked up.
func (e *Evaluation) InDoubt() bool {
	return !e.comparable() || len(e.doubts()) > 0 || len(e.excursions(dependency.Moment{})) > 0
}

// unread drops the changes that the pods are known to have read, because they started after
// them, or that were adopted.
func (e *Evaluation) unread(changes []change) []change {
	return slices.DeleteFunc(slices.Clone(changes), func(c change) bool {
		if e.recordedMixed(c.unit) && !e.outdated(c.unit) && !e.broughtBack(c.unit) {
			return false
		}
		return e.started(c.unit) > c.at.Version || e.adoptedByWebhook(c.at)
	})
}

// recordedMixed reports whether pods were found to be started with different content.
func (e *Evaluation) recordedMixed(u *unit) bool {
	return e.Record.Sources[u.id] == u.mixedEntry()
}

// broughtBack reports whether the record came in the same write as the template, as kubectl
// rollout undo restores both, and no pod of the template may be older: then it says nothing of
// the pods.
func (e *Evaluation) broughtBack(u *unit) bool {
	return !e.Workload.StartUnsure && e.Workload.RecordedAt.Version > 0 && e.Workload.RecordedAt.Version <= e.started(u)
}

// adoptedByWebhook reports whether something happened before the workload opted in and was
// recorded in the same write: by the webhook of a replica that had not read it yet.
func (e *Evaluation) adoptedByWebhook(at dependency.Moment) bool {
	w := e.Workload
	return w.OptedAt.Version > 0 && w.OptedAt == w.RecordedAt && e.graph.Before(at, w.OptedAt)
}

// started returns a lower bound of when the first of the containers that read a unit
// started, as a resourceVersion; 0: it is not known.
func (e *Evaluation) started(u *unit) uint64 {
	if u.start == nil {
		u.start = new(e.findStart(u))
	}
	return *u.start
}

func (e *Evaluation) findStart(u *unit) uint64 {
	if e.graph.SeveralCounters() {
		return 0
	}
	least, found := uint64(0), false
	for i := range u.references {
		r := &u.references[i]
		for j := range r.Uses {
			if !r.Uses[j].Reads() {
				continue
			}
			if start := e.graph.Started(e.Workload, &r.Uses[j]); !found || start < least {
				least, found = start, true
			}
		}
	}
	if !found { // a glob that names nothing
		return e.Workload.StartVersion
	}
	return least
}

// outdated reports whether the record was written before the pods were started, so that it
// says nothing of them.
func (e *Evaluation) outdated(u *unit) bool { return e.Workload.RecordedAt.Version < e.started(u) }

// changed returns the units whose content differs from what is recorded of the pods, or has
// changed after they started, or after it began to count.
func (e *Evaluation) changed() (changed []change) {
	for i := range e.units {
		u := &e.units[i]
		var found bool
		switch {
		case !e.knows(u):
			since := e.markedAt(u)
			if !e.countedBefore(u) {
				since = e.graph.Latest(since, e.Workload.ScopedAt)
			}
			found = e.changedAfter(u, since, e.Workload.RecordedAt)
		case e.outdated(u):
			found = e.changedAfter(u)
		default:
			found = e.differs(u)
		}
		if found {
			changed = append(changed, e.change(u))
		}
	}
	return changed
}

// changedUnrecorded returns changes that pods cannot have read although nothing is recorded:
// those after the pods started, the workload opted in, and this process began to look.
func (e *Evaluation) changedUnrecorded() (changed []change) {
	for i := range e.units {
		if u := &e.units[i]; e.changedAfter(u, e.Workload.OptedAt) {
			c := e.change(u)
			c.written = time.Time{} // it may be that a key has gone, which leaves no time behind
			changed = append(changed, c)
		}
	}
	return changed
}

// changedAfter reports whether this process saw a unit change after its pods had started and
// after some moments.
func (e *Evaluation) changedAfter(u *unit, moments ...dependency.Moment) bool {
	c := e.change(u)
	moments = append(moments, e.graph.Since())
	return !c.seen.IsZero() && e.graph.Before(e.graph.Latest(moments...), c.at) && e.started(u) <= c.at.Version
}

// markedAt returns when an annotation of a source last said whether it counts.
func (e *Evaluation) markedAt(u *unit) (at dependency.Moment) {
	for i := range u.references {
		if s := e.graph.Source(e.sourceKey(&u.references[i])); s != nil {
			at = e.graph.Latest(at, s.IgnoredAt)
			if e.Policy.Mode == Matched {
				at = e.graph.Latest(at, s.MatchAt)
			}
		}
	}
	return at
}

// knows reports whether the record knows a unit, by the same keys.
func (e *Evaluation) knows(u *unit) bool {
	before, known := e.Record.Sources[u.id]
	scope, _, _ := strings.Cut(before, ".")
	return known && scope == u.scope
}

func (e *Evaluation) differs(u *unit) bool {
	return e.knows(u) && !u.says(e.Record.Sources[u.id])
}

// Excursion is a time in which content was other than now. Containers that were started in it
// have read something else: when content changed and changed back, those between; when it
// changed before a rollback to pods that may never have been replaced, all before.
type Excursion struct {
	// ID names the source or the glob.
	ID string
	// From is when it began, zero if that is not known, and To when it ended.
	From, To time.Time
	// Containers are those that read it; nil: any may.
	Containers []string
	// OlderPods: only pods that are older than the current template may have been started in it.
	OlderPods bool
}

func (x Excursion) same(other Excursion) bool {
	return x.ID == other.ID && x.From.Equal(other.From) && x.To.Equal(other.To) && x.OlderPods == other.OlderPods
}

// doubts returns what has changed since it was last recorded and is thought to have been read,
// because the pods were started after that, although some may be older.
func (e *Evaluation) doubts() (out []Excursion) {
	if !e.Workload.StartUnsure {
		return nil
	}
	// Pods of a template that carries the hash were created when the content was there. Their
	// containers may have been restarted in place since, if it was other content in between.
	stamped := e.Workload.TemplateAnnotations[ConfigHashAnnotation] == e.Hash
	for i := range e.units {
		u := &e.units[i]
		c := e.change(u)
		known := e.graph.Latest(e.Workload.CreatedAt, e.graph.Since())
		if !e.comparable() { // else opting in adopts nothing
			known = e.graph.Latest(known, e.Workload.OptedAt)
		}
		// A record of the write that brought the template back is as old as that.
		if e.Workload.RecordedAt.Version > e.Workload.StartVersion {
			known = e.graph.Latest(known, e.Workload.RecordedAt)
		}
		seen := !c.seen.IsZero() && e.graph.Before(known, c.at)
		// Or the record tells of it, and is older than the template, as those pods may be.
		recorded := e.comparable() && e.outdated(u) && e.differs(u)
		if !seen && !recorded || e.started(u) <= c.at.Version {
			continue
		}
		x := Excursion{ID: u.id, To: later(c.seen, c.written), Containers: u.containers(), OlderPods: true}
		if x.To.IsZero() { // it went while no template named it
			x.To = e.Workload.TemplateWritten
		}
		if stamped {
			times := 0
			for j := range u.references {
				first, _, n := e.graph.ChangedSince(e.sourceKey(&u.references[j]), known)
				if times += n; u.glob == nil {
					x.From = first
				}
			}
			if times < 2 {
				continue
			}
		}
		out = append(out, x)
	}
	return out
}

// containers returns those that read a unit; nil: any may.
func (u *unit) containers() (names []string) {
	if u.glob != nil {
		return nil
	}
	for i := range u.references {
		r := &u.references[i]
		for j := range r.Uses {
			if use := &r.Uses[j]; use.Reads() && use.Container != "" {
				names = append(names, use.Container)
			}
		}
	}
	return names
}

// excursions returns what has changed and changed back since the record was written.
func (e *Evaluation) excursions(decided dependency.Moment) (out []Excursion) {
	if !e.comparable() || e.Record.Sources == nil {
		return nil
	}
	vouched := e.Workload.RecordedAt
	if decided != (dependency.Moment{}) {
		vouched = decided
	}
	vouched = e.graph.Latest(vouched, e.graph.Since())
	for i := range e.units {
		u := &e.units[i]
		if !e.knows(u) || e.differs(u) || e.outdated(u) {
			continue
		}
		c := e.change(u)
		if c.seen.IsZero() || !e.graph.Before(vouched, c.at) {
			continue
		}
		if e.started(u) > c.at.Version && !e.Workload.StartUnsure {
			continue // it was over when the pods started
		}
		x := Excursion{ID: u.id, To: c.seen, Containers: u.containers()}
		times := 0
		for j := range u.references {
			r := &u.references[j]
			first, last, n := e.graph.ChangedSince(e.sourceKey(r), vouched)
			times += n
			if u.glob == nil { // of one source
				x.From = first
			}
			x.To = later(x.To, last)
		}
		if times < 2 && e.graph.SeveralCounters() && decided == (dependency.Moment{}) {
			continue // the change that the record was made for was read after it
		}
		out = append(out, x)
	}
	return out
}

// change is what is known of the change of a unit.
type change struct {
	unit *unit
	// at is an upper bound of when; seen is when this process saw it, and written when
	// clients last wrote the content. The last two are zero when they are not known.
	at            dependency.Moment
	seen, written time.Time
}

func (e *Evaluation) change(u *unit) change {
	if u.changed == nil {
		u.changed = new(e.findChange(u))
	}
	return *u.changed
}

func (e *Evaluation) findChange(u *unit) change {
	c := change{unit: u}
	// What vanishes leaves no time behind: neither a source, nor a key, whose removal no
	// field manager is noted for.
	known := u.glob == nil && (!e.knows(u) || !u.hadMoreKeys(e.Record.Sources[u.id]))
	for i := range u.references {
		r := e.lookUp(u.counted[i])
		c.at = e.graph.Latest(c.at, r.written)
		last := r.last
		c.seen = later(c.seen, last.Seen)
		if u.glob != nil { // that there is a source with its name counts as well
			c.at = e.graph.Latest(c.at, last.Moment())
		}
		if r.source != nil {
			c.written = later(c.written, r.source.LastChanged.Time)
		} else {
			known = false
		}
	}
	if u.glob != nil {
		gone := e.lastGone(u)
		c.at = e.graph.Latest(c.at, gone.Moment())
		c.seen = later(c.seen, gone.Seen)
	}
	if !known {
		c.written = time.Time{}
	}
	return c
}

// lastGone returns when the last of the sources that belonged to a glob went, as far as is known.
func (e *Evaluation) lastGone(u *unit) dependency.Change {
	if !e.goneSeen {
		e.goneSeen = true
		var globs []dependency.Pattern
		var units []*unit
		for i := range e.units {
			if u := &e.units[i]; u.glob != nil {
				globs, units = append(globs, *u.glob), append(units, u)
			}
		}
		for i, gone := range e.graph.LastGone(e.Workload.Namespace, globs, e.Policy.Exclude) {
			units[i].gone = gone
		}
	}
	return u.gone
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// LastChange returns when the content last changed, as far as is known.
func (e *Evaluation) LastChange() dependency.Moment {
	last := e.graph.Since()
	for i := range e.units {
		c := e.change(&e.units[i])
		last = e.graph.Latest(last, c.at)
	}
	return last
}

func (e *Evaluation) sourceKey(r *dependency.Reference) dependency.SourceKey {
	return dependency.SourceKey{Kind: r.Kind, Namespace: e.Workload.Namespace, Name: r.Name}
}
