// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
)

var stateNames = [watchStates]string{"ended", "starting", "initializing", "following", "behind", "unresumable", "caughtUp"}

var inputNames = [watchInputs]string{
	"startUnsynced", "startExpired", "startInitial", "startNow", "startOwn", "startBehind", "startCaughtUp",
	"sentAll", "sendOlder", "sendCurrent", "knowsAll", "historyLost", "stop",
}

// transition is an input in a state.
type transition struct {
	state watchState
	input watchInput
}

// stateCache returns a cache that has a/1 and a/2 since watermark 100, and in namespace b more objects than
// a watch sends before its client reads.
func stateCache() *Cache[*configMap] {
	keys := []string{"a/1", "a/2"}
	for i := range 40 {
		keys = append(keys, fmt.Sprintf("b/%d", i))
	}
	return syncedCache(here, keys...)
}

// readIn begins a watch that gets to a state. In all but the first it is of namespace a.
func readIn(t *testing.T, c *Cache[*configMap], s watchState) *reader {
	t.Helper()
	options := WatchOptions[*configMap]{Namespace: "a", AllowBookmarks: true}
	switch s {
	case initializing:
		options.Namespace, options.SendInitialEvents = "b", new(true)
	case following:
		options.ResourceVersion = at(100, 0, here)
	case behind, unresumable:
		options.ResourceVersion = at(120, 0, elsewhere)
	case caughtUp:
		options.ResourceVersion = at(100, 0, elsewhere)
	default:
		t.Fatalf("no watch stays %s", stateNames[s])
	}
	r := read(t, c, options)
	if s == unresumable {
		late(c, 100, 121, "a/1", "old")
		r.expect("what was older", "MODIFIED a/1=old@120~")
	}
	synctest.Wait()
	checkState(t, r, s)
	c.change(func() {}) // the watch looks at a snapshot from after this look at it
	return r
}

// checkState compares the state of a watch, and what goes with it, with what it should be.
func checkState(t *testing.T, r *reader, want watchState) {
	t.Helper()
	w := r.Interface.(*watcher[*configMap])
	if w.state != want {
		t.Fatalf("it is %s, want %s", stateNames[w.state], stateNames[want])
	}
	if waits := w.cache.unresumable.Load(); waits < 0 || (waits > 0) != (want == unresumable) {
		t.Errorf("while it is %s, %d watches wait for the watermark", stateNames[want], waits)
	}
	if want == ended {
		return
	}
	if held := w.objects != nil || w.catchUp != nil; held != (want == initializing) {
		t.Errorf("while it is %s, what it has begun with is held: %v", stateNames[want], held)
	}
	if w.floor.isUnresumable() != (want == unresumable) {
		t.Errorf("while it is %s, its client is at version %s", stateNames[want], show(w.floor.String()))
	}
	if held := w.told != nil; held != (want == behind || want == unresumable) {
		t.Errorf("while it is %s, what was told is held: %v", stateNames[want], held)
	}
}

// Whatever happens to a watch, in each of its states, has it go on in another, or end, and its client is
// told what that means. All else does not happen.
func TestWatchState_Transitions(t *testing.T) {
	older := func(c *Cache[*configMap], _ *reader) { late(c, 101, 130, "a/2", "older") }
	current := func(c *Cache[*configMap], _ *reader) { put(c, 140, "a/2", "current") }
	asked := func(c *Cache[*configMap], _ *reader) {
		pass(time.Second)
		c.Current(140, c.Clock.Now())
		c.Progress(140)
		c.Relisted(0) // a watch need not be told that the watermark has moved
	}
	woken := func(c *Cache[*configMap], _ *reader) { c.Relisted(0) }
	moved := func(c *Cache[*configMap], _ *reader) { c.Progress(140) }
	relisted := func(c *Cache[*configMap], _ *reader) { c.Relisted(150) }
	alone := func(c *Cache[*configMap], _ *reader) { c.SetAlone(true) }
	stopped := func(_ *Cache[*configMap], r *reader) { r.Stop() }
	again := func(c *Cache[*configMap], _ *reader) { c.Replace(nil, 150, 150) }
	const initialEnd = "BOOKMARK 100 map[k8s.io/initial-events-end:true]"
	tests := []struct {
		state watchState
		input watchInput
		name  string
		cause func(*Cache[*configMap], *reader)
		next  watchState
		rest  watchState // when the client has read, and nothing is left to be sent
		sent  []string
	}{
		{initializing, sentAll, "the client has read the objects", woken, following, following, []string{initialEnd}},
		{initializing, sendCurrent, "an object changes", func(c *Cache[*configMap], _ *reader) { put(c, 140, "b/1", "x") }, initializing, following, []string{"MODIFIED b/1=x@140.1", "BOOKMARK 140.1 map[k8s.io/initial-events-end:true]"}},
		{initializing, historyLost, "a stream is listed again", relisted, initializing, following, []string{initialEnd}},
		{initializing, historyLost, "revisions cannot be compared", alone, initializing, following, []string{initialEnd}},
		{initializing, stop, "the cache begins again", again, ended, ended, nil},

		{following, sentAll, "nothing happens", woken, following, following, nil},
		{following, sentAll, "the watermark moves", moved, following, following, nil},
		{following, sendCurrent, "an object changes", older, following, following, []string{"MODIFIED a/2=older@101.1"}},
		{following, historyLost, "a stream is listed again", relisted, following, following, nil},
		{following, historyLost, "revisions cannot be compared", alone, following, following, nil},
		{following, stop, "the client stops", stopped, ended, ended, nil},
		{following, stop, "the cache begins again", again, ended, ended, nil},

		{behind, sentAll, "nothing happens", woken, behind, behind, nil},
		{behind, sentAll, "the watermark moves", moved, behind, behind, nil},
		{behind, sendOlder, "an object changes", older, unresumable, unresumable, []string{"MODIFIED a/2=older@120~"}},
		{behind, sendCurrent, "an object changes and the watermark is reached", current, caughtUp, caughtUp, []string{"MODIFIED a/2=current@140.1*"}},
		{behind, sendCurrent, "a bookmark is due when the watermark is reached", func(c *Cache[*configMap], _ *reader) {
			c.Progress(140)
			pass(bookmarkPeriod)
		}, caughtUp, caughtUp, []string{"BOOKMARK 140*"}},
		{behind, knowsAll, "all is known to have been applied", asked, following, following, nil},
		{behind, historyLost, "a stream is listed again", relisted, ended, ended, nil},
		{behind, historyLost, "revisions cannot be compared", alone, ended, ended, nil},
		{behind, stop, "the client stops", stopped, ended, ended, nil},
		{behind, stop, "the cache begins again", again, ended, ended, nil},

		{unresumable, sentAll, "nothing happens", woken, unresumable, unresumable, nil},
		{unresumable, sendOlder, "an object changes", older, unresumable, unresumable, []string{"MODIFIED a/2=older@120~"}},
		{unresumable, sentAll, "a bookmark is due", func(*Cache[*configMap], *reader) { pass(bookmarkPeriod) }, unresumable, unresumable, []string{"BOOKMARK 120~"}},
		{unresumable, sendCurrent, "an object changes and the watermark is reached", current, caughtUp, caughtUp, []string{"MODIFIED a/2=current@140.1*"}},
		{unresumable, sendCurrent, "the watermark is reached", moved, caughtUp, caughtUp, []string{"BOOKMARK 140*"}},
		{unresumable, knowsAll, "all is known to have been applied", func(c *Cache[*configMap], r *reader) {
			r.Interface.(*watcher[*configMap]).options.AllowBookmarks = false
			asked(c, r)
		}, unresumable, unresumable, nil},
		{unresumable, historyLost, "a stream is listed again", relisted, ended, ended, nil},
		{unresumable, historyLost, "revisions cannot be compared", alone, ended, ended, nil},
		{unresumable, stop, "the client stops", stopped, ended, ended, nil},
		{unresumable, stop, "the cache begins again", again, ended, ended, nil},

		{caughtUp, sentAll, "nothing happens", woken, caughtUp, caughtUp, nil},
		{caughtUp, sendCurrent, "an object changes", older, caughtUp, caughtUp, []string{"MODIFIED a/2=older@101.1*"}},
		{caughtUp, sendCurrent, "a bookmark is due", func(*Cache[*configMap], *reader) { pass(bookmarkPeriod) }, caughtUp, caughtUp, []string{"BOOKMARK 100*"}},
		{caughtUp, knowsAll, "all is known to have been applied", asked, following, following, nil},
		{caughtUp, historyLost, "a stream is listed again", relisted, ended, ended, nil},
		{caughtUp, historyLost, "revisions cannot be compared", alone, ended, ended, nil},
		{caughtUp, stop, "the client stops", stopped, ended, ended, nil},
		{caughtUp, stop, "the cache begins again", again, ended, ended, nil},
	}
	tested := map[transition]bool{}
	for _, tt := range tests {
		tested[transition{tt.state, tt.input}] = true
		t.Run(fmt.Sprintf("%s/%s, as %s", stateNames[tt.state], inputNames[tt.input], tt.name), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got := tt.state.after(tt.input); got != tt.next {
					t.Errorf("it leads to %s, want %s", stateNames[got], stateNames[tt.next])
				}
				c := stateCache()
				r := readIn(t, c, tt.state)
				tt.cause(c, r)
				events, open := r.next()
				sent := slices.DeleteFunc(showEvents(events), func(s string) bool { return strings.HasPrefix(s, "ADDED b/") })
				if len(sent) == 0 {
					sent = nil
				}
				if diff := gocmp.Diff(tt.sent, sent); diff != "" || open != (tt.rest != ended) {
					t.Errorf("open %v, what the client is sent (-want +got):\n%s", open, diff)
				}
				checkState(t, r, tt.rest)
			})
		})
	}
	tested[transition{following, sendOlder}] = true // see TestWatchState_AfterAMadeUpVersion
	for in := startUnsynced; in <= startCaughtUp; in++ {
		tested[transition{starting, in}] = true // see TestWatchState_Starts
	}
	for s := range watchStates {
		for in := range watchInputs {
			if !tested[transition{s, in}] { // it does not happen, and would end the watch
				w := newWatcher(t.Context(), stateCache(), WatchOptions[*configMap]{})
				if w.state = s; w.on(in) || w.state != ended {
					t.Errorf("%s in %s leads to %s", inputNames[in], stateNames[s], stateNames[w.state])
				}
			}
		}
	}
}

// A watch that comes to what does not happen ends without having sent anything.
func TestWatchState_EndsWithWhatDoesNotHappen(t *testing.T) {
	c := stateCache()
	put(c, 110, "a/1", "x")
	w := newWatcher(t.Context(), c, WatchOptions[*configMap]{})
	w.state, w.catchUpAfter = caughtUp, 120
	if e := c.latest.Load().events; w.handle(e.at(e.start)) || w.state != ended || len(w.result) > 0 {
		t.Errorf("it is %s, and has sent %d events", stateNames[w.state], len(w.result))
	}
}

// A client can make up a version with a watermark that no replica has reached. Its watch becomes an own one
// all the same, and goes on in versions that are higher.
func TestWatchState_AfterAMadeUpVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stateCache()
		r := read(t, c, WatchOptions[*configMap]{Namespace: "a", ResourceVersion: at(1000, 0, elsewhere)})
		pass(time.Second)
		c.Current(140, c.Clock.Now())
		put(c, 140, "b/1", "x")
		c.Relisted(0)
		r.expect("when all is known to have been applied")
		checkState(t, r, following)
		if got := following.after(sendOlder); got != following {
			t.Errorf("a change leads to %s", stateNames[got])
		}
		put(c, 150, "a/1", "y")
		r.expect("a change", "MODIFIED a/1=y@1000.1*")
		checkState(t, r, following)
	})
}

// Where a watch begins follows from the state of the cache and from the version, and that says in which state it
// begins.
func TestWatchState_Starts(t *testing.T) {
	const own, reached, ahead, low, provisional, never, local = "own", "reached", "ahead", "low", "provisional", "unresumable", "local"
	versions := map[string]version{
		"": 0, own: newVersion(100, 0, here), reached: newVersion(100, 5, elsewhere), ahead: newVersion(101, 0, elsewhere), low: newVersion(99, 0, elsewhere),
		provisional: newVersion(100, 5, elsewhere) | provisionalFlag, never: newVersion(100, 5, elsewhere).unresumable(), local: newVersion(maxWatermark+101, 0, elsewhere),
	}
	type begins map[string]watchInput
	expired := func(among begins) begins {
		for v := range versions {
			if _, decided := among[v]; !decided {
				among[v] = startExpired
			}
		}
		return among
	}
	all := func(in watchInput) begins {
		out := begins{}
		for v := range versions {
			out[v] = in
		}
		return out
	}
	cached := func(synced bool, versions comparability) string { return fmt.Sprint(cacheState{synced, versions}) }
	wants := map[string]begins{
		cached(true, versionsComparable):    expired(begins{"": startNow, own: startOwn, reached: startCaughtUp, ahead: startBehind}),
		cached(true, versionsIncomparable):  expired(begins{"": startNow, own: startOwn}),
		cached(true, versionsLocal):         expired(begins{"": startNow, own: startOwn}),
		cached(false, versionsComparable):   all(startUnsynced),
		cached(false, versionsIncomparable): all(startUnsynced),
		cached(false, versionsLocal):        all(startUnsynced),
	}
	states := map[watchInput]watchState{
		startUnsynced: ended, startExpired: ended, startInitial: initializing, startNow: following, startOwn: following,
		startBehind: behind, startCaughtUp: caughtUp,
	}
	for _, do := range []func(*Cache[*configMap]){
		func(*Cache[*configMap]) {}, func(c *Cache[*configMap]) { c.SetAlone(true) }, (*Cache[*configMap]).SetLocal,
	} {
		for _, synced := range []bool{true, false} {
			c := stateCache()
			if do(c); !synced {
				c.Reset()
			}
			state := fmt.Sprint(c.latest.Load().cacheState)
			for name, v := range versions {
				for _, initial := range []bool{false, true} {
					want := wants[state][name]
					if initial && synced {
						want = startInitial
					}
					w := newWatcher(t.Context(), c, WatchOptions[*configMap]{SendInitialEvents: &initial})
					if got := c.latest.Load().start(v, initial); got != want {
						t.Errorf("cache %s, version %q, initial %v: %s, want %s", state, name, initial, inputNames[got], inputNames[want])
					}
					if err := w.begin(v); w.state != states[want] || (err == nil) != (w.state != ended) {
						t.Errorf("cache %s, version %q, initial %v: it is %s, want %s; %v", state, name, initial, stateNames[w.state], stateNames[states[want]], err)
					}
					w.on(stop)
				}
			}
		}
	}
}

// Nothing is served until the cache has synced. Once versions of other replicas will never mean anything,
// that stays so. Watches take note of what changes.
func TestCacheState_Transitions(t *testing.T) {
	inputs := [cacheInputs]func(*Cache[*configMap]){
		replaceAll:   func(c *Cache[*configMap]) { c.Replace(nil, 200, 200) },
		forgetAll:    (*Cache[*configMap]).Reset,
		compare:      func(c *Cache[*configMap]) { c.SetAlone(false) },
		doNotCompare: func(c *Cache[*configMap]) { c.SetAlone(true) },
		neverCompare: (*Cache[*configMap]).SetLocal,
	}
	type after [cacheInputs]comparability
	for from, want := range map[comparability]after{
		versionsComparable:   {versionsComparable, versionsComparable, versionsComparable, versionsIncomparable, versionsLocal},
		versionsIncomparable: {versionsIncomparable, versionsIncomparable, versionsComparable, versionsIncomparable, versionsLocal},
		versionsLocal:        {versionsLocal, versionsLocal, versionsLocal, versionsLocal, versionsLocal},
	} {
		for in, cause := range inputs {
			for _, synced := range []bool{false, true} {
				c := newTestCache(here)
				if synced {
					c = syncedCache(here)
				}
				c.SetAlone(from == versionsIncomparable)
				if from == versionsLocal {
					c.SetLocal()
				}
				before := cacheState{synced, from}
				if got := c.latest.Load().cacheState; got != before {
					t.Fatalf("the cache is %v, want %v", got, before)
				}
				c.enter(scope{})
				woken := c.more(scope{})
				cause(c)
				state := cacheState{synced && cacheInput(in) != forgetAll || cacheInput(in) == replaceAll, want[in]}
				if got := c.latest.Load().cacheState; got != state {
					t.Errorf("from %v, input %d leads to %v, want %v", before, in, got, state)
				}
				select {
				case <-woken:
				default:
					if state != before {
						t.Errorf("from %v, input %d wakes no watch", before, in)
					}
				}
			}
		}
	}
}
