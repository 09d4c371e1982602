// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
)

const namespace = ingesttest.Namespace

// epoch is the time at which worlds begin: a whole second, like the times of API objects.
var epoch = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// world is a cluster with one Deployment, and the decisions on it.
type world struct {
	*ingesttest.Cluster

	t        *testing.T
	defaults policy.Defaults
	key      byte // of the digester
	// From the next restart on, read this scope, with no Secrets, or none of a type.
	scope          ingest.Scope
	withoutSecrets bool
	unread         corev1.SecretType
	now            time.Time

	deployment *appsv1.Deployment
	staleSince time.Time
	verified   *bool
	// mixed are the sources that, according to an inspection, some pods read while the content was different.
	mixed []string
	// recorded is the position in the order of reading at which the record was decided on.
	recorded uint64
}

// newWorld returns a world with a Deployment that reads what pod does, in mode auto, and
// with sources that were written an hour ago.
func newWorld(t *testing.T, pod corev1.PodSpec, sources ...ingesttest.Object) *world {
	t.Helper()
	x := &world{
		t: t, now: epoch.Add(-time.Hour),
		defaults: policy.Defaults{Mode: policy.Off, Settle: time.Second, MinInterval: 10 * time.Second},
	}
	x.Cluster = ingesttest.New(t, x.clock())
	for _, s := range sources {
		x.Set(s)
	}
	x.deployment = ingesttest.Deployment("web", pod)
	x.deployment.UID = "web-1"
	x.edit(func(*appsv1.Deployment) {})
	x.now = epoch
	x.restart()
	return x
}

// clock returns a clock with the time of the world, for the API server and for processes.
func (x *world) clock() clock.PassiveClock { return worldClock{x} }

type worldClock struct{ *world }

func (c worldClock) Now() time.Time                  { return c.now }
func (c worldClock) Since(t time.Time) time.Duration { return c.now.Sub(t) }

// restart makes the process forget what it has seen and read everything again.
func (x *world) restart() { x.restartWhile(func() {}) }

// restartWhile restarts the process, and lets something happen before the last of the first lists.
func (x *world) restartWhile(f func()) {
	x.t.Helper()
	index := ingest.NewIndex(x.clock())
	index.SetDefaults(x.defaults)
	scope := x.scope
	scope.WithoutSecrets = x.withoutSecrets
	if x.unread != "" {
		scope.UnreadTypes = []string{string(x.unread)}
	}
	x.Start(index, scope, x.key)
	x.ListWhile(f)
	x.staleSince = time.Time{}
}

// replaceKey gives the digester another key, which makes the process read everything again.
func (x *world) replaceKey() {
	x.key++
	x.restart()
}

// away lets changes happen while no process runs.
func (x *world) away(f func()) {
	x.t.Helper()
	f()
	x.restart()
}

// broken lets changes happen while the watches of the process are broken, and another process reads. A list then shows the
// result.
func (x *world) broken(f func()) {
	x.t.Helper()
	x.Relist(func() {
		x.restart()
		f()
	})
}

// rekey gives the digester another key, with which everything is read again. The process keeps what it
// knows apart from digests. Before is called before everything is read, and between after the sources and
// before the Deployment.
func (x *world) rekey(key byte, before, between func(*world)) {
	x.t.Helper()
	x.key = key
	x.Rekey(key, func() { before(x) }, func() { between(x) })
}

// namespaceAnnotations sets the annotations of the namespace.
func (x *world) namespaceAnnotations(a map[string]string) {
	x.t.Helper()
	x.Set(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Annotations: a}})
}

// set creates or updates a source.
func (x *world) set(o ingesttest.Object) { x.Set(o) }

// remove deletes a source.
func (x *world) remove(kind dependency.SourceKind, name string) {
	x.t.Helper()
	if kind == dependency.ConfigMap {
		x.Delete(configMap(name))
	} else {
		x.Delete(secret(name))
	}
}

// removeWorkload deletes the Deployment. Edit creates it again.
func (x *world) removeWorkload() {
	x.t.Helper()
	x.Delete(x.deployment)
	x.deployment.UID, x.deployment.CreationTimestamp, x.deployment.ManagedFields = "", metav1.Time{}, nil
}

// edit changes the Deployment.
func (x *world) edit(f func(*appsv1.Deployment)) {
	d := x.deployment.DeepCopy()
	f(d)
	x.deployment = d
	x.Set(d)
}

// both returns a function that calls all functions in order.
func both(fs ...func(*world)) func(*world) {
	return func(x *world) {
		for _, f := range fs {
			f(x)
		}
	}
}

// annotate sets annotations of the Deployment; an empty value removes one.
func (x *world) annotate(pairs ...string) {
	x.edit(func(d *appsv1.Deployment) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i+1] == "" {
				delete(d.Annotations, pairs[i])
			} else {
				d.Annotations[pairs[i]] = pairs[i+1]
			}
		}
	})
}

// patch applies a patch, which must contain only annotations.
func (x *world) patch(data []byte, err error) {
	x.t.Helper()
	if err != nil {
		x.t.Fatal(err)
	}
	manager := x.Manager
	x.Manager = policy.FieldManager
	defer func() { x.Manager = manager }()
	x.edit(func(d *appsv1.Deployment) { ingesttest.Patch(x.t, d, data) })
}

func (x *world) workload() *dependency.Workload {
	return x.graph().Workload(dependency.WorkloadKey{Kind: kind.Deployment, Namespace: namespace, Name: "web"})
}

func (x *world) evaluate() *policy.Evaluation {
	return x.known().Evaluate(x.workload())
}

func (x *world) decide() policy.Decision {
	observed := policy.Observed{Now: x.now, StaleSince: x.staleSince}
	d := x.evaluate().Decide(observed)
	if x.verified != nil {
		observed.Verified = &policy.Verification{*x.verified, d.WrittenAt, x.workload().StartedBy}
		d = x.evaluate().Decide(observed)
	}
	switch {
	case !d.Stale:
		x.staleSince = time.Time{}
	case x.staleSince.IsZero():
		x.staleSince = x.now
	}
	return d
}

// act carries out the decision as the controller does, and returns it.
func (x *world) act() policy.Decision {
	x.t.Helper()
	d, e := x.decide(), x.evaluate()
	action := d.Action
	if action == policy.Inspect {
		next := e.Decide(policy.Observed{Now: x.now, StaleSince: x.staleSince, Inspected: &policy.Inspection{Of: d.Excursions, StartedBy: x.workload().StartedBy, Mixed: x.mixed}})
		if action = next.Action; action == policy.WriteMixed {
			x.patch(e.MixedPatch(next.Mixed))
		}
	}
	switch action {
	case policy.WriteVerified:
		x.patch(policy.VerifiedPatch(e.Workload, e.Present(), x.now))
	case policy.WriteBaseline:
		x.patch(policy.BaselinePatch(e.Workload, e.Present()))
	case policy.RollOut:
		last := policy.NewAutomaticReload(policy.LastReloadOf(e.Workload), x.now, e.Policy.MinInterval, d.Trigger)
		always := e.Workload.Marks.TemplateHash == e.Hash
		x.patch(e.Policy.RestartPatch(e.Workload, &policy.Restart{Present: e.Present(), Last: last, Always: always}))
	}
	return d
}

// adopt records the current content without a restart.
func (x *world) adopt() {
	x.t.Helper()
	if d := x.act(); d.Action != policy.WriteBaseline {
		x.t.Fatalf("opting in: decision = %+v, want action WriteBaseline", d)
	}
	if d := x.decide(); d.State != policy.InSync || d.Action != policy.None {
		x.t.Fatalf("after opting in: decision = %+v, want state InSync and no action", d)
	}
	x.tick(time.Minute)
}

// record records the current content.
func (x *world) record() {
	x.t.Helper()
	x.recorded = x.graph().Order()
	if d := x.act(); d.Action != policy.WriteBaseline {
		x.t.Fatalf("recording: decision = %+v, want action WriteBaseline", d)
	}
}

func (x *world) tick(d time.Duration) { x.now = x.now.Add(d) }

// outcome contains the fields of a decision that tests compare.
type outcome struct {
	State   policy.State
	Reason  string
	Action  policy.Action
	Trigger string
}

func outcomeOf(d policy.Decision) outcome { return outcome{d.State, d.Reason, d.Action, d.Trigger} }

// The most frequent outcomes.
var (
	nothing  = outcome{State: policy.InSync, Reason: "ContentApplied"}
	baseline = outcome{State: policy.InSync, Reason: "ContentApplied", Action: policy.WriteBaseline}
	adoption = outcome{State: policy.Pending, Reason: "NotRecorded", Action: policy.WriteBaseline}
	restored = outcome{State: policy.InSync, Reason: "RecordRemoved", Action: policy.WriteBaseline}
)

// inspect is the outcome when content has changed and changed back.
func inspect(trigger string) outcome {
	return outcome{policy.Pending, "Verifying", policy.Inspect, trigger}
}

func rollOut(trigger string) outcome {
	return outcome{policy.Pending, "SourceChanged", policy.RollOut, trigger}
}

// known returns the evaluator of the index.
func (x *world) known() (known policy.Evaluator) {
	x.Index().SetDefaults(x.defaults) // as if they had always been the same
	x.Read(func(now policy.Evaluator) { known = now })
	return known
}

func (x *world) graph() *dependency.Graph { return x.known().Graph }
