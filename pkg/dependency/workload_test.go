package dependency

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func workloadMeta(owners ...metav1.OwnerReference) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: "shop", Name: "web", UID: "u", ResourceVersion: "7", CreationTimestamp: at(1),
		Labels:          map[string]string{"app": "web"},
		Annotations:     map[string]string{"configdep.io/config-hash": "object", "configdep.io.example.com/x": "other", "other": "x"},
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
	tests := map[WorkloadKind]struct {
		got        *Workload
		apiVersion string
		viewName   string
	}{
		Deployment:  {FromDeployment(&appsv1.Deployment{ObjectMeta: m, Spec: appsv1.DeploymentSpec{Template: template}}), "apps/v1", "deployment.web"},
		StatefulSet: {FromStatefulSet(&appsv1.StatefulSet{ObjectMeta: m, Spec: appsv1.StatefulSetSpec{Template: template}}), "apps/v1", "statefulset.web"},
		DaemonSet:   {FromDaemonSet(&appsv1.DaemonSet{ObjectMeta: m, Spec: appsv1.DaemonSetSpec{Template: template}}), "apps/v1", "daemonset.web"},
		ReplicaSet:  {FromReplicaSet(&appsv1.ReplicaSet{ObjectMeta: m, Spec: appsv1.ReplicaSetSpec{Template: template}}), "apps/v1", "replicaset.web"},
		CronJob: {FromCronJob(&batchv1.CronJob{ObjectMeta: m, Spec: batchv1.CronJobSpec{
			JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template}},
		}}), "batch/v1", "cronjob.web"},
		Job: {FromJob(&batchv1.Job{ObjectMeta: m, Spec: batchv1.JobSpec{Template: template}}), "batch/v1", "job.web"},
		Pod: {FromPod(pod), "v1", "pod.web"},
	}
	for kind, tt := range tests {
		t.Run(string(kind), func(t *testing.T) {
			want := &Workload{
				WorkloadKey: WorkloadKey{kind, "shop", "web"}, UID: "u", ResourceVersion: "7", Created: at(1),
				Labels:              map[string]string{"app": "web"},
				Annotations:         map[string]string{"configdep.io/config-hash": "object"},
				TemplateAnnotations: map[string]string{"configdep.io/config-hash": "template"},
				References:          []Reference{{Kind: Secret, Name: "registry", Uses: []Use{{Type: ImagePullSecret, Optional: true}}}},
			}
			if kind == Pod { // it is its own template
				want.TemplateAnnotations = want.Annotations
			}
			if Reloadable := kind == Deployment || kind == StatefulSet || kind == DaemonSet; Reloadable {
				want.TemplateWritten = at(1).Time
			}
			if diff := cmp.Diff(want, tt.got, ignoreFingerprint, ignoreRollout); diff != "" {
				t.Errorf("workload (-want +got):\n%s", diff)
			}
			if got := kind.GroupVersion().String(); got != tt.apiVersion {
				t.Errorf("apiVersion %s, want %s", got, tt.apiVersion)
			}
			if got := tt.got.ViewName(); got != tt.viewName {
				t.Errorf("shown as %s, want %s", got, tt.viewName)
			}
		})
	}
}

func TestPausedDeployment(t *testing.T) {
	for _, paused := range []bool{true, false} {
		if w := FromDeployment(&appsv1.Deployment{Spec: appsv1.DeploymentSpec{Paused: paused}}); w.Paused != paused {
			t.Errorf("paused: %v, want %v", w.Paused, paused)
		}
	}
}

// What a controller has made is not shown, because the controller's owner is.
func TestControlledObjectsAreNotShown(t *testing.T) {
	owner := metav1.OwnerReference{Kind: "Deployment", Name: "owner"} // owns without controlling
	job := func(owners ...metav1.OwnerReference) *Workload {
		return FromJob(&batchv1.Job{ObjectMeta: workloadMeta(owners...)})
	}
	replicaSet := func(owners ...metav1.OwnerReference) *Workload {
		return FromReplicaSet(&appsv1.ReplicaSet{ObjectMeta: workloadMeta(owners...)})
	}
	pod := func(owners ...metav1.OwnerReference) *Workload {
		return FromPod(&corev1.Pod{ObjectMeta: workloadMeta(owners...)})
	}
	tests := map[string]struct {
		got   *Workload
		shown bool
	}{
		"a Job of nobody":                           {job(), true},
		"a Job of a CronJob":                        {job(controlledBy("CronJob")), false},
		"a Job of something that is not shown":      {job(controlledBy("Workflow")), true},
		"a ReplicaSet of nobody":                    {replicaSet(), true},
		"a ReplicaSet with an owner, no controller": {replicaSet(owner), true},
		"a ReplicaSet of a Deployment":              {replicaSet(controlledBy("Deployment")), false},
		"a ReplicaSet of a Rollout":                 {replicaSet(controlledBy("Rollout")), false},
		"a Pod of nobody":                           {pod(), true},
		"a Pod with an owner, no controller":        {pod(owner), true},
		"a Pod of a ReplicaSet":                     {pod(controlledBy("ReplicaSet")), false},
		"a Pod with two owners":                     {pod(owner, controlledBy("Job")), false},
	}
	for name, tt := range tests {
		if shown := tt.got != nil; shown != tt.shown {
			t.Errorf("%s: shown: %v, want %v", name, shown, tt.shown)
		}
	}
}
