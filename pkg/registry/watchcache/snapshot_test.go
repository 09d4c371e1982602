// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"fmt"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// A snapshot keeps its objects and its events, whatever is dropped later, and shares the objects
// with the next one if they are the same.
func TestASnapshotStays(t *testing.T) {
	c := syncedCache(here, "a/1", "b/1")
	c.MinEvents, c.MaxEvents = 40, 40
	tell := func(s *snapshot[*configMap]) (out []string) {
		s.events.each(func(e *event[*configMap]) { out = append(out, fmt.Sprint(showObject(e.object), e.cause)) })
		return append(append(out, s.version.String()), showAll(contents(s))...)
	}
	var snapshots []*snapshot[*configMap]
	var told [][]string
	for i := range uint64(200) {
		put(c, 101+i, "a/1", fmt.Sprint(i))
		now := c.latest.Load()
		snapshots, told = append(snapshots, now), append(told, tell(now))
		if n := int(now.events.end - now.events.start); n != min(40, int(i)+1) {
			t.Fatalf("%d events are kept", n)
		}
		if most := 40/segmentSize + 2; len(now.events.segments) > most {
			t.Fatalf("%d segments are kept", len(now.events.segments))
		}
	}
	for i, s := range snapshots {
		if diff := gocmp.Diff(told[i], tell(s)); diff != "" {
			t.Fatalf("the snapshot after %d inputs has changed (-was +is):\n%s", i+1, diff)
		}
	}
	before := c.latest.Load()
	c.Progress(400)
	c.Current(400, c.Clock.Now())
	if now := c.latest.Load(); now.trees != before.trees || now.version == before.version {
		t.Error("the objects were copied though only the watermark has moved")
	}
	put(c, 401, "a/1", "x")
	if now := c.latest.Load(); now.trees == before.trees {
		t.Error("a snapshot shows what came later")
	}
}
