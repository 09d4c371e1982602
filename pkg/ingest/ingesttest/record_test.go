// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingesttest

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
)

// typical is a cluster with a Deployment that reads a key of a Secret, all of a ConfigMap, and a missing Secret.
func typical(t testing.TB) (*Cluster, *testingclock.FakePassiveClock, *appsv1.Deployment) {
	t.Helper()
	clock := testingclock.NewFakePassiveClock(time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC))
	c, ref, optional := New(t, clock), corev1.LocalObjectReference{Name: "db"}, true
	d := Deployment("web", corev1.PodSpec{Containers: []corev1.Container{{
		Name: "app",
		Env: []corev1.EnvVar{{Name: "PASSWORD", ValueFrom: &corev1.EnvVarSource{
			SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ref, Key: "password"},
		}}},
		EnvFrom: []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}},
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "extra"}, Optional: &optional}},
		},
	}}})
	c.Set(Secret("db", "password", "1", "unread", "1"))
	c.Set(ConfigMap("settings", "a", "1", "b", "1"))
	c.Set(d)
	return c, clock, d
}

// evaluate lists everything with a new index, and evaluates the Deployment.
func evaluate(c *Cluster, clock *testingclock.FakePassiveClock) (e *policy.Evaluation) {
	x := ingest.NewIndex(clock)
	x.SetDefaults(policy.Defaults{Mode: policy.Off, Settle: time.Second})
	c.Start(x, ingest.Scope{}, 0)
	c.List()
	return current(c)
}

func current(c *Cluster) (e *policy.Evaluation) {
	c.Read(func(known policy.Evaluator) {
		e = known.Evaluate(known.Graph.Workload(dependency.WorkloadKey{Kind: kind.Deployment, Namespace: Namespace, Name: "web"}))
	})
	return e
}

// FuzzRecord: any client can write annotations. Whatever they contain, evaluating them succeeds, and after the
// resulting action there is nothing left to do.
func FuzzRecord(f *testing.F) {
	c, clock, _ := typical(f)
	present := evaluate(c, clock).Present()
	sources := `{"Secret/db":"90a6b2c8.0.1","ConfigMap/settings":"*","Secret/extra":""}`
	last := `{"time":"2026-03-01T12:00:00.000000Z","streak":9223372036854775807}`
	f.Add(present.Hash, sources, present.Hash, `{"time":"2026-03-01T12:00:00.000000Z","trigger":"Secret/db","streak":1}`, "2026-03-01T12:00:00Z")
	f.Add(present.Hash, sources, "", last, "x")
	f.Add("v1."+DigesterOf(0).KeyID()+".", "null", "..", "null", "")
	f.Fuzz(func(t *testing.T, hash, sources, template, last, recreating string) {
		c, clock, d := typical(t)
		for key, value := range map[string]string{
			policy.MinIntervalAnnotation: "0", policy.ConfigHashAnnotation: hash, policy.AppliedSourcesAnnotation: sources,
			policy.LastReloadAnnotation: last, policy.RecreatingAnnotation: recreating,
		} {
			if value != "" {
				d.Annotations[key] = value
			}
		}
		d.Spec.Template.Annotations = map[string]string{policy.ConfigHashAnnotation: template}
		clock.SetTime(clock.Now().Add(time.Minute))
		e := evaluate(c, clock)
		observed := policy.Observed{Now: clock.Now()}
		decision := e.Decide(observed)
		action := decision.Action
		if action == policy.Inspect {
			observed.Inspected = &policy.Inspection{Of: decision.Excursions, StartedBy: e.Workload.StartedBy}
			action = e.Decide(observed).Action
			observed.Inspected = nil
		}
		var patch []byte
		var err error
		switch action {
		case policy.Continue, policy.None:
			return
		case policy.WriteVerified:
			patch, err = policy.VerifiedPatch(e.Workload, e.Present(), observed.Now)
		case policy.WriteBaseline:
			patch, err = policy.BaselinePatch(e.Workload, e.Present())
		case policy.RollOut:
			last := policy.NewAutomaticReload(policy.LastReloadOf(e.Workload), observed.Now, e.Policy.MinInterval, decision.Trigger)
			always := e.Workload.Marks.TemplateHash == e.Hash
			patch, err = e.Policy.RestartPatch(e.Workload, &policy.Restart{Present: e.Present(), Last: last, Always: always})
		}
		if err != nil {
			t.Fatal(err)
		}
		if patch != nil {
			d = d.DeepCopy()
			Patch(t, d, patch)
			c.Manager = policy.FieldManager
			c.Set(d)
		}
		if decision.Stale {
			observed.StaleSince = observed.Now
		}
		if got := current(c).Decide(observed); got.Stale || got.Action == policy.RollOut || got.Action == policy.WriteBaseline {
			t.Errorf("after the first action: %+v", got)
		}
	})
}
