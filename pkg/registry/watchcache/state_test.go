// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import "testing"

// Every origin, with all that can happen to it: what comes of it, and what that does to the watch.
func TestWatcher_Note(t *testing.T) {
	const client = 7 // a watermark that the client has
	seen := newVersion(client, 5, noReplica)
	for _, tt := range []struct {
		before  origin
		happens happening
		after   origin
		floor   version
		waiting int64 // watches that wait for the watermark
		members bool
	}{
		{originOwn, shownOlder, originOwn, seen, 0, true},
		{originOwn, shownAll, originOwn, seen, 0, true},
		{originOwn, adopted, originOwn, seen, 0, true},
		{originOwn, ended, originOwn, seen, 0, true},
		{originForeign, shownOlder, originUnresumable, newVersion(client, 6, unresumableTag), 1, true},
		{originForeign, shownAll, originForeign, seen, 0, true},
		{originForeign, adopted, originOwn, seen, 0, false},
		{originForeign, ended, originForeign, seen, 0, true},
		{originUnresumable, shownOlder, originUnresumable, newVersion(client, 6, unresumableTag), 1, true},
		{originUnresumable, shownAll, originForeign, newVersion(client, 6, noReplica), 0, true},
		{originUnresumable, adopted, originUnresumable, newVersion(client, 6, unresumableTag), 1, true},
		{originUnresumable, ended, originForeign, newVersion(client, 6, noReplica), 0, true},
	} {
		w := &watcher[*configMap]{cache: &Cache[*configMap]{}, members: map[string]bool{}, floor: seen, origin: tt.before}
		if tt.before == originUnresumable {
			w.origin = originForeign
			w.note(shownOlder)
		}
		w.note(tt.happens)
		waiting := w.cache.unresumable.Load()
		if w.origin != tt.after || w.floor != tt.floor || waiting != tt.waiting || (w.members != nil) != tt.members {
			t.Errorf("%d after %d: got origin %d, floor %s, %d waiting, members %v; want %+v", tt.before, tt.happens, w.origin, w.floor, waiting, w.members != nil, tt)
		}
	}
	if n := int(origins) * int(happenings); n != 12 {
		t.Errorf("there are %d transitions, and 12 are tried", n)
	}
}

// What versions of other replicas mean is known by whether there is one counter, until it is known for ever.
func TestPeers(t *testing.T) {
	for _, tt := range []struct {
		before                peers
		without, with         peers
		meansNothing, forEver bool
	}{
		{comparablePeers, unknownPeers, comparablePeers, false, false},
		{unknownPeers, unknownPeers, comparablePeers, true, false},
		{unrelatedPeers, unrelatedPeers, unrelatedPeers, true, true},
	} {
		if without, with := tt.before.when(false), tt.before.when(true); without != tt.without || with != tt.with {
			t.Errorf("%d: got %d without one counter and %d with it, want %+v", tt.before, without, with, tt)
		}
		if tt.before.alone() != tt.meansNothing || tt.before.local() != tt.forEver {
			t.Errorf("%d: got %v, %v, want %+v", tt.before, tt.before.alone(), tt.before.local(), tt)
		}
	}
}
