// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// Knowledge is what the graph knows about the content that counts for a workload, at one
// time. It stays valid when the graph changes.
type Knowledge struct {
	// Hash is the hash of the current content.
	Hash string
	// Ordered reports whether revisions of different resources can be compared.
	Ordered bool
	// Revision is the revision of the current pod template; empty if it is not known. It must
	// have been read after everything else.
	Revision string

	sources    []known
	recordHash string // of the recorded content, or empty
	// startVersion is a lower bound on the revision at which the first pods of the template
	// started, and recordVersion an upper bound on the last change of the record; 0: not known.
	startVersion, recordVersion uint64
	// templateWritten is an upper bound on the time at which the template changed.
	templateWritten time.Time
	liveVolumes     bool
}

// relation is how the recorded content relates to the current content.
type relation int

const (
	noRecord relation = iota // or one that cannot be compared
	equal
	different
)

// known is what the graph knows about a source that counts.
type known struct {
	*dependency.Reference // narrowed to what counts
	source                *dependency.Source
	change                dependency.Change
	past                  []dependency.Past
	missingKeys           []string // without which pods do not start
	record                relation
	// byName: the template does not reference the source, but an annotation or the workload itself names it. Any
	// container may read it.
	byName bool
}

// Know returns the Knowledge about the sources that count for a workload: those whose change
// restarts it, or would in mode Auto. The graph must not have changed since the evaluation.
func Know(g *dependency.Graph, e *policy.Evaluation) *Knowledge {
	w := e.Workload
	k := &Knowledge{
		Hash: e.Hash, recordHash: e.Record.Hash, startVersion: w.StartVersion, recordVersion: w.RecordedAt.Version,
		templateWritten: w.TemplateWritten, liveVolumes: e.Policy.LiveVolumes && e.Policy.Mode != policy.Off,
	}
	present := e.Present()
	for i := range e.Sources {
		s := &e.Sources[i]
		key := dependency.SourceKey{Kind: s.Kind, Namespace: w.Namespace, Name: s.Name}
		if !s.Triggers && s.Reason != policy.ReasonReloadOff {
			continue
		}
		narrowed := *s.Reference
		narrowed.Uses = k.counting(s.Uses)
		k.sources = append(k.sources, known{
			Reference: &narrowed, source: s.Source, missingKeys: s.MissingKeys,
			change: g.LastChange(key), past: g.Past(key),
			record: relate(&e.Record, &present, string(s.Kind)+"/"+s.Name),
			byName: !slices.ContainsFunc(narrowed.Uses, func(u dependency.Use) bool {
				return u.Type != dependency.Annotation && u.Type != dependency.ByObject && u.Type != dependency.Field
			}),
		})
	}
	for i := range e.Globs {
		k.addMatched(g, e.Globs[i].Matched)
	}
	return k
}

// maxMatched limits the sources that are checked for a glob, to those that changed last: a container that started
// before an earlier change also started before theirs.
const maxMatched = 100

// addMatched adds the sources that a glob matches. Records have no entries for them.
func (k *Knowledge) addMatched(g *dependency.Graph, m *dependency.Matched) {
	left := maxMatched
	m.EachRecent(func(s *dependency.Source) bool {
		at, found := slices.BinarySearchFunc(k.sources, s.SourceKey, func(other known, key dependency.SourceKey) int {
			return cmp.Or(cmp.Compare(other.Kind, key.Kind), cmp.Compare(other.Name, key.Name))
		})
		if !found { // otherwise it is also named by itself
			k.sources = slices.Insert(k.sources, at, known{
				Reference: &dependency.Reference{Kind: s.Kind, Name: s.Name, Uses: []dependency.Use{{Type: dependency.Annotation, Optional: true}}},
				source:    s, change: s.Change, past: g.Past(s.SourceKey), byName: true,
			})
		}
		left--
		return left > 0
	})
}

// counting returns the uses for which a container needs a restart to read new content.
func (k *Knowledge) counting(uses []dependency.Use) (out []dependency.Use) {
	for _, u := range uses {
		if u.Reads() && (!k.liveVolumes || !fromVolume(&u) || u.SubPath) {
			out = append(out, u)
		}
	}
	return out
}

func fromVolume(u *dependency.Use) bool {
	return u.Type == dependency.Volume || u.Type == dependency.Projected || u.Type == dependency.CSI
}

// relate compares the recorded content of a source with the current content. Records have a
// hash VERSION.KEYID.DIGEST and entries SCOPE.DIGEST.KEYS. Hashes can be compared if they have
// the same version and key, and entries if they have the same scope.
func relate(record, present *policy.Record, id string) relation {
	if record.Hash == "" || dependency.KeyOf(record.Hash) != dependency.KeyOf(present.Hash) {
		return noRecord
	}
	if record.Hash == present.Hash {
		return equal
	}
	before, recorded := record.Sources[id]
	now, counts := present.Sources[id]
	scopeBefore, _, _ := strings.Cut(before, ".")
	scopeNow, _, _ := strings.Cut(now, ".")
	switch {
	case !recorded || !counts || scopeBefore != scopeNow:
		return noRecord
	case before == now:
		return equal
	default:
		return different
	}
}
