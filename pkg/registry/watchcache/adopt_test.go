// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"testing"
	"testing/synctest"
	"time"
)

// A watch from a version of another replica becomes an own one when all that its client can have
// seen has been applied here: nothing is lost any more when a stream is listed again, and the
// client can go on from exactly where it is.
func TestWatchFromElsewhereBecomesAnOwnOne(t *testing.T) {
	ask := func(c *Cache[*configMap], revision uint64) {
		pass(time.Second)
		c.Current(revision, c.Clock.Now())
		pass(time.Second)
	}
	for name, tt := range map[string]struct {
		before, after func(*Cache[*configMap])
		own           bool
	}{
		"the current revision has not been asked for": {nil, func(c *Cache[*configMap]) { put(c, 140, "a/2", "x") }, false},
		"it was asked for before": {
			func(c *Cache[*configMap]) { ask(c, 125) },
			func(c *Cache[*configMap]) { put(c, 140, "a/2", "x") }, false,
		},
		"it has yet to be reached": {nil, func(c *Cache[*configMap]) {
			ask(c, 130)
			late(c, 129, 140, "a/2", "x")
		}, false},
		"it has been reached": {nil, func(c *Cache[*configMap]) {
			ask(c, 130)
			put(c, 130, "a/2", "x")
		}, true},
		"it had been reached": {nil, func(c *Cache[*configMap]) {
			put(c, 130, "a/1", "y")
			ask(c, 130)
			put(c, 131, "a/2", "x")
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := syncedCache(here, "a/1", "a/2")
				put(c, 125, "a/1", "x")
				if tt.before != nil {
					tt.before(c)
				}
				r := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(125, 0, elsewhere), Matches: func(*configMap) bool { return true }})
				tt.after(c)
				r.next()
				c.Relisted(131)
				if !tt.own {
					r.expectEnd("when a stream was listed again")
					return
				}
				put(c, 150, "a/1", "z")
				r.expect("a change", "MODIFIED a/1=z@150.1")
			})
		})
	}
}

// Who has been shown something older is told first that this is over.
func TestWatchFromElsewhereThatLagsBehindBecomesAnOwnOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1")
		r := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(120, 0, elsewhere), AllowBookmarks: true})
		late(c, 100, 130, "a/1", "x")
		r.expect("while it lags behind", "MODIFIED a/1=x@120~")
		pass(time.Second)
		c.Current(130, c.Clock.Now())
		c.Progress(130)
		r.expect("when it has caught up", "BOOKMARK 130*")
		put(c, 131, "a/1", "y")
		r.expect("and not again", "MODIFIED a/1=y@131.1*")
		put(c, 132, "a/1", "z")
		r.expect("as one of here", "MODIFIED a/1=z@132.1")
	})
}
