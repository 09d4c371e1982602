// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/notify"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
)

type collected struct{ events []notify.Event }

func (c *collected) Notify(e notify.Event) { c.events = append(c.events, e) }

// rerunning returns a leader in a cluster with a CronJob report that forbids two runs, and one of which is active.
func rerunning(t *testing.T) (*Controller, *collected, *testingclock.FakeClock, *step) {
	t.Helper()
	cron := &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "report", UID: "u", ResourceVersion: "7"},
		Spec:       batchv1.CronJobSpec{ConcurrencyPolicy: batchv1.ForbidConcurrent},
	}
	active := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "active", UID: "a", OwnerReferences: []metav1.OwnerReference{{
		APIVersion: "batch/v1", Kind: "CronJob", Name: "report", UID: "u", Controller: new(true),
	}}}}
	sink, now := &collected{}, testingclock.NewFakeClock(time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC))
	c := New(Config{Client: workloadtest.Client(fake.NewClientset(cron, active)), Sink: sink, Clock: clock.WithTicker(now), Workers: 1})
	c.serve(nil)
	w := &dependency.Workload{WorkloadKey: dependency.WorkloadKey{Kind: "CronJob", Namespace: "shop", Name: "report"}, UID: "u", ResourceVersion: "7"}
	w.Traits = dependency.Traits{Rollable: true, Recurring: true, Reruns: true}
	s := &step{workload: w, present: record.Record{Hash: "v1.k.b"}, policy: policy.Policy{Mode: policy.Auto, Strategy: record.Rerun, Reruns: true}}
	s.Action, s.Because = decide.RollOut, "ConfigMap/config has changed"
	return c, sink, now, s
}

// While a run has to wait, nothing is written, and an event says so after a minute, once.
func TestRollOut_RunWaits(t *testing.T) {
	c, sink, now, s := rerunning(t)
	for i := range 3 {
		if after, err := c.rollOut(t.Context(), s); err != nil || after <= 0 {
			t.Fatalf("after = %v, %v, want to try again", after, err)
		}
		if want := min(i, 1); len(sink.events) != want {
			t.Fatalf("after %d minutes, there are the events %+v, want %d", i, sink.events, want)
		}
		now.Step(time.Minute)
	}
	const want = "The next run will be started later: a run is active, and the concurrencyPolicy is not Allow."
	if e := sink.events[0]; e.What != notify.RestartWaits || e.Message != want {
		t.Errorf("event = %+v, want %s: %s", e, notify.RestartWaits, want)
	}
}

// No Job is created while the record of its run is refused: an event says why.
func TestRollOut_RecordOfARunIsRefused(t *testing.T) {
	c, sink, _, s := rerunning(t)
	cron := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "report", UID: "u", ResourceVersion: "7"}}
	jobs := fake.NewClientset(cron)
	refused := false
	jobs.PrependReactor("patch", "cronjobs", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if patch := action.(clienttesting.PatchActionImpl); !slices.Equal(patch.PatchOptions.DryRun, []string{metav1.DryRunAll}) {
			t.Errorf("the patch %s is no dry run", patch.Patch)
		}
		refused = true
		return true, nil, apierrors.NewForbidden(batchv1.Resource("cronjobs"), "report", errors.New("a policy"))
	})
	c.Client = workloadtest.Client(jobs)
	c.Client.Kinds = c.Client.Kinds.WithReruns()
	if _, err := c.rollOut(t.Context(), s); !apierrors.IsForbidden(err) || !refused {
		t.Fatalf("err = %v, want the refusal", err)
	}
	if list, err := jobs.BatchV1().Jobs("shop").List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) > 0 {
		t.Errorf("Jobs = %+v, %v, want none", list, err)
	}
	if len(sink.events) != 1 || sink.events[0].What != notify.RestartFailed || !strings.Contains(sink.events[0].Message, "a policy") {
		t.Errorf("events = %+v, want one of a restart that failed", sink.events)
	}
}

// Events say what was done.
func TestRestartedBecause(t *testing.T) {
	_, _, _, s := rerunning(t)
	for want, traits := range map[string]dependency.Traits{
		"Restarted because ConfigMap/config has changed":                                                 {Rollable: true},
		"Started Job " + record.RunName(s.workload, s.present) + " because ConfigMap/config has changed": {Rollable: true, Recurring: true, Reruns: true},
		"Is being replaced because ConfigMap/config has changed":                                         {Rollable: true, Reruns: true},
	} {
		s.workload.Traits = traits
		if got := restartedBecause(s); got != want {
			t.Errorf("message = %q, want %q", got, want)
		}
	}
}

// A replacement that ends without success is told.
func TestContinueRestart_TellsOfFailure(t *testing.T) {
	name := record.CopyName("seed", "uid-seed")
	duplicate := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "c", Annotations: map[string]string{
		record.CopyAnnotation: record.Copy{Name: "seed", UID: "uid-seed", Deleting: true}.Text(),
	}}, Spec: batchv1.JobSpec{Suspend: new(true), Template: corev1.PodTemplateSpec{}}}
	other := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "seed", UID: "other"}}
	sink := &collected{}
	c := New(Config{Client: workloadtest.Client(fake.NewClientset(duplicate, other)), Sink: sink, Clock: clock.RealClock{}, Workers: 1})
	c.serve(nil)
	w := &dependency.Workload{WorkloadKey: dependency.WorkloadKey{Kind: "Job", Namespace: "shop", Name: name}, UID: "c", Annotations: duplicate.Annotations}
	w.Traits = dependency.Traits{Rollable: true, Reruns: true}
	s := &step{workload: w}
	s.Action = decide.Continue
	if after, err := c.continueRestart(t.Context(), s); err != nil || after != 0 {
		t.Errorf("after = %v, %v", after, err)
	}
	if len(sink.events) != 1 || sink.events[0].What != notify.RestartFailed || sink.events[0].Workload != w.WorkloadKey {
		t.Errorf("events = %+v, want one of a restart that failed", sink.events)
	}
}
