// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"

	"github.com/configdep/configdep/pkg/dependency"
)

// CronJob is the name of the kind.
const CronJob dependency.WorkloadKind = "CronJob"

var cronJob = newCronJob(dependency.Traits{Recurring: true})

func newCronJob(traits dependency.Traits) *Kind {
	return &Kind{
		Name:     CronJob,
		Resource: batchv1.SchemeGroupVersion.WithResource("cronjobs"),
		Traits:   traits,
		New:      func() Object { return &batchv1.CronJob{} },
		From:     typed(readCronJob),
	}
}

func readCronJob(o *batchv1.CronJob) *dependency.Object {
	return &dependency.Object{Meta: &o.ObjectMeta, Template: &o.Spec.JobTemplate.Spec.Template, Status: dependency.Status{
		Suspended: ptr.Deref(o.Spec.Suspend, false),
		Busy:      !MayRunTwice(o) && len(o.Status.Active) > 0,
	}}
}

// MayRunTwice reports whether two runs of a CronJob may be active at the same time. With the policy Replace, the next run on
// schedule ends the one before. What is started because of content ends none: it waits, as with Forbid.
func MayRunTwice(o *batchv1.CronJob) bool {
	return o.Spec.ConcurrencyPolicy == batchv1.AllowConcurrent || o.Spec.ConcurrencyPolicy == ""
}
