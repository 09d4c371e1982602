// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// Where a watch begins, for clients that have seen the present state here, an older one,
// or one of another replica. The cache was filled at 100; a/1 was changed at 110 and 120,
// and b/1 created at 130, of which the last two are beyond the watermark 115.
func TestWhereAWatchBegins(t *testing.T) {
	const initial, second, third = "ADDED a/1=2@115.1", "MODIFIED a/1=2@115.1", "ADDED b/1=3@115.2"
	tests := map[string]struct {
		options WatchOptions[*configMap]
		want    []string
	}{
		"without a version, with what is there":       {WatchOptions[*configMap]{}, []string{initial, third}},
		"from any version, with what is there":        {WatchOptions[*configMap]{ResourceVersion: "0"}, []string{initial, third}},
		"what is there in a namespace":                {WatchOptions[*configMap]{Namespace: "b"}, []string{third}},
		"without what is there":                       {WatchOptions[*configMap]{SendInitialEvents: new(false)}, nil},
		"with what is there, from a version":          {WatchOptions[*configMap]{SendInitialEvents: new(true), ResourceVersion: at(100, 0, here)}, []string{initial, third}},
		"with what is there, from elsewhere":          {WatchOptions[*configMap]{SendInitialEvents: new(true), ResourceVersion: at(115, 9, elsewhere)}, []string{initial, third}},
		"after the present version":                   {WatchOptions[*configMap]{ResourceVersion: at(115, 2, here)}, nil},
		"after an older one":                          {WatchOptions[*configMap]{ResourceVersion: at(115, 1, here)}, []string{third}},
		"after a watermark of here":                   {WatchOptions[*configMap]{ResourceVersion: at(115, 0, here)}, []string{second, third}},
		"after the first":                             {WatchOptions[*configMap]{ResourceVersion: at(100, 0, here)}, []string{"MODIFIED a/1=1@110.1", second, third}},
		"after a watermark of elsewhere":              {WatchOptions[*configMap]{ResourceVersion: at(115, 0, elsewhere)}, []string{"MODIFIED a/1=2@115.1*", "ADDED b/1=3@115.2*"}},
		"after a watermark of no replica":             {WatchOptions[*configMap]{ResourceVersion: at(112, 0, noReplica)}, []string{"MODIFIED a/1=2@112.1*", "ADDED b/1=3@115.2*"}},
		"after a part of what comes here":             {WatchOptions[*configMap]{ResourceVersion: at(115, 7, elsewhere)}, []string{"MODIFIED a/1=2@115.8*", "ADDED b/1=3@115.9*"}},
		"after what has yet to come":                  {WatchOptions[*configMap]{ResourceVersion: at(125, 0, elsewhere)}, []string{"ADDED b/1=3@125~"}},
		"after a version before the sync":             {WatchOptions[*configMap]{ResourceVersion: at(99, 0, here)}, []string{"ERROR 410"}},
		"after a version before the sync, elsewhere":  {WatchOptions[*configMap]{ResourceVersion: at(99, 0, elsewhere)}, []string{"ERROR 410"}},
		"after a number that is no version":           {WatchOptions[*configMap]{ResourceVersion: "1"}, []string{"ERROR 410"}},
		"after one of a neighbour with the same tag":  {WatchOptions[*configMap]{ResourceVersion: at(112, 3, here)}, []string{"MODIFIED a/1=2@112.4*", "ADDED b/1=3@115.2*"}},
		"in a namespace":                              {WatchOptions[*configMap]{Namespace: "a", ResourceVersion: at(100, 0, here)}, []string{"MODIFIED a/1=1@110.1", second}},
		"in a namespace whose name begins another's":  {WatchOptions[*configMap]{Namespace: "a-b", ResourceVersion: at(100, 0, here)}, nil},
		"of what matches, which it does for a moment": {WatchOptions[*configMap]{ResourceVersion: at(100, 0, here), Matches: valueIs("1")}, []string{"ADDED a/1=1@110.1", "DELETED a/1=1@115.1"}},
		"of what matches no more, from elsewhere":     {WatchOptions[*configMap]{ResourceVersion: at(110, 0, elsewhere), Matches: valueIs("1")}, []string{"DELETED a/1=1@110.1*", "DELETED b/1=3@115.2*"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := syncedCache(here, "a/1")
				put(c, 110, "a/1", "1")
				c.Progress(115)
				late(c, 115, 120, "a/1", "2")
				late(c, 115, 130, "b/1", "3")
				r := read(t, c, tt.options)
				if slices.Contains(tt.want, "ERROR 410") {
					r.expectEnd("at first", tt.want...)
					return
				}
				events, open := r.next()
				got := showEvents(events)
				if tt.options.ResourceVersion == "" || tt.options.ResourceVersion == "0" || tt.options.SendInitialEvents != nil {
					// What is there comes with its own versions, in any order.
					slices.Sort(got)
				}
				if diff := gocmp.Diff(tt.want, got); diff != "" || !open {
					t.Errorf("open %v, events (-want +got):\n%s", open, diff)
				}
			})
		})
	}
}

func valueIs(v string) func(*configMap) bool {
	return func(o *configMap) bool { return o.value == v }
}

// What an object is to a client depends on whether it has matched before.
func TestWhatAnEventIsToWhoSelects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1")
		r := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(100, 0, here), Matches: func(o *configMap) bool { return strings.Contains(o.value, "x") }})
		put(c, 101, "a/1", "y")
		r.expect("it did not match and does not")
		put(c, 102, "a/1", "x1")
		r.expect("it begins to match", "ADDED a/1=x1@102.1")
		put(c, 103, "a/1", "x2")
		r.expect("it goes on to", "MODIFIED a/1=x2@103.1")
		put(c, 104, "a/1", "x2")
		r.expect("nothing in it has changed, but a neighbour may have shown something else", "MODIFIED a/1=x2@104.1")
		put(c, 105, "a/1", "y")
		r.expect("it ceases to: the object as it was, in the version of the change", "DELETED a/1=x2@105.1")
		drop(c, 106, "a/1")
		r.expect("it goes without having matched")
		put(c, 107, "a/1", "x3")
		r.expect("it comes back", "ADDED a/1=x3@107.1")
		drop(c, 108, "a/1")
		r.expect("it goes: the object as it was, in the version of the deletion", "DELETED a/1=x3@108.1")
		drop(c, 109, "a/1")
		r.expect("it goes though it is not there")
	})
}

// What time alone has caused is told to everybody, whatever they have seen elsewhere.
func TestWhatTimeAloneHasCausedIsAlwaysSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1")
		own := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(100, 0, here)})
		foreign := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(150, 0, elsewhere)})
		put(c, 110, "a/1", "1")
		c.Apply(110, []Change[*configMap]{{Key: "a/1", Object: newObject("a/1", "late"), Cause: Always}})
		own.expect("one that began here", "MODIFIED a/1=1@110.1", "MODIFIED a/1=late@110.2")
		foreign.expect("one that is ahead", "MODIFIED a/1=late@150~")
		put(c, 120, "a/1", "2")
		foreign.expect("what was told may have been old in another respect, so all that follows is", "MODIFIED a/1=2@150~")
	})
}

// It has no revision to tell whether a client has seen it. So it is remembered for as long as
// nothing else happens to the object, and a client from elsewhere is shown that.
func TestWhatTimeAloneHasCausedIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1", "a/2")
		c.MinEvents, c.MaxEvents = 1, 4
		c.Progress(150)
		for _, key := range []string{"a/1", "a/2"} {
			c.Apply(150, []Change[*configMap]{{Key: key, Object: newObject(key, "late"), Cause: Always}})
		}
		put(c, 151, "a/2", "x")
		for i := range uint64(8) {
			put(c, 152+i, "b/1", "x")
		}
		if _, events, _ := c.Stats(); events > 8 {
			t.Fatalf("%d events are kept", events)
		}
		read(t, c, WatchOptions[*configMap]{Namespace: "a", ResourceVersion: at(159, 0, elsewhere)}).expect("when it has been dropped", "MODIFIED a/1=late@159.1*")
		put(c, 160, "a/1", "y")
		read(t, c, WatchOptions[*configMap]{Namespace: "a", ResourceVersion: at(160, 0, elsewhere)}).expect("when something has happened to it")
	})
}

// One who comes from a replica that is ahead can go on nowhere after what is news only here, however
// much it is: it may lack what has been seen there.
func TestNewsOfAReplicaThatIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1", "a/2", "a/3")
		for i, key := range []string{"a/1", "a/2", "a/3"} {
			late(c, 101, 110+uint64(i), key, "x")
		}
		r := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(105, 0, elsewhere), AllowBookmarks: true})
		r.expect("at first", "MODIFIED a/1=x@105~", "MODIFIED a/2=x@105~", "MODIFIED a/3=x@105~")
		late(c, 104, 113, "a/1", "y")
		r.expect("while it is behind", "MODIFIED a/1=y@105~")
		c.Progress(105)
		events, open := r.next()
		if len(events) != 1 || !open || events[0].Type != watch.Bookmark {
			t.Fatalf("when it is not: %v, open %v", showEvents(events), open)
		}
		if v, _ := parseVersion(unwrapped(events[0].Object).ResourceVersion); v.isUnresumable() || v.watermark() != 105 {
			t.Errorf("a bookmark at %s", show(v.String()))
		}
	})
}

// A watch by name is told of its object alone, and does not even wake for others.
func TestAWatchOfOneName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1", "a/10", "a-b/1", "b/1")
		r := read(t, c, WatchOptions[*configMap]{Namespace: "a", Name: "1"})
		r.expect("at first", "ADDED a/1=0@100")
		put(c, 101, "a/1", "1")
		r.expect("an event", "MODIFIED a/1=1@101.1")
		waits := func() <-chan struct{} {
			synctest.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.waiting["a/1"].more
		}
		before := waits()
		if before == nil {
			t.Fatal("the watch does not wait for its object")
		}
		for i, key := range []string{"a/10", "a/0", "b/1", "a-b/1"} {
			put(c, 102+uint64(i), key, "x")
		}
		drop(c, 110, "a/10")
		c.Progress(120)
		if waits() != before {
			t.Error("the watch has woken for other objects")
		}
		r.expect("others")
		put(c, 121, "a/1", "x")
		r.expect("its own", "MODIFIED a/1=x@121.1")
		if waits() == before {
			t.Error("the watch has not woken for its object")
		}
		drop(c, 122, "a/1")
		r.expect("its own", "DELETED a/1=x@122.1")
		read(t, c, WatchOptions[*configMap]{Namespace: "a", Name: "1"}).expect("it has gone")
	})
}

// While versions of other replicas mean nothing, they are expired, and clients list again.
// Those of this replica are exact as ever.
func TestAloneVersionsOfOthersAreExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1")
		own := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(100, 0, here)})
		initial := read(t, c, WatchOptions[*configMap]{})
		initial.expect("at first", "ADDED a/1=0@100")
		foreign := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(105, 0, elsewhere)})
		shared := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(100, 0, noReplica)})
		foreign.expect("at first")
		shared.expect("at first")
		c.SetAlone(true)
		foreign.expectEnd("one that began elsewhere")
		shared.expectEnd("one that began with pages")
		own.expect("one that began here")
		late(c, 100, 110, "a/1", "x")
		own.expect("it goes on", "MODIFIED a/1=x@100.1")
		initial.expect("it goes on", "MODIFIED a/1=x@100.1")

		for _, version := range []string{at(100, 0, elsewhere), at(105, 0, elsewhere), at(100, 0, noReplica), at(100, 9, here)} {
			read(t, c, WatchOptions[*configMap]{ResourceVersion: version}).expectEnd("a watch from "+show(version), "ERROR 410")
			read(t, c, WatchOptions[*configMap]{ResourceVersion: version, SendInitialEvents: new(true)}).expectEnd("all since "+show(version), "ERROR 410")
			if o, _, err := c.Get(t.Context(), "a/1", version); !storage.IsTooLargeResourceVersion(err) {
				t.Errorf("get from %s: %v, %v", show(version), o, err)
			} else if seconds, again := apierrors.SuggestsClientDelay(err); !again || seconds != 1 {
				t.Errorf("get from %s is not to be tried again", show(version))
			}
			if l, err := c.List(t.Context(), ListOptions[*configMap]{ResourceVersion: version}); !apierrors.IsResourceExpired(err) {
				t.Errorf("list from %s: %v, %v", show(version), l, err)
			}
			if l, err := c.List(t.Context(), ListOptions[*configMap]{Continue: tokenOf(t, version, "a/0")}); !apierrors.IsResourceExpired(err) {
				t.Errorf("page of %s: %v, %v", show(version), l, err)
			}
		}
		for version, want := range map[string]string{"": "x", "0": "x", at(100, 0, here): "0", at(100, 1, here): "x"} {
			if o, _, err := c.Get(t.Context(), "a/1", version); err != nil || o.value != "x" {
				t.Errorf("get from %s: %v, %v", show(version), o, err)
			}
			for name, o := range map[string]ListOptions[*configMap]{
				"exactly": {ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchExact},
				"page of": {Continue: tokenOf(t, version, "a/0")},
			} {
				if version == "" || version == "0" {
					continue // these are the present state, whatever it is
				}
				if l, err := c.List(t.Context(), o); err != nil || l.Items[0].value != want {
					t.Errorf("%s %s: %v, %v", name, show(version), l, err)
				}
			}
		}
		read(t, c, WatchOptions[*configMap]{ResourceVersion: at(100, 0, here)}).expect("a watch from here", "MODIFIED a/1=x@100.1")

		c.SetAlone(false)
		own.expect("they mean something again")
		read(t, c, WatchOptions[*configMap]{ResourceVersion: at(105, 0, elsewhere)}).expect("a watch from elsewhere", "MODIFIED a/1=x@105~")
	})
}

// A client that has seen the deletion of an object on one replica goes on at another that
// is behind, and there the object is still shown as changed. Should it go back before the
// deletion has come there too, it would not be told again; so it has to list.
func TestWhoWasShownAnOlderStateCannotGoOnElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ahead, behind := syncedCache(here, "a/1", "a/2"), syncedCache(elsewhere, "a/1", "a/2")
		drop(ahead, 120, "a/1")
		version := list(t, ahead, ListOptions[*configMap]{}).ResourceVersion

		late(behind, 100, 130, "a/1", "x") // a stream is ahead of that with the deletion
		r := read(t, behind, WatchOptions[*configMap]{ResourceVersion: version})
		events, open := r.next()
		if !open || len(events) != 1 || unwrapped(events[0].Object).value != "x" {
			t.Fatalf("open %v, %v", open, showEvents(events))
		}
		shown := unwrapped(events[0].Object).ResourceVersion
		if before(shown, version) {
			t.Errorf("version %s after %s", show(shown), show(version))
		}
		for _, c := range []*Cache[*configMap]{ahead, behind} {
			read(t, c, WatchOptions[*configMap]{ResourceVersion: shown}).expectEnd("from what it was shown", "ERROR 410")
		}

		c := behind
		c.Apply(120, []Change[*configMap]{{Key: "a/1", Cause: 130}})
		put(c, 131, "a/2", "y")
		events, open = r.next()
		if !open || len(events) != 2 || events[0].Type != watch.Deleted {
			t.Fatalf("open %v, %v", open, showEvents(events))
		}
		// Now it has seen everything up to a version again.
		caughtUp := unwrapped(events[1].Object).ResourceVersion
		put(ahead, 140, "a/2", "z")
		read(t, ahead, WatchOptions[*configMap]{ResourceVersion: caughtUp}).expect("when it has caught up", "MODIFIED a/2=z@140.1*")
	})
}

// As soon as such a client has seen everything again, a bookmark gives it a version with
// which it can go on, though nothing else happens.
func TestWhoHasCaughtUpIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1")
		r := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(120, 0, elsewhere), AllowBookmarks: true})
		late(c, 100, 130, "a/1", "x")
		r.expect("while it lags behind", "MODIFIED a/1=x@120~")
		c.Progress(119)
		r.expect("when it still does")
		c.Progress(120)
		r.expect("when it has caught up", "BOOKMARK 120.2*")
		c.Progress(125)
		r.expect("and not again")
	})
}

// What time has done is not told again and again: one who comes from elsewhere is shown once
// what has become of it, if that may be news, and nothing of what was before.
func TestWhatTimeHasDoneIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1", "a/2", "a/3")
		byTime := func(key, value string) {
			c.Apply(c.now.watermark, []Change[*configMap]{{Key: key, Object: newObject(key, value), Cause: Always}})
		}
		byTime("a/1", "settled")
		byTime("a/2", "settled")
		put(c, 110, "a/1", "rolling")
		put(c, 111, "a/1", "done")
		drop(c, 112, "a/2")
		put(c, 113, "a/2", "again")
		byTime("a/3", "settled")
		put(c, 114, "a/3", "later")
		byTime("a/3", "overdue")
		for range 2 {
			read(t, c, WatchOptions[*configMap]{ResourceVersion: at(115, 0, elsewhere)}).expect("one who has seen all inputs", "MODIFIED a/3=overdue@115~")
			read(t, c, WatchOptions[*configMap]{ResourceVersion: at(114, 0, elsewhere)}).expect("one who has seen all inputs, and is not ahead", "MODIFIED a/3=overdue@114.2*")
			pass(c.History + time.Second) // however long ago it is
		}
		read(t, c, WatchOptions[*configMap]{ResourceVersion: at(113, 0, elsewhere)}).expect("who has yet to see the last",
			"MODIFIED a/3=overdue@114.2*")
	})
}
