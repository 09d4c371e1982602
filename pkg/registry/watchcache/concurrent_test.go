// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/clock"
)

// liveCache returns a cache with a clock that runs, which has synced at revision 1.
func liveCache(keys ...string) *Cache[*configMap] {
	c := New(Config[*configMap]{
		New:   func() *configMap { return &configMap{} },
		Copy:  func(o *configMap) *configMap { c := *o; return &c },
		Key:   func(o *configMap) string { return o.Namespace + "/" + o.Name },
		Clock: clock.RealClock{},
		Tag:   1,
	})
	var objects []*configMap
	for _, key := range keys {
		objects = append(objects, newObject(key, "1"))
	}
	c.Replace(objects, nil, 1, 1)
	return c
}

// Who lists, watches and waits for versions while the cache changes sees all of a change or nothing,
// misses none, and sleeps through none.
func TestReadersWhileTheCacheChanges(t *testing.T) {
	const last = 2000
	c := liveCache("a/1", "a/2")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var readers sync.WaitGroup
	defer readers.Wait()
	for i := range 4 {
		readers.Go(func() { watchPairs(ctx, t, c, i, last) })
	}
	readers.Go(func() {
		for value := ""; value != fmt.Sprint(last); {
			list, err := c.List(ctx, ListOptions[*configMap]{Namespace: "a"})
			if err != nil {
				t.Errorf("list: %v", err)
				return
			}
			if len(list.Items) != 2 || list.Items[0].value != list.Items[1].value {
				t.Errorf("a list shows a part of a change: %v", list.Items)
				return
			}
			value = list.Items[0].value
			again, err := c.List(ctx, ListOptions[*configMap]{Namespace: "a", ResourceVersion: list.ResourceVersion, ResourceVersionMatch: "Exact"})
			if err == nil && again.Items[0].value != value {
				t.Errorf("version %s shows %s and %s", list.ResourceVersion, value, again.Items[0].value)
				return
			}
		}
	})
	readers.Go(func() {
		for v := uint64(2); v <= last; v++ {
			o, found, err := c.Get(ctx, "a/1", newVersion(v, 0, 2).String())
			if err != nil || !found || len(o.value) < len(fmt.Sprint(v)) {
				t.Errorf("at %d: %v, %v, %v", v, o, found, err)
				return
			}
		}
	})
	readers.Go(func() { // another goroutine than that of the inputs
		for range last / 50 {
			c.Drain(0)
		}
	})
	for v := uint64(2); v <= last; v++ {
		value := fmt.Sprint(v)
		c.Apply(v, []Change[*configMap]{
			{Key: "a/1", Object: newObject("a/1", value), Cause: v},
			{Key: "a/2", Object: newObject("a/2", value), Cause: v},
		})
	}
}

// watchPairs watches until the last change, again and again from where it stopped or from the
// version of another replica.
func watchPairs(ctx context.Context, t *testing.T, c *Cache[*configMap], i, last int) {
	t.Helper()
	from, seen := "", map[string]string{}
	for seen["2"] != fmt.Sprint(last) {
		ctx, stop := context.WithCancel(ctx)
		w, err := c.Watch(ctx, WatchOptions[*configMap]{Namespace: "a", ResourceVersion: from})
		if err != nil {
			t.Errorf("watch: %v", err)
			stop()
			return
		}
		for n := 0; n < 50*(i+1) && seen["2"] != fmt.Sprint(last); n++ {
			e, open := <-w.ResultChan()
			if !open {
				if ctx.Err() != nil {
					t.Errorf("watch %d waits for ever: it has seen %v", i, seen)
					stop()
					return
				}
				break // too slow
			}
			if e.Type == "ERROR" {
				from = ""
				break
			}
			o := unwrapped(e.Object)
			from, seen[o.Name] = o.ResourceVersion, o.value
			if i%2 == 1 { // as if it were of another replica
				v, _ := parseVersion(from)
				from = v.shared().String()
			}
		}
		stop()
	}
}
