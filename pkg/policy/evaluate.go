package policy

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
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
	glob       *dependency.Pattern    // nil: a source
	scope      string                 // which keys count
	digest     string                 // what the pods read of them; empty: a glob that names nothing
	keys       int                    // how many of them there are
	references []dependency.Reference // narrowed to what counts
	others     []string               // sources that the glob names and that do not belong to it
}

// entry is what a record remembers of the unit.
func (u *unit) entry() string {
	if u.digest == "" {
		return u.scope + "."
	}
	return u.scope + "." + u.digest + "." + strconv.Itoa(u.keys)
}

// hadMoreKeys tells whether an entry was made when there were more keys than now, or may
// have been.
func (u *unit) hadMoreKeys(entry string) bool {
	n, err := strconv.Atoi(entry[strings.LastIndexByte(entry, '.')+1:])
	return err != nil || n > u.keys
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
	globs := e.globs()
	var counted []dependency.Reference
	for i := range references {
		r := &references[i]
		source := lookup(r.Kind, r.Name)
		s := &e.Sources[i]
		s.Reference, s.Resolution = r, dependency.Resolve(r, source)
		_, remembered := e.Record.Sources[idOf(r.Kind, r.Name)]
		s.Triggers, s.Reason = counting.verdict(r, source, remembered)
		if s.Triggers {
			effective := counting.effective(r)
			counted = append(counted, effective)
			e.count(effective, source != nil, globs)
		} else if s.Reason != ReasonExcluded { // the patterns that exclude are in the scope already
			setApart(r, globs)
		}
		if p.Mode == Off && s.Triggers {
			s.Triggers, s.Reason = false, ReasonReloadOff
		}
	}
	for i := range globs {
		globs[i].scope = e.Policy.globScope(&globs[i])
	}
	e.units = append(e.units, globs...)
	for i := range e.units {
		e.units[i].digestContent(digester, lookup)
	}
	e.Hash = digester.ConfigHash(counted, lookup, nil)
	return e
}

func idOf(kind dependency.SourceKind, name string) string { return string(kind) + "/" + name }

// globs returns a unit for each glob of the policy.
func (e *Evaluation) globs() (globs []unit) {
	for i := range e.Policy.Sources {
		if p := &e.Policy.Sources[i]; p.Glob() {
			globs = append(globs, unit{id: idOf(p.Kind, p.Name), glob: p})
		}
	}
	return globs
}

// count adds a reference to the units that remember it. A source that only annotations
// name belongs, while it is there, to each glob that does, and has a unit of its own if
// it is named without one: an edit of one of them changes nothing for the others.
func (e *Evaluation) count(r dependency.Reference, there bool, globs []unit) {
	own := !onlyAnnotated(&r)
	if own {
		setApart(&r, globs)
	} else {
		matched := false
		for i := range globs {
			if u := &globs[i]; there && u.glob.Matches(r.Kind, r.Name) {
				u.references = append(u.references, r)
				matched = true
			}
		}
		own = !matched || slices.Contains(e.Policy.Sources, dependency.Pattern{Kind: r.Kind, Name: r.Name})
	}
	if own {
		e.units = append(e.units, unit{id: idOf(r.Kind, r.Name), scope: scopeOf(&r), references: []dependency.Reference{r}})
	}
}

// setApart notes a source for the globs that name it and to which it does not belong.
func setApart(r *dependency.Reference, globs []unit) {
	for i := range globs {
		if u := &globs[i]; u.glob.Matches(r.Kind, r.Name) {
			u.others = append(u.others, r.Name)
		}
	}
}

func (u *unit) digestContent(digester *dependency.Digester, lookup func(dependency.SourceKind, string) *dependency.Source) {
	if len(u.references) == 0 {
		return
	}
	hash := digester.ConfigHash(u.references, lookup, nil)
	u.digest = hash[strings.LastIndexByte(hash, '.')+1:][:16]
	for i := range u.references {
		r := &u.references[i]
		u.keys += keysThere(r, lookup(r.Kind, r.Name))
	}
}

// keysThere returns how many of the keys that count there are.
func keysThere(r *dependency.Reference, source *dependency.Source) (n int) {
	if source == nil {
		return 0
	}
	keys, all := r.Keys()
	if all {
		return len(source.Keys)
	}
	for _, key := range keys {
		if source.Has(key) {
			n++
		}
	}
	return n
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

// globScope is the scope of a glob: what does not belong to it.
func (p *Policy) globScope(u *unit) string {
	excluded := u.others
	for _, x := range p.Exclude {
		if x.Kind == u.glob.Kind {
			excluded = append(excluded, x.Name)
		}
	}
	if excluded == nil {
		return "glob"
	}
	slices.Sort(excluded)
	h := fnv.New32a()
	for _, name := range excluded {
		fmt.Fprintf(h, "%s\x00", name)
	}
	return fmt.Sprintf("glob-%08x", h.Sum32())
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

// Present returns the record that says: the pods run with the present content. A glob
// that names nothing is remembered too, so that the first match is a change.
func (e *Evaluation) Present() Record {
	r := Record{Hash: e.Hash, Sources: make(map[string]string, len(e.units))}
	for i := range e.units {
		r.Sources[e.units[i].id] = e.units[i].entry()
	}
	return r
}

// changed returns the units whose content differs from the record. Those that the record
// does not know, or knows by other keys, were adopted or came with a change of the policy;
// or with one of the template, after which they can have changed as well.
func (e *Evaluation) changed() []change {
	var changed []change
	fresh := e.Workload.RecordVersion < e.Workload.StartVersion
	for i := range e.units {
		switch u := &e.units[i]; {
		case e.differs(u):
			changed = append(changed, e.change(u))
		case fresh && !e.knows(u) && e.writtenAfterStart(u):
			c, _ := e.changeAfterStart(u)
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

// change is what is known of the change of a unit.
type change struct {
	id string
	// version is an upper bound of when, as a resourceVersion; seen is when this process
	// saw it, and written when clients last wrote the content. The last two are zero when
	// they are not known.
	version       uint64
	seen, written time.Time
}

func (e *Evaluation) change(u *unit) change {
	c := change{id: u.id}
	// What vanishes leaves no time behind: neither a source, nor a key, whose removal no
	// field manager is noted for.
	before, remembered := e.Record.Sources[u.id]
	known := u.glob == nil && (!remembered || !u.hadMoreKeys(before))
	for i := range u.references {
		r := &u.references[i]
		c.at(e.lastChange(r))
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

func (c *change) at(last dependency.Change) {
	c.version, c.seen = max(c.version, last.Version), later(c.seen, last.Seen)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
