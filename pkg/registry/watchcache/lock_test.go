// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What requests look at is looked at without a lock: while one of them hangs in the midst of it, changes
// are applied.
func TestChangesDoNotWaitForReaders(t *testing.T) {
	for name, ask := range map[string]func(*testing.T, *Cache[*configMap], func(*configMap) bool){
		"a watch from elsewhere": func(t *testing.T, c *Cache[*configMap], matches func(*configMap) bool) {
			t.Helper()
			_, _ = c.Watch(t.Context(), WatchOptions[*configMap]{ResourceVersion: at(2, 0, elsewhere), Matches: matches, MatchesOwn: matches})
		},
		"a watch that begins with all objects": func(t *testing.T, c *Cache[*configMap], matches func(*configMap) bool) {
			t.Helper()
			_, _ = c.Watch(t.Context(), WatchOptions[*configMap]{Matches: matches})
		},
		"a list": func(t *testing.T, c *Cache[*configMap], matches func(*configMap) bool) {
			t.Helper()
			_, _ = c.List(t.Context(), ListOptions[*configMap]{Matches: matches})
		},
		"a list of exactly a version": func(t *testing.T, c *Cache[*configMap], matches func(*configMap) bool) {
			t.Helper()
			_, _ = c.List(t.Context(), ListOptions[*configMap]{ResourceVersion: c.latest.Load().version.String(), ResourceVersionMatch: metav1.ResourceVersionMatchExact, Matches: matches})
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := liveCache("a/1", "a/2")
			put(c, 2, "a/1", "2")
			put(c, 3, "a/1", "3")
			begun, end := make(chan struct{}, 100), make(chan struct{})
			asked := make(chan struct{})
			go func() {
				defer close(asked)
				ask(t, c, func(*configMap) bool {
					begun <- struct{}{}
					<-end
					return true
				})
			}()
			<-begun
			applied := make(chan struct{})
			go func() {
				defer close(applied)
				put(c, 4, "a/2", "4")
			}()
			select {
			case <-applied:
			case <-time.After(time.Minute):
				t.Error("a change waits for it")
			}
			close(end)
			<-asked
			<-applied
		})
	}
}

// A watch from elsewhere holds something for each object only until all that its client has seen has been applied here.
func TestWatchFromElsewhereHoldsNothingOnceItHasCaughtUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1", "a/2")
		put(c, 125, "a/1", "x")
		r := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(130, 0, elsewhere)})
		w := r.Interface.(*watcher[*configMap])
		late(c, 126, 131, "a/1", "y")
		r.next()
		if len(w.told) == 0 {
			t.Error("nothing is held of an object that was sent, though others may come that the client has seen")
		}
		put(c, 140, "a/2", "z")
		r.next()
		if w.told != nil {
			t.Errorf("of %d objects it is held whether they were sent", len(w.told))
		}
	})
}
