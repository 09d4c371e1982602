// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/configdep/configdep/pkg/dependency"
)

// Source is one source of a workload as its policy sees it.
type Source struct {
	*dependency.Reference
	dependency.Resolution
	// Triggers reports whether a change restarts the workload; Reason why it does not.
	Triggers bool
	Reason   string
	// DeclaredBy is the annotation that names or excludes the source, or selects the sources of its kind; empty: it is
	// that of the policy.
	DeclaredBy string
	// unseen: a change would, if it was seen.
	unseen bool
}

// Glob is a glob of the policy, with the sources that it names, except those that the template
// reads.
type Glob struct {
	dependency.Pattern
	*dependency.Matched
	// Observed reports whether sources of its kind are read. If not, the glob names none.
	Observed bool
	expanded bool // see trackedSource
}

// Evaluation is a workload seen through its policy and the current content.
type Evaluation struct {
	Workload *dependency.Workload
	Policy   Policy
	Sources  []Source // by kind and name
	Globs    []Glob   // by kind and name
	// Hash is a hash of the content of all sources that trigger restarts; in mode Off, of
	// those that would in mode Auto.
	Hash string
	// Record is the workload's record of the content with which its pods were started.
	Record Record
	// Agents is what the config agents of the pods say.
	Agents Agents

	graph    *dependency.Graph
	defaults Defaults
	tracked  []trackedSource
	before   *scope // nil: it has not been asked for
	recalls  bool   // whether an absent source counts depends on whether this process saw its mark
	// See Observed.
	decided, written uint64
	known            known
}

// known is what follows from an evaluation and what was observed; nil: not computed yet.
type known struct {
	stale     *[]change
	inquiries *[]Excursion
}

// Evaluator applies policies to the workloads of a graph. It must not be used after the graph has changed.
type Evaluator struct {
	Graph *dependency.Graph
	// Defaults are the policy of workloads without annotations.
	Defaults Defaults
}

// Index gives access to what is known of the cluster. Read calls f with the current graph, which f must neither change
// nor keep; it returns false, without a call, while the graph does not equal the cluster.
type Index interface {
	Read(f func(Evaluator)) bool
}

// Evaluate applies the effective policy to a workload.
func (v Evaluator) Evaluate(w *dependency.Workload) *Evaluation {
	e := v.Prepare(w)
	e.Complete()
	return e
}

// Prepare is the part of Evaluate that depends on annotations only, and whose cost is proportional to them: the
// policy and the record. Sources, Globs, Hash and Agents are set by Complete.
func (v Evaluator) Prepare(w *dependency.Workload) *Evaluation {
	g := v.Graph
	e := &Evaluation{Workload: w, Record: RecordOf(w), graph: g, defaults: v.Defaults}
	p := &e.Policy // not a copy, which would be allocated, too
	p.declare(annotated(w, g.NamespaceOf(w)), &e.defaults)
	if g.SelectedByLabel() { // a source may only have got the label, or lost it
		p.IgnoreCreated, p.IgnoreDeleted = true, true
	}
	p.bound(len(w.References))
	if len(p.Sources) > 0 && !g.Admitted(w.WorkloadKey) {
		p.notAdmitted()
	}
	return e
}

// Complete evaluates the sources.
func (e *Evaluation) Complete() {
	g, w, p := e.graph, e.Workload, &e.Policy
	whole := p.Sources
	defer func() { p.Sources = whole }()
	p.expandClasses(w.References)
	unseen := func(x dependency.Pattern) bool { return x.Glob() && x.Kind.Observed() && !g.Observes(x.Kind) }
	p.Sources = slices.DeleteFunc(slices.Clone(p.Sources), unseen)
	globs, matchers := e.globs(), p.matchers()
	references := g.References(w, append(e.expand(globs), p.Sources...))
	e.Sources = make([]Source, len(references))
	var n naming
	var content []byte                         // of all that counts
	all := make([]counted, 0, len(references)) // as many as there may be, because tracked sources point to them
	owner := e.ownerOf()
	for i := range references {
		r := &references[i]
		s := &e.Sources[i]
		s.Reference, s.Resolution = r, g.Resolve(w.Namespace, r)
		source := s.Source
		n = matchers.of(r.Kind, r.Name, n)
		var counts dependency.Reference
		counts, s.Triggers, s.Reason = p.counts(n, r, source, source == nil && e.remembers(r))
		s.DeclaredBy = matchers.declaredBy(r.Kind, r.Name, &n)
		remembers := false
		if !s.Observed {
			remembers = s.Triggers && e.remembersMounts(r)
			s.Triggers, s.Reason, s.unseen = false, ReasonNotObserved, s.Triggers && r.Kind.Observed()
		}
		if s.Triggers && owner.covers(&counts) {
			s.Triggers, s.Reason, s.DeclaredBy = false, ReasonCoveredByOwner, owner.String()
		}
		if s.Triggers || remembers {
			all = append(all, counted{Reference: counts, source: source})
			c := &all[len(all)-1]
			begin := len(content)
			content = dependency.AppendContent(content, &c.Reference, source)
			c.content = content[begin:]
			if source != nil {
				c.keys = source.Shown(&c.Reference)
			}
			e.count(c, n, globs)
			if r.Kind == dependency.SecretProviderClass {
				content = e.appendMounted(content[:begin:begin])
			}
		}
		if p.Mode == Off && s.Triggers { // nothing does, but the hash still says something
			s.Triggers, s.Reason = false, ReasonReloadOff
		}
	}
	for i := range globs {
		e.match(&globs[i])
		e.Globs = append(e.Globs, Glob{*globs[i].glob, globs[i].matched, true, globs[i].expanded})
	}
	for _, x := range whole {
		if unseen(x) {
			e.Globs = append(e.Globs, Glob{x, g.Matched(w.Namespace, x, p.Exclude, nil), false, false})
		}
	}
	slices.SortFunc(e.Globs, func(a, b Glob) int { return strings.Compare(idOf(a.Kind, a.Name), idOf(b.Kind, b.Name)) })
	for i := range e.Globs {
		if e.Globs[i].Observed && !e.Globs[i].expanded {
			content = e.Globs[i].AppendContent(content)
		}
	}
	e.tracked = append(e.tracked, slices.DeleteFunc(globs, func(u trackedSource) bool { return u.expanded })...)
	e.Hash = e.graph.Digester().ContentHash(w.Namespace, content)
	e.completeAgents()
}

// Missing names the sources and keys without which new pods cannot start, each in a
// clause, and only the first if there are many; absent reports whether a whole source is
// among them.
func (e *Evaluation) Missing() (clauses []string, absent bool) {
	more := 0
	for i := range e.Sources {
		s := &e.Sources[i]
		if !s.Missing {
			continue
		}
		absent = absent || len(s.MissingKeys) == 0
		switch {
		case len(clauses) == maxNamed:
			more++
		case len(s.MissingKeys) > 0:
			clauses = append(clauses, fmt.Sprintf("%s %s lacks %s", s.Kind, s.Name, missingKeys(s.MissingKeys)))
		default:
			clauses = append(clauses, fmt.Sprintf("%s %s is missing", s.Kind, s.Name))
		}
	}
	switch more {
	case 0:
	case 1:
		clauses = append(clauses, "1 more is missing or lacks keys")
	default:
		clauses = append(clauses, fmt.Sprintf("%d more are missing or lack keys", more))
	}
	return clauses, absent
}

// Consequence says what cannot be done because of what is Missing, as a clause.
func (e *Evaluation) Consequence() string {
	for i := range e.Sources {
		if s := &e.Sources[i]; s.Missing && slices.ContainsFunc(s.Uses, func(u dependency.Use) bool { return u.Type != dependency.Field }) {
			return "new pods cannot start"
		}
	}
	return "fields cannot be set"
}

// Present returns the record which says that the pods run with the current content. A
// glob that names nothing is recorded too, so that the first match is a change.
func (e *Evaluation) Present() Record {
	r := Record{Hash: e.Hash, Sources: make(map[string]string, len(e.tracked))}
	for i := range e.tracked {
		r.Sources[e.tracked[i].id] = e.tracked[i].entry()
	}
	return r
}
