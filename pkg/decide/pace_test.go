// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// TestDecide_ChangesThatBelongTogetherMakeOneRestart: changes that arrive within the settle time
// wait together, by the time of arrival, whatever the times in the objects.
func TestDecide_ChangesThatBelongTogetherMakeOneRestart(t *testing.T) {
	x := typical(t)
	x.adopt()
	start := x.now
	expect := func(after time.Duration, want outcome, recheck time.Duration) {
		t.Helper()
		x.now = start.Add(after)
		d := x.decide()
		if diff := cmp.Diff(want, outcomeOf(d)); diff != "" {
			t.Fatalf("after %v (-want +got):\n%s", after, diff)
		}
		if want := start.Add(recheck); recheck > 0 && !d.RecheckAt.Equal(want) {
			t.Errorf("after %v: RecheckAt = %v, want %v", after, d.RecheckAt, want)
		}
	}
	settling := func(trigger string) outcome { return outcome{decide.Settling, "SourceChanged", decide.None, trigger} }

	x.set(secret("db", "password", "2"))
	expect(0, settling("Secret/db"), time.Second)
	expect(999*time.Millisecond, settling("Secret/db"), time.Second)
	x.set(configMap("settings", "a", "2"))
	expect(1000*time.Millisecond, settling("ConfigMap/settings"), 1999*time.Millisecond)
	x.set(configMap("settings", "a", "1", "b", "1")) // back to what the pods have read
	expect(1500*time.Millisecond, rollOut("Secret/db"), 0)
	x.act()
	expect(2100*time.Millisecond, outcome{decide.RollingOut, "PodsUpdating", decide.None, "Secret/db"}, 0)
}

// TestDecide_ContentThatNeverSettlesIsRolledOut after ten times the settle time.
func TestDecide_ContentThatNeverSettlesIsRolledOut(t *testing.T) {
	x := typical(t)
	x.annotate(policy.SettleAnnotation, "3s")
	x.adopt()
	start := x.now
	for n := 2; ; n++ {
		x.set(secret("db", "password", string(rune('0'+n))))
		d := x.decide()
		if d.Action == decide.RollOut {
			break
		}
		if latest := start.Add(30 * time.Second); d.RecheckAt.After(latest) || d.State != decide.Settling {
			t.Fatalf("after %v: decision = %+v", x.now.Sub(start), d)
		}
		x.tick(2500 * time.Millisecond)
	}
	if waited := x.now.Sub(start); waited != 30*time.Second {
		t.Errorf("restarted after %v, want 30s", waited)
	}
}

func TestDecide_LongSettleTimesDoNotOverflow(t *testing.T) {
	x := typical(t)
	x.annotate(policy.SettleAnnotation, "1000000h")
	x.adopt()
	x.set(secret("db", "password", "2"))
	for range 3 {
		if d := x.decide(); d.State != decide.Settling {
			t.Fatalf("decision = %+v, want state Settling", d)
		}
		x.tick(1000 * time.Hour)
	}
}

// TestDecide_BoundsAStorm rewrites a Secret each second for an hour.
func TestDecide_BoundsAStorm(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "0"))
	x.adopt()
	start := x.now
	next := start // when the Secret is written
	end := start.Add(time.Hour)
	var rollouts []time.Duration
	var last string
	for {
		if next.Before(end) && !x.now.Before(next) {
			last = next.String()
			x.set(secret("db", "password", last))
			next = next.Add(time.Second)
		}
		d := x.act()
		if d.Action == decide.RollOut {
			rollouts = append(rollouts, x.now.Sub(start))
			x.rollOut()
			continue
		}
		wake := d.RecheckAt
		if next.Before(end) && (wake.IsZero() || next.Before(wake)) {
			wake = next
		}
		if wake.IsZero() {
			break
		}
		x.now = wake
	}
	// After ten settle times; after as many writes as are remembered; and then by the doubling interval. The last restart is after the storm.
	var want []time.Duration
	for _, seconds := range []int{10, 23, 43, 83, 163, 323, 643, 1283, 2563, 5123} {
		want = append(want, time.Duration(seconds)*time.Second)
	}
	if diff := cmp.Diff(want, rollouts); diff != "" {
		t.Errorf("restarts (-want +got):\n%s", diff)
	}
	applied := x.evaluate().Record.Hash
	x.set(secret("db", "password", last))
	if x.evaluate().Hash != applied {
		t.Error("the pods were not restarted with the last content")
	}
}
