// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/configdep/configdep/test/seeds"
)

// whatComes reads a watch for a time and tells when what came, in seconds since the start.
func whatComes(r *reader, d time.Duration) (out []string) {
	start := time.Now()
	over := time.NewTimer(d)
	defer over.Stop()
	for {
		select {
		case e, open := <-r.ResultChan():
			if !open {
				return append(out, fmt.Sprintf("%s: end", time.Since(start)))
			}
			out = append(out, fmt.Sprintf("%s: %s", time.Since(start), showEvents([]watch.Event{e})[0]))
		case <-over.C:
			return out
		}
	}
}

// Clients that allow it are told about every minute from where they can go on, so that
// they need not list again after a quiet hour.
func TestBookmarksEveryMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1", "b/1")
		with := read(t, c, WatchOptions[*configMap]{Namespace: "a", ResourceVersion: at(100, 0, here), AllowBookmarks: true})
		foreign := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(100, 0, elsewhere), AllowBookmarks: true})
		without := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(100, 0, here)})
		var others []watch.Event
		last := time.Now()
		for i := range uint64(60) {
			revision := 200 + i
			put(c, revision, "b/1", "x")
			if i == 30 {
				late(c, revision, 500, "b/1", "ahead")
			}
			e := <-with.ResultChan()
			want := fmt.Sprintf("BOOKMARK %d.1", revision)
			if i == 30 {
				want = fmt.Sprintf("BOOKMARK %d.2", revision)
			}
			if got := showEvents([]watch.Event{e}); !slices.Equal(got, []string{want}) {
				t.Fatalf("got %v, want %s", got, want)
			}
			if after := time.Since(last); after < 54*time.Second || after > time.Minute {
				t.Errorf("a bookmark after %s", after)
			}
			last = time.Now()
			events, _ := foreign.next()
			others = append(others, events...)
			again := read(t, c, WatchOptions[*configMap]{Namespace: "a", ResourceVersion: unwrapped(e.Object).ResourceVersion})
			again.expect("from a bookmark")
			again.Stop()
		}
		if events, open := without.next(); !open || len(events) != 61 || slices.ContainsFunc(events, func(e watch.Event) bool { return e.Type == watch.Bookmark }) {
			t.Errorf("who does not allow bookmarks: open %v, %v", open, showEvents(events))
		}
		others = slices.DeleteFunc(others, func(e watch.Event) bool { return e.Type != watch.Bookmark })
		if len(others) < 55 {
			t.Errorf("who began elsewhere: %d bookmarks", len(others))
		}
		for _, e := range others {
			if v, err := parseVersion(unwrapped(e.Object).ResourceVersion); err != nil || v.tag() != noReplica {
				t.Errorf("who began elsewhere: version %s", show(v.String()))
			}
		}
	})
}

// A bookmark promises that nothing up to it has yet to come.
func TestABookmarkDoesNotOvertakeEvents(t *testing.T) {
	seeds.Each(t, 200, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			c := syncedCache(here, "a/1", "b/1")
			r := read(t, c, WatchOptions[*configMap]{Namespace: "a", ResourceVersion: at(100, 0, here), AllowBookmarks: true})
			var last version
			take := func() {
				for synctest.Wait(); ; synctest.Wait() {
					select {
					case e := <-r.ResultChan():
						v, err := parseVersion(unwrapped(e.Object).ResourceVersion)
						if err != nil || v < last || v == last && e.Type != watch.Bookmark {
							t.Fatalf("%v after %s, %v", showEvents([]watch.Event{e}), show(last.String()), err)
						}
						last = v
					default:
						return
					}
				}
			}
			for revision := uint64(101); revision < 160; revision++ {
				put(c, revision, []string{"a/1", "b/1"}[random.IntN(2)], "x")
				if random.IntN(3) == 0 {
					c.Progress(revision)
				}
				pass(time.Duration(random.IntN(20)) * time.Second)
				if random.IntN(4) == 0 {
					take()
				}
			}
			take()
		})
	})
}

// Nor when an event comes in the very moment of the bookmark.
func TestABookmarkInTheMomentOfAnEvent(t *testing.T) {
	for range 500 {
		synctest.Test(t, func(t *testing.T) {
			c := syncedCache(here, "a/1")
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			r := readFor(ctx, t, c, WatchOptions[*configMap]{ResourceVersion: at(100, 0, here), AllowBookmarks: true})
			synctest.Wait()
			// The time is that of the bubble, so that no real time passes. Unlike pass, it does not let
			// the watch have its turn: the timer of the bookmark and the event race.
			time.Sleep(28 * time.Second) //nolint:forbidigo // see above
			put(c, 110, "a/1", "x")
			events, _ := r.next()
			got := showEvents(events)
			if !slices.Equal(got, []string{"MODIFIED a/1=x@110.1", "BOOKMARK 110.1"}) && !slices.Equal(got, []string{"BOOKMARK 100", "MODIFIED a/1=x@110.1"}) {
				t.Fatalf("what came: %v", got)
			}
		})
	}
}

// Shortly before a watch ends, the client is told from where to go on.
func TestABookmarkBeforeTheDeadline(t *testing.T) {
	tests := map[string]struct {
		timeout time.Duration
		options WatchOptions[*configMap]
		want    []string
	}{
		"of a watch of half a minute":      {30 * time.Second, WatchOptions[*configMap]{AllowBookmarks: true}, []string{"28s: BOOKMARK 150", "30s: end"}},
		"that was not asked for":           {30 * time.Second, WatchOptions[*configMap]{}, []string{"30s: end"}},
		"of a watch that is too short":     {2 * time.Second, WatchOptions[*configMap]{AllowBookmarks: true}, []string{"2s: end"}},
		"that began elsewhere":             {30 * time.Second, WatchOptions[*configMap]{AllowBookmarks: true, ResourceVersion: at(160, 2, elsewhere)}, []string{"28s: BOOKMARK 160.2*", "30s: end"}},
		"of a namespace without any event": {30 * time.Second, WatchOptions[*configMap]{AllowBookmarks: true, Namespace: "b"}, []string{"28s: BOOKMARK 150", "30s: end"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := syncedCache(here, "a/1")
				ctx, cancel := context.WithTimeout(t.Context(), tt.timeout)
				defer cancel()
				if tt.options.ResourceVersion == "" {
					tt.options.ResourceVersion = at(100, 0, here)
				}
				r := readFor(ctx, t, c, tt.options)
				synctest.Wait()
				c.Progress(150)
				if diff := gocmp.Diff(tt.want, whatComes(r, time.Hour)); diff != "" {
					t.Errorf("what came (-want +got):\n%s", diff)
				}
			})
		})
	}
	t.Run("of a long watch", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			got := whatComes(readFor(ctx, t, syncedCache(here), WatchOptions[*configMap]{AllowBookmarks: true}), time.Hour)
			if n := len(got); n < 6 || n > 7 || !slices.Equal(got[n-2:], []string{"4m58s: BOOKMARK 100", "5m0s: end"}) {
				t.Errorf("what came: %v", got)
			}
		})
	})
}

// The end of the initial events is told with an annotation, but only to clients that have
// asked for initial events, and allow bookmarks.
func TestTheEndOfInitialEvents(t *testing.T) {
	const end = " map[k8s.io/initial-events-end:true]"
	tests := map[string]struct {
		options WatchOptions[*configMap]
		want    []string
	}{
		"asked for":                          {WatchOptions[*configMap]{SendInitialEvents: new(true), AllowBookmarks: true}, []string{"0s: ADDED a/1=0@100", "0s: BOOKMARK 100" + end}},
		"asked for where nothing is":         {WatchOptions[*configMap]{SendInitialEvents: new(true), AllowBookmarks: true, Namespace: "b"}, []string{"0s: BOOKMARK 100" + end}},
		"asked for, from a version":          {WatchOptions[*configMap]{SendInitialEvents: new(true), AllowBookmarks: true, ResourceVersion: at(50, 0, elsewhere)}, []string{"0s: ADDED a/1=0@100", "0s: BOOKMARK 100" + end}},
		"asked for, from one of a neighbour": {WatchOptions[*configMap]{SendInitialEvents: new(true), AllowBookmarks: true, ResourceVersion: at(100, 9, elsewhere)}, []string{"0s: ADDED a/1=0@100", "0s: BOOKMARK 100.9*" + end}},
		"without bookmarks":                  {WatchOptions[*configMap]{SendInitialEvents: new(true)}, []string{"0s: ADDED a/1=0@100"}},
		"as they come without a version":     {WatchOptions[*configMap]{AllowBookmarks: true}, []string{"0s: ADDED a/1=0@100"}},
		"not wanted":                         {WatchOptions[*configMap]{SendInitialEvents: new(false), AllowBookmarks: true}, nil},
		"not wanted, from a version":         {WatchOptions[*configMap]{SendInitialEvents: new(false), AllowBookmarks: true, ResourceVersion: at(100, 0, here)}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := read(t, syncedCache(here, "a/1"), tt.options)
				if diff := gocmp.Diff(tt.want, whatComes(r, 50*time.Second)); diff != "" {
					t.Errorf("what came (-want +got):\n%s", diff)
				}
				for _, later := range whatComes(r, 5*time.Minute) {
					if strings.Contains(later, "map[") || !tt.options.AllowBookmarks {
						t.Errorf("later: %s", later)
					}
				}
			})
		})
	}
	t.Run("after a version that has yet to come", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := syncedCache(here, "a/1")
			begun := make(chan *reader)
			go func() {
				begun <- read(t, c, WatchOptions[*configMap]{SendInitialEvents: new(true), AllowBookmarks: true, ResourceVersion: at(110, 3, elsewhere)})
			}()
			put(c, 105, "a/1", "x")
			pass(time.Second)
			put(c, 112, "a/2", "y")
			r := <-begun
			r.expect("when the version has come", "ADDED a/1=x@105.1", "ADDED a/2=y@112.1", "BOOKMARK 112.1"+end)
		})
	})
}
