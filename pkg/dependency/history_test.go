// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// BenchmarkSource_KeysGo measures a change that takes all keys from a source, for which nothing else is applied.
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

// A key that goes, comes and goes again is remembered once, as it was last.
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
		t.Errorf("at first, gone are %q", got)
	}
	again := with("a", "b")
	again.earlier = &history{removed: removed}
	if got := names(with("a").goneKeys(again, 3)); !slices.Equal(got, []string{"c2", "b3"}) {
		t.Errorf("then gone are %q", got)
	}
}

// Of a source with very many keys it is not remembered what it was when this process began to look.
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
			t.Errorf("of %d keys, what they were is known: %v", tt.keys, known)
		}
	}
}
