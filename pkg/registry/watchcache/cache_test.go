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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
)

// Replicas in tests have these tags, so that versions can be told.
const here, elsewhere = 1, 2

func newTestCache(tag uint16) *Cache[*configMap] {
	return New(Config[*configMap]{
		New:      func() *configMap { return &configMap{} },
		Copy:     func(o *configMap) *configMap { c := *o; return &c },
		Key:      func(o *configMap) string { return o.Namespace + "/" + o.Name },
		NotReady: func() *apierrors.StatusError { return apierrors.NewServiceUnavailable("not synced yet") },
		Clock:    clock.RealClock{},
		Tag:      tag,
	})
}

// syncedCache returns a cache that has some objects, with the value 0, since watermark 100.
func syncedCache(tag uint16, keys ...string) *Cache[*configMap] {
	c := newTestCache(tag)
	objects := make([]*configMap, len(keys))
	for i, key := range keys {
		objects[i] = newObject(key, "0")
	}
	c.Replace(objects, nil, 100, 100)
	return c
}

// put is an input that gives an object a value. All streams have arrived up to it.
func put(c *Cache[*configMap], revision uint64, key, value string) {
	c.Apply(revision, []Change[*configMap]{{Key: key, Object: newObject(key, value), Cause: revision}})
}

// drop is an input by which an object has gone.
func drop(c *Cache[*configMap], revision uint64, key string) {
	c.Apply(revision, []Change[*configMap]{{Key: key, Cause: revision}})
}

// late is an input that arrives while another stream holds the watermark back.
func late(c *Cache[*configMap], watermark, revision uint64, key, value string) {
	c.Apply(watermark, []Change[*configMap]{{Key: key, Object: newObject(key, value), Cause: revision}})
}

// at is a version as it is written in requests.
func at(watermark, counter uint64, tag uint16) string {
	return newVersion(watermark, counter, tag).String()
}

// show writes a version so that people can read it: WATERMARK.COUNTER, and if it belongs
// to no replica an asterisk; WATERMARK~ if no watch can begin from it.
func show(rv string) string {
	v, err := parseVersion(rv)
	switch {
	case err != nil || v == 0:
		return strconv.Quote(rv)
	case v.isUnresumable():
		return fmt.Sprintf("%d~", v.watermark())
	case v.tag() == noReplica && v.counter() == 0:
		return fmt.Sprintf("%d*", v.watermark())
	case v.tag() == noReplica:
		return fmt.Sprintf("%d.%d*", v.watermark(), v.counter())
	case v.counter() == 0:
		return fmt.Sprint(v.watermark())
	default:
		return fmt.Sprintf("%d.%d", v.watermark(), v.counter())
	}
}

func showObject(o *configMap) string {
	return fmt.Sprintf("%s/%s=%s@%s", o.Namespace, o.Name, o.value, show(o.ResourceVersion))
}

// contents returns the objects of a snapshot.
func contents(s *snapshot[*configMap]) (out []*configMap) {
	ascend(s.objects, scope{}, "", func(o *configMap) bool {
		out = append(out, o)
		return true
	})
	return out
}

func showAll(objects []*configMap) (out []string) {
	for _, o := range objects {
		out = append(out, showObject(o))
	}
	return out
}

func showEvents(events []watch.Event) (out []string) {
	for _, e := range events {
		switch o := e.Object.(type) {
		case *metav1.Status:
			out = append(out, fmt.Sprintf("%s %d", e.Type, o.Code))
			continue
		default:
		}
		o := unwrapped(e.Object)
		switch {
		case e.Type != watch.Bookmark:
			out = append(out, fmt.Sprintf("%s %s", e.Type, showObject(o)))
		case len(o.Annotations) > 0:
			out = append(out, fmt.Sprintf("%s %s %v", e.Type, show(o.ResourceVersion), o.Annotations))
		default:
			out = append(out, fmt.Sprintf("%s %s", e.Type, show(o.ResourceVersion)))
		}
	}
	return out
}

// reader is a watch that a test reads, in a bubble of synctest.
type reader struct {
	t *testing.T
	watch.Interface
}

// read begins a watch, which ends with the test.
func read(t *testing.T, c *Cache[*configMap], o WatchOptions[*configMap]) *reader {
	t.Helper()
	return readFor(t.Context(), t, c, o)
}

func readFor(ctx context.Context, t *testing.T, c *Cache[*configMap], o WatchOptions[*configMap]) *reader {
	t.Helper()
	w, err := c.Watch(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return &reader{t, w}
}

// next returns what has come since the last time, and whether the watch goes on.
func (r *reader) next() (events []watch.Event, open bool) {
	r.t.Helper()
	for {
		synctest.Wait()
		select {
		case e, open := <-r.ResultChan():
			if !open {
				return events, false
			}
			events = append(events, e)
		default:
			return events, true
		}
	}
}

// pass lets time pass, that of the bubble of synctest, in which no time is spent waiting: it moves when
// all goroutines of the test sleep or are blocked. Then all of them do what they do.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // see above
	synctest.Wait()
}

// expect fails unless just these events have come, and the watch goes on.
func (r *reader) expect(why string, want ...string) {
	r.t.Helper()
	events, open := r.next()
	if diff := gocmp.Diff(want, showEvents(events)); diff != "" || !open {
		r.t.Fatalf("%s: open %v, events (-want +got):\n%s", why, open, diff)
	}
}

// expectEnd fails unless these events have come, and the watch has ended.
func (r *reader) expectEnd(why string, want ...string) {
	r.t.Helper()
	events, open := r.next()
	if diff := gocmp.Diff(want, showEvents(events)); diff != "" || open {
		r.t.Fatalf("%s: open %v, events (-want +got):\n%s", why, open, diff)
	}
}

func list(t *testing.T, c *Cache[*configMap], o ListOptions[*configMap]) *List[*configMap] {
	t.Helper()
	out, err := c.List(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A version tells up to which watermark everything has been seen, and within it what came
// after what. What has not changed keeps its own.
func TestVersionsOfObjectsAndLists(t *testing.T) {
	c := syncedCache(here, "a/1", "a/2", "b/1")
	state := func(why, version string, want ...string) {
		t.Helper()
		l := list(t, c, ListOptions[*configMap]{})
		if diff := gocmp.Diff(want, showAll(l.Items)); diff != "" || show(l.ResourceVersion) != version {
			t.Errorf("%s: version %s, items (-want +got):\n%s", why, show(l.ResourceVersion), diff)
		}
	}
	state("at the sync", "100", "a/1=0@100", "a/2=0@100", "b/1=0@100")
	c.Progress(105)
	state("a bookmark", "105", "a/1=0@100", "a/2=0@100", "b/1=0@100")
	put(c, 110, "a/2", "x")
	state("a change that moves the watermark", "110.1", "a/1=0@100", "a/2=x@110.1", "b/1=0@100")
	late(c, 110, 120, "b/1", "y")
	late(c, 110, 121, "b/1", "z")
	state("changes that do not", "110.3", "a/1=0@100", "a/2=x@110.1", "b/1=z@110.3")
	c.Progress(109)
	state("a watermark that is lower", "110.3", "a/1=0@100", "a/2=x@110.1", "b/1=z@110.3")
	c.Apply(130, []Change[*configMap]{
		{Key: "a/1", Object: newObject("a/1", "u"), Cause: 130},
		{Key: "a/2", Cause: 130},
		{Key: "a/3", Cause: 130}, // of what has never been there nothing is told
		{Key: "b/1", Object: newObject("b/1", "v"), Cause: 130},
	})
	state("an input with several effects: only the last has seen all of it", "130.1", "a/1=u@110.4", "b/1=v@130.1")
	c.Apply(140, []Change[*configMap]{{Key: "a/3", Cause: 140}})
	state("an input without an effect", "140", "a/1=u@110.4", "b/1=v@130.1")
	c.Progress(maxWatermark + 10)
	put(c, maxWatermark+11, "a/1", "w")
	put(c, maxWatermark+12, "a/2", "w")
	state("beyond the last watermark", fmt.Sprintf("%d.2", uint64(maxWatermark)),
		fmt.Sprintf("a/1=w@%d.1", uint64(maxWatermark)), fmt.Sprintf("a/2=w@%d.2", uint64(maxWatermark)), "b/1=v@130.1")
}

// Whatever tag a replica has got, it knows the versions that it has published, and takes
// none for its own that belongs to no replica.
func TestAReplicaKnowsItsVersionsWhateverItsTag(t *testing.T) {
	for _, tag := range []uint16{0, 1, 0xffe, 0xfff, 0x1000, 0x1fff, 0xf000, 0xffff} {
		c := syncedCache(tag, "a/1")
		before := list(t, c, ListOptions[*configMap]{})
		late(c, 100, 120, "a/1", "x")
		exact, err := c.List(t.Context(), ListOptions[*configMap]{ResourceVersion: before.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
		if err != nil {
			t.Errorf("tag %#x: %v", tag, err)
			continue
		}
		if diff := gocmp.Diff([]string{"a/1=0@100"}, showAll(exact.Items)); diff != "" {
			t.Errorf("tag %#x: items (-want +got):\n%s", tag, diff)
		}
		v, err := parseVersion(before.ResourceVersion)
		if err != nil || v.tag() == noReplica {
			t.Errorf("tag %#x: version %s, %v", tag, show(before.ResourceVersion), err)
		}
	}
}

// What is read again may have nothing of what was shown before, in spite of an equal
// watermark: another key of the hashes changes every object, and no version of before may
// name what is shown now.
func TestNoVersionOfBeforeAResetNamesWhatIsThereAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1")
		late(c, 100, 120, "a/1", "1")
		late(c, 100, 121, "a/1", "2")
		old := list(t, c, ListOptions[*configMap]{}).ResourceVersion
		c.Reset()
		c.Replace([]*configMap{newObject("a/1", "3")}, nil, 100, 121)
		late(c, 100, 122, "a/1", "4")
		late(c, 100, 123, "a/1", "5")
		if o, _, err := c.Get(t.Context(), "a/1", ""); err != nil || before(o.ResourceVersion, old) || o.ResourceVersion == old {
			t.Errorf("the version was %s and is %s, %v", show(old), show(o.ResourceVersion), err)
		}
		read(t, c, WatchOptions[*configMap]{ResourceVersion: old}).expectEnd("from a version of before", "ERROR 410")
		if l, err := c.List(t.Context(), ListOptions[*configMap]{ResourceVersion: old, ResourceVersionMatch: metav1.ResourceVersionMatchExact}); err == nil {
			t.Errorf("exactly a version of before: %v", showAll(l.Items))
		}
	})
}
