package dependency

// How workloads are read from API objects.

import (
	"bytes"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func newWorkload(kind WorkloadKind, m *metav1.ObjectMeta, templateAnnotations map[string]string, pod *corev1.PodSpec) *Workload {
	references, truncated := References(pod)
	w := &Workload{
		WorkloadKey:         WorkloadKey{kind, m.Namespace, m.Name},
		UID:                 m.UID,
		ResourceVersion:     m.ResourceVersion,
		Created:             m.CreationTimestamp,
		Labels:              m.Labels,
		Annotations:         OwnAnnotations(m.Annotations),
		TemplateAnnotations: OwnAnnotations(templateAnnotations),
		References:          references,
		Truncated:           truncated,
		Terminating:         m.DeletionTimestamp != nil,
		stages:              stagesOf(pod),
	}
	w.numberStages()
	return w
}

// OwnAnnotation reports whether an annotation is of this project.
func OwnAnnotation(key string) bool { return strings.HasPrefix(key, annotationPrefix) }

// OwnAnnotations returns the annotations that are of this project.
func OwnAnnotations(all map[string]string) map[string]string {
	var own map[string]string
	for k, v := range all {
		if OwnAnnotation(k) {
			if own == nil {
				own = map[string]string{}
			}
			own[k] = v
		}
	}
	return own
}

// FromDeployment reads a Deployment.
func FromDeployment(o *appsv1.Deployment) *Workload {
	w := newWorkload(Deployment, &o.ObjectMeta, o.Spec.Template.Annotations, &o.Spec.Template.Spec)
	w.setTemplate(&o.ObjectMeta, &o.Spec.Template)
	w.Paused, w.Revision = o.Spec.Paused, o.Annotations[RevisionAnnotation]
	w.Replicas, w.Rollout = replicasOf(o.Spec.Replicas), deploymentRollout(o)
	if o.Status.ObservedGeneration >= o.Generation {
		w.Idle = w.Replicas == 0 && o.Status.Replicas == 0
		switch o.Status.UpdatedReplicas {
		case 0:
			w.updated = appliedNone
		case o.Status.Replicas:
			w.updated = appliedAll
		}
	}
	return w
}

// FromStatefulSet reads a StatefulSet.
func FromStatefulSet(o *appsv1.StatefulSet) *Workload {
	w := newWorkload(StatefulSet, &o.ObjectMeta, o.Spec.Template.Annotations, &o.Spec.Template.Spec)
	w.setTemplate(&o.ObjectMeta, &o.Spec.Template)
	w.Replicas, w.Rollout = replicasOf(o.Spec.Replicas), statefulSetRollout(o)
	w.Idle = w.Replicas == 0 && o.Status.Replicas == 0 && o.Status.ObservedGeneration >= o.Generation
	w.surplus = o.Status.Replicas > o.Status.UpdatedReplicas
	return w
}

// FromDaemonSet reads a DaemonSet.
func FromDaemonSet(o *appsv1.DaemonSet) *Workload {
	w := newWorkload(DaemonSet, &o.ObjectMeta, o.Spec.Template.Annotations, &o.Spec.Template.Spec)
	w.setTemplate(&o.ObjectMeta, &o.Spec.Template)
	w.Replicas, w.Rollout = o.Status.DesiredNumberScheduled+o.Status.NumberMisscheduled, daemonSetRollout(o)
	w.surplus = o.Status.NumberMisscheduled > 0
	return w
}

// FromCronJob reads a CronJob.
func FromCronJob(o *batchv1.CronJob) *Workload {
	template := &o.Spec.JobTemplate.Spec.Template
	return newWorkload(CronJob, &o.ObjectMeta, template.Annotations, &template.Spec)
}

// FromJob reads a Job. It returns nil for a run of a CronJob, which speaks for it.
func FromJob(o *batchv1.Job) *Workload {
	if owner := metav1.GetControllerOf(o); owner != nil && owner.Kind == string(CronJob) {
		return nil
	}
	return newWorkload(Job, &o.ObjectMeta, o.Spec.Template.Annotations, &o.Spec.Template.Spec)
}

// FromReplicaSet reads a ReplicaSet. It returns nil for one that has a controller.
func FromReplicaSet(o *appsv1.ReplicaSet) *Workload {
	if metav1.GetControllerOf(o) != nil {
		return nil
	}
	return newWorkload(ReplicaSet, &o.ObjectMeta, o.Spec.Template.Annotations, &o.Spec.Template.Spec)
}

// FromPod reads a Pod. It returns nil for one that has a controller.
func FromPod(o *corev1.Pod) *Workload {
	if metav1.GetControllerOf(o) != nil {
		return nil
	}
	return newWorkload(Pod, &o.ObjectMeta, o.Annotations, &o.Spec)
}

// setTemplate notes the values that show whether the pod template has changed.
func (w *Workload) setTemplate(m *metav1.ObjectMeta, template *corev1.PodTemplateSpec) {
	if raw, err := template.Marshal(); err == nil {
		w.template = maphash.Bytes(seed, raw)
		w.applied = w.template
	}
	if at, err := time.Parse(time.RFC3339Nano, w.TemplateAnnotations[ReloadedAtAnnotation]); err == nil {
		w.reloaded = at
	}
	w.TemplateWritten = m.CreationTimestamp.Time
	for i := range m.ManagedFields {
		entry := &m.ManagedFields[i]
		if entry.FieldsV1 == nil || !bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"f:template"`)) {
			continue
		}
		by := managerOf(entry)
		if len(w.TemplateBy) < maxManagers && !slices.Contains(w.TemplateBy, by) {
			w.TemplateBy = append(w.TemplateBy, by)
		}
		if entry.Time != nil && !entry.Time.Time.Before(w.TemplateWritten) {
			alone := w.templateBy == 0 || w.writtenByUs || entry.Time.After(w.TemplateWritten)
			w.writtenByUs = alone && by == own
			w.TemplateWritten, w.templateBy = entry.Time.Time, by
		}
	}
}
