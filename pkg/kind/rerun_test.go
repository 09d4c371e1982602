// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind_test

import (
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
)

// What decisions about runs depend on.
func TestWithReruns_Reads(t *testing.T) {
	cronJob := func(change func(*batchv1.CronJob)) *batchv1.CronJob {
		o := &batchv1.CronJob{}
		change(o)
		return o
	}
	active := []corev1.ObjectReference{{Name: "run"}}
	suspended, owned, busy := dependency.Status{Suspended: true}, dependency.Status{Owned: true}, dependency.Status{Busy: true}
	for name, tt := range map[string]struct {
		object kind.Object
		want   dependency.Status
	}{
		"a CronJob":           {&batchv1.CronJob{}, dependency.Status{}},
		"a suspended CronJob": {cronJob(func(o *batchv1.CronJob) { o.Spec.Suspend = new(true) }), suspended},
		"a resumed CronJob":   {cronJob(func(o *batchv1.CronJob) { o.Spec.Suspend = new(false) }), dependency.Status{}},
		"an active run":       {cronJob(func(o *batchv1.CronJob) { o.Status.Active = active }), dependency.Status{}},
		"Allow": {cronJob(func(o *batchv1.CronJob) {
			o.Status.Active, o.Spec.ConcurrencyPolicy = active, batchv1.AllowConcurrent
		}), dependency.Status{}},
		"Forbid": {cronJob(func(o *batchv1.CronJob) {
			o.Status.Active, o.Spec.ConcurrencyPolicy = active, batchv1.ForbidConcurrent
		}), busy},
		"Replace": {cronJob(func(o *batchv1.CronJob) {
			o.Status.Active, o.Spec.ConcurrencyPolicy = active, batchv1.ReplaceConcurrent
		}), busy},
		"Forbid, no run is active": {cronJob(func(o *batchv1.CronJob) { o.Spec.ConcurrencyPolicy = batchv1.ForbidConcurrent }), dependency.Status{}},
		"a Job":                    {&batchv1.Job{}, dependency.Status{}},
		"a suspended Job":          {&batchv1.Job{Spec: batchv1.JobSpec{Suspend: new(true)}}, suspended},
		"a Job with an owner":      {&batchv1.Job{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: "Workflow"}}}}, owned},
	} {
		k := kind.Table(nil).WithReruns().OfObject(tt.object)
		got, err := k.Read(tt.object)
		if err != nil || got.Status != tt.want {
			t.Errorf("%s: status = %+v (%v), want %+v", name, got.Status, err, tt.want)
		}
		if recurs := k.Name == kind.CronJob; !got.Traits.Reruns || !got.Traits.Rollable || got.Traits.Recurring != recurs || k.Restarted() {
			t.Errorf("%s: traits = %+v", name, got.Traits)
		}
	}
}

// Other kinds, and kinds that are left out, stay as they are.
func TestWithReruns_KeepsTheTable(t *testing.T) {
	builtIn := kind.BuiltIn()
	with := kind.Table(nil).WithReruns().All()
	for i, k := range builtIn {
		if same := k == with[i]; k.Name != with[i].Name || same != !slices.Contains([]dependency.WorkloadKind{kind.CronJob, kind.Job}, k.Name) {
			t.Errorf("%s has become %s; the same: %v", k.Name, with[i].Name, same)
		}
	}
	if !slices.Equal(builtIn, kind.BuiltIn()) || kind.Table(nil).Of(kind.Job).Traits.Reruns {
		t.Error("the kinds that are built in have changed")
	}
	if few := (kind.Table{builtIn[0]}).WithReruns(); len(few) != 1 || few[0] != builtIn[0] {
		t.Errorf("a table of one kind = %v", few)
	}
}
