// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"strings"
	"testing"

	"github.com/configdep/configdep/test/seeds"
)

// In random histories, a pod that Judge calls Current has the current content, and one that it calls Stale has
// not. The clocks of the nodes and of configdep differ from that of the API server, watches are late, containers
// read some time before they start, and the kubelet refreshes volumes now and then.
func TestVerdictsAreTrue(t *testing.T) {
	seen := map[string]int{}
	histories := 0
	seeds.Each(t, 500, func(t *testing.T, seed uint64) {
		histories++
		h := newHistory(seed)
		for range 30 {
			h.step()
			if wrong := h.check(seen); wrong != "" {
				t.Fatalf("%s\n%s", wrong, strings.Join(h.trace, "\n"))
			}
		}
	})
	t.Log(seen)
	if histories < 100 { // with a single seed
		return
	}
	// Judge must not pass this test by always returning Unknown.
	for _, verdict := range []string{
		"Current StartedAfter", "Current Recorded", "Stale StartedBefore", "Unknown ClockMargin", "Unknown NothingRecorded", "Current SameContent",
		"Unknown RecordedLater", "Stale RecordDiffers", "Unknown OtherKeys", "Unknown ChangedBack", "Unknown KeyMissing",
	} {
		if seen[verdict] < histories/20 {
			t.Errorf("verdict %s occurred %d times, want more", verdict, seen[verdict])
		}
	}
	known, all := 0, 0
	for verdict, n := range seen {
		all += n
		if !strings.HasPrefix(verdict, "Unknown") {
			known += n
		}
	}
	if known*2 < all {
		t.Errorf("only %d of %d verdicts are not Unknown", known, all)
	}
}

// since is what has happened since a container read its sources, which can only be known by watching all the time.
type since struct {
	changes int  // of the content that the container reads
	all     int  // of all content
	removed bool // a key was removed before configdep was restarted
	back    bool // content changed back before configdep was restarted
}

// forgotten reports whether the documentation says that the change is not noticed: a key was removed, or content
// changed and changed back, before configdep was started.
func (s since) forgotten(reason string) bool {
	return s.removed || reason == ReasonRecorded && s.back
}
