// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	batchv1 "k8s.io/api/batch/v1"

	"github.com/configdep/configdep/pkg/dependency"
)

// CronJob is the name of the kind.
const CronJob dependency.WorkloadKind = "CronJob"

var cronJob = &Kind{
	Name:     CronJob,
	Resource: batchv1.SchemeGroupVersion.WithResource("cronjobs"),
	Traits:   dependency.Traits{Recurring: true},
	New:      func() Object { return &batchv1.CronJob{} },
	From: typed(func(o *batchv1.CronJob) *dependency.Object {
		return &dependency.Object{Meta: &o.ObjectMeta, Template: &o.Spec.JobTemplate.Spec.Template}
	}),
}
