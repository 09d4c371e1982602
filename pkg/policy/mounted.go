// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
)

// The content of a SecretProviderClass is what pods have mounted of it, and pods that start mount what is current. So other content
// than what is recorded is a change only when the driver has updated the files of a pod with it: that pod was started with other
// content. Until then, and while no pod has mounted the class, the entry stays in the record: what the pods were started with is
// compared with the next content that an update brings, however long that takes.

// isClass reports whether a tracked source is a SecretProviderClass. None belongs to a glob; see expandClasses.
func (u *trackedSource) isClass() bool {
	return u.counted != nil && u.counted.Kind == dependency.SecretProviderClass
}

// keepsMounted is keepsEntry for a SecretProviderClass.
func (u *trackedSource) keepsMounted() bool {
	if s := u.counted.source; s != nil && !s.Unproven() && !u.of.restartedSince(s.LastChanged.Time) {
		return false
	}
	return u.of.hasRecord() && u.of.knows(u) && u.of.Record.Sources[u.id] != u.mixedEntry()
}

// updateMargin allows for the difference between the clocks of configdep and the API server, and for times in whole seconds.
const updateMargin = 5 * time.Second

// restartedSince reports whether the workload was restarted after a time. Pods that were started after an update have mounted what
// it brought or newer content, and the record of that restart may know of newer content than the pods that are left.
func (e *Evaluation) restartedSince(at time.Time) bool {
	last := LastReloadOf(e.Workload)
	return last != nil && last.Time.After(at.Add(updateMargin))
}

// keepsOther reports whether the entry of the record is kept although it is not that of the current content.
func (u *trackedSource) keepsOther() bool {
	return u.isClass() && u.keepsMounted() && u.ownEntry() != u.of.Record.Sources[u.id]
}

// remembersMounts reports whether the record knows a SecretProviderClass that no pod has mounted, as far as is known.
func (e *Evaluation) remembersMounts(r *dependency.Reference) bool {
	_, remembered := e.Record.Sources[idOf(r.Kind, r.Name)]
	return remembered && r.Kind == dependency.SecretProviderClass && e.hasRecord()
}

// hasRecord reports whether the record was made with the current key of the hash.
func (e *Evaluation) hasRecord() bool {
	return e.Record.Hash != "" && dependency.KeyOf(e.Record.Hash) == dependency.KeyOf(e.graph.Digester().ContentHash("", nil))
}

// appendMounted appends what stands in the hash for a SecretProviderClass, which is the last tracked source: its entry, so that
// the hash stays the same as long as the entry does.
func (e *Evaluation) appendMounted(content []byte) []byte {
	u := &e.tracked[len(e.tracked)-1]
	return dependency.AppendTexts(content, u.id, u.entry())
}

// expandClasses replaces globs of SecretProviderClasses by those of the classes that the template names: of what no pod of the
// workload mounts, nothing is known that concerns it.
func (p *Policy) expandClasses(references []dependency.Reference) {
	isGlob := func(x dependency.Pattern) bool { return x.Kind == dependency.SecretProviderClass && x.Glob() }
	if !slices.ContainsFunc(p.Sources, isGlob) {
		return
	}
	var out []dependency.Pattern
	for _, x := range p.Sources {
		if !isGlob(x) {
			out = append(out, x)
			continue
		}
		for i := range references {
			r := &references[i]
			if !x.Matches(r.Kind, r.Name) {
				continue
			}
			name := dependency.Pattern{Kind: r.Kind, Name: r.Name}
			out = append(out, name)
			if by := p.NamedBy[x]; by != "" {
				p.NamedBy = p.NamedBy.add([]dependency.Pattern{name}, by)
			}
		}
	}
	p.Sources = out
}
