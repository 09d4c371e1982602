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
	own  map[dependency.SourceKind]KindMode
	base KindMode
	// instead are the annotations because of which the default does not apply to a kind.
	instead map[dependency.SourceKind]string
	in      []string // the annotations that opt the workload in
	// ignores: a dialect that opts the workload in ignores sources that appear and disappear; counts: one does not.
	ignores, counts bool
}

// observedKinds are the kinds whose changes are seen.
var observedKinds = []dependency.SourceKind{dependency.ConfigMap, dependency.Secret}

// breadth orders modes by how many sources they select.
var breadth = map[Mode]int{"": 0, Off: 1, Listed: 2, Matched: 3, Auto: 4}

// Restart declares, by an annotation, that changes of sources of some kinds restart the workload, in a mode. If several
// annotations do, the broadest mode counts.
func (d *Declaration) Restart(mode Mode, by string, kinds ...dependency.SourceKind) {
	for _, kind := range kinds {
		if breadth[mode] > breadth[d.own[kind].Mode] {
			if d.own == nil {
				d.own = map[dependency.SourceKind]KindMode{}
			}
			d.own[kind] = KindMode{mode, by}
		}
	}
	d.optIn(by)
}

// Instead declares, by an annotation, that the default of the namespace or the server does not apply to some kinds.
func (d *Declaration) Instead(by string, kinds ...dependency.SourceKind) {
	for _, kind := range kinds {
		if d.instead == nil {
			d.instead = map[dependency.SourceKind]string{}
		}
		d.instead[kind] = cmp.Or(d.instead[kind], by)
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

// Name adds sources that restart the workload, of which all keys count.
func (d *Declaration) Name(patterns []dependency.Pattern, by string) {
	d.optIn(by)
	d.policy.name(patterns, by)
}

// Exclude adds sources that never do.
func (d *Declaration) Exclude(patterns []dependency.Pattern, by string) {
	d.policy.exclude(patterns, by)
}

// Ignores declares whether the dialect that opts the workload in ignores that sources appear and disappear.
func (d *Declaration) Ignores(ignores bool) {
	d.ignores, d.counts = d.ignores || ignores, d.counts || !ignores
}

// Problem adds an invalid annotation.
func (d *Declaration) Problem(key, value string, err error) {
	problem := fmt.Sprintf("invalid annotation %s=%q: %v", key, abbreviate(value), err)
	if !slices.Contains(d.policy.Problems, problem) {
		d.policy.Problems = append(d.policy.Problems, problem)
	}
}

// finish sets the mode of the policy.
func (d *Declaration) finish() {
	p := d.policy
	if d.off != "" {
		p.Mode, p.DeclaredBy = Off, d.off
		return
	}
	if len(d.in) == 0 && len(d.instead) == 0 {
		p.Mode, p.DeclaredBy = d.base.Mode, d.base.DeclaredBy
		d.ignore(d.ignoresDefault())
		return
	}
	modes := map[dependency.SourceKind]KindMode{}
	p.Mode = Off
	if len(d.in) > 0 {
		p.Mode = Listed
	}
	by, based := d.in, false
	for _, kind := range observedKinds {
		m := d.own[kind]
		if d.instead[kind] == "" && breadth[d.base.Mode] > breadth[m.Mode] {
			m, based = d.base, true
		}
		modes[kind] = m
		if breadth[m.Mode] > breadth[p.Mode] {
			p.Mode = m.Mode
		}
	}
	switch {
	case based && (d.base.Mode != Off || len(by) == 0):
		by = append(slices.Clone(by), d.base.DeclaredBy)
		d.counts = d.counts || !d.ignoresDefault()
	case len(by) == 0:
		for _, kind := range observedKinds {
			if !slices.Contains(by, d.instead[kind]) {
				by = append(by, d.instead[kind])
			}
		}
	}
	p.DeclaredBy = strings.Join(by, ", ")
	if slices.ContainsFunc(observedKinds, func(kind dependency.SourceKind) bool { return modes[kind] != KindMode{p.Mode, p.DeclaredBy} }) {
		p.Modes = modes
	}
	// Where several dialects opt a workload in, what is a change for one of them is a change.
	d.ignore(d.ignores && !d.counts)
}

// ignoresDefault reports whether the default ignores sources that appear and disappear.
func (d *Declaration) ignoresDefault() bool {
	return d.base.DeclaredBy == DeclaredByDefault && d.defaults.AutoReloadAll
}

func (d *Declaration) ignore(ignores bool) {
	if ignores {
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
