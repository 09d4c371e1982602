// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"testing"
	"time"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/policy"
)

// If the client that writes the pod template changes content, it must stay unchanged for longer,
// because a change of the template may follow.
func TestDecide_ContentOfAReleaseSettlesLonger(t *testing.T) {
	const release = 30 * time.Second
	change := func(x *world) { x.set(secret("db", "password", "2")) }
	other := func(x *world) { x.Manager = "external-secrets" }
	tests := map[string]struct {
		release time.Duration
		change  func(*world)
		want    time.Duration
	}{
		"by the client that writes the template":   {release, change, release},
		"by another client":                        {release, both(other, change), time.Second},
		"no release settle time":                   {0, change, time.Second},
		"a release settle time that is not longer": {time.Second, change, time.Second},
		"a release settle time that is not longer, and the client continues to write": {
			time.Second, both(func(x *world) {
				x.set(configMap("another", "a", "1"))
			}, change, func(x *world) {
				x.tick(time.Second / 2)
				x.set(configMap("another", "a", "2"))
			}), time.Second / 2,
		},
		"the annotation sets the settle time": {release, both(func(x *world) { x.annotate(policy.SettleAnnotation, "2s") }, change), 2 * time.Second},
		"the annotation of the namespace sets the settle time": {
			release,
			both(func(x *world) { x.namespaceAnnotations(map[string]string{policy.SettleAnnotation: "2s"}) }, change), 2 * time.Second,
		},
		"the annotation sets no settle time": {release, both(func(x *world) { x.annotate(policy.SettleAnnotation, "0") }, change), 0},
		"one of two sources is of the release": {
			release, both(change, func(x *world) { other(x); x.set(configMap("settings", "a", "2")) }), release,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			x := typical(t)
			x.defaults.Settle, x.defaults.ReleaseSettle = time.Second, tt.release
			x.image("app:2")
			x.tick(time.Minute)
			x.rollOut()
			x.adopt()
			x.tick(time.Hour)
			tt.change(x)
			d := x.decide()
			if tt.want == 0 && d.Action != decide.RollOut || tt.want > 0 && (d.State != decide.Settling || d.RecheckAt.Sub(x.now) != tt.want) {
				t.Errorf("decision = %+v, want a wait of %v", d, tt.want)
			}
		})
	}
}

// A change of the template ends the wait without a restart.
func TestDecide_ReleaseMakesOneRollout(t *testing.T) {
	x := typical(t)
	x.defaults.ReleaseSettle = 30 * time.Second
	x.image("app:2")
	x.tick(time.Minute)
	x.rollOut()
	x.adopt()
	x.tick(time.Hour)
	x.set(secret("db", "password", "2"))
	if d := x.act(); d.State != decide.Settling {
		t.Fatalf("the content has changed: decision = %+v, want state Settling", d)
	}
	x.tick(25 * time.Second)
	x.image("app:3")
	for range 60 {
		if d := x.act(); d.Action == decide.RollOut || d.State == decide.Settling {
			t.Fatalf("after the template has changed: decision = %+v", d)
		}
		x.tick(time.Second)
	}
}

// While the client continues to write in the namespace, its release is not over.
func TestDecide_ReleaseLastsWhileItsClientWrites(t *testing.T) {
	begin := func(t *testing.T) *world {
		t.Helper()
		x := typical(t)
		x.defaults.ReleaseSettle = 30 * time.Second
		x.image("app:2")
		x.tick(time.Minute)
		x.rollOut()
		x.adopt()
		x.set(configMap("another", "a", "1"))
		x.tick(time.Hour)
		x.set(secret("db", "password", "2"))
		return x
	}
	// rolledOut returns the time after which the workload is restarted while something is written
	// at intervals.
	rolledOut := func(t *testing.T, x *world, every time.Duration, n int, write func(i int)) time.Duration {
		t.Helper()
		start := x.now
		for i := range 600 {
			if i > 0 && i%int(every.Seconds()) == 0 && n > 0 {
				n--
				write(i)
			}
			if x.decide().Action == decide.RollOut {
				return x.now.Sub(start)
			}
			x.tick(time.Second)
		}
		t.Fatal("the workload is never restarted")
		return 0
	}
	another := func(x *world) func(int) {
		return func(i int) { x.set(configMap("another", "a", time.Duration(i).String())) }
	}
	t.Run("other content", func(t *testing.T) {
		x := begin(t)
		if got := rolledOut(t, x, 20*time.Second, 2, another(x)); got != 70*time.Second {
			t.Errorf("restarted after %v", got)
		}
	})
	t.Run("another client", func(t *testing.T) {
		x := begin(t)
		x.Manager = "external-secrets"
		if got := rolledOut(t, x, 20*time.Second, 2, another(x)); got != 30*time.Second {
			t.Errorf("restarted after %v", got)
		}
	})
	t.Run("without end", func(t *testing.T) {
		x := begin(t)
		if got := rolledOut(t, x, 20*time.Second, 600, another(x)); got != 120*time.Second {
			t.Errorf("restarted after %v", got)
		}
	})
	t.Run("metadata", func(t *testing.T) {
		x := begin(t)
		label := func(int) {
			o := configMap("another", "a", "1")
			o.SetLabels(map[string]string{"at": x.now.String()})
			x.set(o)
		}
		if got := rolledOut(t, x, 20*time.Second, 2, label); got != 30*time.Second {
			t.Errorf("restarted after %v", got)
		}
	})
}
