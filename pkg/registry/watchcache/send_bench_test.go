// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkHandle measures what it costs a watch to send 1,024 events: one of all objects or of a selection,
// whose client comes from this replica, or from another one that is as far or ahead.
func BenchmarkHandle(b *testing.B) {
	const events = 1024
	changes := make([]Change[*configMap], events)
	for i := range changes {
		key := fmt.Sprintf("a/%d", 1+i%2)
		changes[i] = Change[*configMap]{Key: key, Object: newObject(key, fmt.Sprint(i)), Cause: 3}
	}
	some := func(o *configMap) bool { return !strings.HasSuffix(o.value, "9") }
	for _, from := range []struct {
		name    string
		version version
	}{
		{"here", newVersion(1, 0, 1)},
		{"elsewhere", newVersion(1, 0, 2)},
		{"ahead", newVersion(2, 0, 2)},
	} {
		for _, matches := range []func(*configMap) bool{nil, some} {
			b.Run(fmt.Sprintf("%s/selects=%v", from.name, matches != nil), func(b *testing.B) {
				c := liveCache("a/1", "a/2")
				w := newWatcher(b.Context(), c, WatchOptions[*configMap]{Matches: matches})
				defer w.cancel()
				if err := w.begin(from.version); err != nil {
					b.Fatal(err)
				}
				c.Apply(1, changes)
				now := c.latest.Load()
				published := now.events.from(now.events.start, events)
				floor := w.floor
				b.ReportAllocs()
				for b.Loop() {
					w.floor = floor // versions are not used up
					for _, e := range published {
						if !w.handle(e) {
							b.Fatal("it has ended")
						}
						select {
						case <-w.result:
						default:
						}
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/events, "ns/event")
			})
		}
	}
}
