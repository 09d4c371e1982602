// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"fmt"
	"runtime"
	"testing"
	"weak"
)

// TestHistoryIsBoundedByBytes: what is dropped is let go of, and the events that are kept hold no
// more than they may, whatever their number and age.
func TestHistoryIsBoundedByBytes(t *testing.T) {
	const size = 100_000
	for name, tt := range map[string]struct {
		size func(o, other *configMap) int
		most int // states that are kept, besides the present one
	}{
		"states that share nothing":     {func(_, _ *configMap) int { return size }, 10 + maxDropped/size + 1},
		"states that share most of all": {func(_, _ *configMap) int { return 10 }, 1000},
		"of no size":                    {nil, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			c := New(Config[*configMap]{New: newTestCache(here).New, Copy: newTestCache(here).Copy, Key: newTestCache(here).Key, Clock: newTestCache(here).Clock,
				Tag: here, MinEvents: 1000, MaxBytes: 10 * size, Size: tt.size})
			c.Replace(nil, nil, 100, 100)
			var states []weak.Pointer[configMap]
			for i := range uint64(489) {
				put(c, 101+i, "a/1", fmt.Sprint(i))
				o, _ := c.Peek("a/1")
				states = append(states, weak.Make(o))
			}
			bytes := 0
			for _, e := range c.latest.Load().events.kept {
				bytes += e.size
			}
			if bytes > 10*size || bytes != c.events.bytes {
				t.Errorf("%d bytes are kept, and %d counted", bytes, c.events.bytes)
			}
			runtime.GC()
			alive := 0
			for _, s := range states {
				if s.Value() != nil {
					alive++
				}
			}
			if want := min(tt.most, 488); alive > want+1 || want == 488 && alive != 489 {
				t.Errorf("%d states are in memory, at most %d may be", alive, want+1)
			}
			runtime.KeepAlive(c)
		})
	}
}

// TestEncodingsAreBoundedByBytes, and by number: the latest are kept.
func TestEncodingsAreBoundedByBytes(t *testing.T) {
	for name, tt := range map[string]struct{ size, want int }{
		"small ones":               {100, shareEncoded},
		"large ones":               {shareEncodedBytes / 10, 10},
		"each larger than allowed": {shareEncodedBytes + 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := syncedCache(here)
			c.Size = func(_, other *configMap) int {
				if other == nil {
					return tt.size
				}
				return 0
			}
			for i := range uint64(1000) {
				put(c, 101+i, fmt.Sprint("a/", i%7), fmt.Sprint(i))
				if i%3 == 0 {
					drop(c, 101+i, fmt.Sprint("a/", i%7))
				}
			}
			kept := 0
			for _, e := range c.latest.Load().events.kept {
				switch {
				case e.sent.Load() != nil:
					kept++
				case kept > 0:
					t.Fatal("those of an earlier event are kept")
				}
			}
			if kept != tt.want {
				t.Errorf("those of %d events are kept, want %d", kept, tt.want)
			}
		})
	}
}

// A watch whose client does not read keeps a batch of events, and not the array that they are in.
func TestEvents_FromCopies(t *testing.T) {
	kept := make([]*event[*configMap], 3)
	l := events[*configMap]{kept: kept, end: 3}
	if got := l.from(1, 5); len(got) != 2 || &got[0] == &kept[1] {
		t.Errorf("%d events, in the array of all: %v", len(got), &got[0] == &kept[1])
	}
}
