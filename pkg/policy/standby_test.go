package policy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/dependency"
)

// A replica that does not lead leaves what it knows from lists alone to the leader, and looks again after a time. Of what
// it has seen itself it is in doubt, until the leader has recorded what it found.
func TestDecide_StandsBy(t *testing.T) {
	change := func(x *world) { x.set(secret("db", "password", "2")) }
	thereAndBack := func(x *world) {
		change(x)
		x.tick(time.Second)
		x.set(secret("db", "password", "1"))
	}
	more := func(value string) func(*world) {
		return func(x *world) { x.set(secret("more", "k", value)) }
	}
	listed := func(f func(*world)) func(*world) { return func(x *world) { x.broken(func() { f(x) }) } }
	template := func(image string, observed int64) func(*world) {
		return func(x *world) {
			x.edit(func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers[0].Image, d.Generation, d.Status.ObservedGeneration = image, 3, observed
			})
		}
	}
	for name, tt := range map[string]struct {
		do     func(*world)
		leader outcome
		want   outcome
	}{
		"seen":            {thereAndBack, inspect("Secret/db"), inspect("Secret/db")},
		"seen in part":    {both(func(x *world) { x.set(secret("db", "password", "2")) }, func(x *world) { x.broken(func() { x.set(secret("db", "password", "1")) }) }), inspect("Secret/db"), nothing},
		"seen, and more":  {both(thereAndBack, func(x *world) { x.set(secret("db", "password", "3")) }, func(x *world) { x.tick(time.Minute) }), rollOut("Secret/db"), rollOut("Secret/db")},
		"a glob":          {both(func(x *world) { x.annotate(SourcesAnnotation, "secret/m*"); x.act(); x.tick(time.Minute) }, more("2"), more("1")), inspect("Secret/m*"), inspect("Secret/m*")},
		"a glob, in part": {both(func(x *world) { x.annotate(SourcesAnnotation, "secret/m*"); x.act(); x.tick(time.Minute) }, more("2"), listed(more("1"))), inspect("Secret/m*"), nothing},
		"very often": {func(x *world) {
			for range 20 {
				thereAndBack(x)
			}
		}, inspect("Secret/db"), inspect("Secret/db")},
		"read after the record of a restart that was made for it, with several counters": {func(x *world) {
			x.graph.SetSeveralCounters(true)
			there := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "3"), secret("more", "k", "1"))
			restart := Restart{Present: there.evaluate().Present(), Last: Automatic(nil, x.now, 0, "Secret/db")}
			x.patch(x.evaluate().Policy.RestartPatch(x.workload(), &restart))
			change(x)
			x.set(secret("db", "password", "3"))
		}, inspect("Secret/db"), outcome{State: InSync, Reason: "ContentApplied", Trigger: "Secret/db"}},
		"pods of a new template have read what has changed back": {
			both(change, template("app:2", 3), func(x *world) { x.set(secret("db", "password", "1")); x.tick(time.Minute) }),
			rollOut("Secret/db"), outcome{Pending, "SourceChanged", WriteMixed, "Secret/db"},
		},
		"the same, in part in a list": {
			both(change, template("app:2", 3), listed(func(x *world) { x.set(secret("db", "password", "1")) }), func(x *world) { x.tick(time.Minute) }),
			rollOut("Secret/db"), rollOut("Secret/db"),
		},
		"nothing has changed":                 {func(*world) {}, nothing, nothing},
		"a template has come back":            {both(template("app:2", 1), change, template("", 3)), inspect("Secret/db"), inspect("Secret/db")},
		"a list shows that it has":            {both(template("app:2", 1), change, listed(template("", 3))), inspect("Secret/db"), baseline},
		"a list shows what changed meanwhile": {both(template("app:2", 1), listed(change), template("", 3)), inspect("Secret/db"), baseline},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"), secret("more", "k", "1"))
			x.adopt()
			tt.do(x)
			for standsBy, want := range map[bool]outcome{false: tt.leader, true: tt.want} {
				d := x.evaluate().Decide(Observed{Now: x.now, StandsBy: standsBy})
				if diff := cmp.Diff(want, outcomeOf(d)); diff != "" {
					t.Errorf("stands by: %t (-want +got):\n%s", standsBy, diff)
				}
				again := time.Time{}
				if tt.leader.Action == Inspect {
					again = x.now.Add(doubtRecheck)
				}
				if !d.RecheckAt.Equal(again) {
					t.Errorf("stands by: %t: it is decided again at %v, want %v", standsBy, d.RecheckAt, again)
				}
			}
		})
	}
}

// What a replica that stands by has found out of its own doubts says nothing of those of the leader.
func TestDecide_StandsBy_RecordsNothingButDoubts(t *testing.T) {
	x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
	x.adopt()
	x.set(secret("db", "password", "2"))
	x.tick(time.Second)
	x.set(secret("db", "password", "1"))
	o := Observed{Now: x.now, StandsBy: true}
	excursions := x.evaluate().Decide(o).Excursions
	for _, mixed := range [][]string{nil, {"Secret/db"}} {
		o.Inspected = &Inspection{Of: excursions, StartedBy: x.workload().StartedBy, Mixed: mixed}
		want := nothing
		if mixed != nil {
			want = outcome{Pending, ReasonVerifying, WriteMixed, "Secret/db"}
		}
		if diff := cmp.Diff(want, outcomeOf(x.evaluate().Decide(o))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", mixed, diff)
		}
	}
}
