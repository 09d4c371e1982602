// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ConfigDependencyPods shows with which content the containers of the pods of a workload
// were started, as far as that can be known. It is read live from the subresource "pods"
// of the workload's ConfigDependency.
type ConfigDependencyPods struct {
	metav1.TypeMeta `json:",inline"`
	// metadata has the name, the namespace and the uid of the ConfigDependency.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// workloadRef names the workload.
	WorkloadRef WorkloadReference `json:"workloadRef"`
	// time is when the pods were read.
	Time metav1.Time `json:"time"`
	// configHash is the hash of the current content, as in the status of the
	// ConfigDependency.
	// +optional
	ConfigHash string `json:"configHash,omitempty"`
	// templateRevision is the revision of the current pod template: the label
	// pod-template-hash or controller-revision-hash of its pods. It is empty if it is not
	// known, and for kinds without revisions.
	// +optional
	TemplateRevision string `json:"templateRevision,omitempty"`
	// summary counts the pods below by state, without those that are being deleted.
	Summary PodSummary `json:"summary"`
	// message contains further information for users, for example that a CronJob has no
	// active run.
	// +optional
	Message string `json:"message,omitempty"`
	// truncated is true if the workload has more pods than are shown.
	// +optional
	Truncated bool `json:"truncated,omitempty"`
	// pods are the pods of the workload that have not finished, ordered by name.
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
	// its label pod-template-hash or controller-revision-hash.
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
	// moreStaleSources is how many further such sources there are: an answer lists at most 4 MiB of them.
	// +optional
	MoreStaleSources int64 `json:"moreStaleSources,omitempty"`
	// containers are the containers of the pod: init containers, then containers, then
	// ephemeral containers.
	// +optional
	// +listType=map
	// +listMapKey=name
	Containers []ContainerContent `json:"containers,omitempty"`
	// moreContainers is how many further containers the pod has: an answer lists at most 8 MiB of them,
	// without their sources. The state of the pod is that of all its containers.
	// +optional
	MoreContainers int64 `json:"moreContainers,omitempty"`
}

// ContainerType is the role of a container in its pod.
// +enum
type ContainerType string

const (
	// ContainerInit is an init container that runs to completion.
	ContainerInit ContainerType = "Init"
	// ContainerSidecar is an init container that keeps running (restartPolicy Always).
	ContainerSidecar ContainerType = "Sidecar"
	// ContainerRegular is one of spec.containers.
	ContainerRegular ContainerType = "Regular"
	// ContainerEphemeral is one of spec.ephemeralContainers.
	ContainerEphemeral ContainerType = "Ephemeral"
)

// ContainerContent shows with which content a container was started.
type ContainerContent struct {
	// name is the name of the container.
	Name string `json:"name"`
	// type is Init, Sidecar, Regular or Ephemeral.
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
	// last written), SameContent (what it reads is the same as when it started), Recorded
	// (its pod was created for this content), NothingRead. Stale: StartedBefore (it started
	// before the content changed), RecordDiffers (it started before the source was written,
	// and other content is recorded for it). Unknown: ClockMargin (it started at about the
	// time when the source was written), NothingRecorded (the source was written later, and
	// it is not known whether its content changed), RecordedLater (the same, and the content
	// was recorded later too), OtherKeys (other keys of the source have changed, and it is
	// not known when the keys that the container reads last changed), ChangedBack (content
	// has changed and changed back), SourceMissing and KeyMissing (there is nothing to
	// compare with). NotStarted: the reason of the kubelet, such as CrashLoopBackOff.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message explains the reason.
	// +optional
	Message string `json:"message,omitempty"`
	// sources are the sources that the container reads and whose state is not Current, in the
	// order of kind and name. Sources whose changes do not restart the workload automatically
	// do not count, unless that is only because the reload mode is Off.
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=name
	Sources []ContainerSource `json:"sources,omitempty"`
	// moreSources is how many further such sources there are: an answer lists at most 8 MiB of them. The state of
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
	// lastChanged is when the content of the source is known to have changed last, or when a
	// client that sets content of it last wrote it.
	// +optional
	LastChanged *metav1.Time `json:"lastChanged,omitempty"`
}
