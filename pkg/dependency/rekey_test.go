// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestSource_ReadAgainWithAnotherKey: digests of different keys cannot be compared. A source that was not written
// in the meantime keeps its history; another source counts as changed.
func TestSource_ReadAgainWithAnotherKey(t *testing.T) {
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	read := func(key byte, uid, version string, content map[string]string, marks SourceMarks) *Source {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "db", UID: types.UID(uid), ResourceVersion: version,
		}, Data: map[string][]byte{}}
		for k, v := range content {
			s.Data[k] = []byte(v)
		}
		return FromSecret(NewDigester(append(make([]byte, KeySize-1), key)), s, marks)
	}
	type m = map[string]string
	content, marks := m{"a": "1", "b": "2"}, SourceMarks{Match: true, Ignored: true}
	// A key is removed and another one changes. The source is deleted and created again with the same content, but
	// with a mark, and then gets a second mark.
	previous := read(1, "first", "10", m{"a": "1", "b": "1", "c": "1"}, SourceMarks{})
	previous.After(nil, nil, Arrival{Order: 1})
	for i, next := range []*Source{
		read(1, "first", "20", content, SourceMarks{}), read(1, "second", "30", content, SourceMarks{Match: true}), read(1, "second", "40", content, marks),
	} {
		at := Arrival{Live: true, Seen: now, Order: uint64(i + 2)}
		if next.UID != previous.UID {
			next.After(nil, previous, at)
		} else {
			next.After(previous, nil, at)
		}
		previous = next
	}
	for _, k := range previous.Keys {
		if k.Version == 0 || k.Returned == 0 {
			t.Fatalf("key %+v has no history", k)
		}
	}
	if previous.IgnoredAt.Version != 40 || previous.MatchAt.Version != 30 || len(previous.history().removed) != 1 || len(previous.history().episodes) != 2 {
		t.Fatalf("the source has too little history: %+v", previous)
	}

	at := Arrival{Seen: now.Add(time.Hour), Order: 9, Rekeyed: true}
	t.Run("not written", func(t *testing.T) {
		got := read(2, "second", "40", content, marks)
		got.After(previous, nil, at)
		// Only its digests differ, and the digests of earlier contents are dropped.
		if diff := cmp.Diff(previous, got, cmp.AllowUnexported(Source{}, history{}, removedKey{}, episode{}), cmpopts.IgnoreFields(KeyDigest{}, "Digest"), cmpopts.IgnoreFields(Source{}, "content"), cmpopts.IgnoreFields(history{}, "past")); diff != "" || got.history().past != nil {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("a removal without a date", func(t *testing.T) {
		removed := read(1, "second", "50", m{"a": "1"}, marks)
		removed.After(previous, nil, Arrival{Live: true, Seen: now, Order: 8})
		got := read(2, "second", "50", m{"a": "1"}, marks)
		if got.After(removed, nil, at); !got.Undated(Moment{Version: 50}) || got.Undated(Moment{Version: 49}) {
			t.Errorf("undated %t, from %d", got.undated, got.undatedFrom)
		}
	})
	for name, tt := range map[string]struct {
		got      *Source
		previous *Source
		want     uint64
	}{
		"written":                {read(2, "second", "50", content, marks), previous, 50},
		"created again":          {read(2, "third", "40", content, marks), previous, 40},
		"not known before":       {read(2, "second", "40", content, marks), nil, 40},
		"written without keys":   {read(2, "second", "50", nil, marks), previous, 50},
		"its annotations change": {read(2, "second", "50", content, SourceMarks{}), previous, 50},
	} {
		t.Run(name, func(t *testing.T) {
			tt.got.After(tt.previous, nil, at)
			if diff := cmp.Diff(Change{Version: tt.want, Seen: at.Seen, Order: 9}, tt.got.Change); diff != "" {
				t.Errorf("changed (-want +got):\n%s", diff)
			}
			for _, k := range tt.got.Keys {
				if k.Version != tt.want {
					t.Errorf("the key %s changed at %d, want %d", k.Key, k.Version, tt.want)
				}
			}
			if past := tt.got.history().past; past != nil {
				t.Errorf("contents with the previous key of the hash are kept: %v", past)
			}
		})
	}
}

// TestWorkload_RecordOfAReplacedKey: a record remains known, converted to the current key, until it is written
// with that key or belongs to another workload with the same name or other pods.
func TestWorkload_RecordOfAReplacedKey(t *testing.T) {
	type m = map[string]string
	old := m{"config-hash": "v1.old.x", "applied-sources": "s", "recreating": "p"}
	ended := m{"config-hash": "v1.old.x", "applied-sources": "s"}
	replaced := observed{annotations: old, rekeyed: "v1.new.x"}
	type record struct {
		Hash, Sources, Recreating string
		Dropped, Rekeyed          bool
	}
	same := record{"v1.new.x", "rekeyed", "p", false, true}
	for name, tt := range map[string]struct {
		then observed
		want record
	}{
		"unchanged":                            {observed{annotations: old}, same},
		"the pods change":                      {observed{annotations: old, image: "2"}, same},
		"the eviction ends":                    {observed{annotations: ended}, record{"v1.new.x", "rekeyed", "", false, true}},
		"written with the old key":             {observed{annotations: m{"config-hash": "v1.old.y", "applied-sources": "t", "recreating": "p"}}, same},
		"written with the new key":             {observed{annotations: m{"config-hash": "v1.new.y", "applied-sources": "t"}}, record{"v1.new.y", "t", "", false, false}},
		"the same hash with the new key":       {observed{annotations: m{"config-hash": "v1.new.x", "applied-sources": "t"}}, record{"v1.new.x", "t", "", false, false}},
		"removed":                              {observed{}, record{"v1.new.x", "rekeyed", "p", true, false}},
		"removed, and the pods change":         {observed{image: "2"}, record{}},
		"other pods, written with the old key": {observed{annotations: m{"config-hash": "v1.old.y", "applied-sources": "t"}, image: "2"}, record{"v1.old.y", "t", "", false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			w := readAll(replaced, tt.then)
			hash, sources := w.Record()
			if diff := cmp.Diff(tt.want, record{hash, sources, w.Recreating(), w.RecordDropped(), w.RecordRekeyed()}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
