// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"testing"
	"testing/synctest"

	"k8s.io/apiserver/pkg/storage"
)

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
