// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"strings"
	"testing"
	"testing/synctest"
)

// A client that comes from another replica is sent as deleted what it may hold and does not match: another
// replica may have shown a state that did, unless one stream alone decides whether an object matches.
func TestWatchFromElsewhere_DeletesWhatMayHaveMatched(t *testing.T) {
	has := func(part string) func(*configMap) bool {
		return func(o *configMap) bool { return strings.Contains(o.value, part) }
	}
	late := func(c *Cache[*configMap], value string) {
		c.Apply(105, []Change[*configMap]{{Key: "a/1", Object: newObject("a/1", value), Cause: 105, Timed: true}})
	}
	for name, tt := range map[string]struct {
		before, after func(*Cache[*configMap])
		want          []string
	}{
		"an object that changes": {
			after: func(c *Cache[*configMap]) { put(c, 110, "a/1", "own 1") },
			want:  []string{"DELETED a/1=own 0@110.1*"},
		},
		"an object that changes, and might have matched by what it is now alone": {
			before: func(c *Cache[*configMap]) { put(c, 101, "a/1", "0") },
			after:  func(c *Cache[*configMap]) { put(c, 110, "a/1", "own 1") },
			want:   []string{"DELETED a/1=0@110.1*"},
		},
		"an object that changes, and might have matched by what it was alone": {
			after: func(c *Cache[*configMap]) { put(c, 110, "a/1", "1") },
			want:  []string{"DELETED a/1=own 0@110.1*"},
		},
		"an object that comes": {
			before: func(c *Cache[*configMap]) { drop(c, 101, "a/1") },
			after:  func(c *Cache[*configMap]) { put(c, 110, "a/1", "own 1") },
			want:   []string{"DELETED a/1=own 1@110.1*"},
		},
		"an object that goes": {
			after: func(c *Cache[*configMap]) { drop(c, 110, "a/1") },
			want:  []string{"DELETED a/1=own 0@110.1*"},
		},
		"an object of which that is told already": {
			after: func(c *Cache[*configMap]) { put(c, 110, "a/1", "own 1"); put(c, 111, "a/1", "own 2") },
			want:  []string{"DELETED a/1=own 0@110.1*"},
		},
		"an object that cannot have matched": {
			before: func(c *Cache[*configMap]) { put(c, 101, "a/1", "0") },
			after:  func(c *Cache[*configMap]) { put(c, 110, "a/1", "1") },
		},
		"an object that follows from the time": {
			before: func(c *Cache[*configMap]) { late(c, "own 1") },
			want:   []string{"DELETED a/1=own 1@105.1*"},
		},
		"an object that follows from the time, and cannot have matched": {
			before: func(c *Cache[*configMap]) { late(c, "1") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := syncedCache(here)
				c.Replace([]*configMap{newObject("a/1", "own 0")}, nil, 100, 100)
				if tt.before != nil {
					tt.before(c)
				}
				r := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(105, 0, elsewhere), Matches: has("own x"), MatchesOwn: has("own")})
				if tt.after != nil {
					tt.after(c)
				}
				r.expect(name, tt.want...)
			})
		})
	}
}

// What a client has seen elsewhere is not sent again to those that select: for each object it is held
// whether something was sent. The others are sent whatever comes once the replica has caught up.
func TestWatchFromElsewhere_LeavesOutWhatItsClientHasSeen(t *testing.T) {
	for name, tt := range map[string]struct {
		matches func(*configMap) bool
		want    []string
	}{
		"of all objects":  {nil, []string{"MODIFIED a/2=y@110.1*"}},
		"of those chosen": {func(*configMap) bool { return true }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := syncedCache(here, "a/1", "a/2")
				r := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(110, 0, elsewhere), Matches: tt.matches})
				late(c, 105, 106, "a/1", "x")
				r.expect("before the watermark is reached")
				put(c, 110, "a/2", "y")
				r.expect("as it is reached", tt.want...)
			})
		})
	}
}

// A client that comes from another replica is sent each object that is timed, in whatever state it holds it.
func TestWatchFromElsewhere_IsSentWhatIsTimed(t *testing.T) {
	timed := func(c *Cache[*configMap], key, value string) {
		c.Apply(101, []Change[*configMap]{{Key: key, Object: newObject(key, value), Cause: 101, Timed: true}})
	}
	synctest.Test(t, func(t *testing.T) {
		older, younger := syncedCache(here, "a/1", "a/2", "a/3", "a/4"), syncedCache(elsewhere, "a/1", "a/2", "a/3", "a/4")
		for _, c := range []*Cache[*configMap]{older, younger} {
			timed(c, "a/3", "y")
			put(c, 102, "a/3", "z") // it is timed no longer
		}
		timed(older, "a/1", "stale")
		timed(older, "a/2", "unknown")
		timed(younger, "a/1", "unknown")
		timed(younger, "a/2", "in sync")
		from := func(c *Cache[*configMap]) WatchOptions[*configMap] {
			return WatchOptions[*configMap]{ResourceVersion: list(t, c, ListOptions[*configMap]{}).ResourceVersion}
		}
		read(t, younger, from(older)).expect("from the older one", "MODIFIED a/1=unknown@102.4*", "MODIFIED a/2=in sync@102.5*")
		read(t, older, from(younger)).expect("from the younger one", "MODIFIED a/1=stale@102.4*", "MODIFIED a/2=unknown@102.5*")
	})
}

// What a client is sent because it follows from the time may lack an input that it has seen elsewhere. So
// it is sent what that makes of it as well.
func TestWatchFromElsewhere_IsToldAllOfWhatItWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1", "a/2")
		c.Apply(100, []Change[*configMap]{{Key: "a/1", Object: newObject("a/1", "late"), Cause: Always}})
		r := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(120, 0, elsewhere)})
		r.expect("at first", "MODIFIED a/1=late@120~")
		put(c, 110, "a/1", "x")
		put(c, 111, "a/2", "y")
		r.expect("when the input is applied", "MODIFIED a/1=x@120~")
	})
}

// A client lists again if there are fewer versions left after its own than it has to be sent.
func TestWatchFromElsewhere_ExpiresWhenVersionsAreUsedUp(t *testing.T) {
	for name, tt := range map[string]struct {
		counter uint64
		want    []string
		end     bool
	}{
		"with enough left":          {topCounter - 4, []string{"MODIFIED a/1=x@120~", "MODIFIED a/2=x@120~"}, false},
		"with one too few left":     {topCounter - 3, []string{"ERROR 410"}, true},
		"with none left":            {topCounter - 1, []string{"ERROR 410"}, true},
		"with a counter that ended": {topCounter, []string{"ERROR 410"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := syncedCache(here, "a/1", "a/2")
				late(c, 100, 130, "a/1", "x")
				late(c, 100, 131, "a/2", "x")
				r := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(120, tt.counter, elsewhere)})
				if tt.end {
					r.expectEnd(name, tt.want...)
				} else {
					r.expect(name, tt.want...)
					r.Stop()
					synctest.Wait()
				}
				if n := c.unresumable.Load(); n != 0 {
					t.Errorf("watches are woken for %d that have ended", n)
				}
			})
		})
	}
}
