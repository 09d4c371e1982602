// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

// watchState is how far a watch is, and how what its client has seen compares with what this replica
// has published.
type watchState uint8

const (
	// ended: nothing is sent any more.
	ended watchState = iota
	// starting: it is not known yet where to begin.
	starting
	// initializing: the client is sent the objects as they were when the watch began, and what has
	// happened since.
	initializing
	// following: the client has seen what this replica has published up to some event, and is sent each
	// one that follows.
	following
	// behind: the client comes from another replica, with a version up to whose watermark this replica
	// has yet to apply something. The client has been shown nothing older than that here.
	behind
	// unresumable: the same, but the client has been shown something older. It gets versions from which
	// no watch can begin: another replica would not know that it has to be sent more.
	unresumable
	// caughtUp: the client comes from another replica, with a version up to whose watermark this replica
	// has applied everything. What it has seen beyond that is not known.
	caughtUp

	watchStates
)

// seenElsewhere reports whether the client may have seen at another replica what this one has yet to
// send. Then no version of this replica says what it has seen.
func (s watchState) seenElsewhere() bool { return s == behind || s == unresumable || s == caughtUp }

// watchInput is what may take a watch to another state.
type watchInput uint8

const (
	// Where it begins; see snapshot.start.
	startUnsynced watchInput = iota // nowhere: the cache has not synced
	startExpired                    // nowhere: what came after the version is not known
	startInitial                    // with all objects
	startNow                        // after the present version
	startOwn                        // after a version of this replica
	startBehind                     // after one of another replica, the watermark of which is not reached here
	startCaughtUp                   // after one of another replica, the watermark of which is

	sentAll     // everything that has been published has been sent
	sendOlder   // an object is about to be sent, from before the watermark that the client came with
	sendCurrent // an object or a bookmark is about to be sent, from that watermark or later
	knowsAll    // all that the client can have seen elsewhere has been applied here, and sent
	historyLost // it is not known any more what other replicas have shown since the client was there
	stop        // the client, the server or an error ends the watch

	watchInputs
)

// watchTransitions has the state to which each input leads. What is missing does not happen, and would
// end the watch.
var watchTransitions = [watchStates][watchInputs]watchState{
	starting: {
		startUnsynced: ended,
		startExpired:  ended,
		startInitial:  initializing,
		startNow:      following,
		startOwn:      following,
		startBehind:   behind,
		startCaughtUp: caughtUp,
		stop:          ended,
	},
	initializing: {
		sentAll:     following,
		sendCurrent: initializing,
		historyLost: initializing,
		stop:        ended,
	},
	following: {
		sentAll:     following,
		sendOlder:   following, // the client came with a watermark that no replica has reached
		sendCurrent: following,
		historyLost: following,
		stop:        ended,
	},
	behind: {
		sentAll:     behind,
		sendOlder:   unresumable,
		sendCurrent: caughtUp,
		knowsAll:    following,
		historyLost: ended,
		stop:        ended,
	},
	unresumable: {
		sentAll:     unresumable,
		sendOlder:   unresumable,
		sendCurrent: caughtUp,
		knowsAll:    unresumable, // until the client has a version from which a watch can begin
		historyLost: ended,
		stop:        ended,
	},
	caughtUp: {
		sentAll:     caughtUp,
		sendCurrent: caughtUp,
		knowsAll:    following,
		historyLost: ended,
		stop:        ended,
	},
}

// after returns the state to which an input leads.
func (s watchState) after(in watchInput) watchState { return watchTransitions[s][in] }

// on takes the watch to the state to which an input leads, and does what comes with that. It returns
// false when the watch has ended.
func (w *watcher[T]) on(in watchInput) bool {
	before := w.state
	w.state = before.after(in)
	if w.state == before {
		return w.state != ended
	}
	switch {
	case w.state == unresumable:
		w.floor = w.floor.unresumable()
		w.cache.unresumable.Add(1)
	case before == unresumable:
		w.floor = w.floor.shared()
		w.cache.unresumable.Add(-1)
	}
	switch {
	case w.state == following:
		w.told = nil
	case w.state == caughtUp && w.options.Matches == nil:
		w.told = nil // from now on all events are sent
	}
	return w.state != ended
}

// comparability says whether versions of other replicas can be compared with those of this one.
type comparability uint8

const (
	versionsComparable   comparability = iota
	versionsIncomparable               // not now
	versionsLocal                      // never again: the watermark counts events
)

// cacheState is what requests depend on: nothing is served until the cache has synced.
type cacheState struct {
	synced   bool
	versions comparability
}

// alone reports whether versions of other replicas mean nothing.
func (s cacheState) alone() bool { return s.versions != versionsComparable }

// cacheInput is what takes a cache from one state to another.
type cacheInput uint8

const (
	replaceAll   cacheInput = iota // Replace
	forgetAll                      // Reset
	compare                        // SetAlone(false)
	doNotCompare                   // SetAlone(true)
	neverCompare                   // SetLocal, or the counter of versions has come to its end
	cacheInputs
)

// after returns the state to which an input leads.
func (s cacheState) after(in cacheInput) cacheState {
	switch {
	case in == replaceAll:
		s.synced = true
	case in == forgetAll:
		s.synced = false
	case in == neverCompare:
		s.versions = versionsLocal
	case s.versions == versionsLocal: // it stays so
	case in == compare:
		s.versions = versionsComparable
	case in == doNotCompare:
		s.versions = versionsIncomparable
	}
	return s
}

// on takes the cache to the state to which an input leads. It returns false when that is the same. It is
// part of a change.
func (c *Cache[T]) on(in cacheInput) (changed bool) {
	before := c.now.cacheState
	c.now.cacheState = before.after(in)
	changed = c.now.cacheState != before
	c.all = c.all || changed
	return changed
}
