// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ConfigDependencyPods shows with which content the containers of the pods of a workload
// were started, as far as that can be known. It is the subresource "pods" of the workload's
// ConfigDependency.
type ConfigDependencyPods struct {
	metav1.TypeMeta `json:",inline"`
	// metadata has the name, the namespace and the uid of the ConfigDependency.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// workloadRef names the workload.
	WorkloadRef WorkloadReference `json:"workloadRef"`
	// time is when the states were determined.
	Time metav1.Time `json:"time"`
	// configHash is the hash of the current content, as in the status of the
	// ConfigDependency.
	// +optional
	ConfigHash string `json:"configHash,omitempty"`
	// templateRevision is the revision of the current pod template: the label
	// pod-template-hash, controller-revision-hash or, of a DaemonSet, pod-template-generation
	// of its pods. It is empty if it is not known, and for kinds without revisions.
	// +optional
	TemplateRevision string `json:"templateRevision,omitempty"`
	// summary counts the pods below by state, without those that are being deleted.
	Summary PodSummary `json:"summary"`
	// message contains further information for users, for example that a CronJob has no
	// active run.
	// +optional
	Message string `json:"message,omitempty"`
	// truncated is true if the workload has more pods than are shown: at most 5,000, and fewer if it has more
	// than 1,000 sources, so that pods times sources are at most 5,000,000.
	// +optional
	Truncated bool `json:"truncated,omitempty"`
	// pods are the pods of the workload that have not finished, ordered by name; those of a
	// CronJob are ordered by their runs first.
	// +optional
	// +listType=map
	// +listMapKey=name
	Pods []PodContent `json:"pods,omitempty"`
}

// PodSummary counts pods by state.
type PodSummary struct {
	// current is the number of pods in state Current.
	Current int32 `json:"current"`
	// stale is the number of pods in state Stale.
	Stale int32 `json:"stale"`
	// unknown is the number of pods in state Unknown.
	Unknown int32 `json:"unknown"`
	// notStarted is the number of pods in state NotStarted.
	NotStarted int32 `json:"notStarted"`
	// terminating is the number of pods that are being deleted, whatever their state.
	Terminating int32 `json:"terminating"`
}

// ContentState says how the content with which a container was started relates to the
// current content.
// +enum
type ContentState string

const (
	// ContentCurrent means that the container was started with the current content.
	ContentCurrent ContentState = "Current"
	// ContentStale means that content has changed since the container was started.
	ContentStale ContentState = "Stale"
	// ContentUnknown means that neither can be shown.
	ContentUnknown ContentState = "Unknown"
	// ContentNotStarted means that the container is not running. It will read the current
	// content when it starts.
	ContentNotStarted ContentState = "NotStarted"
)

// PodContent shows with which content the containers of a pod were started.
type PodContent struct {
	// name is the name of the pod.
	Name string `json:"name"`
	// uid is the UID of the pod.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// nodeName is the node of the pod. Empty until the pod is scheduled.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// phase is the phase of the pod, such as Running.
	// +optional
	Phase string `json:"phase,omitempty"`
	// creationTimestamp is when the pod was created.
	// +optional
	CreationTimestamp metav1.Time `json:"creationTimestamp,omitempty"`
	// deletionTimestamp is when the pod will be deleted. Set for pods that are terminating.
	// +optional
	DeletionTimestamp *metav1.Time `json:"deletionTimestamp,omitempty"`
	// templateRevision is the revision of the pod template from which the pod was created:
	// its label pod-template-hash, controller-revision-hash or pod-template-generation.
	// +optional
	TemplateRevision string `json:"templateRevision,omitempty"`
	// state is the worst state of the containers: Stale, then Unknown, then NotStarted, then
	// Current.
	State ContentState `json:"state"`
	// reason is the reason of the container with that state.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message is the message of the container with that state.
	// +optional
	Message string `json:"message,omitempty"`
	// staleSources are the sources, as KIND/NAME, that have changed since a container that
	// reads them was started.
	// +optional
	// +listType=set
	StaleSources []string `json:"staleSources,omitempty"`
	// moreStaleSources is how many further such sources there are: an answer lists at most 2 MiB of them.
	// +optional
	MoreStaleSources int64 `json:"moreStaleSources,omitempty"`
	// containers are the containers of the pod: init containers, then containers. Ephemeral
	// containers are ignored: they are for debugging, and are never restarted.
	// +optional
	// +listType=map
	// +listMapKey=name
	Containers []ContainerContent `json:"containers,omitempty"`
	// moreContainers is how many further containers the pod has: an answer lists at most 4 MiB of them,
	// without their sources. The state of the pod is that of all its containers. Of a pod, no more than
	// 256 containers are known.
	// +optional
	MoreContainers int64 `json:"moreContainers,omitempty"`
}

// ContainerType is the role of a container in its pod. There is none for ephemeral containers,
// which are ignored.
// +enum
type ContainerType string

const (
	// ContainerInit is an init container that runs to completion.
	ContainerInit ContainerType = "Init"
	// ContainerSidecar is an init container that keeps running (restartPolicy Always).
	ContainerSidecar ContainerType = "Sidecar"
	// ContainerRegular is one of spec.containers.
	ContainerRegular ContainerType = "Regular"
)

// ContainerContent shows with which content a container was started.
type ContainerContent struct {
	// name is the name of the container.
	Name string `json:"name"`
	// type is Init, Sidecar or Regular.
	Type ContainerType `json:"type"`
	// startedAt is when the container was last started, by the clock of its node.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// restartCount is how often the container has been restarted in place.
	// +optional
	RestartCount int32 `json:"restartCount,omitempty"`
	// state is the worst state of the sources that the container reads: Stale, then Unknown,
	// then Current; or NotStarted.
	State ContentState `json:"state"`
	// reason says in one word why. Current: StartedAfter (it started after the content was
	// last written), SameContent (content has changed since it started, and is the same
	// again), CreatedFor (its pod was created, or it was restarted in place, for the current content), Recorded (the record
	// on the workload says so), NothingRead (it reads nothing whose content counts). Stale:
	// StartedBefore (it started before the content changed), RecordDiffers (it runs with the
	// recorded content, which differs). Unknown: ClockMargin (it started at about the time of
	// the change), WrittenSinceStart (the source was written after it started, while configdep
	// did not read it), FilesChanged (mounted files have changed, which the application may have
	// read again), NodeClock (the clock of its node is wrong), SourceMissing (the source or a
	// required key is missing, so there is nothing to compare with), OlderTemplate (its pod
	// has an older pod template, and it is not known what it reads). NotStarted: the reason of
	// the kubelet, such as CrashLoopBackOff.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message explains the reason.
	// +optional
	Message string `json:"message,omitempty"`
	// sources are the sources that the container reads and whose state is not Current, in the
	// order of kind and name. If it reads a source both as environment and as files, the worse
	// state is shown. Sources count whether their changes restart the workload or not, unless an
	// annotation excludes them.
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=name
	Sources []ContainerSource `json:"sources,omitempty"`
	// moreSources is how many further such sources there are: an answer lists at most 4 MiB of them. The state of
	// the container is that of all its sources.
	// +optional
	MoreSources int64 `json:"moreSources,omitempty"`
}

// ContainerSource shows how the content that a container has read of a source relates to
// the current content of the source.
type ContainerSource struct {
	// kind is the kind of the source.
	Kind SourceKind `json:"kind"`
	// name is the name of the source.
	Name string `json:"name"`
	// state is Stale or Unknown.
	State ContentState `json:"state"`
	// reason says in one word why, as the reason of the container does.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message explains the reason.
	// +optional
	Message string `json:"message,omitempty"`
	// lastChangeTime is when the source got its current content, as far as that is known: when a
	// client wrote it or, if that is not known, when configdep saw it.
	// +optional
	LastChangeTime *metav1.Time `json:"lastChangeTime,omitempty"`
}
