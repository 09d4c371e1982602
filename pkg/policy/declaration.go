// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/configdep/configdep/pkg/dependency"
)

// Declaration collects what the annotations of all dialects say about a workload. It becomes a Policy: a source restarts
// the workload if any dialect says so, unless any dialect excludes it.
type Declaration struct {
	Annotated
	defaults *Defaults
	policy   *Policy

	off  string // the annotation that turns restarts off, whatever others say; empty: none does
	base KindMode
	// own are the modes for observedKinds that annotations of the workload declare, and instead are the annotations because
	// of which the default does not apply to a kind.
	own     [len(observedKinds)]KindMode
	instead [len(observedKinds)]string
	in      []string // the annotations that opt the workload in
	idle    []string // problems that matter only if any source restarts the workload
	// ignores: a dialect that opts the workload in ignores sources that appear and disappear; counts: one does not. Ignoring is what
	// the dialect says whose annotations are being read.
	ignores, counts, ignoring bool
}

// observedKinds are the kinds whose changes are seen.
var observedKinds = [3]dependency.SourceKind{dependency.ConfigMap, dependency.Secret, dependency.SecretProviderClass}

// breadth orders modes by how many sources they select.
var breadth = map[Mode]int{"": 0, Off: 1, Listed: 2, Matched: 3, Auto: 4}

// Restart declares, by an annotation, that changes of sources of some kinds restart the workload, in a mode. If several
// annotations do, the broadest mode counts.
func (d *Declaration) Restart(mode Mode, by string, kinds ...dependency.SourceKind) {
	for i, kind := range observedKinds {
		if slices.Contains(kinds, kind) && breadth[mode] > breadth[d.own[i].Mode] {
			d.own[i] = KindMode{mode, by}
		}
	}
	d.optIn(by)
}

// Instead declares, by an annotation, that the default of the namespace or the server does not apply to some kinds.
func (d *Declaration) Instead(by string, kinds ...dependency.SourceKind) {
	for i, kind := range observedKinds {
		if slices.Contains(kinds, kind) {
			d.instead[i] = cmp.Or(d.instead[i], by)
		}
	}
}

// optIn notes an annotation that opts the workload in.
func (d *Declaration) optIn(by string) {
	if !slices.Contains(d.in, by) {
		d.in = append(d.in, by)
	}
}

// Never declares that no change restarts the workload, whatever other annotations say.
func (d *Declaration) Never(by string) {
	if d.off == "" {
		d.off = by
	}
}

// name adds sources that restart the workload, of which all keys count.
func (d *Declaration) name(l list, by string) {
	d.optIn(by)
	d.policy.name(l.patterns, by)
	d.remark(l, by)
}

// exclude adds sources that never do.
func (d *Declaration) exclude(l list, by string) {
	d.policy.exclude(l.patterns, by)
	d.remark(l, by)
}

// remark notes that a part of a list names nothing.
func (d *Declaration) remark(l list, by string) {
	if l.impossible != "" {
		d.policy.Remarks = append(d.policy.Remarks, fmt.Sprintf("%q in %s can be the name of no object; names are separated by commas", abbreviate(l.impossible), by))
	}
}

// IgnoreAppearing declares that the dialect ignores that sources appear and disappear.
func (d *Declaration) IgnoreAppearing() { d.ignoring = true }

// of adds what a dialect declares.
func (d *Declaration) of(dialect Dialect) {
	before := len(d.in)
	d.ignoring = false
	dialect.Declare(d)
	if len(d.in) > before {
		d.ignore(d.ignoring)
	}
}

// ignore notes whether something that opts the workload in ignores that sources appear and disappear.
func (d *Declaration) ignore(ignores bool) {
	d.ignores, d.counts = d.ignores || ignores, d.counts || !ignores
}

// Problem adds an invalid annotation that may be meant to opt the workload in.
func (d *Declaration) Problem(key, value string, err error) {
	addProblem(&d.policy.Problems, key, value, err)
}

// IdleProblem adds an invalid annotation that says nothing unless others opt the workload in.
func (d *Declaration) IdleProblem(key, value string, err error) {
	addProblem(&d.idle, key, value, err)
}

func addProblem(problems *[]string, key, value string, err error) {
	problem := fmt.Sprintf("invalid annotation %s=%q: %v", key, abbreviate(value), err)
	if !slices.Contains(*problems, problem) {
		*problems = append(*problems, problem)
	}
}

// finish sets the mode of the policy.
func (d *Declaration) finish() {
	p := d.policy
	if d.off != "" {
		p.Mode, p.DeclaredBy, p.Problems = Off, d.off, nil // what else is annotated does not matter
		return
	}
	if len(d.in) == 0 && d.instead == [len(observedKinds)]string{} {
		p.Mode, p.DeclaredBy = d.base.Mode, d.base.DeclaredBy
		d.setIgnored(d.ignoresDefault())
		p.ReportsSource = d.ignoresDefault()
		return
	}
	modes := d.own
	p.Mode = Off
	if len(d.in) > 0 {
		p.Mode = Listed
	}
	by, based := d.in, false
	for i := range modes {
		if d.instead[i] == "" && breadth[d.base.Mode] > breadth[modes[i].Mode] {
			modes[i] = d.base
			based = based || d.base.Mode != Off || observedKinds[i].Observed() // few know of the others
		}
		if breadth[modes[i].Mode] > breadth[p.Mode] {
			p.Mode = modes[i].Mode
		}
	}
	switch {
	case based && (d.base.Mode != Off || len(by) == 0):
		by = append(slices.Clone(by), d.base.DeclaredBy)
		d.ignore(d.ignoresDefault())
		p.ReportsSource = p.ReportsSource || d.ignoresDefault()
	case len(by) == 0:
		for _, instead := range d.instead {
			if instead != "" && !slices.Contains(by, instead) {
				by = append(by, instead)
			}
		}
	}
	p.DeclaredBy = strings.Join(by, ", ")
	if same := (KindMode{p.Mode, p.DeclaredBy}); modes != [len(observedKinds)]KindMode{same, same, same} {
		p.Modes = map[dependency.SourceKind]KindMode{}
		for i, kind := range observedKinds {
			p.Modes[kind] = modes[i]
		}
	}
	// Where several dialects opt a workload in, what is a change for one of them is a change.
	d.setIgnored(d.ignores && !d.counts)
}

// ignoresDefault reports whether the default ignores sources that appear and disappear.
func (d *Declaration) ignoresDefault() bool {
	return d.base.DeclaredBy == DeclaredByDefault && d.defaults.AutoReloadAll
}

func (d *Declaration) setIgnored(ignored bool) {
	if ignored {
		d.policy.IgnoreCreated, d.policy.IgnoreDeleted = !d.defaults.ReloadOnCreate, !d.defaults.ReloadOnDelete
	}
}

// KindMode is the mode for sources of one kind, with the annotation that declares it.
type KindMode struct {
	Mode       Mode
	DeclaredBy string
}

// name adds sources that trigger, and of which all keys count.
func (p *Policy) name(patterns []dependency.Pattern, by string) {
	p.Sources = append(slices.Clip(p.Sources), patterns...)
	p.NamedBy = p.NamedBy.add(patterns, by)
}

// exclude adds sources that never trigger.
func (p *Policy) exclude(patterns []dependency.Pattern, by string) {
	p.Exclude = append(slices.Clip(p.Exclude), patterns...)
	p.ExcludedBy = p.ExcludedBy.add(patterns, by)
}

// Declarers are the annotations that name patterns, without those of configdep itself, unless others name the same pattern.
type Declarers map[dependency.Pattern]string

func (m Declarers) add(patterns []dependency.Pattern, by string) Declarers {
	if m == nil {
		m = make(Declarers, len(patterns))
	}
	for _, p := range patterns {
		if before := m[p]; before != "" && before != by {
			m[p] = before + ", " + by
		} else {
			m[p] = by
		}
	}
	return m
}
