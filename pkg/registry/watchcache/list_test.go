// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage"

	"github.com/configdep/configdep/test/seeds"
)

// tokenOf returns a token for what comes after a key in a list of a version of a replica.
func tokenOf(t testing.TB, version, key string) string {
	t.Helper()
	v, err := parseVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	return encoded64(t, "/"+version+"/"+key, int64(v.shared()))
}

func encoded64(t testing.TB, key string, version int64) string {
	t.Helper()
	out, err := storage.EncodeContinue(key, "/", version)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestListRequestsThatAreRefused(t *testing.T) {
	c := syncedCache(here, "a/1")
	present := at(100, 0, here)
	good := tokenOf(t, present, "a/1")
	v, err := parseVersion(present)
	if err != nil {
		t.Fatal(err)
	}
	shared := int64(v.shared())
	raw := func(format string, args ...any) string {
		return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, format, args...))
	}
	tests := map[string]struct {
		options ListOptions[*configMap]
		refused func(error) bool
	}{
		"a token that is no token":                         {ListOptions[*configMap]{Continue: "x y"}, apierrors.IsBadRequest},
		"a token of another format":                        {ListOptions[*configMap]{Continue: raw(`{"v":"meta.k8s.io/v2","rv":%d,"start":"%s/a/b"}`, shared, present)}, apierrors.IsBadRequest},
		"a token without a version of the list":            {ListOptions[*configMap]{Continue: raw(`{"v":"meta.k8s.io/v1","start":"%s/a/b"}`, present)}, apierrors.IsBadRequest},
		"a token with another version":                     {ListOptions[*configMap]{Continue: encoded64(t, "/"+present+"/a/b", shared+1)}, apierrors.IsBadRequest},
		"a later page of a list of one replica, elsewhere": {ListOptions[*configMap]{Continue: encoded64(t, "/"+at(100, 0, elsewhere)+"/a/0", int64(newVersion(100, 0, elsewhere)))}, apierrors.IsResourceExpired},
		"a token without a place":                          {ListOptions[*configMap]{Continue: raw(`{"v":"meta.k8s.io/v1","rv":%d}`, shared)}, apierrors.IsBadRequest},
		"a token with a version and no place":              {ListOptions[*configMap]{Continue: encoded64(t, "/"+present+"/", shared)}, apierrors.IsBadRequest},
		"a token with half a place":                        {ListOptions[*configMap]{Continue: encoded64(t, "/"+present, shared)}, apierrors.IsBadRequest},
		"a token with a place and no version":              {ListOptions[*configMap]{Continue: encoded64(t, "/a/b", shared)}, apierrors.IsBadRequest},
		"a token of another resource":                      {ListOptions[*configMap]{Continue: encoded64(t, "/registry/a/b", shared)}, apierrors.IsBadRequest},
		"a token that climbs":                              {ListOptions[*configMap]{Continue: raw(`{"v":"meta.k8s.io/v1","rv":%d,"start":"../%s/a/b"}`, shared, present)}, apierrors.IsBadRequest},
		"a version with a token":                           {ListOptions[*configMap]{Continue: good, ResourceVersion: present}, apierrors.IsBadRequest},
		"a version that is no number":                      {ListOptions[*configMap]{ResourceVersion: "abc"}, apierrors.IsBadRequest},
		"a negative version":                               {ListOptions[*configMap]{ResourceVersion: "-1"}, apierrors.IsBadRequest},
		"a version that is no 63-bit number":               {ListOptions[*configMap]{ResourceVersion: "9223372036854775808"}, apierrors.IsBadRequest},
		"exactly a version that is gone":                   {ListOptions[*configMap]{ResourceVersion: at(99, 0, here), ResourceVersionMatch: metav1.ResourceVersionMatchExact}, apierrors.IsResourceExpired},
		"exactly a version of another replica":             {ListOptions[*configMap]{ResourceVersion: at(100, 0, elsewhere), ResourceVersionMatch: metav1.ResourceVersionMatchExact}, apierrors.IsResourceExpired},
		"exactly one that was never published":             {ListOptions[*configMap]{ResourceVersion: at(100, 1, here), ResourceVersionMatch: metav1.ResourceVersionMatchExact}, apierrors.IsResourceExpired},
		"pages of a version that is gone":                  {ListOptions[*configMap]{ResourceVersion: at(99, 0, here), Limit: 1}, apierrors.IsResourceExpired},
		"a later page of a version that is gone":           {ListOptions[*configMap]{Continue: tokenOf(t, at(99, 0, elsewhere), "a/0"), Limit: 1}, apierrors.IsResourceExpired},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l, err := c.List(t.Context(), tt.options)
			if !tt.refused(err) {
				t.Errorf("got %v, %v", l, err)
			}
		})
	}
	for _, version := range []string{"abc", "-1", "9223372036854775808"} {
		if o, _, err := c.Get(t.Context(), "a/1", version); !apierrors.IsBadRequest(err) {
			t.Errorf("get from version %s: %v, %v", version, o, err)
		}
		if w, err := c.Watch(t.Context(), WatchOptions[*configMap]{ResourceVersion: version}); !apierrors.IsBadRequest(err) {
			t.Errorf("watch from version %s: %v, %v", version, w, err)
		}
	}
}

func TestListRequestsThatAreAnswered(t *testing.T) {
	// The order is that of the keys as strings, as etcd has it.
	c := syncedCache(here, "b/1", "a/1", "a-b/1", "a/10")
	present, other := at(100, 0, here), at(100, 7, elsewhere)
	all := []string{"a-b/1", "a/1", "a/10", "b/1"}
	tests := map[string]struct {
		options ListOptions[*configMap]
		version string
		want    []string
	}{
		"from the present state":                            {ListOptions[*configMap]{}, "100", all},
		"from any state":                                    {ListOptions[*configMap]{ResourceVersion: "0"}, "100", all},
		"from any state, in pages":                          {ListOptions[*configMap]{ResourceVersion: "0", Limit: 9}, "100", all},
		"not older than a version that has been seen":       {ListOptions[*configMap]{ResourceVersion: at(50, 3, elsewhere), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}, "100", all},
		"not older than one of another replica":             {ListOptions[*configMap]{ResourceVersion: other}, "100.7*", all},
		"exactly the present version":                       {ListOptions[*configMap]{ResourceVersion: present, ResourceVersionMatch: metav1.ResourceVersionMatchExact}, "100", all},
		"a namespace":                                       {ListOptions[*configMap]{Namespace: "a"}, "100", all[1:3]},
		"a namespace without objects":                       {ListOptions[*configMap]{Namespace: "aa"}, "100", nil},
		"one name":                                          {ListOptions[*configMap]{Namespace: "a", Name: "1"}, "100", all[1:2]},
		"one name that is not there":                        {ListOptions[*configMap]{Namespace: "a", Name: "2"}, "100", nil},
		"what matches":                                      {ListOptions[*configMap]{Matches: func(o *configMap) bool { return o.Name == "1" }}, "100", []string{"a-b/1", "a/1", "b/1"}},
		"the next page":                                     {ListOptions[*configMap]{Continue: tokenOf(t, present, "a/1")}, "100*", all[2:]},
		"the next page of another replica's list":           {ListOptions[*configMap]{Continue: tokenOf(t, other, "a/1")}, "100.7*", all[2:]},
		"the next page, from any state":                     {ListOptions[*configMap]{Continue: tokenOf(t, present, "a/1"), ResourceVersion: "0"}, "100*", all[2:]},
		"the next page after an object that has gone":       {ListOptions[*configMap]{Continue: tokenOf(t, present, "a/0")}, "100*", all[1:]},
		"the rest of a list that has expired, as it is now": {ListOptions[*configMap]{Continue: encoded64(t, "/"+at(50, 0, here)+"/a/1", -1)}, "100*", all[2:]},
		"the page after the last":                           {ListOptions[*configMap]{Continue: tokenOf(t, present, "b/1")}, "100*", nil},
		"a page of another namespace that comes later":      {ListOptions[*configMap]{Namespace: "b", Continue: tokenOf(t, present, "a/0")}, "100*", all[3:]},
		"a page of a namespace that came before":            {ListOptions[*configMap]{Namespace: "a", Continue: tokenOf(t, present, "b/0")}, "100*", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l := list(t, c, tt.options)
			var got []string
			for _, o := range l.Items {
				got = append(got, o.Namespace+"/"+o.Name)
			}
			if diff := gocmp.Diff(tt.want, got); diff != "" {
				t.Errorf("items (-want +got):\n%s", diff)
			}
			if show(l.ResourceVersion) != tt.version || l.Continue != "" || l.Remaining != nil {
				t.Errorf("version %s, want %s; token %q, remaining %v", show(l.ResourceVersion), tt.version, l.Continue, l.Remaining)
			}
		})
	}
}

func TestRemaining(t *testing.T) {
	c := syncedCache(here, "a/1", "a/2", "b/1", "b/2", "b/3")
	tests := map[string]struct {
		options ListOptions[*configMap]
		want    *int64
	}{
		"without a limit there is nothing left":       {ListOptions[*configMap]{}, nil},
		"of all namespaces":                           {ListOptions[*configMap]{Limit: 2}, new(int64(3))},
		"of one namespace":                            {ListOptions[*configMap]{Namespace: "b", Limit: 1}, new(int64(2))},
		"of a later page":                             {ListOptions[*configMap]{Limit: 1, Continue: tokenOf(t, at(100, 0, here), "a/1")}, new(int64(3))},
		"the limit is the number of all":              {ListOptions[*configMap]{Namespace: "a", Limit: 2}, nil},
		"a limit beyond it":                           {ListOptions[*configMap]{Namespace: "a", Limit: 5}, nil},
		"it is not counted how many more would match": {ListOptions[*configMap]{Limit: 1, Matches: func(*configMap) bool { return true }}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := gocmp.Diff(tt.want, list(t, c, tt.options).Remaining); diff != "" {
				t.Errorf("remaining items (-want +got):\n%s", diff)
			}
		})
	}
}

// A version that this replica has not seen yet may come from another one: the request
// waits for it, and no longer than clients of kube-apiserver are used to. The error says
// that it is this, because clients such as reflectors then list again.
func TestAVersionFromTheFuture(t *testing.T) {
	future := at(101, 3, elsewhere)
	ask := map[string]func(context.Context, *Cache[*configMap]) error{
		"list": func(ctx context.Context, c *Cache[*configMap]) error {
			_, err := c.List(ctx, ListOptions[*configMap]{ResourceVersion: future})
			return err
		},
		"page": func(ctx context.Context, c *Cache[*configMap]) error {
			_, err := c.List(ctx, ListOptions[*configMap]{Continue: tokenOf(t, future, "a/0")})
			return err
		},
		"get": func(ctx context.Context, c *Cache[*configMap]) error {
			_, _, err := c.Get(ctx, "a/1", future)
			return err
		},
		"watch with initial events": func(ctx context.Context, c *Cache[*configMap]) error {
			w, err := c.Watch(ctx, WatchOptions[*configMap]{ResourceVersion: future, SendInitialEvents: new(true), AllowBookmarks: true})
			if err != nil {
				return err
			}
			defer w.Stop()
			e, open := <-w.ResultChan()
			if !open {
				return ctx.Err()
			}
			if e.Type == "ERROR" {
				return apierrors.FromObject(e.Object)
			}
			return nil
		},
	}
	for name, request := range ask {
		t.Run(name+" of a version that comes", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := syncedCache(here, "a/1")
				answer := make(chan error, 1)
				go func() { answer <- request(t.Context(), c) }()
				synctest.Wait()
				select {
				case err := <-answer:
					t.Fatalf("answered before the version was seen: %v", err)
				default:
				}
				c.Progress(101)
				if err := <-answer; err != nil {
					t.Error(err)
				}
			})
		})
		t.Run(name+" of a version that does not come", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				err := request(t.Context(), syncedCache(here, "a/1"))
				if took := time.Since(start); took != 3*time.Second {
					t.Errorf("waited %s", took)
				}
				if !storage.IsTooLargeResourceVersion(err) {
					t.Fatalf("error %v", err)
				}
				if seconds, ok := apierrors.SuggestsClientDelay(err); !ok || seconds != 1 {
					t.Errorf("retry after %d seconds, %v", seconds, ok)
				}
				if status, ok := err.(apierrors.APIStatus); !ok || status.Status().Code != 504 {
					t.Errorf("error %#v", err)
				}
			})
		})
		if strings.HasPrefix(name, "watch") {
			continue // one whose client has gone sends nothing
		}
		t.Run(name+" of a client that does not wait", func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := request(ctx, syncedCache(here, "a/1")); !storage.IsTooLargeResourceVersion(err) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// A cache that has not synced, or is being filled again, knows nothing. That is not the same
// as nothing there.
func TestBeforeTheSyncNothingIsAnswered(t *testing.T) {
	reset := syncedCache(here, "a/1")
	reset.Reset()
	for name, c := range map[string]*Cache[*configMap]{"never synced": newTestCache(here), "reset": reset} {
		for _, version := range []string{"", "0", at(100, 0, here), at(100, 0, elsewhere), at(200, 0, elsewhere)} {
			if o, found, err := c.Get(t.Context(), "a/1", version); !apierrors.IsServiceUnavailable(err) {
				t.Errorf("%s: get from version %s: %v, %v, %v", name, show(version), o, found, err)
			}
			if l, err := c.List(t.Context(), ListOptions[*configMap]{ResourceVersion: version}); !apierrors.IsServiceUnavailable(err) {
				t.Errorf("%s: list from version %s: %v, %v", name, show(version), l, err)
			}
		}
		if l, err := c.List(t.Context(), ListOptions[*configMap]{Continue: tokenOf(t, at(100, 0, here), "a/0")}); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("%s: page: %v, %v", name, l, err)
		}
	}
}

// states plays random inputs and notes what the cache held at each version.
func states(c *Cache[*configMap], r *rand.Rand, steps int, note func(version string, objects []string)) {
	watermark, revision := uint64(100), uint64(100)
	for range steps {
		revision++
		if r.IntN(3) == 0 {
			watermark = revision
		}
		key := keys[r.IntN(len(keys))]
		change := Change[*configMap]{Key: key, Object: newObject(key, fmt.Sprint(revision)), Cause: revision}
		if r.IntN(3) == 0 {
			change.Object = nil
		}
		if r.IntN(5) == 0 {
			c.Progress(watermark)
		} else {
			c.Apply(watermark, []Change[*configMap]{change})
		}
		now := c.latest.Load()
		note(now.version.String(), showAll(contents(now)))
	}
}

// Whatever a replica has published it can show again, as long as it remembers, even what
// was between two inputs that did not move the watermark.
func TestExactlyAVersionThatThisReplicaHasPublished(t *testing.T) {
	seeds.Each(t, 1, exactlyAVersionThatThisReplicaHasPublished)
}

func exactlyAVersionThatThisReplicaHasPublished(t *testing.T, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 100 {
		c := syncedCache(here, "a/1", "b/1")
		published := map[string][]string{}
		states(c, r, 60, func(version string, objects []string) { published[version] = objects })
		if len(published) < 30 {
			t.Fatalf("only %d versions", len(published))
		}
		for version, want := range published {
			for name, o := range map[string]ListOptions[*configMap]{
				"exact":                     {ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchExact},
				"with a limit":              {ResourceVersion: version, Limit: 100},
				"what follows a first page": {Continue: tokenOf(t, version, "a/0")},
			} {
				l, err := c.List(t.Context(), o)
				if err != nil {
					t.Fatalf("%s: version %s: %v", name, show(version), err)
				}
				if diff := gocmp.Diff(want, showAll(l.Items)); diff != "" {
					t.Fatalf("%s: version %s (-as it was +got):\n%s", name, show(version), diff)
				}
			}
		}
	}
}

// A resource that cannot be read for long holds the watermark back, however much changes. When the
// counter of versions ends, they mean something here only, and still each of them names one state.
func TestMoreChangesThanTheCounterCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1", "a/2")
		c.First, c.MaxEvents = 1<<16-1, 1<<counterBits
		c.Progress(101)
		own := read(t, c, WatchOptions[*configMap]{})
		own.next()
		foreign := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(101, 0, elsewhere)})
		last := list(t, c, ListOptions[*configMap]{})
		for i := range 1 << 16 {
			late(c, 101, uint64(200+i), "a/1", fmt.Sprint(i))
			now := list(t, c, ListOptions[*configMap]{Name: "1", Namespace: "a"})
			if !before(last.ResourceVersion, now.ResourceVersion) || now.Items[0].ResourceVersion != now.ResourceVersion {
				t.Fatalf("version %s, and of the object %s, after %s", show(now.ResourceVersion), showAll(now.Items), show(last.ResourceVersion))
			}
			if events, open := own.next(); len(events) != 1 || !open {
				t.Fatalf("events %v, open %v", showEvents(events), open)
			}
			if i%1000 == 0 {
				foreign.next()
			}
			last = now
		}
		if v, _ := parseVersion(last.ResourceVersion); !v.local() {
			t.Errorf("version %s after the counter has ended", show(last.ResourceVersion))
		}
		late(c, 102, 70000, "a/2", "x")
		own.expect("it goes on", "MODIFIED a/2=x@"+show(list(t, c, ListOptions[*configMap]{}).ResourceVersion))
		for open := true; open; {
			_, open = foreign.next() // one that began elsewhere ends
		}
		read(t, c, WatchOptions[*configMap]{ResourceVersion: last.ResourceVersion, Name: "2", Namespace: "a"}).next()
		read(t, c, WatchOptions[*configMap]{ResourceVersion: at(102, 0, elsewhere)}).expectEnd("from elsewhere", "ERROR 410")
	})
}

// A client that always goes on at a replica that is behind is sent a version of its own for each
// state; when there are none any more, it lists.
func TestMoreChangesThanAVersionFromElsewhereCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1", "a/2")
		for name, from := range map[string]string{"at first": at(150, topCounter, elsewhere), "at the second": at(150, topCounter-1, elsewhere)} {
			late(c, 100, 160, "a/1", name)
			late(c, 100, 160, "a/2", name)
			r := read(t, c, WatchOptions[*configMap]{ResourceVersion: from})
			r.expectEnd(name, "ERROR 410")
		}
		r := read(t, c, WatchOptions[*configMap]{ResourceVersion: at(200, topCounter-2, elsewhere)})
		late(c, 100, 201, "a/1", "x")
		r.expect("one", "MODIFIED a/1=x@200~")
		late(c, 100, 202, "a/1", "y")
		r.expectEnd("no more", "ERROR 410")
	})
}
