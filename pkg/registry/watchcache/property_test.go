// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/configdep/configdep/test/seeds"
)

// TestClientConverges lets clients list from one replica and watch from another, through
// any interleaving of the inputs' delays, lost streams and restarts, and then compares
// what they hold with the truth.
func TestClientConverges(t *testing.T) {
	runHistories(t, 800, false, 39042)
}

// TestClientConvergesWithSeveralCounters does so where each stream has revisions of its own
// counter, and replicas notice that at any time, or never: a watermark then tells of each
// stream how far it has arrived by its counter, so that nothing is wrong before they do.
func TestClientConvergesWithSeveralCounters(t *testing.T) {
	runHistories(t, 300, true)
}

func runHistories(t *testing.T, n int, several bool, failed ...uint64) {
	t.Helper()
	seeds.Each(t, n, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) { runHistory(t, seed, several) })
	}, failed...)
}

func runHistory(t *testing.T, seed uint64, several bool) {
	t.Helper()
	w := &world{rand: rand.New(rand.NewPCG(seed, 0)), several: several, streams: make([][]input, streams), state: make([]map[string]string, streams), timed: map[string]bool{}, local: map[string]bool{}}
	for s := range w.state {
		w.state[s] = map[string]string{}
		w.revision[s] = 100
		if several {
			w.revision[s] += w.rand.Uint64N(60)
		}
	}
	doubts := rand.New(rand.NewPCG(seed, 1)) // histories with earlier seeds stay what they were
	for _, key := range keys {
		w.local[key] = doubts.IntN(3) == 0
	}
	for range 5 {
		w.write()
	}
	rs := make([]*replica, replicas)
	for i := range rs {
		rs[i] = w.newReplica()
	}
	cs := make([]*client, clients)
	for i := range cs {
		cs[i] = &client{t: t, world: w, replicas: rs, streaming: i%2 == 1}
		if w.rand.IntN(2) == 0 {
			cs[i].namespace = "a"
		}
		switch w.rand.IntN(4) {
		case 0, 1:
			cs[i].matches = func(o *configMap) bool { return strings.Contains(o.value, "1") }
		case 2:
			cs[i].matches, cs[i].own = func(o *configMap) bool { return strings.HasPrefix(o.value, "1") }, true
		}
	}
	w.between = func() { // clients may see the part, and go elsewhere
		synctest.Wait()
		if w.rand.IntN(2) == 0 {
			cs[w.rand.IntN(clients)].hop()
		}
	}
	for range 30 + w.rand.IntN(60) {
		if doubts.IntN(10) == 0 {
			if r, key := rs[doubts.IntN(replicas)], keys[doubts.IntN(len(keys))]; w.local[key] {
				r.doubt(key, !r.doubts[key])
			}
		}
		r, c := rs[w.rand.IntN(replicas)], cs[w.rand.IntN(clients)]
		if several && w.rand.IntN(25) == 0 {
			w.note("tag %d notices", r.cache.Tag)
			r.cache.SetLocal()
		}
		switch w.rand.IntN(30) {
		case 0:
			r.start()
		case 1:
			r.relist(w.rand.IntN(streams))
		case 2, 3:
			r.bookmark(w.rand.IntN(streams))
		case 4, 5, 6:
			c.disconnect()
		case 7:
			pass(time.Duration(w.rand.IntN(90)) * time.Second)
		case 8, 9, 10, 11:
			w.write()
		case 12, 13:
			if c.watch == nil {
				c.connect()
			}
		case 14:
			key := keys[w.rand.IntN(len(keys))]
			if w.rand.IntN(2) == 0 {
				w.timed[key] = true
			}
			r.recheck(key)
		case 15:
			c.hop()
		case 16, 17, 18, 19:
			r.ask()
		case 20, 21, 22:
			r.applySeveral()
		default:
			r.apply(w.rand.IntN(streams))
		}
		synctest.Wait()
		if w.rand.IntN(2) == 0 {
			c.drain()
		}
	}
	// Everything arrives in the end, and every client is connected.
	for _, r := range rs {
		for s := range streams {
			for r.at[s] < len(w.streams[s]) {
				r.apply(s)
			}
			r.bookmark(s)
		}
		for _, key := range keys {
			if r.timed[key] != w.timed[key] || r.doubts[key] {
				r.doubt(key, false)
			}
		}
	}
	for _, c := range cs {
		for range 60 { // until the list and the watch come from a replica that can go on from there
			if c.watch == nil {
				c.connect()
			}
			synctest.Wait()
			c.drain()
		}
		synctest.Wait()
		c.check()
		c.disconnect()
	}
	synctest.Wait()
}
