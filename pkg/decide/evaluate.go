// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/limit"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/pkg/wave"
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
	// Awaited: the source is Missing, but the driver of a SecretProviderClass may create it once a pod of the workload mounts that.
	Awaited bool
	// tracked: the record has an entry for it; nil: it does not count.
	tracked *tracked
}

// Glob is a glob of the policy, with the sources that it names.
type Glob struct {
	dependency.Pattern
	*dependency.Matched
	// Observed reports whether sources of its kind are read. If not, the glob names none.
	Observed bool
}

// Evaluation is a workload seen through its policy and the current content.
type Evaluation struct {
	Workload *dependency.Workload
	Policy   policy.Policy
	Sources  []Source // by kind and name
	Globs    []Glob   // by kind and name
	// Hash is a hash of the content of all sources that trigger restarts; in mode Off, of
	// those that would in mode Auto.
	Hash string
	// Record is the workload's record of the content with which its pods were started.
	Record record.Record
	// Agents is what the config agents of the pods say.
	Agents Agents

	graph    *dependency.Graph
	defaults policy.Defaults
	tracked  []tracked
	assumed  *Change

	scopeText string // see scope

	waves Waves
	// limits are the policies that select the workload, and limited says whether they have been looked for.
	limits  []*limit.Policy
	limited bool
}

// Waves makes restarts wait for others. Hold is called for every workload that is decided about, and returns what its restart waits for; nil: nothing.
type Waves interface {
	Hold(m *wave.Member) *wave.Hold
}

// Evaluator applies policies to the workloads of a graph. It must not be used after the graph has changed.
type Evaluator struct {
	Graph *dependency.Graph
	// Defaults are the policy of workloads without annotations.
	Defaults policy.Defaults
	// Waves makes restarts wait for others; nil: none waits.
	Waves Waves
	// Assumed is a change that is to be taken as made; nil: none.
	Assumed *Change
}

// Change is a hypothetical change of a source, or of all sources with this name in any namespace.
type Change struct {
	Source dependency.SourceKey // without a namespace: in any
	At     time.Time
}

func (c *Change) concerns(s dependency.SourceKey) bool {
	return c != nil && c.Source.Kind == s.Kind && c.Source.Name == s.Name && (c.Source.Namespace == "" || c.Source.Namespace == s.Namespace)
}

// Limits returns all ReloadPolicies.
func (v Evaluator) Limits() *limit.Set { return limit.In(v.Graph) }

// Index gives access to the known state of the cluster. Read calls f with the current graph, which f must neither
// change nor keep. It returns false, without calling f, while the graph is out of sync with the cluster.
type Index interface {
	Read(f func(Evaluator)) bool
}

// Evaluate applies the effective policy to a workload.
func (v Evaluator) Evaluate(w *dependency.Workload) *Evaluation {
	g := v.Graph
	e := &Evaluation{Workload: w, Record: record.Of(w), graph: g, defaults: v.Defaults, waves: v.Waves, assumed: v.Assumed}
	p := &e.Policy // not a copy, which would be allocated, too
	p.Declare(policy.AnnotatedOf(w, g.Namespace(w.Namespace)), &e.defaults)
	if g.SelectedByLabel() { // a source may only have got the label, or lost it
		p.IgnoreCreated, p.IgnoreDeleted = true, true
	}
	p.Bound(len(w.References))
	if len(p.Sources) > 0 && !g.Admitted(w.WorkloadKey) {
		p.RefuseGlobs()
	}
	e.evaluateSources()
	return e
}

func (e *Evaluation) evaluateSources() {
	g, w, p := e.graph, e.Workload, &e.Policy
	references, matchers := g.References(w, append(e.expand(), p.Sources...)), p.Matchers()
	e.Sources = make([]Source, len(references))
	e.tracked = make([]tracked, 0, len(references)) // as many as there may be, because sources point to them
	var n policy.Naming
	var content []byte // of all that counts
	owner := e.ownerOf()
	for i := range references {
		s := &e.Sources[i]
		s.Reference = &references[i]
		n = matchers.Of(s.Kind, s.Name, n)
		s.DeclaredBy = matchers.DeclaredBy(s.Kind, s.Name, &n)
		content = e.evaluate(s, n, owner, content)
	}
	slices.SortFunc(e.Globs, func(a, b Glob) int { return strings.Compare(idOf(a.Kind, a.Name), idOf(b.Kind, b.Name)) })
	e.Hash = e.graph.Digester().ContentHash(w.Namespace, content)
	e.completeAgents()
}

// evaluate evaluates one source, by what the patterns of the policy say about it. If the source counts, its content is appended to the content of the
// others.
func (e *Evaluation) evaluate(s *Source, n policy.Naming, owner *owner, content []byte) []byte {
	s.Resolution = e.graph.Resolve(e.Workload.Namespace, s.Reference)
	s.Awaited = s.Missing && s.Source == nil && e.mayBring(s.Reference)
	source := s.Source
	var counts dependency.Reference
	counts, s.Triggers, s.Reason = e.Policy.Counts(n, s.Reference, source, source == nil && e.remembers(s.Reference))
	if !s.Observed {
		s.Triggers, s.Reason, s.unseen = false, policy.ReasonNotObserved, s.Triggers && s.Kind.Observed()
	}
	if s.Triggers && owner.covers(&counts) {
		s.Triggers, s.Reason, s.DeclaredBy = false, ReasonCoveredByOwner, owner.String()
	}
	if s.Triggers {
		begin := len(content)
		if s.Kind == dependency.SecretProviderClass { // its content may differ between pods, so only the pods tell it
			source = nil
		}
		content = dependency.AppendContent(content, &counts, source)
		e.tracked = append(e.tracked, tracked{
			of: e, id: idOf(s.Kind, s.Name), counted: counts, source: source, content: content[begin:len(content):len(content)],
			matched: onlyAnnotated(s.Reference) && n.OnlyGlobs(), awaited: s.Awaited,
		})
		s.tracked = &e.tracked[len(e.tracked)-1]
		if source != nil && source.Immutable {
			e.Policy.Immutable = s.tracked.id
		}
	}
	if e.Policy.Mode == policy.Off && s.Triggers { // nothing does, but the hash still says something
		s.Triggers, s.Reason = false, policy.ReasonReloadOff
	}
	return content
}

// mayBring reports whether the driver of a SecretProviderClass may create a source once a pod of the workload mounts it.
func (e *Evaluation) mayBring(r *dependency.Reference) bool {
	return r.Kind == dependency.Secret && e.Workload.MountsClass() && !slices.ContainsFunc(r.Uses, isCredential)
}

// isCredential reports whether a CSI driver needs a Secret to mount a volume, so that it cannot create it by that.
func isCredential(u dependency.Use) bool { return u.Type == dependency.CSI && !u.Optional }

// remembers reports whether the record contains an absent source, so that its deletion may be a change in mode Matched, although its annotations are
// gone.
func (e *Evaluation) remembers(r *dependency.Reference) bool {
	_, remembered := e.Record.Sources[idOf(r.Kind, r.Name)]
	return remembered
}

// Missing names the sources and keys without which new pods cannot start, each in a
// clause, and only the first if there are many; absent reports whether a whole source is
// among them.
func (e *Evaluation) Missing() (clauses []string, absent bool) {
	more := 0
	for i := range e.Sources {
		s := &e.Sources[i]
		if !s.Missing || s.Awaited {
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
		if s := &e.Sources[i]; s.Missing && !s.Awaited && slices.ContainsFunc(s.Uses, func(u dependency.Use) bool { return u.Type != dependency.Field }) {
			return "new pods cannot start"
		}
	}
	return "fields cannot be set"
}
