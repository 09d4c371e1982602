// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// With one revision counter, versions determine the order of moments; with several, the order in which they were
// read does.
func TestGraph_OrdersMoments(t *testing.T) {
	early, late := Moment{Version: 1, Order: 2}, Moment{Version: 2, Order: 1}
	for _, several := range []bool{false, true} {
		g := NewGraph()
		g.SetSeveralCounters(several)
		if g.SeveralCounters() != several {
			t.Errorf("SeveralCounters = %v, want %v", g.SeveralCounters(), several)
		}
		first, last := early, late
		if several {
			first, last = late, early
		}
		if !g.Before(first, last) || g.Before(last, first) || g.Before(first, first) || !g.Before(Moment{}, first) {
			t.Errorf("several counters = %v: %v is not before %v", several, first, last)
		}
		for _, all := range [][]Moment{{early, late}, {late, early}, {{}, early, late, early}} {
			if got := g.Latest(all...); got != last {
				t.Errorf("several counters = %v: latest of %v = %v", several, all, got)
			}
		}
		if got := g.Latest(); got != (Moment{}) {
			t.Errorf("latest of no moments = %v", got)
		}
	}
	g := NewGraph()
	g.SetSince(late)
	if g.Since() != late {
		t.Errorf("Since = %v", g.Since())
	}
}

// changing is a ConfigMap in a graph, with a workload that reads it.
type changing struct {
	graph   *Graph
	key     SourceKey
	version uint64
}

func newChanging() *changing {
	c := &changing{NewGraph(), SourceKey{ConfigMap, "shop", "settings"}, 100}
	c.graph.SetWorkload(&Workload{WorkloadKey: WorkloadKey{Deployment, "shop", "web"}, References: []Reference{whole(ConfigMap, "settings")}}, Patterns{})
	return c
}

var day = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// write changes the content to a value, at a minute of the day; with first, the first list shows the content.
func (c *changing) write(value string, minute int, first bool) {
	c.version++
	o := configMap("settings", map[string]string{"a": value})
	o.Namespace, o.ResourceVersion = "shop", fmt.Sprint(c.version)
	written := metav1.NewTime(day.Add(time.Duration(minute) * time.Minute))
	o.ManagedFields = []metav1.ManagedFieldsEntry{{Time: &written, FieldsV1: metav1.NewFieldsV1(`{"f:data":{}}`)}}
	s := FromConfigMap(testDigester(), o, SourceMarks{})
	at := Arrival{Order: c.version}
	if !first {
		at.Live, at.Seen = true, written.Add(time.Second)
	}
	s.After(c.graph.Source(c.key), c.graph.DeletedBefore(c.key), at)
	c.graph.SetSource(s)
}

// remove deletes the source, at a minute of the day; -1: not watched.
func (c *changing) remove(minute int) {
	c.version++
	change := Change{Version: c.version, Order: c.version}
	if minute >= 0 {
		change.Seen = day.Add(time.Duration(minute) * time.Minute)
	}
	c.graph.DeleteSource(c.key, change)
}

// ChangedSince returns the first and the last change of the content after a moment, by the clock of the API
// server, as long as they are remembered.
func TestGraph_ChangedSince(t *testing.T) {
	const never = -1
	for name, tt := range map[string]struct {
		do          func(*changing)
		since       uint64 // a version; 101 is the first content
		first, last int    // minutes
		times       int
	}{
		"no change":                             {func(*changing) {}, 101, never, never, 0},
		"one change":                            {func(c *changing) { c.write("2", 1, false) }, 101, 1, 1, 1},
		"one change, before the moment":         {func(c *changing) { c.write("2", 1, false) }, 102, never, never, 0},
		"three changes":                         {func(c *changing) { c.write("2", 1, false); c.write("3", 2, false); c.write("1", 3, false) }, 101, 1, 3, 3},
		"two of three changes after the moment": {func(c *changing) { c.write("2", 1, false); c.write("3", 2, false); c.write("1", 3, false) }, 102, 2, 3, 2},
		"a write of the same content":           {func(c *changing) { c.write("1", 1, false) }, 101, never, never, 0},
		"changed and deleted":                   {func(c *changing) { c.write("2", 1, false); c.remove(2) }, 101, 1, 2, 2},
		"deleted and created again":             {func(c *changing) { c.remove(1); c.write("1", 2, false) }, 101, 1, 2, 2},
		"deleted while not watched":             {func(c *changing) { c.write("2", 1, false); c.remove(-1) }, 101, never, never, 0},
		"many changes": {func(c *changing) {
			for i := range maxEpisodes {
				c.write(fmt.Sprint("v", i), i+1, false)
			}
		}, 102, 2, 16, 15},
		"many changes, the first of which may be forgotten": {func(c *changing) {
			for i := range maxEpisodes {
				c.write(fmt.Sprint("v", i), i+1, false)
			}
		}, 101, never, 16, 16},
		"more changes than are remembered": {func(c *changing) {
			for i := range maxEpisodes + 3 {
				c.write(fmt.Sprint("v", i), i+1, false)
			}
		}, 101, never, 19, 16},
	} {
		t.Run(name, func(t *testing.T) {
			c := newChanging()
			c.write("1", 0, true)
			tt.do(c)
			first, last, times, _ := c.graph.ChangedSince(c.key, Moment{Version: tt.since})
			at := func(minute int) time.Time {
				if minute < 0 {
					return time.Time{}
				}
				return day.Add(time.Duration(minute) * time.Minute)
			}
			if !first.Equal(at(tt.first)) || !last.Equal(at(tt.last)) || times != tt.times {
				t.Errorf("%d changes from %v to %v, want %d from %v to %v", times, first, last, tt.times, at(tt.first), at(tt.last))
			}
		})
	}
	if _, _, times, _ := NewGraph().ChangedSince(SourceKey{}, Moment{}); times != 0 {
		t.Errorf("a source that never existed changed %d times", times)
	}
}

// LastWritten returns when the content that a reference reads was last written or deleted.
func TestGraph_LastWritten(t *testing.T) {
	c := newChanging()
	r := whole(ConfigMap, "settings")
	check := func(what string, want Moment) {
		t.Helper()
		if got := c.graph.LastWritten("shop", &r); got != want {
			t.Errorf("%s: last write = %v, want %v", what, got, want)
		}
	}
	check("never existed", Moment{})
	c.write("1", 0, true)
	check("found in the first list", Moment{101, 101})
	c.write("2", 1, false)
	check("changed", Moment{102, 102})
	c.remove(2)
	check("deleted", Moment{103, 103})
	if was := c.graph.Deleted(c.key); was == nil || was.ResourceVersion != "102" {
		t.Errorf("Deleted after the deletion = %+v, want version 102", was)
	}
	c.write("2", 3, false)
	check("created again with the same content, without which no pod can start", Moment{102, 102})
	if was := c.graph.Deleted(c.key); was != nil {
		t.Errorf("Deleted of a source that exists = %+v, want none", was)
	}
}

// A namespace that is being deleted terminates its workloads.
func TestGraph_Terminating(t *testing.T) {
	g := NewGraph()
	w, gone := &Workload{WorkloadKey: WorkloadKey{Namespace: "shop"}}, &Workload{Terminating: true}
	check := func(what string, want bool, names ...string) {
		t.Helper()
		if got := g.Terminating(w); got != want {
			t.Errorf("%s: terminating = %v", what, got)
		}
		seen := map[string]int{}
		g.EachNamespace(func(name string) { seen[name]++ })
		wanted := map[string]int{}
		for _, name := range names {
			wanted[name] = 1
		}
		if diff := cmp.Diff(wanted, seen); diff != "" {
			t.Errorf("%s: namespaces (-want +got):\n%s", what, diff)
		}
	}
	if !g.Terminating(gone) {
		t.Error("a workload that is being deleted is not terminating")
	}
	check("nothing set", false)
	if g.SetTerminating("shop", false) {
		t.Error("SetTerminating reports a change, want none")
	}
	for _, want := range []bool{true, false} { // setting the same value again is no change
		if changed := g.SetTerminating("shop", true); changed != want {
			t.Errorf("SetTerminating reports a change = %v, want %v", changed, want)
		}
	}
	check("the namespace is deleted", true, "shop")
	g.SetNamespace("shop", map[string]string{"configdep.io/reload": "auto"})
	g.SetTerminating("other", true)
	check("the namespace has annotations", true, "shop", "other")
	if !g.SetTerminating("shop", false) {
		t.Error("SetTerminating does not report that the namespace is no longer terminating")
	}
	check("the namespace is created again", false, "shop", "other")
}

// With returns a graph with additional sources for one answer; the original stays the same.
func TestGraph_With(t *testing.T) {
	source := func(namespace, name string) *Source {
		return FromConfigMap(testDigester(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, SourceMarks{})
	}
	g := NewGraph()
	g.SetSource(source("shop", "a"))
	names := func(g *Graph) map[SourceKey]bool {
		out := map[SourceKey]bool{}
		g.EachSource(func(s *Source) { out[s.SourceKey] = true })
		return out
	}
	key := func(namespace, name string) SourceKey { return SourceKey{ConfigMap, namespace, name} }
	with := g.With([]*Source{source("shop", "b"), source("shop", "c"), source("new", "d"), source("new", "e")})
	want := map[SourceKey]bool{key("shop", "a"): true, key("shop", "b"): true, key("shop", "c"): true, key("new", "d"): true, key("new", "e"): true}
	if diff := cmp.Diff(want, names(with)); diff != "" {
		t.Errorf("sources of the new graph (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[SourceKey]bool{key("shop", "a"): true}, names(g)); diff != "" {
		t.Errorf("sources of the original graph (-want +got):\n%s", diff)
	}
}

func TestReference_Mountable(t *testing.T) {
	for use, want := range map[UseType]bool{Volume: true, Projected: true, Env: false, EnvFrom: false, CSI: false, ImagePullSecret: false, Annotation: false} {
		if r := (Reference{Uses: []Use{{Type: use}}}); r.Mountable() != want {
			t.Errorf("%s: mountable = %v, want %v", use, r.Mountable(), want)
		}
	}
}
