// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Unread is a source of which only its existence is known: objects of its type are not read.
type Unread struct {
	SourceKey
	Type            string
	UID             types.UID
	ResourceVersion string
	Created         metav1.Time
}

// LeaveOut declares that no objects of a kind are read, so that it is not known which exist. It is called
// before anything is read.
func (g *Graph) LeaveOut(kind SourceKind) { g.leftOut = kind }

// Observes reports whether objects of a kind are read, so that it is known which exist.
func (g *Graph) Observes(kind SourceKind) bool { return kind.Observed() && kind != g.leftOut }

// SetSelectedByLabel declares whether only ConfigMaps and Secrets with certain labels are read. A source that is absent then
// may exist without them. It is called before anything is read.
func (g *Graph) SetSelectedByLabel(selected bool) { g.selectedByLabel = selected }

// SelectedByLabel reports whether only ConfigMaps and Secrets with certain labels are read, so that it is not known of an
// absent one whether it exists.
func (g *Graph) SelectedByLabel() bool { return g.selectedByLabel }

// Unread returns a source that exists but is not read, or nil.
func (g *Graph) Unread(key SourceKey) *Unread {
	if g.unread.len() == 0 || g.Source(key) != nil {
		return nil
	}
	return g.unread.get(key)
}

// EachUnread calls f for every source that exists but is not read.
func (g *Graph) EachUnread(f func(*Unread)) { g.unread.each(f) }

// SetUnread notes that a source exists, or that it was written. It drops what is known of a deleted source of the same name, because pods may have read
// this one since.
//
// Each type is read on a stream of its own. So a source that was created in place of a deleted one of another type may be seen before that deletion.
func (g *Graph) SetUnread(u *Unread) {
	before := g.unread.get(u.SourceKey)
	if before != nil && before.Type != u.Type && ParseVersion(u.ResourceVersion) < ParseVersion(before.ResourceVersion) {
		return
	}
	g.unread.set(&u.SourceKey, u)
	g.unbury(u.SourceKey)
}

// DeleteUnread removes a source of a type, if it exists.
func (g *Graph) DeleteUnread(key SourceKey, typ string) {
	if u := g.unread.get(key); u != nil && u.Type == typ {
		g.unread.delete(key)
	}
}
