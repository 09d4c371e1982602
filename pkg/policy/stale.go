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
		ids = append(ids, changed[i].id)
	}
	if len(ids) == 0 && e.recreating() && !e.Policy.Recreates() {
		ids = []string{TriggerUnknown} // with what some pods were started that were not evicted
	}
	return ids, e.Record.Hash != "" && sameKey(e.Record.Hash, e.Hash)
}

// stale returns what has changed since the pods were started, and which of it to name as
// the trigger.
func (e *Evaluation) stale() (changed []change, trigger string) {
	r := &e.Record
	switch {
	case r.Hash == "":
		changed = e.changedAfterStart()
	case !sameKey(r.Hash, e.Hash) || r.Hash == e.Hash:
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
	return changed, changed[0].id
}

// unread drops the changes after which the pods are known to have started: they have read
// them.
func (e *Evaluation) unread(changes []change) []change {
	return slices.DeleteFunc(slices.Clone(changes), func(c change) bool {
		return e.Workload.StartVersion > c.version
	})
}

// changed returns the units whose content differs from the record. Those that the record
// does not know, or knows by other keys, were adopted or came with a change of the policy;
// or with one of the template, after which they can have changed as well.
func (e *Evaluation) changed() (changed []change) {
	fresh := e.Workload.RecordVersion < e.Workload.StartVersion
	for i := range e.units {
		switch u := &e.units[i]; {
		case e.differs(u):
			changed = append(changed, e.change(u))
		case fresh && !e.knows(u) && e.writtenAfterStart(u):
			if c, after := e.changeAfterStart(u); after {
				changed = append(changed, c)
			}
		}
	}
	return changed
}

// changedAfterStart returns changes that pods cannot have read although nothing is
// recorded.
func (e *Evaluation) changedAfterStart() (changed []change) {
	for i := range e.units {
		if c, after := e.changeAfterStart(&e.units[i]); after {
			changed = append(changed, c)
		}
	}
	return changed
}

// knows tells whether the record knows a unit, by the same keys.
func (e *Evaluation) knows(u *unit) bool {
	before, known := e.Record.Sources[u.id]
	scope, _, _ := strings.Cut(before, ".")
	return known && scope == u.scope
}

func (e *Evaluation) differs(u *unit) bool {
	return e.knows(u) && e.Record.Sources[u.id] != u.entry()
}

// adopted is the version of what pods have read, or are taken to have read, of what is not
// recorded: what was there when they started, and when the workload opted in. 0: nobody saw
// that.
func (e *Evaluation) adopted() uint64 {
	if e.Workload.StartVersion == 0 {
		return 0
	}
	return max(e.Workload.StartVersion, e.Workload.OptedVersion)
}

// changeAfterStart returns the change of a unit, and whether pods were seen to start before
// it.
func (e *Evaluation) changeAfterStart(u *unit) (c change, after bool) {
	c = e.change(u)
	c.written = time.Time{} // it may be that a key has gone, which leaves no time behind
	adopted := e.adopted()
	return c, adopted > 0 && !c.seen.IsZero() && c.version >= adopted
}

// writtenAfterStart tells whether one of the very keys of a unit, of those that are there,
// may have been written after that.
func (e *Evaluation) writtenAfterStart(u *unit) bool {
	return slices.ContainsFunc(u.references, func(r dependency.Reference) bool {
		return e.graph.LastWritten(e.Workload.Namespace, &r) >= e.adopted()
	})
}

// change is what is known of the change of a unit.
type change struct {
	id string
	// version is an upper bound of when, as a resourceVersion; seen is when this process
	// saw it, and written when clients last wrote the content. The last two are zero when
	// they are not known.
	version       uint64
	seen, written time.Time
}

func (c *change) at(last dependency.Change) {
	c.version, c.seen = max(c.version, last.Version), later(c.seen, last.Seen)
}

func (e *Evaluation) change(u *unit) change {
	c := change{id: u.id}
	// What vanishes leaves no time behind: neither a source, nor a key, whose removal no
	// field manager is noted for.
	before, remembered := e.Record.Sources[u.id]
	known := u.glob == nil && (!remembered || !u.hadMoreKeys(before))
	for i := range u.references {
		r := &u.references[i]
		c.at(e.graph.LastChange(e.sourceKey(r)))
		if source := e.graph.Source(e.sourceKey(r)); source != nil {
			c.written = later(c.written, source.LastChanged.Time)
		} else {
			known = false
		}
	}
	if u.glob != nil {
		c.at(e.graph.LastGone(e.Workload.Namespace, *u.glob, e.Policy.Exclude))
	}
	if !known {
		c.written = time.Time{}
	}
	return c
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
