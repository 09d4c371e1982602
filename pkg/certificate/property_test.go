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

var profiles = []Profile{
	{Names: usual.Names, Lifetime: time.Minute, CALifetime: 2 * time.Minute},
	{Names: usual.Names, Lifetime: 5 * time.Hour, CALifetime: 10 * time.Hour},
	{Names: usual.Names, Lifetime: day, CALifetime: 5 * day},
}

// TestWhateverIsServedIsTrusted walks over many lifetimes of CAs, with replicas that see the
// Secret late, start, and take over from each other at any time, kube-apiservers that see
// caBundle late, and users who delete, damage and restore the Secret. The seed selects the profile.
func TestWhateverIsServedIsTrusted(t *testing.T) {
	for i, tt := range []struct {
		name string
		story
	}{
		{"no accidents", story{}},
		{"accidents", story{accidents: true}},
		// As when a whole namespace is restored from a backup.
		{"a new leader after each accident", story{accidents: true, starter: leads}},
		{"a new Secret in some accidents", story{accidents: true, starter: creates}},
		{"a new Secret and its leader in some accidents", story{accidents: true, starter: createsAndLeads}},
		// No replica can make the Secret again, so it may be away for long.
		{"a Secret that is away", story{accidents: true, away: true}},
		{"a Secret that is away, a new leader after each", story{accidents: true, away: true, starter: leads}},
		{"a Secret that is away, a replica that starts then", story{accidents: true, away: true, starter: creates}},
		{"a Secret that is away, a replica that starts then and leads", story{accidents: true, away: true, starter: createsAndLeads}},
		// CAs that may sign some names only, after one that may sign all.
		{"other flags", story{accidents: true, away: true, starter: leads, flags: true, unconstrained: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			seeds.Each(t, 1, func(t *testing.T, seed uint64) { walk(t, profiles[(uint64(i)+seed)%3], tt.story, seed) })
		})
	}
}

// What has failed before.
func TestWhateverIsServedIsTrusted_Again(t *testing.T) {
	for name, tt := range map[string]struct {
		profile Profile
		story
		seed uint64
	}{
		"the overlap was cut short by a part of a second":                                       {profiles[0], story{accidents: true}, 1795303394832300666},
		"a replica started with a Secret that was restored, led at once, and published it":      {profiles[1], story{accidents: true}, 1000159},
		"a restored Secret said that a CA was published that had been removed since":            {profiles[0], story{accidents: true, starter: leads}, 7000009},
		"the Secret did not show that the CA of its certificate was published, and was refused": {profiles[0], story{accidents: true, starter: leads}, 5000010},
	} {
		t.Run(name, func(t *testing.T) { walk(t, tt.profile, tt.story, tt.seed) })
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
