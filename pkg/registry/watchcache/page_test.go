// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	gocmp "github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/storage"
)

// follow follows continue tokens to the end, each to a cache that next returns.
func follow(t *testing.T, o ListOptions[*configMap], next func(page int) *Cache[*configMap]) (objects, versions []string) {
	t.Helper()
	for page := range 100 {
		l := list(t, next(page), o)
		objects, versions = append(objects, showAll(l.Items)...), append(versions, show(l.ResourceVersion))
		if l.Continue == "" {
			return objects, versions
		}
		o.Continue = l.Continue
	}
	t.Fatal("the list does not end")
	return nil, nil
}

// Pages of large objects are shorter than the client allows, and each has one object at least.
func TestPagesHaveABoundOfBytes(t *testing.T) {
	c := syncedCache(here, "a/1", "a/2", "a/3", "a/4", "a/5")
	sizes := map[string]int{"a/1": 5, "a/2": 5, "a/3": 50, "a/4": 1, "a/5": 1}
	o := ListOptions[*configMap]{Limit: 4, Size: func(m *configMap) int { return sizes[c.Key(m)] }, PageBytes: 10}
	var pages []string
	for {
		l := list(t, c, o)
		pages = append(pages, fmt.Sprint(len(l.Items), " of ", l.Bytes, " bytes"))
		if o.Continue = l.Continue; o.Continue == "" {
			break
		}
		if pages[0] == pages[len(pages)-1] && *l.Remaining != 3 {
			t.Errorf("%d objects remain after the first page, want 3", *l.Remaining)
		}
	}
	if diff := gocmp.Diff([]string{"2 of 10 bytes", "1 of 50 bytes", "2 of 2 bytes"}, pages); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
	o.Limit = 0 // the client wants all at once
	if l := list(t, c, o); len(l.Items) != 5 || l.Bytes != 62 {
		t.Errorf("without a limit: %d objects of %d bytes", len(l.Items), l.Bytes)
	}
}

// The pages of a list are what there was when the first was read, whether or not the
// watermark has moved in between. Their version belongs to no replica: a client that has got
// some of them elsewhere must not be told that it knows exactly what this replica had.
func TestPagesAreTheListOfTheFirst(t *testing.T) {
	for name, watermark := range map[string]uint64{"the watermark moves": 1, "the watermark stays": 0} {
		t.Run(name, func(t *testing.T) {
			c := syncedCache(here, "a/1", "a/2", "a/3", "a/4", "a/5")
			late(c, 100, 110, "a/3", "x")
			got, versions := follow(t, ListOptions[*configMap]{Limit: 1}, func(page int) *Cache[*configMap] {
				at := 100 + uint64(page)*watermark
				switch page {
				case 1:
					late(c, at, 120, "a/2", "new")
				case 2:
					c.Apply(at, []Change[*configMap]{{Key: "a/3", Cause: 121}, {Key: "a/1", Cause: 121}})
				case 3:
					late(c, at, 122, "a/35", "new")
				}
				return c
			})
			if diff := gocmp.Diff([]string{"a/1=0@100", "a/2=0@100", "a/3=x@100.1", "a/4=0@100", "a/5=0@100"}, got); diff != "" {
				t.Errorf("pages (-want +got):\n%s", diff)
			}
			if diff := gocmp.Diff([]string{"100.1*", "100.1*", "100.1*", "100.1*", "100.1*"}, versions); diff != "" {
				t.Errorf("versions (-want +got):\n%s", diff)
			}
		})
	}
}

// On another replica the pages show what is there: something that has been there all the time
// may have come to that one when its watermark was already further.
func TestPagesOfAnotherReplicasList(t *testing.T) {
	one, other := syncedCache(here, "a/1", "a/2", "a/3"), syncedCache(elsewhere, "a/1", "a/2", "a/3")
	for _, c := range []*Cache[*configMap]{one, other} {
		put(c, 110, "a/2", "x")
	}
	late(one, 110, 120, "a/1", "ahead")
	late(other, 110, 125, "a/3", "ahead") // before the first page, and yet beyond its watermark
	got, versions := follow(t, ListOptions[*configMap]{Limit: 1}, func(page int) *Cache[*configMap] {
		if page == 0 {
			return one
		}
		put(other, 130+uint64(page), "a/3", "later")
		return other
	})
	if diff := gocmp.Diff([]string{"a/1=ahead@110.2", "a/2=x@110.1", "a/3=later@132.1"}, got); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
	if diff := gocmp.Diff([]string{"110.2*", "110.2*", "110.2*"}, versions); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
}

// While versions of other replicas mean nothing, no watch can begin from one that belongs
// to no replica, and a client that lists in pages would list for ever. So all pages come from
// here, even if a neighbour could give them, and the version is that of here.
func TestPagesOfAReplicaThatIsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, neighbour := syncedCache(here, "a/1", "a/2", "a/3"), syncedCache(elsewhere, "a/1", "a/2", "a/3")
		c.SetAlone(true)
		late(c, 100, 120, "a/1", "x") // the neighbour has yet to see it
		begun := list(t, c, ListOptions[*configMap]{Limit: 1})
		if l, err := neighbour.List(t.Context(), ListOptions[*configMap]{Continue: begun.Continue}); !apierrors.IsResourceExpired(err) {
			t.Errorf("the second page from elsewhere: %v, %v", l, err)
		}
		got, versions := follow(t, ListOptions[*configMap]{Limit: 1}, func(page int) *Cache[*configMap] {
			if page == 1 {
				late(c, 100, 130, "a/3", "y")
				c.SetAlone(false) // now it is known that they do mean something
				c.Progress(140)
			}
			return c
		})
		if diff := gocmp.Diff([]string{"a/1=x@100.1", "a/2=0@100", "a/3=0@100"}, got); diff != "" {
			t.Errorf("pages (-want +got):\n%s", diff)
		}
		if diff := gocmp.Diff([]string{"100.1", "100.1", "100.1"}, versions); diff != "" {
			t.Errorf("versions (-want +got):\n%s", diff)
		}
		read(t, c, WatchOptions[*configMap]{ResourceVersion: begun.ResourceVersion}).expect("from the version of the list", "MODIFIED a/3=y@100.2")
		if _, versions := follow(t, ListOptions[*configMap]{Limit: 2}, func(int) *Cache[*configMap] { return c }); !slices.Equal(versions, []string{"140*", "140*"}) {
			t.Errorf("a list that begins now has the versions %v", versions)
		}
	})
}

// Soon after the start, nothing is known of what came after a version of other replicas,
// nor after one that belongs to no replica. Lists have no pages then: no client could watch from
// their version.
func TestNoPagesSoonAfterTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here)
		c.Replace([]*configMap{newObject("a/1", "0"), newObject("a/2", "0"), newObject("a/3", "0")}, nil, 110, 120)
		l := list(t, c, ListOptions[*configMap]{Limit: 1})
		if len(l.Items) != 3 || l.Continue != "" || show(l.ResourceVersion) != "110" {
			t.Errorf("%v at %s, token %q", showAll(l.Items), show(l.ResourceVersion), l.Continue)
		}
		read(t, c, WatchOptions[*configMap]{ResourceVersion: l.ResourceVersion}).expect("from the version of the list")
		c.Progress(120)
		if l := list(t, c, ListOptions[*configMap]{Limit: 1}); len(l.Items) != 1 || l.Continue == "" || show(l.ResourceVersion) != "120*" {
			t.Errorf("later: %v at %s, token %q", showAll(l.Items), show(l.ResourceVersion), l.Continue)
		}
	})
}

// What has been forgotten is not made up.
func TestPagesOfWhatHasBeenForgotten(t *testing.T) {
	c := syncedCache(here, "a/1", "a/2", "a/3")
	c.MinEvents, c.MaxEvents = 2, 6
	first := list(t, c, ListOptions[*configMap]{Limit: 1})
	for i := range uint64(6) {
		put(c, 110+i, "a/2", fmt.Sprint(i))
	}
	if got := showAll(list(t, c, ListOptions[*configMap]{Limit: 1, Continue: first.Continue}).Items); !slices.Equal(got, []string{"a/2=0@100"}) {
		t.Errorf("as long as it is remembered: %v", got)
	}
	put(c, 120, "a/2", "x")
	if l, err := c.List(t.Context(), ListOptions[*configMap]{Limit: 1, Continue: first.Continue}); !apierrors.IsResourceExpired(err) {
		t.Errorf("got %v, %v", l, err)
	}
}

// FuzzContinueToken: whatever a client sends in the place of a token is refused as a bad
// request, or is answered with what comes after a place.
func FuzzContinueToken(f *testing.F) {
	c := syncedCache(here, "a/1", "b/1", "b/2")
	all := []string{"a/1=0@100", "b/1=0@100", "b/2=0@100"}
	raw := func(json string) string { return base64.RawURLEncoding.EncodeToString([]byte(json)) }
	for _, seed := range []string{
		"", "x", "e30", "bnVsbA", "====", tokenOf(f, at(100, 0, here), "a/1"), tokenOf(f, at(100, 3, elsewhere), "a/1\x00"),
		tokenOf(f, at(99, 0, here), "a/1"), tokenOf(f, at(101, 0, here), "a/1"), tokenOf(f, at(100, 0, here), "b//1"),
		raw(`{"v":"meta.k8s.io/v1","rv":100,"start":"838860801/a/1"}`),
		raw(`{"v":"meta.k8s.io/v1","rv":9223372036854775807,"start":"9223372036854775807/a/1"}`),
		raw(`{"v":"meta.k8s.io/v1","rv":-1,"start":"838860801/a/1"}`),
	} {
		f.Add(seed)
	}
	impatient, cancel := context.WithCancel(f.Context())
	cancel()
	f.Fuzz(func(t *testing.T, token string) {
		l, err := c.List(impatient, ListOptions[*configMap]{Continue: token})
		switch {
		case apierrors.IsBadRequest(err) || apierrors.IsResourceExpired(err) || storage.IsTooLargeResourceVersion(err):
		case err != nil:
			t.Errorf("error %v", err)
		default:
			if got := showAll(l.Items); len(got) > 3 || !slices.Equal(got, all[3-len(got):]) {
				t.Errorf("items %v are no end of %v", got, all)
			}
		}
	})
}

// FuzzParseContinue: a token that is accepted is written as it was read.
func FuzzParseContinue(f *testing.F) {
	for _, key := range []string{"", "/", "1/", "1//", "1/a", "1/a/b", "1/a/b/", "/a/b", "1/a/b/c", "838860801/a/b\x00", "01/a/b", "+1/a/b"} {
		f.Add(key, int64(noReplica))
		f.Add(key, int64(100<<23|noReplica))
		f.Add(key, int64(-1))
	}
	f.Fuzz(func(t *testing.T, key string, version int64) {
		start, err := storage.EncodeContinue("/"+key, "/", version)
		if err != nil {
			return
		}
		r, err := (&ListOptions[*configMap]{Continue: start}).parseContinue()
		if err != nil || !r.exact {
			return
		}
		again := ListOptions[*configMap]{Continue: tokenOf(t, r.at.String(), r.after)}
		if got, err := again.parseContinue(); err != nil || got != r || r.after == "" {
			t.Errorf("%q at %d was read as %+v, and that as %+v, %v", key, version, r, got, err)
		}
	})
}
