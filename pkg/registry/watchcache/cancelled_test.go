// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"context"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Once a client has gone, no further object is matched for it.
func TestMatching_EndsWithTheRequest(t *testing.T) {
	const objects, until = 1000, 10
	var keys []string
	for i := range objects {
		keys = append(keys, fmt.Sprintf("a/%04d", i))
	}
	c := syncedCache(here, keys...)
	for i, key := range keys {
		put(c, 200+uint64(i), key, "changed")
	}
	// request returns the context of a request, a function that cancels it, and a matcher that does so when it has
	// been called for some objects.
	request := func(result bool) (ctx context.Context, matches func(*configMap) bool, matched *int) {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		matched = new(int)
		return ctx, func(*configMap) bool {
			if *matched++; *matched == until {
				cancel()
			}
			return result
		}, matched
	}
	for _, result := range []bool{true, false} {
		ctx, matches, matched := request(result)
		if _, err := c.List(ctx, ListOptions[*configMap]{Matches: matches}); !apierrors.IsTimeout(err) || *matched != until {
			t.Errorf("a list has matched %d objects: %v", *matched, err)
		}
	}
	for name, from := range map[string]string{
		"all objects":                       "0",
		"the changes":                       at(100, 0, here),
		"the changes, from another replica": at(100, 0, elsewhere),
	} {
		ctx, matches, matched := request(false)
		w, err := c.Watch(ctx, WatchOptions[*configMap]{Matches: matches, ResourceVersion: from})
		if err != nil {
			t.Fatal(err)
		}
		for e := range w.ResultChan() { // until it ends
			t.Errorf("%s: %s", name, e.Type)
		}
		if *matched < until || *matched > until+2 { // an event has two states
			t.Errorf("%s: a watch has matched %d objects", name, *matched)
		}
	}
}
