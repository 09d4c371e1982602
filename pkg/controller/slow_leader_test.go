// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"testing/synctest"
	"time"
)

// A leader that takes longer to end than its lease lasts keeps the lease until then, so no other replica leads
// at the same time.
func TestElection_LeaseIsHeldUntilASlowLeaderHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lease{}
		a := compete(t, l, "a", 2*time.Minute)
		b := compete(t, l, "b", 0)
		pass(time.Minute)
		a.stop()
		pass(2*time.Minute - time.Millisecond)
		if l.holder() != "a" || b.leading() {
			t.Errorf("before a has ended: holder = %q, b leads: %v", l.holder(), b.leading())
		}
		pass(time.Minute)
		if !b.leading() {
			t.Error("b does not lead after a has ended")
		}
	})
}

// The API server rejects a lease with a duration of 0, so it would not be released.
func TestElection_LeaseThatIsGivenUpIsValid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lease{}
		a := compete(t, l, "a", 0)
		a.stop()
		<-a.ended
		if l.holder() != "" || l.record.LeaseDurationSeconds < 1 {
			t.Errorf("released lease = %+v", l.record)
		}
	})
}

// A lease that is acquired while the replica ends is not used.
func TestTurn_IsNotTakenOnceItHasEnded(t *testing.T) {
	var late turn
	late.end()
	late.take(func() { t.Error("the function is called after the end") })
	late.end()
}
