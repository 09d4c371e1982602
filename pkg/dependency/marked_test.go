// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The time at which a source began or stopped to be marked is kept until the mark changes again.
func TestSource_RemembersWhenItWasMarked(t *testing.T) {
	type marks struct{ ignored, match, gone bool }
	type times struct{ Ignored, Match Moment }
	for name, tt := range map[string]struct {
		listed bool    // whether the source was found in the first list
		do     []marks // in versions 1, 2 and so on
		want   times
	}{
		"never marked":                              {false, []marks{{}, {}}, times{}},
		"marked in the first list":                  {true, []marks{{ignored: true, match: true}, {ignored: true, match: true}}, times{}},
		"becomes ignored":                           {false, []marks{{}, {ignored: true}}, times{Ignored: Moment{2, 12}}},
		"stays ignored":                             {false, []marks{{}, {ignored: true}, {ignored: true}}, times{Ignored: Moment{2, 12}}},
		"no longer ignored":                         {true, []marks{{ignored: true}, {}, {}}, times{Ignored: Moment{2, 12}}},
		"becomes a match":                           {false, []marks{{}, {match: true}}, times{Match: Moment{2, 12}}},
		"stays a match":                             {false, []marks{{}, {match: true}, {match: true}}, times{Match: Moment{2, 12}}},
		"no longer a match":                         {true, []marks{{match: true}, {}, {}}, times{Match: Moment{2, 12}}},
		"a match since its creation":                {false, []marks{{match: true}, {match: true}}, times{Match: Moment{1, 11}}},
		"a match, deleted and created again as one": {false, []marks{{}, {match: true}, {gone: true}, {match: true}}, times{Match: Moment{2, 12}}},
		"created again as a match":                  {false, []marks{{}, {gone: true}, {match: true}}, times{Match: Moment{3, 13}}},
		"ignored since its creation":                {false, []marks{{ignored: true}}, times{}},
	} {
		t.Run(name, func(t *testing.T) {
			var last, deleted *Source
			for i, m := range tt.do {
				if m.gone {
					last, deleted = nil, last
					continue
				}
				s := NewSource(testDigester(), Secret, &metav1.ObjectMeta{Name: "db", ResourceVersion: fmt.Sprint(i + 1)}, SourceMarks{}, nil)
				s.Ignored, s.Match = m.ignored, m.match
				at := Arrival{Live: true, Seen: seenAt, Order: uint64(11 + i)}
				if i == 0 && tt.listed {
					at = Arrival{Order: 11}
				}
				s.After(last, deleted, at)
				last, deleted = s, nil
			}
			if diff := cmp.Diff(tt.want, times{last.IgnoredAt, last.MatchAt}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Content that a source had when it was first read is earlier than all events.
func TestGraph_LastWrittenBeforeTheFirstEvent(t *testing.T) {
	c := newChanging()
	c.write("1", 0, true)
	c.put(map[string]string{"a": "1", "b": "1"})
	a := named(ConfigMap, "settings", "a")
	if got, want := c.graph.LastWritten("shop", &a), (Moment{101, 0}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}
