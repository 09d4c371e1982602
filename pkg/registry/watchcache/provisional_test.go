// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"testing"
	"testing/synctest"

	gocmp "github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// doubt is an input that arrives while another stream holds the watermark back, and makes an object provisional.
func doubt(c *Cache[*configMap], revision uint64, key, value string) {
	c.Apply(c.latest.Load().watermark, []Change[*configMap]{{Key: key, Object: newObject(key, value), Cause: revision, Certainty: Provisional}})
}

// A version says whether its client may hold a provisional object. If it does, the client can go on here, but
// nowhere else: another replica would not know that it has to send that object.
func TestProvisional_VersionsSaySo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1", "a/2")
		version := func(why, want string) string {
			t.Helper()
			got := list(t, c, ListOptions[*configMap]{}).ResourceVersion
			if show(got) != want {
				t.Errorf("%s: version %s, want %s", why, show(got), want)
			}
			return got
		}
		r := read(t, c, WatchOptions[*configMap]{ResourceVersion: version("at first", "100")})
		doubt(c, 110, "a/1", "x")
		r.expect("an object becomes provisional", "MODIFIED a/1=x@100.1?")
		held := version("while one is", "100.1?")
		put(c, 111, "a/2", "y")
		r.expect("another one changes", "MODIFIED a/2=y@111.1?")
		doubt(c, 111, "a/2", "z")
		put(c, 112, "a/1", "w")
		version("while another one is", "112.1?")
		put(c, 113, "a/2", "w")
		r.expect("none is any more", "MODIFIED a/2=z@111.2?", "MODIFIED a/1=w@112.1?", "MODIFIED a/2=w@113.1")
		version("when none is any more", "113.1")
		doubt(c, 113, "a/1", "v")
		drop(c, 114, "a/1")
		version("when the only one has gone", "114.1")
		doubt(c, 114, "a/2", "v")
		drop(c, 115, "a/2")
		doubt(c, 116, "a/2", "v")
		c.Apply(117, []Change[*configMap]{{Key: "a/2", Cause: 117, Certainty: Provisional}})
		version("when something is said of one that has gone", "117.1")
		doubt(c, 117, "a/3", "v")
		c.Reset()
		c.Replace([]*configMap{newObject("a/3", "u")}, 118, 118)
		version("when all have been replaced", "118")

		other := syncedCache(elsewhere, "a/1", "a/2")
		read(t, other, WatchOptions[*configMap]{ResourceVersion: held}).expectEnd("elsewhere", "ERROR 410")
		if _, err := other.List(t.Context(), ListOptions[*configMap]{ResourceVersion: held, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}); err != nil {
			t.Errorf("a list elsewhere that is not older: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1", "a/2")
		doubt(c, 110, "a/1", "x")
		held := list(t, c, ListOptions[*configMap]{}).ResourceVersion
		c.Apply(110, []Change[*configMap]{{Key: "a/1", Object: newObject("a/1", "y"), Cause: Always}})
		put(c, 111, "a/2", "z")
		read(t, c, WatchOptions[*configMap]{ResourceVersion: held}).expect("from a version of before, here", "MODIFIED a/1=y@110.1", "MODIFIED a/2=z@111.1")
	})
}

// A client that comes from elsewhere is sent what is provisional here, and each of its versions says that it
// holds that.
func TestProvisional_WatchFromElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1", "a/2", "a/3")
		put(c, 101, "a/1", "x")
		doubt(c, 102, "a/2", "x")
		put(c, 110, "a/3", "x")
		r := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(105, 7, elsewhere), AllowBookmarks: true})
		r.expect("what it may lack", "MODIFIED a/2=x@105.8*?", "MODIFIED a/3=x@110.1*?")
		doubt(c, 110, "a/1", "y")
		r.expect("a change", "MODIFIED a/1=y@110.2*?")
		pass(bookmarkPeriod)
		r.expect("a bookmark", "BOOKMARK 110.2*?")
		put(c, 111, "a/1", "z")
		put(c, 112, "a/2", "z")
		r.expect("none is any more", "MODIFIED a/1=z@111.1*?", "MODIFIED a/2=z@112.1*")
		pass(bookmarkPeriod)
		r.expect("a bookmark after that", "BOOKMARK 112.1*")
	})
}

// A client that was further than this replica gets versions that continue its own. They say what this replica shows.
func TestProvisional_WatchThatIsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1", "a/2")
		r := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(100, 50, elsewhere), AllowBookmarks: true})
		doubt(c, 110, "a/1", "x")
		r.expect("an object becomes provisional", "MODIFIED a/1=x@100.51*?")
		late(c, 100, 111, "a/1", "y")
		r.expect("it is no longer", "MODIFIED a/1=y@100.52*")
		doubt(c, 112, "a/2", "x")
		late(c, 100, 113, "a/2", "y")
		r.expect("the same of another one", "MODIFIED a/2=x@100.53*?", "MODIFIED a/2=y@100.54*")
	})
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1", "b/1")
		r := read(t, c, WatchOptions[*configMap]{Namespace: "a", ResourceVersion: at(100, 50, elsewhere), AllowBookmarks: true})
		doubt(c, 110, "b/1", "x")
		pass(bookmarkPeriod)
		r.expect("a bookmark while another object is provisional", "BOOKMARK 100.50*?")
		late(c, 100, 111, "b/1", "y")
		pass(bookmarkPeriod)
		r.expect("a bookmark when it is no longer, which is not lower", "BOOKMARK 100.50*?")
		late(c, 100, 112, "a/1", "y")
		r.expect("a change after it", "MODIFIED a/1=y@100.51*")
	})
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1")
		doubt(c, 110, "a/1", "x")
		yes := true
		r := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(100, 50, elsewhere), SendInitialEvents: &yes, AllowBookmarks: true})
		r.expect("a watch that begins with all objects", "ADDED a/1=x@100.1?", "BOOKMARK 100.50*? map[k8s.io/initial-events-end:true]")
	})
}

// A watch from the version of a list that has something provisional can begin where that was shown. So all pages of
// such a list come from one replica; and a page that has is not given for a list that says that it has none.
func TestProvisional_Lists(t *testing.T) {
	one, other := syncedCache(here, "a/1", "a/2", "a/3"), syncedCache(elsewhere, "a/1", "a/2", "a/3")
	doubt(one, 110, "a/3", "x")
	first := list(t, one, ListOptions[*configMap]{Limit: 1})
	rest := ListOptions[*configMap]{Limit: 1, Continue: first.Continue}
	if _, err := other.List(t.Context(), rest); !apierrors.IsResourceExpired(err) {
		t.Errorf("a later page elsewhere: %v", err)
	}
	late(one, 100, 111, "a/2", "y") // after the first page
	got, versions := follow(t, ListOptions[*configMap]{Limit: 1}, func(page int) *Cache[*configMap] {
		late(one, 100, uint64(112+page), "a/1", "z")
		return one
	})
	if diff := gocmp.Diff([]string{"a/1=z@100.3?", "a/2=y@100.2?", "a/3=x@100.1?"}, got); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
	if diff := gocmp.Diff([]string{"100.3?", "100.3?", "100.3?"}, versions); diff != "" {
		t.Errorf("versions of the pages (-want +got):\n%s", diff)
	}

	first = list(t, other, ListOptions[*configMap]{Limit: 1})
	if version := show(first.ResourceVersion); version != "100*" {
		t.Errorf("a page without anything provisional: version %s", version)
	}
	rest = ListOptions[*configMap]{Limit: 1, Continue: first.Continue}
	_, err := one.List(t.Context(), rest)
	status, ok := err.(apierrors.APIStatus)
	if !ok || !apierrors.IsResourceExpired(err) || status.Status().Continue == "" {
		t.Fatalf("a later page where something is: %v", err)
	}
	rest.Continue = status.Status().Continue
	if l := list(t, one, rest); show(l.ResourceVersion) != "100.5*?" {
		t.Errorf("the rest as it is now: version %s", show(l.ResourceVersion))
	}

	l := list(t, one, ListOptions[*configMap]{ResourceVersion: at(100, 70, elsewhere), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	if show(l.ResourceVersion) != "100.70*?" {
		t.Errorf("not older than a version of another replica: version %s", show(l.ResourceVersion))
	}
}
