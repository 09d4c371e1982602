// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"testing"
	"time"

	"github.com/configdep/configdep/pkg/decide"
)

// wantNoRestart fails if a restart is due, now or later.
func (x *world) wantNoRestart(what string) {
	x.t.Helper()
	if d := x.decide(); d.Action == decide.RollOut || !d.RecheckAt.IsZero() {
		x.t.Errorf("%s: decision = %+v (%s), want no restart", what, outcomeOf(d), d.Message)
	}
}

// A container started at about the time of a change, and then the workload opted in, which adopts the content. A change there and back later does not make
// the container restart for the content that was adopted.
func TestDecide_AdoptsInDoubt_ThereAndBack(t *testing.T) {
	x := oneSecret(t)
	optOut(x)
	x.act()
	x.tick(time.Hour)
	password("2")(x)
	x.tick(time.Second)
	x.crash()
	x.tick(time.Second)
	optIn(x)
	if d := x.act(); d.Action != decide.WriteRecord {
		t.Fatalf("opting in: decision = %+v, want a record", outcomeOf(d))
	}
	x.tick(time.Hour)
	x.wantNoRestart("opted in")
	password("3")(x)
	password("2")(x)
	x.tick(time.Second)
	x.wantNoRestart("there and back")
}

// A list shows that content has changed there and back, and that the workload has opted in, which adopts the content. It is recorded in seconds when that was.
func TestDecide_AdoptsWhatAListShows(t *testing.T) {
	x := oneSecret(t)
	optOut(x)
	x.act()
	x.tick(time.Hour + 500*time.Millisecond)
	x.Bookmark()
	x.Relist(func() {
		x.tick(time.Minute)
		password("2")(x)
		x.tick(time.Second)
		x.crash()
		x.remove("Secret", "db")
		password("3")(x)
		x.tick(time.Second)
		optIn(x)
	})
	if d := x.act(); d.Action != decide.WriteRecord {
		t.Fatalf("opting in: decision = %+v, want a record", outcomeOf(d))
	}
	x.tick(time.Hour)
	x.wantNoRestart("opted in")
}
