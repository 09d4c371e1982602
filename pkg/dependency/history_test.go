// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// BenchmarkSource_KeysGo measures a change that removes all keys of a source.
func BenchmarkSource_KeysGo(b *testing.B) {
	for _, n := range []int{10_000, 20_000, 40_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			before := &Source{SourceKey: SourceKey{ConfigMap, "shop", "keys"}, ResourceVersion: "1"}
			for i := range n {
				before.Keys = append(before.Keys, KeyDigest{Key: fmt.Sprintf("%06d", i)})
			}
			now := &Source{SourceKey: before.SourceKey, ResourceVersion: "2"}
			for b.Loop() {
				now.goneKeys(before, 2)
			}
		})
	}
}

// A key that is removed, added and removed again is remembered once, with its last removal.
func TestSource_KeyThatGoesAgain(t *testing.T) {
	with := func(keys ...string) *Source {
		s := &Source{SourceKey: SourceKey{ConfigMap, "shop", "keys"}}
		for _, key := range keys {
			s.Keys = append(s.Keys, KeyDigest{Key: key})
		}
		return s
	}
	names := func(removed []removedKey) (out []string) {
		for _, r := range removed {
			out = append(out, fmt.Sprint(r.key, r.version))
		}
		return out
	}
	first := with("a")
	removed := first.goneKeys(with("a", "b", "c"), 2)
	if got := names(removed); !slices.Equal(got, []string{"b2", "c2"}) {
		t.Errorf("removed keys = %q, want b2 and c2", got)
	}
	again := with("a", "b")
	again.earlier = &history{removed: removed}
	if got := names(with("a").goneKeys(again, 3)); !slices.Equal(got, []string{"c2", "b3"}) {
		t.Errorf("removed keys after another removal of b = %q, want c2 and b3", got)
	}
}

// First does not know the content of a source with very many keys.
func TestGraph_FirstOfManyKeys(t *testing.T) {
	for _, tt := range []struct {
		keys  int
		known bool
	}{{maxPastKeys, true}, {maxPastKeys + 1, false}} {
		g := NewGraph()
		with := func(value byte) *Source {
			s := &Source{SourceKey: SourceKey{ConfigMap, "shop", "keys"}}
			for i := range tt.keys {
				s.Keys = append(s.Keys, KeyDigest{Key: fmt.Sprintf("%06d", i), Digest: Digest{value}})
			}
			return s
		}
		first, next := with(1), with(2)
		g.SetSource(first)
		next.After(first, nil, Arrival{Seen: time.Unix(1, 0), Order: 1})
		g.SetSource(next)
		was, known := g.First(next.SourceKey)
		if known != tt.known || known && (len(was.Keys) != tt.keys || was.Keys[0].Digest != first.Keys[0].Digest) {
			t.Errorf("First of a source with %d keys: known = %v", tt.keys, known)
		}
	}
}
