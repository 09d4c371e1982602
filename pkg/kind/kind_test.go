// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
)

var created = metav1.Date(2026, time.January, 1, 0, 1, 0, 0, time.UTC)

func workloadMeta(owners ...metav1.OwnerReference) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: "shop", Name: "web", UID: "u", ResourceVersion: "7", CreationTimestamp: created,
		Labels:          map[string]string{"app": "web"},
		Annotations:     map[string]string{"configdep.io/config-hash": "object", "configdep.io/reload": "auto", "configdep.io.example.com/x": "other", "other": "x"},
		OwnerReferences: owners,
	}
}

func controlledBy(kind string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: kind, Name: "owner", Controller: new(true)}
}

func podTemplate() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"configdep.io/config-hash": "template", "other": "x"}},
		Spec:       corev1.PodSpec{ImagePullSecrets: []corev1.LocalObjectReference{{Name: "registry"}}},
	}
}

func TestWorkloadOfAnObject(t *testing.T) {
	m, template := workloadMeta(), podTemplate()
	pod := &corev1.Pod{ObjectMeta: m, Spec: template.Spec}
	deployment := &appsv1.Deployment{ObjectMeta: m, Spec: appsv1.DeploymentSpec{Template: template}}
	statefulSet := &appsv1.StatefulSet{ObjectMeta: m, Spec: appsv1.StatefulSetSpec{Template: template, Replicas: new(int32(3))}}
	daemonSet := &appsv1.DaemonSet{
		ObjectMeta: m, Spec: appsv1.DaemonSetSpec{Template: template},
		Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 4},
	}
	tests := map[dependency.WorkloadKind]struct {
		got        *dependency.Workload
		apiVersion string
		viewName   string
	}{
		kind.Deployment:  {workloadtest.Read(deployment), "apps/v1", "deployment.web"},
		kind.StatefulSet: {workloadtest.Read(statefulSet), "apps/v1", "statefulset.web"},
		kind.DaemonSet:   {workloadtest.Read(daemonSet), "apps/v1", "daemonset.web"},
		kind.ReplicaSet:  {workloadtest.Read(&appsv1.ReplicaSet{ObjectMeta: m, Spec: appsv1.ReplicaSetSpec{Template: template}}), "apps/v1", "replicaset.web"},
		kind.CronJob: {workloadtest.Read(&batchv1.CronJob{ObjectMeta: m, Spec: batchv1.CronJobSpec{
			JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template}},
		}}), "batch/v1", "cronjob.web"},
		kind.Job: {workloadtest.Read(&batchv1.Job{ObjectMeta: m, Spec: batchv1.JobSpec{Template: template}}), "batch/v1", "job.web"},
		kind.Pod: {workloadtest.Read(pod), "v1", "pod.web"},
	}
	for name, tt := range tests {
		t.Run(string(name), func(t *testing.T) {
			k := kind.Table(nil).Of(name)
			want := &dependency.Workload{
				WorkloadKey: dependency.WorkloadKey{Kind: name, Namespace: "shop", Name: "web"}, UID: "u", ResourceVersion: "7", Created: created,
				Labels:      map[string]string{"app": "web"},
				Annotations: map[string]string{"configdep.io/reload": "auto"},
				Marks:       dependency.Marks{Hash: "object", TemplateHash: "template"},
				Traits:      k.Traits,
				References:  []dependency.Reference{{Kind: dependency.Secret, Name: "registry", Uses: []dependency.Use{{Type: dependency.ImagePullSecret, Optional: true}}}},
			}
			if name == kind.Pod { // a Pod is its own template
				want.Marks.TemplateHash, want.TemplateAnnotations = want.Marks.Hash, want.Annotations
			}
			// These fields are only set for kinds that can be restarted.
			replicas, rollable := map[dependency.WorkloadKind]int32{kind.Deployment: 1, kind.StatefulSet: 3, kind.DaemonSet: 4}[name]
			if want.Replicas = replicas; rollable {
				want.TemplateWritten = created.Time
				want.InPlace = dependency.InPlace{NotInPlace: "its pod template has no restarter", MaxUnavailable: 1}
				want.Rollout.Phase = dependency.RolloutRunning
			}
			ignored := []cmp.Option{cmpopts.IgnoreUnexported(dependency.Workload{}), cmpopts.IgnoreFields(dependency.Rollout{}, "Reason", "Message")}
			if diff := cmp.Diff(want, tt.got, ignored...); diff != "" {
				t.Errorf("workload (-want +got):\n%s", diff)
			}
			if got := k.Resource.GroupVersion().String(); got != tt.apiVersion {
				t.Errorf("apiVersion = %s, want %s", got, tt.apiVersion)
			}
			if got := tt.got.ViewName(); got != tt.viewName {
				t.Errorf("ViewName = %s, want %s", got, tt.viewName)
			}
		})
	}
}

func TestPausedDeployment(t *testing.T) {
	for _, paused := range []bool{true, false} {
		if w := workloadtest.Read(&appsv1.Deployment{Spec: appsv1.DeploymentSpec{Paused: paused}}); w.Paused != paused {
			t.Errorf("Paused = %v, want %v", w.Paused, paused)
		}
	}
}

// Objects that a controller has created are not shown, because their controller is.
func TestControlledObjectsAreNotShown(t *testing.T) {
	owner := metav1.OwnerReference{Kind: "Deployment", Name: "owner"} // owns without controlling
	job := func(owners ...metav1.OwnerReference) *dependency.Workload {
		return workloadtest.Read(&batchv1.Job{ObjectMeta: workloadMeta(owners...)})
	}
	replicaSet := func(owners ...metav1.OwnerReference) *dependency.Workload {
		return workloadtest.Read(&appsv1.ReplicaSet{ObjectMeta: workloadMeta(owners...)})
	}
	pod := func(owners ...metav1.OwnerReference) *dependency.Workload {
		return workloadtest.Read(&corev1.Pod{ObjectMeta: workloadMeta(owners...)})
	}
	tests := map[string]struct {
		got   *dependency.Workload
		shown bool
	}{
		"a Job without an owner":                           {job(), true},
		"a Job of a CronJob":                               {job(controlledBy("CronJob")), false},
		"a Job of a kind that is not shown":                {job(controlledBy("Workflow")), true},
		"a ReplicaSet without an owner":                    {replicaSet(), true},
		"a ReplicaSet with an owner that is no controller": {replicaSet(owner), true},
		"a ReplicaSet of a Deployment":                     {replicaSet(controlledBy("Deployment")), false},
		"a ReplicaSet of a Rollout":                        {replicaSet(controlledBy("Rollout")), false},
		"a Pod without an owner":                           {pod(), true},
		"a Pod with an owner that is no controller":        {pod(owner), true},
		"a Pod of a ReplicaSet":                            {pod(controlledBy("ReplicaSet")), false},
		"a Pod with two owners":                            {pod(owner, controlledBy("Job")), false},
	}
	for name, tt := range tests {
		if shown := tt.got != nil; shown != tt.shown {
			t.Errorf("%s: shown: %v, want %v", name, shown, tt.shown)
		}
	}
}

// Pods on nodes that should have none count as replicas, too.
func TestRead_ReplicasOfADaemonSet(t *testing.T) {
	o := &appsv1.DaemonSet{Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 3, CurrentNumberScheduled: 2, NumberMisscheduled: 4}}
	if got := workloadtest.Read(o).Replicas; got != 7 {
		t.Errorf("Replicas = %d", got)
	}
}
