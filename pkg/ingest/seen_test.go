// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/configdep/configdep/test/seeds"
)

// The watermark is the lowest revision of all streams, in whatever order and however far they advance.
func TestSeenStreams_Watermark(t *testing.T) {
	seeds.Each(t, 50, func(t *testing.T, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 0))
		s := newSeenStreams()
		if v, found := s.watermark(); found {
			t.Fatalf("without streams, watermark = %d", v)
		}
		naive := map[string]uint64{}
		for step := range 500 {
			name, revision := fmt.Sprint(random.IntN(1+step/10)), random.Uint64N(100)+uint64(step)
			at := time.Unix(int64(step), 0)
			s.observe(name, revision, at)
			naive[name] = max(naive[name], revision)
			if gone := fmt.Sprint(random.IntN(1 + step/10)); random.IntN(5) == 0 && gone != name {
				s.forget(gone)
				delete(naive, gone)
			}
			least := ^uint64(0)
			for _, v := range naive {
				least = min(least, v)
			}
			if v, _ := s.watermark(); v != least {
				t.Fatalf("step %d: watermark = %d, want %d", step, v, least)
			}
			if got := s.of(name); got.revision != naive[name] || !got.at.Equal(at) {
				t.Fatalf("step %d: position of %s = %+v, want %d", step, name, got, naive[name])
			}
		}
		for name := range naive {
			s.forget(name)
		}
		if v, found := s.watermark(); found {
			t.Errorf("without streams again, watermark = %d", v)
		}
		if got := s.of("none"); got != (seen{}) {
			t.Errorf("position of a stream without events = %+v", got)
		}
	})
}
