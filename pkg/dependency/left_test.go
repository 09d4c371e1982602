// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The last templates that were replaced while pods of them may still run are remembered with their records: no
// more than maxTemplates, and no more bytes than annotations can have.
func TestAddLeft(t *testing.T) {
	one := func(template uint64, sources string) leftTemplate {
		return leftTemplate{template, remembered{"h", sources}}
	}
	half := strings.Repeat("s", maxLeftBytes/2)
	var many []leftTemplate
	for i := range uint64(maxTemplates) {
		many = append(many, one(i+1, "s"))
	}
	for name, tt := range map[string]struct {
		before []leftTemplate
		add    leftTemplate
		want   []leftTemplate
	}{
		"the first template":                                        {nil, one(1, "s"), []leftTemplate{one(1, "s")}},
		"a second template":                                         {[]leftTemplate{one(1, "s")}, one(2, "s"), []leftTemplate{one(1, "s"), one(2, "s")}},
		"a template that is already in the list":                    {[]leftTemplate{one(1, "s"), one(2, "s")}, one(1, "t"), []leftTemplate{one(2, "s"), one(1, "t")}},
		"a template whose hash is not known":                        {[]leftTemplate{one(1, "s")}, one(0, "s"), []leftTemplate{one(1, "s")}},
		"a template without a record":                               {[]leftTemplate{one(1, "s")}, leftTemplate{template: 2}, []leftTemplate{one(1, "s")}},
		"the maximum number of templates":                           {many[:maxTemplates-1], many[maxTemplates-1], many},
		"one template more than the maximum":                        {many, one(100, "s"), append(many[1:maxTemplates:maxTemplates], one(100, "s"))},
		"the maximum number of bytes":                               {[]leftTemplate{one(1, half)}, one(2, half), []leftTemplate{one(1, half), one(2, half)}},
		"one byte more than the maximum":                            {[]leftTemplate{one(1, half)}, one(2, half+"s"), []leftTemplate{one(2, half+"s")}},
		"one byte more than the maximum, with a short first record": {[]leftTemplate{one(1, "s"), one(2, half)}, one(3, half), []leftTemplate{one(2, half), one(3, half)}},
		"a single record above the maximum":                         {nil, one(1, half+half+"s"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			before := append([]leftTemplate(nil), tt.before...)
			got := addLeft(tt.before, tt.add)
			if len(got) == 0 {
				got = nil
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(leftTemplate{}, remembered{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, append([]leftTemplate(nil), tt.before...), cmp.AllowUnexported(leftTemplate{}, remembered{})); diff != "" {
				t.Errorf("AddLeft changed its argument (-want +got):\n%s", diff)
			}
		})
	}
}

// Containers are found by name, whether there are many or few.
func TestWorkload_StageOf(t *testing.T) {
	for _, containers := range []int{1, fewStages - 1, fewStages, fewStages + 1, 3 * fewStages} {
		w := &Workload{}
		for i := range containers {
			w.stages = append(w.stages, stage{container: string(rune('A' + i))})
		}
		w.numberStages()
		if numbered := w.stageNumbers != nil; numbered != (containers > fewStages) {
			t.Errorf("%d containers: numbered = %t", containers, numbered)
		}
		for i := range containers {
			if got := w.stageOf(string(rune('A' + i))); got != i {
				t.Errorf("%d containers: the index of container %d = %d", containers, i, got)
			}
		}
		if got := w.stageOf("none"); got != -1 {
			t.Errorf("%d containers: the index of an unknown container = %d, want -1", containers, got)
		}
	}
}

// The bytes of a deleted source include everything that it refers to.
func TestSource_ContentBytes(t *testing.T) {
	const most = 1 << 30
	name := strings.Repeat("k", 1000)
	keys := []KeyDigest{{Key: name}}
	least := (&Source{}).contentBytes(most)
	if least < 500 || least > 2000 {
		t.Errorf("an empty source has %d bytes", least)
	}
	past := Past{Source: &Source{Keys: keys}}
	for what, s := range map[string]*Source{
		"keys":                   {Keys: keys},
		"first content":          {earlier: &history{first: &keys}},
		"earlier content":        {earlier: &history{past: []Past{past}}},
		"removed keys":           {earlier: &history{removed: make([]removedKey, 20)}},
		"changes":                {earlier: &history{episodes: make([]episode, 20)}},
		"empty earlier contents": {earlier: &history{past: []Past{{Source: &Source{}}, {Source: &Source{}}}}},
	} {
		if got := s.contentBytes(most) - least; got < 1000 || got > 3000 {
			t.Errorf("%s: %d bytes, want 1000 to 3000", what, got)
		}
	}
	two := []KeyDigest{{Key: name}, {Key: name}}
	if one, both := (&Source{Keys: keys}).contentBytes(most)-least, (&Source{Keys: two}).contentBytes(most)-least; both != 2*one {
		t.Errorf("one key has %d bytes and two have %d, want twice as many", one, both)
	}
	// The count of a large source ends soon after the limit.
	if got := (&Source{Keys: make([]KeyDigest, 10_000)}).contentBytes(1000); got <= 1000 || got > 2000 {
		t.Errorf("%d bytes with a limit of 1000, want 1001 to 2000", got)
	}
}
