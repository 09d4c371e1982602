// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// periodsOf is a graph with the ConfigMap a, which Deployment web uses, and the times of which are counted in seconds.
type periodsOf struct {
	t       *testing.T
	g       *Graph
	key     byte
	uid     types.UID
	content map[string]string
	version int
	written int // by the entry of the manager of its content
	heard   int // when anything was last read, for a list
}

var periodSource = SourceKey{ConfigMap, "shop", "a"}

func newPeriodsOf(t *testing.T) *periodsOf {
	t.Helper()
	p := &periodsOf{t: t, g: NewGraph(), key: 1, uid: "u", version: 100}
	p.g.SetDigester(p.digester())
	p.use(true)
	return p
}

func (p *periodsOf) digester() *Digester {
	return NewDigester(append(make([]byte, KeySize-1), p.key))
}

func (p *periodsOf) use(is bool) {
	w := &Workload{WorkloadKey: shopKey(Deployment, "web")}
	if is {
		w.References = []Reference{{Kind: ConfigMap, Name: "a", Uses: Wholly}}
	}
	p.g.SetWorkload(w, Patterns{})
}

func second(s int) time.Time { return podTime.Add(time.Duration(s) * time.Second) }

func dataOf(pairs ...string) map[string]string {
	out := map[string]string{}
	for _, pair := range pairs {
		key, value, _ := strings.Cut(pair, "=")
		out[key] = value
	}
	return out
}

// write writes the content, at a second.
func (p *periodsOf) write(at int, pairs ...string) {
	before := p.content
	p.content = dataOf(pairs...)
	p.version++
	for key, value := range p.content { // a removal leaves no time
		if was, found := before[key]; !found || was != value {
			p.written = at
		}
	}
}

// read lets the graph read the source as it is.
func (p *periodsOf) read(at Arrival) {
	written := metav1.NewTime(second(p.written))
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "a", UID: p.uid, ResourceVersion: fmt.Sprint(p.version), CreationTimestamp: metav1.NewTime(podTime.Add(-time.Hour)),
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "owner", Time: &written, FieldsV1: metav1.NewFieldsV1(`{"f:data":{}}`)}},
	}, Data: maps.Clone(p.content)}
	s := read(p.digester(), cm)
	s.Remember(p.g.Source(periodSource), p.g, at)
	p.g.SetSource(s)
}

func (p *periodsOf) see(at int) { p.read(Arrival{Live: true, Seen: second(at)}); p.heard = at }
func (p *periodsOf) list(at int) {
	p.read(Arrival{Seen: second(at), Since: second(p.heard)})
}
func (p *periodsOf) start() { p.read(Arrival{}) }

// remove deletes the source: live, or as a list shows it.
func (p *periodsOf) remove(at int, live bool) {
	p.version++
	p.g.DeleteSource(periodSource, Arrival{Live: live, Seen: second(at), Since: second(p.heard)})
	p.uid, p.content = p.uid+"u", nil
}

// expect compares the periods: their contents, when they were written, and between which times they began.
func (p *periodsOf) expect(want ...string) {
	p.t.Helper()
	var got []string
	for _, period := range p.g.Periods(periodSource) {
		text := "absent"
		switch {
		case period.Unknown:
			text = "unknown"
		case period.Source != nil:
			text = ""
			for _, k := range period.Keys {
				text += k.Key + ","
			}
		}
		if !period.Written.IsZero() {
			text += fmt.Sprint(" @", period.Written.Sub(podTime).Seconds())
		}
		for _, at := range []time.Time{period.After, period.Before} {
			if at.IsZero() {
				text += " -"
			} else {
				text += fmt.Sprint(" ", at.Sub(podTime).Seconds())
			}
		}
		got = append(got, text)
	}
	if !slices.Equal(got, want) {
		p.t.Errorf("periods\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestPeriods(t *testing.T) {
	for name, tt := range map[string]func(*periodsOf){
		"of a source that is not there": func(p *periodsOf) { p.expect("absent - -") },
		"of one that may not be selected": func(p *periodsOf) {
			p.g.SetSelectedByLabel(true)
			p.expect("unknown - -")
		},
		"of the first list": func(p *periodsOf) {
			p.write(1, "a=1")
			p.start()
			p.expect("a, @1 - -")
		},
		"created": func(p *periodsOf) {
			p.write(1, "a=1")
			p.see(2)
			p.expect("absent - -", "a, @1 2 2")
		},
		"created, as a list shows": func(p *periodsOf) {
			p.write(1, "a=1")
			p.list(5)
			p.expect("absent - -", "unknown 0 5", "a, @1 0 5")
		},
		"a change": func(p *periodsOf) {
			p.write(1, "a=1")
			p.start()
			p.write(10, "a=2", "b=1")
			p.see(11)
			p.expect("a, @1 - -", "a,b, @10 11 11")
			p.write(20, "c=1")
			p.see(21)
			p.expect("a, @1 - -", "a,b, @10 11 11", "c, @20 21 21")
		},
		"a change in a list": func(p *periodsOf) {
			p.write(1, "a=1")
			p.start()
			p.heard = 7
			p.write(10, "a=2")
			p.list(15)
			p.expect("a, @1 - -", "unknown 7 15", "a, @10 7 15")
		},
		"a write in a list, with the same content in the end": func(p *periodsOf) {
			p.write(1, "a=1")
			p.start()
			p.write(10, "a=2")
			p.write(11, "a=1")
			p.list(15)
			p.expect("a, @1 - -", "unknown 0 15", "a, @11 0 15")
		},
		"a write of metadata": func(p *periodsOf) {
			p.write(1, "a=1")
			p.start()
			p.version++
			p.see(5)
			p.expect("a, @1 - -")
		},
		"a write of metadata by the manager of the content": func(p *periodsOf) {
			p.write(1, "a=1")
			p.start()
			p.version++
			p.written = 4
			p.see(5)
			p.expect("a, @1 - -")
		},
		"a write of metadata, as a list shows": func(p *periodsOf) {
			p.write(1, "a=1")
			p.start()
			p.version++
			p.list(5)
			p.expect("a, @1 - -")
		},
		"a list that shows nothing new": func(p *periodsOf) {
			p.write(1, "a=1")
			p.see(2)
			p.list(5)
			p.expect("absent - -", "a, @1 2 2")
		},
		"a removal of a key": func(p *periodsOf) {
			p.write(1, "a=1", "b=1")
			p.start()
			p.write(10, "a=1")
			p.see(11)
			p.expect("a,b, @1 - -", "a, 11 11")
			p.version++
			p.see(20)
			p.expect("a,b, @1 - -", "a, 11 11")
		},
		"a removal of the only key that its manager has set, of which nothing is left": func(p *periodsOf) {
			p.write(1, "a=1")
			p.start()
			p.write(10, "a=1", "b=1")
			p.see(10)
			p.write(20, "a=1")
			p.written = 1
			p.see(20)
			p.expect("a, @1 - -", "a,b, @10 10 10", "a, 20 20")
		},
		"a change by a client that empties the fields of managers": func(p *periodsOf) {
			p.write(10, "a=1")
			p.start()
			p.write(20, "a=2")
			p.written = 1
			p.see(20)
			p.expect("a, @10 - -", "a, 20 20")
		},
		"a removal of a key, as a list shows": func(p *periodsOf) {
			p.write(1, "a=1", "b=1")
			p.start()
			p.write(10, "a=1")
			p.list(11)
			p.expect("a,b, @1 - -", "unknown 0 11", "a, 0 11")
		},
		"deleted, and created again": func(p *periodsOf) {
			p.write(1, "a=1")
			p.start()
			p.remove(10, true)
			p.expect("a, @1 - -", "absent 10 10")
			p.write(20, "a=1")
			p.see(21)
			p.expect("a, @1 - -", "absent 10 10", "a, @20 21 21")
		},
		"deleted, as a list shows": func(p *periodsOf) {
			p.write(1, "a=1")
			p.start()
			p.heard = 4
			p.remove(10, false)
			p.expect("a, @1 - -", "unknown 4 10", "absent 4 10")
		},
		"deleted and created again within the same second, as a list shows": func(p *periodsOf) {
			p.write(1, "a=1")
			p.start()
			p.uid = "other"
			p.version++
			p.list(10)
			p.expect("a, @1 - -", "unknown 0 10", "a, @1 0 10")
		},
		"deleted while nothing used it": func(p *periodsOf) {
			p.write(1, "a=1")
			p.start()
			p.use(false)
			p.remove(10, true)
			p.expect("absent - -")
		},
		"it may have lost its label": func(p *periodsOf) {
			p.g.SetSelectedByLabel(true)
			p.write(1, "a=1")
			p.start()
			p.remove(10, true)
			p.expect("a, @1 - -", "unknown 10 10")
		},
	} {
		t.Run(name, func(t *testing.T) { tt(newPeriodsOf(t)) })
	}
}

// What is remembered has limits: the earliest periods are forgotten, and contents with very many keys.
func TestPeriods_Bounds(t *testing.T) {
	keys := func(n int) (pairs []string) {
		for i := range n {
			pairs = append(pairs, fmt.Sprintf("%06d=1", i))
		}
		return pairs
	}
	last := func(p *periodsOf) Period { all := p.g.Periods(periodSource); return all[len(all)-1] }
	t.Run("periods", func(t *testing.T) {
		p := newPeriodsOf(t)
		p.write(0, "a=0")
		p.start()
		for i := range 3 * MaxPeriods {
			p.write(i+1, fmt.Sprint("a=", i+1))
			p.see(i + 1)
		}
		all := p.g.Periods(periodSource)
		if len(all) != MaxPeriods+1 || !last(p).Written.Equal(second(3*MaxPeriods)) || !all[1].Written.Equal(second(2*MaxPeriods+1)) || !all[0].Keys[0].Varied {
			t.Errorf("%d periods, the second of %s", len(all), all[1].Written)
		}
	})
	t.Run("keys that change often lose their past first", func(t *testing.T) {
		p := newPeriodsOf(t)
		p.write(0, "a=1", "b=1", "noise=0")
		p.start()
		p.write(1, "a=2", "b=1", "noise=0")
		p.see(1)
		for i := range 5 * MaxPeriods {
			noise := fmt.Sprint("noise=", i+1)
			if i%7 == 0 { // it comes and goes
				noise = "other=1"
			}
			p.write(i+2, "a=2", "b=1", noise)
			p.see(i + 2)
		}
		all := p.g.Periods(periodSource)
		if len(all) != MaxPeriods+1 {
			t.Errorf("%d periods", len(all))
		}
		for i, period := range all {
			for _, k := range period.Keys {
				if rare := k.Key == "a" || k.Key == "b"; rare && k.Varied || (k.Key == "a" && i == 0) != (k.Key == "a" && k.Digest != all[len(all)-1].Keys[0].Digest) {
					t.Errorf("period %d: %+v", i, k)
				}
			}
		}
		if !all[1].Written.Equal(second(1)) {
			t.Errorf("the change of a rare key is of %s", all[1].Written)
		}
		noise := Reference{Uses: []Use{{Type: Env, Keys: []string{"noise"}}}}
		rare := Reference{Uses: []Use{{Type: Env, Keys: []string{"a"}}}}
		if !noise.Varies(all[1].Source) || noise.Varies(all[len(all)-1].Source) || rare.Varies(all[1].Source) || !(&Reference{Uses: Wholly}).Varies(all[1].Source) {
			t.Errorf("%+v", all[1].Keys)
		}
	})
	t.Run("keys", func(t *testing.T) {
		p := newPeriodsOf(t)
		p.write(0, keys(maxPeriodKeys/2)...)
		p.start()
		for i := range 4 {
			p.write(i+1, append(keys(maxPeriodKeys/2-1), fmt.Sprint("a=", i))...)
			p.see(i + 1)
		}
		if n := len(p.g.Periods(periodSource)); n != 3 {
			t.Errorf("%d periods", n)
		}
		p.write(10, keys(maxPeriodKeys+1)...)
		p.see(10)
		p.write(11, "a=1")
		p.see(11)
		p.expect("a, @11 11 11")
	})
	t.Run("keys of a deleted source", func(t *testing.T) {
		p := newPeriodsOf(t)
		p.write(0, "a=1")
		p.start()
		p.write(1, keys(maxGoneKeys)...)
		p.see(1)
		p.remove(2, true)
		if all := p.g.Periods(periodSource); len(all) != 2 || len(all[0].Keys) != maxGoneKeys {
			t.Errorf("%+v", all)
		}
		p.write(3, keys(maxGoneKeys+1)...)
		p.see(3)
		p.remove(4, true)
		p.expect("unknown @3 3 3", "absent 4 4")
	})
	t.Run("deleted sources", func(t *testing.T) {
		g := NewGraph()
		w := &Workload{WorkloadKey: shopKey(Deployment, "web")}
		name := func(i int) string { return fmt.Sprintf("%05d", i) }
		for i := range maxGone + 2 {
			w.References = append(w.References, Reference{Kind: ConfigMap, Name: name(i), Uses: Wholly})
		}
		g.SetWorkload(w, Patterns{})
		for i := range maxGone + 2 {
			s := &Source{SourceKey: SourceKey{ConfigMap, "shop", name(i)}}
			g.SetSource(s)
			g.DeleteSource(s.SourceKey, Arrival{Live: true, Seen: second(1)})
		}
		if n := g.buried.len(); n != maxGone || len(g.Periods(SourceKey{ConfigMap, "shop", name(1)})) != 1 || len(g.Periods(SourceKey{ConfigMap, "shop", name(2)})) != 2 {
			t.Errorf("%d deleted sources are remembered", n)
		}
		g.SetSource(&Source{SourceKey: SourceKey{ConfigMap, "shop", name(2)}})
		if g.buried.len() != maxGone-1 || g.graves.Len() != maxGone-1 {
			t.Errorf("%d and %d are remembered after one has been created again", g.buried.len(), g.graves.Len())
		}
	})
}
