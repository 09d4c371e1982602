// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Of the templates that were replaced while pods of them may be left, the last are remembered with their records: not more
// than maxTemplates, and not more bytes than annotations have.
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
		"the first":                            {nil, one(1, "s"), []leftTemplate{one(1, "s")}},
		"a second":                             {[]leftTemplate{one(1, "s")}, one(2, "s"), []leftTemplate{one(1, "s"), one(2, "s")}},
		"the same once more":                   {[]leftTemplate{one(1, "s"), one(2, "s")}, one(1, "t"), []leftTemplate{one(2, "s"), one(1, "t")}},
		"a template that is not known":         {[]leftTemplate{one(1, "s")}, one(0, "s"), []leftTemplate{one(1, "s")}},
		"one of which nothing was recorded":    {[]leftTemplate{one(1, "s")}, leftTemplate{template: 2}, []leftTemplate{one(1, "s")}},
		"as many as there may be":              {many[:maxTemplates-1], many[maxTemplates-1], many},
		"more than there may be":               {many, one(100, "s"), append(many[1:maxTemplates:maxTemplates], one(100, "s"))},
		"as many bytes as there may be":        {[]leftTemplate{one(1, half)}, one(2, half), []leftTemplate{one(1, half), one(2, half)}},
		"a byte more":                          {[]leftTemplate{one(1, half)}, one(2, half+"s"), []leftTemplate{one(2, half+"s")}},
		"a byte more, of an earlier one":       {[]leftTemplate{one(1, "s"), one(2, half)}, one(3, half), []leftTemplate{one(2, half), one(3, half)}},
		"more than there may be, of one alone": {nil, one(1, half+half+"s"), nil},
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
				t.Errorf("the original has changed (-want +got):\n%s", diff)
			}
		})
	}
}

// A container of many is found by its name as one of few is.
func TestWorkload_StageOf(t *testing.T) {
	for _, containers := range []int{1, fewStages - 1, fewStages, fewStages + 1, 3 * fewStages} {
		w := &Workload{}
		for i := range containers {
			w.stages = append(w.stages, stage{container: string(rune('A' + i))})
		}
		w.numberStages()
		if numbered := w.stageNumbers != nil; numbered != (containers > fewStages) {
			t.Errorf("of %d containers the numbers are kept: %t", containers, numbered)
		}
		for i := range containers {
			if got := w.stageOf(string(rune('A' + i))); got != i {
				t.Errorf("of %d containers, number %d is number %d", containers, i, got)
			}
		}
		if got := w.stageOf("none"); got != -1 {
			t.Errorf("of %d containers, one that there is not is number %d", containers, got)
		}
	}
}

// What is remembered of a deleted source is counted with all that it holds on to.
func TestSource_ContentBytes(t *testing.T) {
	const most = 1 << 30
	name := strings.Repeat("k", 1000)
	keys := []KeyDigest{{Key: name}}
	least := (&Source{}).contentBytes(most)
	if least < 500 || least > 2000 {
		t.Errorf("%d bytes of an empty one", least)
	}
	past := Past{Source: &Source{Keys: keys}}
	for what, s := range map[string]*Source{
		"keys":                    {Keys: keys},
		"the first content":       {earlier: &history{first: &keys}},
		"an earlier content":      {earlier: &history{past: []Past{past}}},
		"removed keys":            {earlier: &history{removed: make([]removedKey, 20)}},
		"changes":                 {earlier: &history{episodes: make([]episode, 20)}},
		"earlier contents, empty": {earlier: &history{past: []Past{{Source: &Source{}}, {Source: &Source{}}}}},
	} {
		if got := s.contentBytes(most) - least; got < 1000 || got > 3000 {
			t.Errorf("%s: %d bytes", what, got)
		}
	}
	two := []KeyDigest{{Key: name}, {Key: name}}
	if one, both := (&Source{Keys: keys}).contentBytes(most)-least, (&Source{Keys: two}).contentBytes(most)-least; both != 2*one {
		t.Errorf("a key has %d bytes, and two have %d", one, both)
	}
	// It does not go through all of a large one.
	if got := (&Source{Keys: make([]KeyDigest, 10_000)}).contentBytes(1000); got <= 1000 || got > 2000 {
		t.Errorf("%d bytes, where it does not matter beyond 1000", got)
	}
}
