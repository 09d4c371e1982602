// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	gocmp "github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/configdep/configdep/test/seeds"
)

// A client that does not read loses its watch when what it has not read is forgotten, and
// no other watch does. When it comes back with the last version that it has got, it is sent
// everything that it missed, or told to list again.
func TestASlowReaderLosesOnlyItsOwnWatch(t *testing.T) {
	for _, kept := range []int{8, 64, 300} {
		t.Run(fmt.Sprintf("with %d events kept", kept), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := syncedCache(here, "a/1")
				c.MinEvents, c.MaxEvents = 1, kept
				from := WatchOptions[*configMap]{ResourceVersion: at(100, 0, here)}
				slow, quick := read(t, c, from), read(t, c, from)
				var all []string
				apply := func(n int) {
					t.Helper()
					for range n {
						revision := uint64(101 + len(all))
						put(c, revision, "a/1", fmt.Sprint(revision))
						all = append(all, fmt.Sprintf("MODIFIED a/1=%d@%d.1", revision, revision))
						quick.expect("who reads", all[len(all)-1])
					}
				}
				apply(1000)
				events, open := slow.next()
				got := showEvents(events)
				if open || len(got) == 0 || !slices.Equal(got, all[:len(got)]) {
					t.Fatalf("who does not read: open %v, %v", open, got)
				}
				last := unwrapped(events[len(events)-1].Object).ResourceVersion
				again := read(t, c, WatchOptions[*configMap]{ResourceVersion: last})
				if missed := all[len(got):]; len(missed) <= kept {
					again.expect("everything that was missed", missed...)
				} else {
					again.expectEnd("too much to be remembered", "ERROR 410")
				}
				apply(10)
			})
		})
	}
}

// The same for any pace, with a client that does as reflectors do: what it holds in the end
// is right, and it lists again only when it is told to.
func TestAClientOfAnyPaceConverges(t *testing.T) {
	seeds.Each(t, 200, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			c := syncedCache(here, "a/1", "a/2", "a/3")
			c.MinEvents, c.MaxEvents = 1, 8+random.IntN(60)
			l := list(t, c, ListOptions[*configMap]{})
			held := map[string]string{}
			keep := func(l *List[*configMap]) string {
				clear(held)
				for _, o := range l.Items {
					held[o.Name] = o.value
				}
				return l.ResourceVersion
			}
			version := keep(l)
			r := read(t, c, WatchOptions[*configMap]{ResourceVersion: version})
			take := func(most int) {
				for range most {
					synctest.Wait()
					select {
					case e, open := <-r.ResultChan():
						switch {
						case !open:
							r = read(t, c, WatchOptions[*configMap]{ResourceVersion: version})
						case e.Type == watch.Error:
							if err := apierrors.FromObject(e.Object); !apierrors.IsResourceExpired(err) {
								t.Fatal(err)
							}
							version = keep(list(t, c, ListOptions[*configMap]{}))
							r = read(t, c, WatchOptions[*configMap]{ResourceVersion: version})
						case e.Type == watch.Deleted:
							delete(held, unwrapped(e.Object).Name)
							version = unwrapped(e.Object).ResourceVersion
						default:
							held[unwrapped(e.Object).Name] = unwrapped(e.Object).value
							version = unwrapped(e.Object).ResourceVersion
						}
					default:
						return
					}
				}
			}
			for revision := uint64(101); revision < 300; revision++ {
				key := []string{"a/1", "a/2", "a/3"}[random.IntN(3)]
				if random.IntN(3) == 0 {
					drop(c, revision, key)
				} else {
					put(c, revision, key, fmt.Sprint(revision))
				}
				if random.IntN(20) == 0 {
					take(random.IntN(40))
				}
			}
			take(10_000)
			want := map[string]string{}
			for _, o := range list(t, c, ListOptions[*configMap]{}).Items {
				want[o.Name] = o.value
			}
			if diff := gocmp.Diff(want, held); diff != "" {
				t.Fatalf("what the client holds (-want +got):\n%s", diff)
			}
		})
	})
}

// A watch that nothing concerns is not a slow one, however much happens elsewhere.
func TestAWatchOfAQuietNamespaceSurvivesWhatHappensElsewhere(t *testing.T) {
	for name, options := range map[string]WatchOptions[*configMap]{
		"of a namespace":       {Namespace: "quiet"},
		"of a name":            {Namespace: "quiet", Name: "1"},
		"of a selector":        {Matches: func(o *configMap) bool { return o.Namespace == "quiet" }},
		"that began elsewhere": {Namespace: "quiet", ResourceVersion: at(100, 0, elsewhere)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := syncedCache(here, "busy/1")
				c.MinEvents, c.MaxEvents = 2*noticeEvery, 2*noticeEvery
				if options.ResourceVersion == "" {
					options.ResourceVersion = at(100, 0, here)
				}
				options.AllowBookmarks = true
				r := read(t, c, options)
				revision := uint64(100)
				for range 20 {
					for range noticeEvery {
						revision++
						put(c, revision, "busy/1", "x")
					}
					synctest.Wait() // in the time of so many events it has its turn
				}
				if _, events, _ := c.Stats(); events != c.MaxEvents {
					t.Fatalf("%d events are kept: this test is of more than that", events)
				}
				r.expect("nothing has happened")
				pass(bookmarkPeriod)
				events, _ := r.next()
				if len(events) != 1 || events[0].Type != watch.Bookmark {
					t.Fatalf("after a minute: %v", showEvents(events))
				}
				if v, err := parseVersion(unwrapped(events[0].Object).ResourceVersion); err != nil || v.watermark() != revision {
					t.Errorf("a bookmark %s at revision %d", show(v.String()), revision)
				}
				put(c, revision+1, "quiet/1", "y")
				if events, open := r.next(); !open || len(events) != 1 || events[0].Type != watch.Added {
					t.Errorf("something happens: %v, open %v", showEvents(events), open)
				}
			})
		})
	}
}
