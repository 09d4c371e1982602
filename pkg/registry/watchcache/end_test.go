// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// A stream that was lost and listed again may have left out what a neighbour has shown, so
// that watches which began there end. Those of this replica know what it has shown.
func TestAGapEndsWatchesThatBeganElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1")
		own := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(100, 0, here)})
		foreign := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(105, 0, elsewhere)})
		ahead := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(120, 0, elsewhere)})
		c.Relisted(120)
		c.Apply(110, []Change[*configMap]{{Key: "a/1", Object: newObject("a/1", "x"), Cause: 120}})
		foreign.expectEnd("one that may have seen what is missing")
		own.expect("one that began here", "MODIFIED a/1=x@110.1")
		ahead.expect("one that has seen it all")
		read(t, c, WatchOptions[*configMap]{ResourceVersion: at(119, 0, elsewhere)}).expectEnd("a version before the relist", "ERROR 410")
		read(t, c, WatchOptions[*configMap]{ResourceVersion: at(120, 0, elsewhere)}).expect("a version after the relist")
		put(c, 130, "a/1", "y")
		own.expect("one that began here", "MODIFIED a/1=y@130.1")
		ahead.expect("one that has seen it all", "MODIFIED a/1=y@130.1*")
	})
}

// When everything is read again, nothing is known of what was before.
func TestReplaceAndResetEndAllWatches(t *testing.T) {
	for name, again := range map[string]func(*Cache[*configMap]){
		"reset":   func(c *Cache[*configMap]) { c.Reset() },
		"replace": func(c *Cache[*configMap]) { c.Replace([]*configMap{newObject("a/1", "0")}, nil, 200, 200) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, version := range []string{"", at(100, 0, here), at(105, 0, elsewhere)} {
					c := syncedCache(here, "a/1")
					r := read(t, c, WatchOptions[*configMap]{ResourceVersion: version})
					r.next()
					again(c)
					r.expectEnd("from " + show(version))
					if version == "" {
						continue
					}
					if name == "reset" {
						if w, err := c.Watch(t.Context(), WatchOptions[*configMap]{ResourceVersion: version}); !apierrors.IsServiceUnavailable(err) {
							t.Errorf("until it has synced: %v, %v", w, err)
						}
						continue
					}
					read(t, c, WatchOptions[*configMap]{ResourceVersion: version}).expectEnd("again from "+show(version), "ERROR 410")
				}
			})
		})
	}
}

// Scopes that are no longer watched are let go, however many were asked for.
func TestScopesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1")
		for i := range 100 {
			ctx, stop := context.WithCancel(t.Context())
			for _, o := range []WatchOptions[*configMap]{{Namespace: "a", Name: strconv.Itoa(i)}, {Namespace: strconv.Itoa(i)}} {
				if _, err := c.Watch(ctx, o); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			stop()
		}
		synctest.Wait()
		if len(c.waiting) != 0 {
			t.Errorf("%d scopes are still waited for", len(c.waiting))
		}
	})
}

// Before a replica goes, its watches end one after the other, and clients go on elsewhere
// from the last bookmark. Who comes in spite of it is served.
func TestCache_Drain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1")
		put(c, 110, "a/1", "x")
		var with, without []*reader
		for range 20 {
			with = append(with, read(t, c, WatchOptions[*configMap]{ResourceVersion: at(110, 1, here), AllowBookmarks: true}))
			without = append(without, read(t, c, WatchOptions[*configMap]{ResourceVersion: at(110, 1, here)}))
		}
		c.Progress(112)
		synctest.Wait() // until they wait for something to happen
		c.Drain(10 * time.Second)
		late := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(110, 1, here)})
		synctest.Wait()
		if _, _, open := c.Stats(); open < 30 {
			t.Errorf("at once, only %d watches are open", open)
		}
		pass(5 * time.Second)
		if _, _, open := c.Stats(); open < 5 || open > 39 {
			t.Errorf("after half of the time, %d watches are open", open)
		}
		pass(5 * time.Second)
		neighbour := syncedCache(elsewhere, "a/1")
		put(neighbour, 110, "a/1", "x")
		for _, r := range with {
			events, open := r.next()
			if diff := gocmp.Diff([]string{"BOOKMARK 112"}, showEvents(events)); diff != "" || open {
				t.Fatalf("open %v, events (-want +got):\n%s", open, diff)
			}
			again := read(t, neighbour, WatchOptions[*configMap]{ResourceVersion: unwrapped(events[0].Object).ResourceVersion})
			again.expect("from there elsewhere")
			again.Stop()
		}
		for _, r := range without {
			r.expectEnd("who wants no bookmarks")
		}
		put(c, 120, "a/1", "y")
		late.expect("who came later", "MODIFIED a/1=y@120.1")
		if _, _, open := c.Stats(); open != 1 {
			t.Errorf("%d watches are open", open)
		}
	})
}

// Nothing of a watch goes on after its context is done or Stop was called, whether or not
// its events are read; at the end of a bubble no goroutine may be left.
func TestTheEndOfAWatch(t *testing.T) {
	for name, options := range map[string]WatchOptions[*configMap]{
		"that waits":                      {ResourceVersion: at(100, 0, here), AllowBookmarks: true},
		"whose events are not read":       {ResourceVersion: at(100, 0, here)},
		"whose first events are not read": {},
		"that awaits a version":           {ResourceVersion: at(200, 0, elsewhere), SendInitialEvents: new(true), AllowBookmarks: true},
		"that began elsewhere":            {ResourceVersion: at(105, 0, elsewhere)},
		"that has expired":                {ResourceVersion: at(1, 0, here)},
	} {
		for how, end := range map[string]func(context.CancelFunc, watch.Interface){
			"the context": func(cancel context.CancelFunc, _ watch.Interface) { cancel() },
			"Stop":        func(_ context.CancelFunc, w watch.Interface) { w.Stop() },
			"Stop, twice": func(_ context.CancelFunc, w watch.Interface) { w.Stop(); w.Stop() },
		} {
			t.Run("of one "+name+", by "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var keys []string
					for i := range 300 {
						keys = append(keys, fmt.Sprintf("a/%d", i))
					}
					c := syncedCache(here, keys...)
					ctx, cancel := context.WithCancel(context.Background()) //nolint:usetesting // it must not end with the test
					defer cancel()
					w, err := c.Watch(ctx, options)
					if err != nil {
						t.Fatal(err)
					}
					if name == "whose events are not read" {
						for i := range uint64(300) {
							put(c, 101+i, "a/1", "x")
						}
					}
					synctest.Wait()
					end(cancel, w)
					synctest.Wait()
					n := 0
					for range w.ResultChan() { // it is closed
						n++
					}
					if n > 100 {
						t.Errorf("%d events came after the end", n)
					}
					put(c, 1000, "a/1", "y")
				})
			})
		}
	}
}
