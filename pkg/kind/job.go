// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/configdep/configdep/pkg/dependency"
)

// Job is the name of the kind.
const Job dependency.WorkloadKind = "Job"

// The Jobs of a CronJob are hidden, and those of other tools are shown. A label selector cannot leave out the latter:
// each tool has its own labels (Argo Workflows, Tekton, Spark).
var job = newJob(dependency.Traits{})

func newJob(traits dependency.Traits) *Kind {
	return &Kind{
		Name:       Job,
		Resource:   batchv1.SchemeGroupVersion.WithResource("jobs"),
		Traits:     traits,
		Hidden:     func(controller *metav1.OwnerReference) bool { return controller.Kind == string(CronJob) },
		ListedOnly: true,
		New:        func() Object { return &batchv1.Job{} },
		From:       typed(readJob),
	}
}

func readJob(o *batchv1.Job) *dependency.Object {
	return &dependency.Object{Meta: &o.ObjectMeta, Template: &o.Spec.Template, Status: dependency.Status{
		Suspended: ptr.Deref(o.Spec.Suspend, false),
		Owned:     len(o.OwnerReferences) > 0,
	}}
}
