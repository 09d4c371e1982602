// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"testing"
	"time"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/policy"
)

// If a client that writes the pod template changes more than one object, the content must stay unchanged for longer, because a change of the template
// may follow. A single write is none of a release.
func TestDecide_ContentOfAReleaseSettlesLonger(t *testing.T) {
	const release = 30 * time.Second
	change := func(x *world) { x.set(secret("db", "password", "2")) }
	other := func(x *world) { x.Manager = "external-secrets" }
	another := func(x *world) { x.set(configMap("another", "a", x.now.String())) }
	after := func(wait time.Duration) func(*world) { return func(x *world) { x.tick(wait) } }
	as := func(manager string, f func(*world)) func(*world) {
		return func(x *world) {
			before := x.Manager
			x.Manager = manager
			f(x)
			x.Manager = before
		}
	}
	tests := map[string]struct {
		release time.Duration
		change  func(*world)
		want    time.Duration
	}{
		"a single write":                            {release, change, time.Second},
		"two writes of one source":                  {release, both(password("3"), after(time.Second/2), change), time.Second},
		"it has changed another source":             {release, both(another, change), release},
		"it has changed it a settle time ago":       {release, both(another, after(release), change), release},
		"it has changed it long ago":                {release, both(another, after(release+time.Second), change), time.Second},
		"it changes it afterwards":                  {release, both(change, after(time.Second/2), another), release},
		"it changes it, and then the same":          {release, both(another, after(20*time.Second), password("3"), after(15*time.Second), change), release},
		"it has changed another template":           {release, both(func(x *world) { x.Set(ingesttest.StatefulSet("sts", podOf(env(dependency.Secret, "other", "a")))) }, change), release},
		"another client has changed another source": {release, both(as("external-secrets", another), change), time.Second},
		"it has changed nothing of another source":  {release, both(another, after(time.Hour), func(x *world) { label(x, "another") }, change), time.Second},
		"a release by another client":               {release, both(other, another, change), time.Second},
		"by another client":                         {release, both(other, change), time.Second},
		"no release settle time":                    {0, both(another, change), time.Second},
		"a release settle time that is not longer":  {time.Second, both(another, change), time.Second},
		"a release settle time that is not longer, and the client continues to write": {
			time.Second, both(another, change, func(x *world) {
				x.tick(time.Second / 2)
				x.set(configMap("another", "a", "2"))
			}), time.Second / 2,
		},
		"the annotation sets the settle time": {release, both(func(x *world) { x.annotate(policy.SettleAnnotation, "2s") }, another, change), 2 * time.Second},
		"the annotation of the namespace sets the settle time": {
			release,
			both(func(x *world) { x.namespaceAnnotations(map[string]string{policy.SettleAnnotation: "2s"}) }, another, change), 2 * time.Second,
		},
		"the annotation sets no settle time": {release, both(func(x *world) { x.annotate(policy.SettleAnnotation, "0") }, another, change), 0},
		"one of two sources is of the release": {
			release, both(another, change, func(x *world) { other(x); x.set(configMap("settings", "a", "2")) }), release,
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
			x.set(configMap("another", "a", "1"))
			x.Set(ingesttest.StatefulSet("sts", podOf()))
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
	x.set(configMap("another", "a", "1"))
	x.tick(time.Hour)
	x.set(configMap("another", "a", "2"))
	x.set(secret("db", "password", "2"))
	d := x.act()
	if want := `Secret/db has changed. The client owner, which also writes the pod template, has changed other objects in the namespace, so a release may be under way. ` +
		`A restart is due at 2026-03-01T13:02:30Z, unless it changes more: the settle time is then 30s.`; d.State != decide.Settling || d.Message != want {
		t.Fatalf("the content has changed: state %s, message %q, want Settling and %q", d.State, d.Message, want)
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
		x.set(configMap("third", "a", "1"))
		x.tick(time.Hour)
		x.set(configMap("third", "a", "2"))
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
		if got := rolledOut(t, x, 20*time.Second, 2, func(int) { label(x, "another") }); got != 30*time.Second {
			t.Errorf("restarted after %v", got)
		}
	})
}

// label changes the metadata of a ConfigMap.
func label(x *world, name string) {
	o := x.Stored(configMap(name)).DeepCopyObject().(ingesttest.Object)
	o.SetLabels(map[string]string{"at": x.now.String()})
	x.set(o)
}
