// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

// What has to be sent to the client of a watch follows from two states: that of the watch, and what the versions of
// other replicas mean to this one. Both are here, with all that changes them.

// origin is where the client of a watch has got what it has.
type origin uint8

const (
	// originOwn: from this replica, which knows exactly what the client has. It gets this replica's versions.
	originOwn origin = iota
	// originForeign: from a replica that is not known, which had applied the inputs in another order. It gets versions that belong
	// to no replica.
	originForeign
	// originUnresumable: the same, and since then it has been shown something older than it had seen there. It gets
	// versions with which it cannot go on elsewhere, where it would not be known that it has to be sent that once more.
	originUnresumable

	origins
)

// happening is what changes the origin.
type happening uint8

const (
	// shownOlder: an event is sent that may lack inputs whose effects the client has seen.
	shownOlder happening = iota
	// shownAll: all inputs whose effects the client had seen when it came have been applied here too, and sent.
	shownAll
	// adopted: nothing that the client may have seen is missing here any more, and all of it has been sent.
	adopted
	// ended: the watch.
	ended

	happenings
)

// transitions says what comes of each origin.
var transitions = [origins][happenings]origin{
	originOwn:         {shownOlder: originOwn, shownAll: originOwn, adopted: originOwn, ended: originOwn},
	originForeign:     {shownOlder: originUnresumable, shownAll: originForeign, adopted: originOwn, ended: originForeign},
	originUnresumable: {shownOlder: originUnresumable, shownAll: originForeign, adopted: originUnresumable, ended: originForeign},
}

// note changes the origin by what has happened.
func (w *watcher[T]) note(h happening) {
	before, now := w.origin, transitions[w.origin][h]
	if before == now {
		return
	}
	w.origin = now
	switch {
	case now == originUnresumable:
		w.floor = w.floor.unresumable()
		w.cache.unresumable.Add(1) // it waits for the watermark
	case before == originUnresumable:
		w.floor = w.floor.shared()
		w.cache.unresumable.Add(-1)
	case now == originOwn:
		w.members = nil
	}
}

// peers is what the versions of other replicas mean to this one.
type peers uint8

const (
	// comparablePeers: they say up to which revision everything has been seen, as there is one counter of revisions.
	comparablePeers peers = iota
	// unknownPeers: nothing, as it is not known whether there is one counter.
	unknownPeers
	// unrelatedPeers: nothing, for ever, and this one's mean nothing to them. What is called the watermark counts events.
	unrelatedPeers
)

// alone reports whether versions of other replicas mean nothing.
func (p peers) alone() bool { return p != comparablePeers }

// local reports whether that is so for ever.
func (p peers) local() bool { return p == unrelatedPeers }

// when returns what comes when it is known, or not known any more, that there is one counter.
func (p peers) when(oneCounter bool) peers {
	switch {
	case p == unrelatedPeers:
		return p
	case oneCounter:
		return comparablePeers
	default:
		return unknownPeers
	}
}
