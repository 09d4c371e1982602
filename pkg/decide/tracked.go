// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// tracked is a source that counts: a record has an entry for it.
type tracked struct {
	of *Evaluation
	id string
	// counted is narrowed to what counts.
	counted dependency.Reference
	source  *dependency.Source // nil: it is absent
	content []byte             // what stands for what is read of it
	// matched: only a glob names the source.
	matched bool
	// awaited is Source.Awaited.
	awaited bool

	entry string // a cache; empty: it is not computed yet
}

// Content returns Entry.Content of the current content. It is computed on first use, because workloads that have not opted in have no record.
func (t *tracked) Content() string {
	if t.entry == "" {
		t.entry = scopeOf(&t.counted) + "." + t.of.digest(t.content)[:16]
	}
	return t.entry
}

// absent returns what Entry.Content would be if the source were absent.
func (t *tracked) absent() string {
	return scopeOf(&t.counted) + "." + t.of.digest(dependency.AppendContent(nil, &t.counted, nil))[:16]
}

// gone reports whether the source is absent. A SecretProviderClass never counts as absent, because only the pods tell what they have mounted of it.
func (t *tracked) gone() bool {
	return t.source == nil && t.counted.Kind != dependency.SecretProviderClass
}

// setsOnly reports whether the source counts only because fields are set from it.
func (t *tracked) setsOnly() bool {
	return !slices.ContainsFunc(t.counted.Uses, func(use dependency.Use) bool { return use.Type != dependency.Field })
}

// containers returns the containers that read the source; nil: any may.
func (t *tracked) containers() (names []string) {
	for i := range t.counted.Uses {
		if use := &t.counted.Uses[i]; use.Reads() && use.Container != "" {
			names = append(names, use.Container)
		}
	}
	return names
}

func idOf(kind dependency.SourceKind, name string) string { return string(kind) + "/" + name }

func (e *Evaluation) digest(content []byte) string {
	sum := e.graph.Digester().ContentDigest(e.Workload.Namespace, content)
	return hex.EncodeToString(sum[:])
}

// expand returns the names of the sources that globs match, including recorded ones that no longer exist. If there are more than
// dependency.MaxMatched, it adds a problem.
func (e *Evaluation) expand() (names []dependency.Pattern) {
	p := &e.Policy
	for i := range p.Sources {
		glob := &p.Sources[i]
		if !glob.Glob() || !glob.Kind.Observed() { // of classes that no pod of the workload mounts, nothing is known that concerns it
			continue
		}
		m, observed := e.graph.Matched(e.Workload.Namespace, *glob, p.Exclude), e.graph.Observes(glob.Kind)
		e.Globs = append(e.Globs, Glob{*glob, m, observed})
		if !observed {
			continue
		}
		if m.Count > dependency.MaxMatched || len(names)+m.Count > dependency.MaxMatched {
			p.Problems = append(p.Problems, fmt.Sprintf("the patterns in %s match more than %d ConfigMaps and Secrets", policy.SourcesAnnotation, dependency.MaxMatched))
			p.TooManyPatterns = true
			return names
		}
		for _, name := range m.Names() {
			names = append(names, dependency.Pattern{Kind: glob.Kind, Name: name})
		}
		for id := range e.Record.Sources {
			name, found := strings.CutPrefix(id, string(glob.Kind)+"/")
			if found && m.Has(name) && policy.PossibleName(name) && e.graph.Source(dependency.SourceKey{Kind: glob.Kind, Namespace: e.Workload.Namespace, Name: name}) == nil {
				names = append(names, dependency.Pattern{Kind: glob.Kind, Name: name})
			}
		}
	}
	return names
}

func onlyAnnotated(r *dependency.Reference) bool {
	return len(r.Uses) == 1 && r.Uses[0].Type == dependency.Annotation
}

// scopeOf identifies the keys that count, so that a change of the policy or the template is not mistaken for a change of content.
func scopeOf(r *dependency.Reference) string {
	keys, all := r.Keys()
	if all {
		return "*"
	}
	return record.Checksum(keys)
}

// scope identifies what the policy, and the flags of the server, say about which sources count. It is computed on first use.
func (e *Evaluation) scope() string {
	if e.scopeText != "" {
		return e.scopeText
	}
	p, h := &e.Policy, fnv.New64a()
	fmt.Fprint(h, p.Mode, p.Kinds, p.Sources, p.Exclude, p.LiveVolumes, p.IgnoreCreated, p.IgnoreDeleted)
	for _, kind := range []dependency.SourceKind{dependency.ConfigMap, dependency.Secret, dependency.SecretProviderClass} {
		fmt.Fprint(h, p.ModeOf(kind), e.graph.Observes(kind))
	}
	for i := range p.Fields {
		fmt.Fprint(h, p.Fields[i].Kind, p.Fields[i].Name, p.Fields[i].Key, p.Fields[i].Path.String())
	}
	e.scopeText = fmt.Sprintf("%016x", h.Sum64())
	return e.scopeText
}
