package policy

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
)

// Source is one source of a workload as its policy sees it.
type Source struct {
	*dependency.Reference
	dependency.Resolution
	// Triggers tells whether a change restarts the workload; Reason why it does not.
	Triggers bool
	Reason   string
}

// unit is what a record remembers as one: a source, or all that a glob names besides, so
// that one of them that appears or vanishes is a change.
type unit struct {
	id         string
	scope      string                 // which keys count
	digest     string                 // what the pods read of them
	references []dependency.Reference // narrowed to what counts
}

// Evaluation is a workload seen through its policy and the present content.
type Evaluation struct {
	Workload *dependency.Workload
	Policy   Policy
	Sources  []Source
	// Hash stands for the content of all sources that trigger; in mode Off, of those that
	// would in mode Auto.
	Hash string
	// Record is what the workload remembers of its pods' start.
	Record Record

	graph *dependency.Graph
	units []unit
}

// Evaluate applies the policy in force to a workload. The evaluation must not be used
// after the graph has changed.
func Evaluate(g *dependency.Graph, digester *dependency.Digester, w *dependency.Workload, defaults Defaults) *Evaluation {
	p := Of(w.Annotations, g.Namespace(w.Namespace), defaults)
	e := &Evaluation{Workload: w, Policy: p, Record: RecordOf(w), graph: g}
	counting := p // in mode Off nothing triggers, but the hash still says something
	if p.Mode == Off {
		counting.Mode = Auto
	}
	references := g.References(w, p.Sources)
	lookup := g.Sources(w.Namespace)
	e.Sources = make([]Source, len(references))
	var counted []dependency.Reference
	for i := range references {
		r := &references[i]
		source := lookup(r.Kind, r.Name)
		s := &e.Sources[i]
		s.Reference, s.Resolution = r, dependency.Resolve(r, source)
		s.Triggers, s.Reason = counting.verdict(r, source)
		if s.Triggers {
			effective := counting.effective(r)
			counted = append(counted, effective)
			e.count(effective)
		}
		if p.Mode == Off && s.Triggers {
			s.Triggers, s.Reason = false, ReasonReloadOff
		}
	}
	for i := range e.units {
		u := &e.units[i]
		hash := digester.ConfigHash(u.references, lookup, nil)
		u.digest = hash[strings.LastIndexByte(hash, '.')+1:][:16]
	}
	e.Hash = digester.ConfigHash(counted, lookup, nil)
	return e
}

// count adds a reference to the unit that remembers it.
func (e *Evaluation) count(r dependency.Reference) {
	id, scope := string(r.Kind)+"/"+r.Name, scopeOf(&r)
	if onlyAnnotated(&r) {
		for _, p := range e.Policy.Sources {
			if p.Glob() && p.Matches(r.Kind, r.Name) {
				id, scope = string(p.Kind)+"/"+p.Name, "glob"
				break
			}
		}
	}
	for i := range e.units {
		if e.units[i].id == id {
			e.units[i].references = append(e.units[i].references, r)
			return
		}
	}
	e.units = append(e.units, unit{id: id, scope: scope, references: []dependency.Reference{r}})
}

func onlyAnnotated(r *dependency.Reference) bool {
	return len(r.Uses) == 1 && r.Uses[0].Type == dependency.Annotation
}

// scopeOf stands for the keys that count, so that a change of the policy or the template
// is not taken for one of the content.
func scopeOf(r *dependency.Reference) string {
	keys, all := r.Keys()
	if all {
		return "*"
	}
	h := fnv.New32a()
	for _, key := range keys {
		fmt.Fprintf(h, "%s\x00", key)
	}
	return fmt.Sprintf("%08x", h.Sum32())
}

// Missing names the sources and keys without which new pods do not start, each in a
// clause; absent tells that a whole source is among them.
func (e *Evaluation) Missing() (clauses []string, absent bool) {
	for i := range e.Sources {
		s := &e.Sources[i]
		switch {
		case len(s.MissingKeys) > 0:
			clauses = append(clauses, fmt.Sprintf("%s %s lacks %s", s.Kind, s.Name, strings.Join(s.MissingKeys, ", ")))
		case s.Missing:
			clauses = append(clauses, fmt.Sprintf("%s %s is missing", s.Kind, s.Name))
			absent = true
		}
	}
	return clauses, absent
}

// Present returns the record that says: the pods run with the present content.
func (e *Evaluation) Present() Record {
	r := Record{Hash: e.Hash, Sources: make(map[string]string, len(e.units))}
	for i := range e.units {
		u := &e.units[i]
		r.Sources[u.id] = u.scope + "." + u.digest
	}
	// A glob that names nothing is remembered too, so that the first match is a change.
	for _, p := range e.Policy.Sources {
		if id := string(p.Kind) + "/" + p.Name; p.Glob() && r.Sources[id] == "" {
			r.Sources[id] = "glob."
		}
	}
	return r
}

// changed returns the units whose content differs from the record. Those that the record
// does not know, or knows by other keys, have not changed: they were adopted, or came
// with a change of the template or the policy.
func (e *Evaluation) changed() []change {
	var changed []change
	present := e.Present()
	for i := range e.units {
		u := &e.units[i]
		if e.differs(u.id, present.Sources[u.id]) {
			changed = append(changed, e.change(u.id, u.references))
		}
	}
	for _, p := range e.Policy.Sources {
		id := string(p.Kind) + "/" + p.Name
		if p.Glob() && present.Sources[id] == "glob." && e.differs(id, "glob.") {
			changed = append(changed, change{id: id}) // the last match has gone
		}
	}
	return changed
}

func (e *Evaluation) differs(id, now string) bool {
	before, known := e.Record.Sources[id]
	scopeBefore, _, _ := strings.Cut(before, ".")
	scopeNow, _, _ := strings.Cut(now, ".")
	return known && scopeBefore == scopeNow && before != now
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

func (e *Evaluation) change(id string, references []dependency.Reference) change {
	c := change{id: id}
	known := true
	for i := range references {
		key := dependency.SourceKey{Kind: references[i].Kind, Namespace: e.Workload.Namespace, Name: references[i].Name}
		last := e.graph.LastChange(key)
		c.version = max(c.version, last.Version)
		c.seen = later(c.seen, last.Seen)
		if source := e.graph.Source(key); source != nil {
			c.written = later(c.written, source.LastChanged.Time)
		} else {
			known = false // when it was deleted is written nowhere
		}
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
