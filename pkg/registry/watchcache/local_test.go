// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"fmt"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage"
)

// Where resources have counters of their own, a watermark may stand still for ever. Clients
// then list and watch at one replica as long as they like: each state has a version of its
// own, and none of before is forgotten for that.
func TestAWatermarkThatStandsStillForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1", "a/2")
		late(c, 100, 201, "a/1", "201")
		c.First, c.MaxEvents = 1<<16-1, 1<<(counterBits+1)
		old := list(t, c, ListOptions[*configMap]{})
		open := read(t, c, WatchOptions[*configMap]{ResourceVersion: old.ResourceVersion})
		c.SetAlone(true)
		c.SetLocal()
		seen := map[string]bool{}
		revision, last := 201, list(t, c, ListOptions[*configMap]{}).ResourceVersion
		if before(last, old.ResourceVersion) {
			t.Errorf("version %s after %s", last, old.ResourceVersion)
		}
		for range 3 * (topCounter - int(c.First)) {
			revision++
			late(c, 100, uint64(revision), "a/1", fmt.Sprint(revision))
			c.Progress(100)
			now := list(t, c, ListOptions[*configMap]{}).ResourceVersion
			if seen[now] || before(now, last) {
				t.Fatalf("after %d changes version %s comes after %s", revision-201, now, last)
			}
			seen[now], last = true, now
			if events, ok := open.next(); len(events) != 1 || !ok {
				t.Fatalf("events %v, open %v", showEvents(events), ok)
			}
		}
		present := list(t, c, ListOptions[*configMap]{})
		page := list(t, c, ListOptions[*configMap]{Limit: 1})
		c.Apply(100, []Change[*configMap]{
			{Key: "a/1", Object: newObject("a/1", "x"), Cause: 9000},
			{Key: "a/2", Object: newObject("a/2", "y"), Cause: 9000},
		})
		for _, from := range []string{present.ResourceVersion, page.ResourceVersion} {
			if events, ok := read(t, c, WatchOptions[*configMap]{ResourceVersion: from}).next(); len(events) != 2 || !ok {
				t.Errorf("from %s: events %v, open %v", from, showEvents(events), ok)
			}
		}
		exact := list(t, c, ListOptions[*configMap]{ResourceVersion: old.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
		second := list(t, c, ListOptions[*configMap]{Limit: 1, Continue: page.Continue})
		if exact.Items[0].value != "201" || second.Items[0].value != "0" {
			t.Errorf("exactly %s: %v; the second page: %v", old.ResourceVersion, showAll(exact.Items), showAll(second.Items))
		}
	})
}

// A replica that has not noticed yet that resources have counters of their own must not take
// the versions of one that has for what it has seen itself.
func TestVersionsOfANeighbourThatIsAloneForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		neighbour, c := syncedCache(elsewhere, "a/1"), syncedCache(here, "a/1")
		neighbour.SetLocal()
		version := list(t, neighbour, ListOptions[*configMap]{}).ResourceVersion
		for _, alone := range []bool{false, true} {
			c.SetAlone(alone)
			read(t, c, WatchOptions[*configMap]{ResourceVersion: version}).expectEnd("a watch", "ERROR 410")
			_, _, err := c.Get(t.Context(), "a/1", version)
			if !storage.IsTooLargeResourceVersion(err) {
				t.Errorf("get: %v", err)
			}
			if l, err := c.List(t.Context(), ListOptions[*configMap]{ResourceVersion: version}); err == nil {
				t.Errorf("list: %v", showAll(l.Items))
			}
		}
		neighbour.SetAlone(false) // cannot be
		read(t, neighbour, WatchOptions[*configMap]{ResourceVersion: at(100, 0, here)}).expectEnd("the other way round", "ERROR 410")
	})
}
