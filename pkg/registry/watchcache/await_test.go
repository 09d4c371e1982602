// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// A get of what another replica has shown waits for it as one of what has yet to come does, and is
// answered in the moment in which it can be: kube-apiserver never says of a get that it has expired.
func TestGet_WaitsForVersions(t *testing.T) {
	const moment = 1003*time.Millisecond + 7*time.Microsecond
	for name, tt := range map[string]struct {
		before, then func(*Cache[*configMap])
	}{
		"that have yet to come":      {nil, func(c *Cache[*configMap]) { put(c, 105, "a/1", "x") }},
		"in which nothing came here": {nil, func(c *Cache[*configMap]) { c.Progress(106) }},
		"until they mean something": {func(c *Cache[*configMap]) {
			c.SetAlone(true)
			put(c, 110, "a/1", "x")
		}, func(c *Cache[*configMap]) { c.SetAlone(false) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := syncedCache(here, "a/1")
				if tt.before != nil {
					tt.before(c)
				}
				began := time.Now()
				answered := make(chan time.Duration)
				for range 10 {
					go func() {
						if _, found, err := c.Get(t.Context(), "a/1", at(105, 0, elsewhere)); err != nil || !found {
							t.Errorf("found %v, %v", found, err)
						}
						answered <- time.Since(began)
					}()
				}
				pass(moment)
				tt.then(c)
				for range 10 {
					if after := <-answered; after != moment {
						t.Errorf("answered after %v, though it could be after %v", after, moment)
					}
				}
			})
		})
	}
}

// While nothing can be compared, a list does not wait: reflectors begin again at once.
func TestList_OfAnotherReplicaDoesNotWaitWhileAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1")
		c.SetAlone(true)
		began := time.Now()
		if l, err := c.List(t.Context(), ListOptions[*configMap]{ResourceVersion: at(99, 0, elsewhere)}); !apierrors.IsResourceExpired(err) {
			t.Errorf("%v, %v", l, err)
		}
		if after := time.Since(began); after != 0 {
			t.Errorf("after %v", after)
		}
	})
}

// The end of a watch costs the others nothing, however many of the same scope end at once.
func TestWatch_EndsWithoutWakingOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := syncedCache(here, "a/1")
		o := WatchOptions[*configMap]{Namespace: "a", ResourceVersion: at(100, 0, here)}
		stays := read(t, c, o)
		ctx, end := context.WithCancel(t.Context())
		for range 100 {
			readFor(ctx, t, c, o)
		}
		waits := func() (<-chan struct{}, int) {
			synctest.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.waiting["a/"].more, c.waiting["a/"].watches
		}
		before, _ := waits()
		end()
		if after, left := waits(); after != before || left != 1 {
			t.Errorf("woken: %v, %d watches are left", after != before, left)
		}
		put(c, 101, "a/1", "x")
		stays.expect("afterwards", "MODIFIED a/1=x@101.1")
	})
}
