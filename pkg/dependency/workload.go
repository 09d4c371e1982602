package dependency

import (
	"bytes"
	"hash/maphash"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// WorkloadKind is the kind of an object that makes pods, or a pod that nothing made.
type WorkloadKind string

// The kinds of workloads.
const (
	Deployment  WorkloadKind = "Deployment"
	StatefulSet WorkloadKind = "StatefulSet"
	DaemonSet   WorkloadKind = "DaemonSet"
	CronJob     WorkloadKind = "CronJob"
	Job         WorkloadKind = "Job"
	ReplicaSet  WorkloadKind = "ReplicaSet"
	Pod         WorkloadKind = "Pod"
)

// GroupVersion returns the API group and version in which workloads of the kind are read.
func (k WorkloadKind) GroupVersion() schema.GroupVersion {
	switch k {
	case CronJob, Job:
		return batchv1.SchemeGroupVersion
	case Pod:
		return corev1.SchemeGroupVersion
	default:
		return appsv1.SchemeGroupVersion
	}
}

// WorkloadKey names a workload in the cluster.
type WorkloadKey struct {
	Kind      WorkloadKind
	Namespace string
	Name      string
}

// ViewName is the name under which the workload is shown: its kind and name in lower
// case, as in deployment.web. The names of workloads are in lower case already.
func (k WorkloadKey) ViewName() string { return strings.ToLower(string(k.Kind)) + "." + k.Name }

// Workload is what remains of a workload once it has been read.
type Workload struct {
	WorkloadKey
	UID             types.UID
	ResourceVersion string
	Created         metav1.Time
	Labels          map[string]string
	// Annotations and TemplateAnnotations are those of this project, of the workload
	// and of its pod template.
	Annotations         map[string]string
	TemplateAnnotations map[string]string
	// Selector selects the pods, of kinds whose pods can be restarted.
	Selector *metav1.LabelSelector
	// Paused: the owner of a Deployment has stopped its rollouts.
	Paused bool
	// Replicas is how many pods there should be.
	Replicas   int32
	Rollout    Rollout
	References []Reference
	// Opted is what annotations say of whether the workload is restarted by itself, and
	// OptedVersion the resourceVersion of what made them say so; 0: they did when the
	// workload was first read.
	Opted        string
	OptedVersion uint64

	// StartVersion is a lower bound of when the first pods of the present template started,
	// as a resourceVersion; 0: it is not known. They start when the template changes, or
	// when the last comes of what they have to wait for.
	StartVersion uint64
	waiting      waiting
	// RecordVersion is an upper bound of when AppliedSourcesAnnotation last changed, as a
	// resourceVersion; 0: it has not since the workload was first read.
	RecordVersion uint64
	// TemplateWritten is an upper bound of when the template changed, to the second: when a
	// client that sets it last wrote the object.
	TemplateWritten time.Time
	fingerprint     uint64 // of the template of the pods, in this process
}

// After completes a workload by what was known of it before, or nil. Live tells that it
// comes from an event, so that nothing can have happened in between.
func (w *Workload) After(previous *Workload, live bool) {
	if w.Paused { // its pods are those of the template that it was paused with
		switch {
		case previous != nil && previous.UID == w.UID:
			w.fingerprint = previous.fingerprint
		case live:
			w.fingerprint = 0 // it has none
		}
	}
	switch {
	case previous != nil && previous.UID == w.UID && previous.fingerprint == w.fingerprint:
		w.StartVersion, w.waiting = previous.StartVersion, previous.waiting
	case live:
		w.StartVersion = versionOf(w.ResourceVersion)
	case previous != nil:
		w.StartVersion = versionOf(previous.ResourceVersion) + 1
	}
	switch {
	case (previous == nil || previous.UID != w.UID) && live && w.Annotations[AppliedSourcesAnnotation] != "":
		w.RecordVersion = versionOf(w.ResourceVersion) // it was created with it
	case previous == nil || previous.UID != w.UID:
	case previous.Annotations[AppliedSourcesAnnotation] == w.Annotations[AppliedSourcesAnnotation]:
		w.RecordVersion = previous.RecordVersion
	default:
		w.RecordVersion = versionOf(w.ResourceVersion)
	}
}

// Opt notes what annotations say, of which one has come in a version, by what was known of
// the workload before, or nil.
func (w *Workload) Opt(opted string, previous *Workload, version string) {
	w.Opted = opted
	switch {
	case previous == nil:
	case previous.Opted == opted:
		w.OptedVersion = previous.OptedVersion
	default:
		w.OptedVersion = versionOf(version)
	}
}

// versionOf parses a resourceVersion. Those of kube-apiserver are revisions of etcd; one
// that is not a number is as good as unknown.
func versionOf(version string) uint64 {
	v, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0
	}
	return v
}

// seed makes fingerprints cheap: they are compared in one process only.
var seed = maphash.MakeSeed()

// setTemplate notes what tells whether the pod template has changed.
func (w *Workload) setTemplate(m *metav1.ObjectMeta, template *corev1.PodTemplateSpec) {
	if raw, err := template.Marshal(); err == nil {
		w.fingerprint = maphash.Bytes(seed, raw)
	}
	w.TemplateWritten = m.CreationTimestamp.Time
	for i := range m.ManagedFields {
		entry := &m.ManagedFields[i]
		if entry.Time != nil && entry.FieldsV1 != nil && entry.Time.After(w.TemplateWritten) &&
			bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"f:template"`)) {
			w.TemplateWritten = entry.Time.Time
		}
	}
}

// annotationPrefix is the prefix of the annotations that a Workload keeps.
const annotationPrefix = "configdep.io/"

// AppliedSourcesAnnotation is on the workload and stands for the content with which its pods
// were started, source by source.
const AppliedSourcesAnnotation = annotationPrefix + "applied-sources"

func newWorkload(kind WorkloadKind, m *metav1.ObjectMeta, templateAnnotations map[string]string, pod *corev1.PodSpec) *Workload {
	return &Workload{
		WorkloadKey:         WorkloadKey{kind, m.Namespace, m.Name},
		UID:                 m.UID,
		ResourceVersion:     m.ResourceVersion,
		Created:             m.CreationTimestamp,
		Labels:              m.Labels,
		Annotations:         OwnAnnotations(m.Annotations),
		TemplateAnnotations: OwnAnnotations(templateAnnotations),
		References:          References(pod),
	}
}

// OwnAnnotation tells whether an annotation is of this project.
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
	w.Selector, w.Paused = o.Spec.Selector, o.Spec.Paused
	w.Replicas, w.Rollout = replicasOf(o.Spec.Replicas), deploymentRollout(o)
	return w
}

// FromStatefulSet reads a StatefulSet.
func FromStatefulSet(o *appsv1.StatefulSet) *Workload {
	w := newWorkload(StatefulSet, &o.ObjectMeta, o.Spec.Template.Annotations, &o.Spec.Template.Spec)
	w.setTemplate(&o.ObjectMeta, &o.Spec.Template)
	w.Selector = o.Spec.Selector
	w.Replicas, w.Rollout = replicasOf(o.Spec.Replicas), statefulSetRollout(o)
	return w
}

// FromDaemonSet reads a DaemonSet.
func FromDaemonSet(o *appsv1.DaemonSet) *Workload {
	w := newWorkload(DaemonSet, &o.ObjectMeta, o.Spec.Template.Annotations, &o.Spec.Template.Spec)
	w.setTemplate(&o.ObjectMeta, &o.Spec.Template)
	w.Selector = o.Spec.Selector
	w.Replicas, w.Rollout = o.Status.DesiredNumberScheduled, daemonSetRollout(o)
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
