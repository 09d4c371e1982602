// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"fmt"
	"math/rand"
	"testing"
	"time"

	"github.com/configdep/configdep/test/seeds"
)

// TestWhateverIsServedIsTrusted walks over many lifetimes of CAs, with replicas that see the
// Secret late, start, and take over from each other at any time, kube-apiservers that see
// caBundle late, and users who delete, damage and restore the Secret.
func TestWhateverIsServedIsTrusted(t *testing.T) {
	for _, p := range []Profile{
		{Names: usual.Names, Lifetime: time.Minute, CALifetime: 2 * time.Minute},
		{Names: usual.Names, Lifetime: 5 * time.Hour, CALifetime: 10 * time.Hour},
		{Names: usual.Names, Lifetime: day, CALifetime: 5 * day},
	} {
		for _, accidents := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v of %v, accidents: %v", p.Lifetime, p.CALifetime, accidents), func(t *testing.T) {
				var failed []uint64
				switch {
				case accidents && p.Lifetime == time.Minute:
					// The overlap was cut short by a part of a second.
					failed = []uint64{1795303394832300666}
				case accidents && p.Lifetime == 5*time.Hour:
					// A replica started with a Secret that was restored, led at once, and published it.
					failed = []uint64{1000159}
				}
				seeds.Each(t, 1, func(t *testing.T, seed uint64) { walk(t, p, story{accidents: accidents}, seed) }, failed...)
			})
		}
		// As when a whole namespace is restored from a backup.
		t.Run(fmt.Sprintf("%v of %v, a new leader after each accident", p.Lifetime, p.CALifetime), func(t *testing.T) {
			var failed []uint64
			if p.Lifetime == time.Minute {
				// The Secret did not show that the CA of its certificate had been published, as
				// another CA had been since. So the leader refused what it had written itself.
				//
				// A restored Secret said that a CA was published that had been removed since, and
				// its leader signed by that.
				failed = []uint64{5000010, 7000009}
			}
			seeds.Each(t, 1, func(t *testing.T, seed uint64) { walk(t, p, story{accidents: true, starter: leads}, seed) }, failed...)
		})
		t.Run(fmt.Sprintf("%v of %v, a new Secret in some accidents", p.Lifetime, p.CALifetime), func(t *testing.T) {
			seeds.Each(t, 1, func(t *testing.T, seed uint64) { walk(t, p, story{accidents: true, starter: creates}, seed) })
		})
		t.Run(fmt.Sprintf("%v of %v, a new Secret and its leader in some accidents", p.Lifetime, p.CALifetime), func(t *testing.T) {
			seeds.Each(t, 1, func(t *testing.T, seed uint64) { walk(t, p, story{accidents: true, starter: createsAndLeads}, seed) })
		})
		// No replica can make the Secret again, so it may be away for long.
		for begins, what := range []string{"", ", a new leader after each", ", a replica that starts then", ", a replica that starts then and leads"} {
			t.Run(fmt.Sprintf("%v of %v, a Secret that is away%s", p.Lifetime, p.CALifetime, what), func(t *testing.T) {
				seeds.Each(t, 1, func(t *testing.T, seed uint64) {
					walk(t, p, story{accidents: true, away: true, starter: starter(begins)}, seed)
				})
			})
		}
		// CAs that may sign some names only, after one that may sign all.
		t.Run(fmt.Sprintf("%v of %v, other flags", p.Lifetime, p.CALifetime), func(t *testing.T) {
			seeds.Each(t, 1, func(t *testing.T, seed uint64) {
				walk(t, p, story{accidents: true, away: true, starter: leads, flags: true, unconstrained: true}, seed)
			})
		})
	}
}

// story selects the events of a walk.
type story struct {
	accidents     bool // users damage and restore the Secret
	starter       starter
	away          bool // users also delete the Secret, and create it again later
	flags         bool // users also change flags
	unconstrained bool // the first CA is from an earlier version, without name constraints
}

func walk(t *testing.T, p Profile, s story, seed uint64) {
	t.Helper()
	w := &world{t: t, r: rand.New(rand.NewSource(int64(seed))), p: p, now: start, verified: map[string]time.Time{}}
	first := next(t, p, Content{}, nowhere, w.now).Content
	if s.unconstrained {
		first = asBefore(t, p, w.now)
	}
	w.write(first)
	for range 3 {
		r := &witness{}
		w.load(r)
		w.replicas = append(w.replicas, r)
	}
	published := version{content: first, since: w.now.Add(-day)}
	w.objects = [][]version{{published}, {published}}
	// A certificate lives for some hundred steps, so that all that may take time in it can.
	step := p.Lifetime / 100
	what, quiet := "no accident", w.now
	for range 2000 {
		w.now = w.now.Add(time.Duration(1 + w.r.Int63n(int64(step))))
		// If users delete ca.key again and again, a CA that has not been published for long
		// enough signs a certificate, as that is better than one that has expired.
		w.putBack(s.starter)
		if s.accidents && w.now.After(quiet) && w.r.Intn(50) == 0 {
			accident := w.accident
			switch {
			case s.away && w.r.Intn(2) == 0:
				accident = w.remove
			case s.flags && w.r.Intn(2) == 0:
				accident = w.otherFlags
			case s.starter >= creates && w.r.Intn(3) == 0:
				accident = func() string { return w.create(s.starter == createsAndLeads) }
			}
			what, quiet = fmt.Sprintf("%s after %v", accident(), w.now.Sub(start)), w.now.Add(p.Lifetime/4)
			if w.missing() {
				quiet = w.back.Add(p.Lifetime / 4)
			}
			if s.starter == leads {
				r := w.replicas[w.r.Intn(len(w.replicas))]
				w.load(r)
				w.leader, w.led = r, time.Time{}
			}
		}
		if w.r.Intn(60) == 0 {
			w.load(w.replicas[w.r.Intn(len(w.replicas))])
		}
		for _, r := range w.replicas {
			if r.ready {
				w.watch(r)
			} else {
				w.load(r)
			}
		}
		if w.leader == nil || !w.leader.ready || w.r.Intn(50) == 0 {
			w.leader, w.led = w.replicas[w.r.Intn(len(w.replicas))], time.Time{}
		}
		if w.leader.ready && w.r.Intn(3) > 0 { // otherwise the leader is slow, or there is none
			w.lead()
			w.publish()
		}
		w.check(what)
	}
	seen := fmt.Sprintf("in %v: %d CAs, %d serving certificates, repaired %d times, away %d times, filled %d times", w.now.Sub(start), w.cas, w.leaves, w.repaired, w.gone, w.filled)
	t.Log(seen)
	if w.cas < 2 || w.leaves < 8 || s.accidents && w.repaired < 5 || s.away && w.gone < 5 {
		t.Errorf("the walk covered too little: %s", seen)
	}
	if !s.accidents && cas(w.latest()) > 3 {
		t.Errorf("got %d CAs at the end", cas(w.latest()))
	}
}
