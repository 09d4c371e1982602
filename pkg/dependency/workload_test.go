package dependency

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
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
	deployment := &appsv1.Deployment{ObjectMeta: m, Spec: appsv1.DeploymentSpec{Template: template}}
	statefulSet := &appsv1.StatefulSet{ObjectMeta: m, Spec: appsv1.StatefulSetSpec{Template: template, Replicas: new(int32(3))}}
	daemonSet := &appsv1.DaemonSet{
		ObjectMeta: m, Spec: appsv1.DaemonSetSpec{Template: template},
		Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 4},
	}
	tests := map[WorkloadKind]struct {
		got        *Workload
		apiVersion string
		viewName   string
	}{
		Deployment:  {FromDeployment(deployment), "apps/v1", "deployment.web"},
		StatefulSet: {FromStatefulSet(statefulSet), "apps/v1", "statefulset.web"},
		DaemonSet:   {FromDaemonSet(daemonSet), "apps/v1", "daemonset.web"},
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
			// Of those whose pods can be restarted more is known.
			replicas, reloadable := map[WorkloadKind]int32{Deployment: 1, StatefulSet: 3, DaemonSet: 4}[kind]
			if want.Replicas = replicas; reloadable {
				want.TemplateWritten = at(1).Time
				want.Rollout.Phase = RolloutRunning
			}
			ignored := []cmp.Option{cmpopts.IgnoreUnexported(Workload{}), cmpopts.IgnoreFields(Rollout{}, "Reason", "Message")}
			if diff := cmp.Diff(want, tt.got, ignored...); diff != "" {
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

// What a client last wrote of the template is an upper bound of when it last changed.
func TestWhenATemplateWasWritten(t *testing.T) {
	entry := func(minute int, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Time: new(at(minute)), FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const template = `{"f:spec":{"f:template":{"f:spec":{}}}}`
	for name, tt := range map[string]struct {
		fields []metav1.ManagedFieldsEntry
		want   int
	}{
		"never again":                             {nil, 1},
		"by the manager that made it":             {[]metav1.ManagedFieldsEntry{entry(5, template)}, 5},
		"the latest of several managers":          {[]metav1.ManagedFieldsEntry{entry(5, template), entry(9, template), entry(7, template)}, 9},
		"replicas and status are no template":     {[]metav1.ManagedFieldsEntry{entry(5, template), entry(9, `{"f:spec":{"f:replicas":{}}}`), entry(9, `{"f:status":{}}`)}, 5},
		"an entry without fields says nothing":    {[]metav1.ManagedFieldsEntry{{Time: new(at(5))}}, 1},
		"an entry without a time says nothing":    {[]metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(template)}}, 1},
		"a time before the creation is not taken": {[]metav1.ManagedFieldsEntry{entry(0, template)}, 1},
	} {
		o := &appsv1.DaemonSet{ObjectMeta: workloadMeta()}
		o.ManagedFields = tt.fields
		if got := FromDaemonSet(o).TemplateWritten; !got.Equal(at(tt.want).Time) {
			t.Errorf("%s: %v, want %v", name, got, at(tt.want))
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
		"a Job of no owner":                         {job(), true},
		"a Job of a CronJob":                        {job(controlledBy("CronJob")), false},
		"a Job of something that is not shown":      {job(controlledBy("Workflow")), true},
		"a ReplicaSet of no owner":                  {replicaSet(), true},
		"a ReplicaSet with an owner, no controller": {replicaSet(owner), true},
		"a ReplicaSet of a Deployment":              {replicaSet(controlledBy("Deployment")), false},
		"a ReplicaSet of a Rollout":                 {replicaSet(controlledBy("Rollout")), false},
		"a Pod of no owner":                         {pod(), true},
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
