// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// A key that changes all the time, and that the pods do not read, takes nothing from what is known of the others.
func TestDecide_KeysThatChangeAllTheTime(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1", "noise", "0"))
	x.tick(time.Minute)
	x.annotate(policy.SettleAnnotation, "1m")
	x.adopt()
	password, noise := "1", 0
	busy := func() {
		for range 5 * dependency.MaxPeriods {
			noise++
			x.set(secret("db", "password", password, "noise", fmt.Sprint(noise)))
			x.tick(10 * time.Second)
		}
	}
	busy()
	x.want("the key that is read has not changed", outcome{State: decide.InSync, Reason: decide.ReasonContentApplied})
	changed := x.now.Truncate(time.Second)
	password = "2"
	x.set(secret("db", "password", password, "noise", fmt.Sprint(noise)))
	x.tick(time.Second)
	x.want("it waits for a minute", outcome{State: decide.Settling, Reason: decide.ReasonSourceChanged, Trigger: db})
	optOut(x)
	x.act()
	busy()
	if d := x.want("opted out", outcome{State: decide.Stale, Reason: decide.ReasonNotOptedIn}); !d.Pods.StaleSince.Equal(changed) {
		t.Errorf("stale since %s, want %s", d.Pods.StaleSince, changed)
	}
}
