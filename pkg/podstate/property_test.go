// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"strings"
	"testing"

	"github.com/configdep/configdep/test/seeds"
)

// In random histories, whatever the judge calls Current has the current content, and
// whatever it calls Stale has not. The clocks of the nodes and of configdep differ from the
// API server's, watches are late, containers read some time before they have started, and
// the kubelet refreshes volumes now and then.
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
	if histories < 100 { // one seed was asked for
		return
	}
	// So that this test cannot pass by knowing nothing:
	for _, verdict := range []string{
		"Current StartedAfter", "Current Recorded", "Stale StartedBefore", "Unknown ClockMargin", "Unknown NothingRecorded", "Current SameContent",
		"Unknown RecordedLater", "Stale RecordDiffers", "Unknown OtherKeys", "Unknown ChangedBack", "Unknown KeyMissing",
	} {
		if seen[verdict] < histories/20 {
			t.Errorf("%s was said %d times", verdict, seen[verdict])
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
		t.Errorf("only %d of %d could be told", known, all)
	}
}

// since is what has happened since a container has read, that only one who looked all the
// time can know.
type since struct {
	changes int  // of what it reads
	all     int  // of all content
	removed bool // a key, before configdep was restarted
	back    bool // it changed before that
}

// forgotten reports what the documents say is not noticed: a key that was removed, or
// content that changed and changed back, before configdep was started.
func (s since) forgotten(reason string) bool {
	return s.removed || reason == ReasonRecorded && s.back
}
