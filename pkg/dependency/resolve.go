// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

// Resolution tells how a reference stands to the source that it names.
type Resolution struct {
	// Source is nil when it is absent, or not observed.
	Source *Source
	// Observed reports whether the source is read, or would be if it was there.
	Observed bool
	// Unread is the source if it is there and not read, as far as that is known; else nil.
	Unread *Unread
	// MayExist: the source is absent among those with the label by which they are selected, so it is not known whether it
	// is there.
	MayExist bool
	// Missing: pods cannot start, because the source or a required key is absent.
	Missing bool
	// MissingKeys are the required keys that a present source does not have.
	MissingKeys []string
}

// Resolve looks for what a reference requires in a namespace. A source that is not observed is not missing, nor is one that
// may exist: pods may well start.
func (g *Graph) Resolve(namespace string, r *Reference) Resolution {
	found := g.lookUp(namespace, r)
	if !found.Observed || found.MayExist {
		return found
	}
	out := Resolve(r, found.Source)
	out.Observed = true
	return out
}

// lookUp finds what a reference names, and does not look for its keys.
func (g *Graph) lookUp(namespace string, r *Reference) Resolution {
	key := SourceKey{r.Kind, namespace, r.Name}
	if s := g.Source(key); s != nil { // also a class that is not observed as long as no pod has mounted it
		return Resolution{Source: s, Observed: true}
	}
	if !g.Observes(r.Kind) {
		return Resolution{}
	}
	if unread := g.Unread(key); unread != nil {
		return Resolution{Unread: unread}
	}
	return Resolution{Observed: true, MayExist: g.selectedByLabel}
}

// Resolve looks for what a reference requires of a source, which may be nil.
func Resolve(r *Reference, source *Source) Resolution {
	out := Resolution{Source: source}
	if source == nil {
		out.Missing = r.Kind.Observed() && !r.Optional()
		return out
	}
	for _, key := range r.RequiredKeys {
		if !source.Has(key) {
			out.MissingKeys = append(out.MissingKeys, key)
		}
	}
	out.Missing = len(out.MissingKeys) > 0
	return out
}
