// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"testing/synctest"
	"time"
)

// A leader that needs longer to end than its lease lasts holds it for as long: no other replica leads beside
// it.
func TestElection_LeaseIsHeldUntilASlowLeaderHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lease{}
		a := compete(t, l, "a", 2*time.Minute)
		b := compete(t, l, "b", 0)
		pass(time.Minute)
		a.stop()
		pass(2*time.Minute - time.Millisecond)
		if l.holder() != "a" || b.leading() {
			t.Errorf("a has not ended, the lease is that of %q, and b leads: %v", l.holder(), b.leading())
		}
		pass(time.Minute)
		if !b.leading() {
			t.Error("a has ended, and b does not lead")
		}
	})
}

// The API server refuses a lease that lasts no time, and so it would not be given up.
func TestElection_LeaseThatIsGivenUpIsValid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lease{}
		a := compete(t, l, "a", 0)
		a.stop()
		<-a.ended
		if l.holder() != "" || l.record.LeaseDurationSeconds < 1 {
			t.Errorf("the lease is given up as %+v", l.record)
		}
	})
}

// A lease that is won while the replica ends is not used.
func TestTurn_IsNotTakenOnceItHasEnded(t *testing.T) {
	var late turn
	late.end()
	late.take(func() { t.Error("the turn is taken after its end") })
	late.end()
}
