// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// +genclient
// +genclient:onlyVerbs=get,list,watch
// +genclient:method=Reload,verb=create,subresource=reload,input=github.com/configdep/configdep/pkg/apis/configdep/v1alpha1.Reload,result=github.com/configdep/configdep/pkg/apis/configdep/v1alpha1.Reload
// +genclient:method=Approve,verb=create,subresource=approval,input=github.com/configdep/configdep/pkg/apis/configdep/v1alpha1.Approval,result=github.com/configdep/configdep/pkg/apis/configdep/v1alpha1.Approval
// +genclient:method=GetPods,verb=get,subresource=pods,result=github.com/configdep/configdep/pkg/apis/configdep/v1alpha1.ConfigDependencyPods
// +genclient:method=GetPlan,verb=get,subresource=plan,result=github.com/configdep/configdep/pkg/apis/configdep/v1alpha1.ConfigDependencyPlan
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ConfigDependency shows which ConfigMaps and Secrets a workload consumes, how, and
// whether its pods run with their current content. It is computed from the live
// workload and cannot be written. Its name is the kind and the name of the workload
// in lower case, as in deployment.web.
type ConfigDependency struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. Labels, creationTimestamp and namespace
	// are those of the workload; uid is derived from the workload's, so that a workload
	// which is deleted and created again gets a new object; ownerReferences names the
	// workload.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec describes what the workload consumes, and its effective reload policy.
	// +optional
	Spec ConfigDependencySpec `json:"spec,omitempty"`
	// status reports whether the workload runs with the current content of its sources,
	// and what happens next.
	// +optional
	Status ConfigDependencyStatus `json:"status,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ConfigDependencyList is a list of ConfigDependencies.
type ConfigDependencyList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the ConfigDependencies, ordered by namespace and name.
	Items []ConfigDependency `json:"items"`
}

// ConfigDependencySpec describes what a workload consumes, and its effective reload
// policy.
type ConfigDependencySpec struct {
	// workloadRef names the workload that this object describes.
	WorkloadRef WorkloadReference `json:"workloadRef"`
	// reload says how the workload is restarted when a source changes, and where that was
	// declared.
	Reload ReloadSettings `json:"reload"`
	// sources are the ConfigMaps and Secrets that the pod template of the workload
	// consumes, present or not, ordered by kind and name.
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=name
	Sources []Source `json:"sources,omitempty"`
}

// WorkloadReference names a workload in the namespace of the referring object.
type WorkloadReference struct {
	// apiVersion is the group and version of the workload, such as apps/v1.
	APIVersion string `json:"apiVersion"`
	// kind is the kind of the workload, such as Deployment.
	Kind string `json:"kind"`
	// name is the name of the workload.
	Name string `json:"name"`
	// uid is the UID of the workload.
	// +optional
	UID types.UID `json:"uid,omitempty"`
}

// ReloadMode says which changes restart the workload automatically.
// +enum
type ReloadMode string

// The modes.
const (
	// ReloadOff: no change restarts the workload; the subresource reload still does.
	ReloadOff ReloadMode = "Off"
	// ReloadAuto: a change of any source whose content reaches a container.
	ReloadAuto ReloadMode = "Auto"
	// ReloadMatched: the same, but only of sources that are annotated configdep.io/match.
	ReloadMatched ReloadMode = "Matched"
	// ReloadListed: a change of the sources that configdep.io/sources names.
	ReloadListed ReloadMode = "Listed"
)

// ReloadModes are all modes.
var ReloadModes = []ReloadMode{ReloadAuto, ReloadListed, ReloadMatched, ReloadOff}

// ReloadStrategy says how a workload is restarted automatically.
// +enum
type ReloadStrategy string

// The strategies.
const (
	// StrategyAnnotation: a rollout, caused by an annotation on the pod template.
	StrategyAnnotation ReloadStrategy = "Annotation"
	// StrategyEnvVar: a rollout like Annotation, which also sets an environment variable for each source that has changed.
	StrategyEnvVar ReloadStrategy = "EnvVar"
	// StrategyAgent: nothing is restarted; config agents in the pods apply what changes.
	StrategyAgent ReloadStrategy = "Agent"
	// StrategyNotify: nothing is restarted; an event says that content has changed.
	StrategyNotify ReloadStrategy = "Notify"
	// StrategyRecreate: the pods are evicted one by one.
	StrategyRecreate ReloadStrategy = "Recreate"
	// StrategyInPlace: all containers of the pods are restarted in place, one pod after the other, or by a rollout if that is not possible.
	StrategyInPlace ReloadStrategy = "InPlace"
	// StrategyRerun: a Job is started from the CronJob, or the Job is replaced.
	StrategyRerun ReloadStrategy = "Rerun"
	// StrategyField: a field of the custom resource is set to the time.
	StrategyField ReloadStrategy = "Field"
	// StrategyObjectAnnotation: an annotation of the custom resource changes, which its controller watches.
	StrategyObjectAnnotation ReloadStrategy = "ObjectAnnotation"
)

// ReloadSettings say how a workload is restarted when a source changes.
type ReloadSettings struct {
	// mode says which changes restart the workload automatically. Off: none. Auto:
	// changes of any source whose content reaches a container. Matched: the same, but
	// only of sources with the annotation configdep.io/match. Listed: changes of the
	// sources that the annotation configdep.io/sources names.
	Mode ReloadMode `json:"mode"`
	// declaredBy says where the mode comes from: configdep.io/reload (an annotation on the
	// workload), annotations of Stakater Reloader, SAP pod-reloader or wave on the workload or its pod
	// template, Namespace configdep.io/reload (an annotation on its namespace),
	// Default (a flag of the server), or --namespace-selector (the flag does not select
	// the namespace, so the mode is Off). If there are several, they are separated by commas.
	// +optional
	DeclaredBy string `json:"declaredBy,omitempty"`
	// strategy says how the workload is restarted automatically. Annotation: a rollout.
	// EnvVar: a rollout that also sets an environment variable for each source that has changed.
	// Agent: not at all, as config agents in its pods apply what changes.
	// Recreate: its pods are evicted one by one. InPlace: all containers of its pods are restarted in
	// place, one pod after the other, or by a rollout if that is not possible, as status.message says.
	// Rerun: a Job is started from the CronJob, or the Job is replaced. Notify: not at all; an event says
	// that content has changed. Field, ObjectAnnotation: as the kind of a custom resource says.
	// +optional
	Strategy ReloadStrategy `json:"strategy,omitempty"`
	// settle is how long content must stay unchanged before a restart, so that changes
	// that belong together cause one restart.
	// +optional
	Settle *metav1.Duration `json:"settle,omitempty"`
	// releaseSettle applies instead of settle during a release: if the client that changed the
	// content also writes the pod template, and has changed another source or pod template in the
	// namespace within this time. It counts from the last of these changes. It is absent if it
	// makes no difference, for example if the annotation configdep.io/settle is set.
	// +optional
	ReleaseSettle *metav1.Duration `json:"releaseSettle,omitempty"`
	// minInterval is the minimum time between two automatic restarts of the workload. It
	// doubles while they follow each other closely.
	// +optional
	MinInterval *metav1.Duration `json:"minInterval,omitempty"`
	// order is the place of the workload among those that one change restarts: lower ones come first.
	// +optional
	Order int32 `json:"order,omitempty"`
	// healthyWithin is how long a new pod may take to become ready before it counts as failed.
	// +optional
	HealthyWithin *metav1.Duration `json:"healthyWithin,omitempty"`
	// pausePeriod is how long a Deployment stays paused when it is restarted, from the annotation
	// deployment.reloader.stakater.com/pause-period.
	// +optional
	PausePeriod *metav1.Duration `json:"pausePeriod,omitempty"`
	// exclude are the sources that never restart the workload automatically, from the annotation
	// configdep.io/exclude and those of other tools. Each is KIND/NAME, where NAME may be a pattern with *.
	// +optional
	// +listType=set
	Exclude []string `json:"exclude,omitempty"`
	// liveVolumes is true if the application reloads mounted files itself, so that only
	// environment variables and subPath mounts need a restart.
	// +optional
	LiveVolumes bool `json:"liveVolumes,omitempty"`
}

// SourceKind is the kind of a source.
// +enum
type SourceKind string

// The kinds of sources.
const (
	SourceConfigMap           SourceKind = "ConfigMap"
	SourceSecret              SourceKind = "Secret"
	SourceSecretProviderClass SourceKind = "SecretProviderClass"
)

// SourceKinds lists the kinds of sources in the order in which they are shown.
var SourceKinds = []SourceKind{SourceConfigMap, SourceSecret, SourceSecretProviderClass}

// Source is a ConfigMap or a Secret (or a SecretProviderClass) that a workload consumes.
type Source struct {
	// kind is the kind of the source: ConfigMap, Secret or SecretProviderClass.
	Kind SourceKind `json:"kind"`
	// name is the name of the source, in the namespace of the workload.
	Name string `json:"name"`
	// optional is true if pods start without the source, because every use of it is
	// optional.
	Optional bool `json:"optional"`
	// keys are the keys of the source that are read. If absent, all keys are read, unless moreKeys
	// says that there are keys which are not listed.
	// +optional
	// +listType=set
	Keys []string `json:"keys,omitempty"`
	// moreKeys is how many further keys are read: an object lists at most 32 KiB of them.
	// +optional
	MoreKeys int64 `json:"moreKeys,omitempty"`
	// triggersReload reports whether a change of the source restarts the workload
	// automatically. If it is false, reason says why.
	TriggersReload bool `json:"triggersReload"`
	// reason says in one word why a change of the source does not restart the workload automatically:
	// ReloadOff (automatic restarts are off), Ignored (the source is annotated configdep.io/ignore),
	// Excluded (by configdep.io/exclude), NotListed and NotMatched (by the mode), KindNotWatched (by
	// configdep.io/kinds, or because the annotations select sources of another kind), LiveVolume (the application reloads the files), NotMounted (a volume that
	// no container mounts), NotRead (a use that passes no content to a container, such as an image
	// pull secret), AppliedByAgent (config agents in the pods use it, and nothing else), NotByAgents (the strategy agent
	// restarts nothing; the state says when pods run with other content of it), CoveredByOwner (it restarts the custom resource that the workload belongs to, which declaredBy
	// names), NotObserved (configdep does not read the source: a SecretProviderClass that no pod has mounted, a Secret
	// of one of the types in --exclude-secret-types, or any Secret with --read-secrets=false).
	// +optional
	Reason string `json:"reason,omitempty"`
	// declaredBy is the annotation that names or excludes the source, or that selects the sources of its kind. It is absent
	// if that is spec.reload.declaredBy.
	// +optional
	DeclaredBy string `json:"declaredBy,omitempty"`
	// usages are the places of the pod template that consume the source.
	// +optional
	// +listType=atomic
	Usages []Usage `json:"usages,omitempty"`
	// moreUsages is how many further places consume the source: an object lists at most 128 KiB of them.
	// +optional
	MoreUsages int64 `json:"moreUsages,omitempty"`
}

// UsageType is the way in which a workload consumes a source.
// +enum
type UsageType string

const (
	// UsageEnv is one environment variable: env.valueFrom.
	UsageEnv UsageType = "Env"
	// UsageEnvFrom is all keys as environment variables: envFrom.
	UsageEnvFrom UsageType = "EnvFrom"
	// UsageVolume is a volume of type configMap or secret.
	UsageVolume UsageType = "Volume"
	// UsageProjected is a source of a projected volume.
	UsageProjected UsageType = "Projected"
	// UsageCSI is a CSI volume: its nodePublishSecretRef, or the SecretProviderClass
	// that its attributes name.
	UsageCSI UsageType = "CSI"
	// UsageVolumeSecret is the credential of a volume of another type, such as iscsi.
	UsageVolumeSecret UsageType = "VolumeSecret"
	// UsageImagePullSecret is an entry of imagePullSecrets.
	UsageImagePullSecret UsageType = "ImagePullSecret"
	// UsageAnnotation is a source that an annotation names, such as configdep.io/sources.
	UsageAnnotation UsageType = "Annotation"
	// UsageAgent is a source that the config agents of the pods have applied, as they report.
	UsageAgent UsageType = "Agent"
	// UsageObject is a source that a field of the workload names, outside of its pod templates. Custom resources have such fields.
	UsageObject UsageType = "Object"
	// UsageField is a key from which a field of the workload is set, because the annotation configdep.io/fields says so.
	UsageField UsageType = "Field"
)

// Usage is one place of the workload that consumes a source, mostly in its pod template.
type Usage struct {
	// type is the way in which the source is consumed: Env, EnvFrom, Volume, Projected,
	// CSI, VolumeSecret, ImagePullSecret, Annotation, Agent, Object or Field.
	Type UsageType `json:"type"`
	// container is the container, init container or ephemeral container that reads the
	// source. Absent for uses of the whole pod, and for volumes that no container mounts.
	// +optional
	Container string `json:"container,omitempty"`
	// env is the environment variable that is set from a key (type Env).
	// +optional
	Env string `json:"env,omitempty"`
	// prefix is prepended to each key to form the name of an environment variable (type
	// EnvFrom).
	// +optional
	Prefix string `json:"prefix,omitempty"`
	// volume is the name of the volume (types Volume, Projected, CSI and VolumeSecret).
	// +optional
	Volume string `json:"volume,omitempty"`
	// mountPath is where the container mounts the volume.
	// +optional
	MountPath string `json:"mountPath,omitempty"`
	// path is the path of the field that names the source (type Object), such as
	// .spec.users[*].secretName, or of the field that is set from it (type Field), such as spec.env[name=KEY].value.
	// +optional
	Path string `json:"path,omitempty"`
	// subPath is true if only a part of the volume is mounted. Such files are not updated
	// in a running container.
	// +optional
	SubPath bool `json:"subPath,omitempty"`
	// keys are the keys that this use reads. If absent, it reads all keys.
	// +optional
	// +listType=set
	Keys []string `json:"keys,omitempty"`
	// optional is true if pods start without the source or the key.
	// +optional
	Optional bool `json:"optional,omitempty"`
}

// State summarizes a workload.
// +enum
type State string

// The states.
const (
	// StateInSync: all containers run with the current content of their sources, or no pod runs.
	StateInSync State = "InSync"
	// StateStale: some containers run with old content, and nothing will happen by itself.
	StateStale State = "Stale"
	// StateUnknown: it cannot be known whether some containers run with old content.
	StateUnknown State = "Unknown"
	// StateSettling: content has changed, and must stay unchanged for a while before a
	// restart.
	StateSettling State = "Settling"
	// StatePending: a restart is due, at once or after the minimum interval.
	StatePending State = "Pending"
	// StateRollingOut: the rollout is not complete. Pods are being replaced or restarted, or wait for
	// a user (OnDelete, a partition, a paused Deployment).
	StateRollingOut State = "RollingOut"
	// StateFailed: the rollout is not progressing, or a config agent cannot apply the current content.
	StateFailed State = "Failed"
	// StateBlocked: restarts are on hold until a user acts.
	StateBlocked State = "Blocked"
)

// States are all states, in alphabetical order.
var States = []State{StateBlocked, StateFailed, StateInSync, StatePending, StateRollingOut, StateSettling, StateStale, StateUnknown}

// The types of the conditions of a ConfigDependency.
const (
	// ConditionSourcesResolved is True when every source and key that the pods cannot
	// start without is present.
	ConditionSourcesResolved = "SourcesResolved"
	// ConditionInSync is True if all containers run with the current content, or no pod runs, and Unknown if that cannot be known.
	ConditionInSync = "InSync"
	// ConditionRolloutComplete is True if all pods have the current template.
	ConditionRolloutComplete = "RolloutComplete"
	// ConditionReady, ConditionReconciling and ConditionStalled summarize the state for tools that wait for objects (kstatus).
	// Ready is True in the state InSync; Reconciling is True in Settling, Pending and RollingOut; Stalled is True in Stale, Blocked and Failed.
	ConditionReady       = "Ready"
	ConditionReconciling = "Reconciling"
	ConditionStalled     = "Stalled"
)

// The reasons of the condition SourcesResolved.
const (
	ReasonAllPresent    = "AllPresent"
	ReasonSourceMissing = "SourceMissing"
	ReasonKeyMissing    = "KeyMissing"
)

// ConfigDependencyStatus reports whether a workload runs with the current content of its
// sources.
type ConfigDependencyStatus struct {
	// state summarizes the workload, whether or not it has opted in: spec.reload.mode says who acts.
	// InSync: all containers run with the current content of their sources, or no pod runs. Stale: some run
	// with old content, and nothing will happen by itself. Unknown: that cannot be known; message says why.
	// Settling: content has changed, and must stay unchanged for a while before a restart. Pending: a restart
	// is due, or config agents have yet to apply the content. RollingOut: pods are being replaced or
	// restarted. Failed: the rollout is not progressing, or a config agent cannot apply the content.
	// Blocked: restarts are on hold until a user acts.
	State State `json:"state"`
	// reason says in one word why the workload is in this state.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message describes in a sentence what happens next, and why.
	// +optional
	Message string `json:"message,omitempty"`
	// pods counts the pods by what their containers run with. Pods that have finished or are being deleted do not count.
	Pods PodCounts `json:"pods"`
	// staleSince is when the first change was made that a running container has not read.
	// +optional
	StaleSince *metav1.Time `json:"staleSince,omitempty"`
	// restartTime is when a restart is due unless more changes. It is absent unless the workload waits for its settle time, its
	// minimum interval or a window.
	// +optional
	RestartTime *metav1.Time `json:"restartTime,omitempty"`
	// policies are the names of the ReloadPolicies of the cluster that select the workload.
	// +optional
	// +listType=set
	Policies []string `json:"policies,omitempty"`
	// configHash is a hash of the content with which the pods should run: a keyed digest
	// of all sources that trigger a restart (in mode Off, of those that would in mode
	// Auto). Compare it for equality only.
	// +optional
	ConfigHash string `json:"configHash,omitempty"`
	// recordedHash is the hash of the content that was last recorded: when the workload was restarted or opted in, or
	// when its pods were seen to run with it. It differs from configHash while a change waits for a restart. It is empty if
	// nothing is recorded, and is not kept up to date while automatic restarts are off.
	RecordedHash string `json:"recordedHash"`
	// sources shows for each source whether it is present, and when its content last changed.
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=name
	Sources []SourceStatus `json:"sources,omitempty"`
	// patterns shows for each pattern in the annotation configdep.io/sources, ordered by kind and
	// pattern, which sources it currently matches.
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=pattern
	Patterns []PatternStatus `json:"patterns,omitempty"`
	// lastReload is the last restart by configdep, automatic or on request.
	// +optional
	LastReload *LastReload `json:"lastReload,omitempty"`
	// conditions are the standard conditions. SourcesResolved: every source and key that the pods cannot
	// start without is present. InSync: all containers run with the current content; Unknown if that cannot be
	// known. RolloutComplete: all pods are up to date with the template. Ready, Reconciling and Stalled summarize the
	// state for tools that wait for objects.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// PodCounts counts pods by what their containers run with. Each pod is counted once in total and once in one of the others, as the worst of its
// containers. Pods of a workload that consumes no source are not counted.
type PodCounts struct {
	// total is how many pods there are.
	Total int32 `json:"total"`
	// current is how many run with the current content.
	Current int32 `json:"current"`
	// stale is how many have a container that runs with old content.
	Stale int32 `json:"stale"`
	// unknown is how many have a container of which it cannot be known.
	Unknown int32 `json:"unknown"`
	// notStarted is how many have a container that does not run, and none that is stale or unknown: it reads the current content when it starts.
	NotStarted int32 `json:"notStarted"`
}

// SourceStatus shows what is known about a source.
type SourceStatus struct {
	// kind is the kind of the source.
	Kind SourceKind `json:"kind"`
	// name is the name of the source.
	Name string `json:"name"`
	// present reports whether the source exists. It is absent if that is not known:
	// SecretProviderClasses that no pod has mounted are shown but not observed, and so are Secrets or ConfigMaps if
	// configdep reads none. If it reads only those with a label, others may exist.
	// +optional
	Present *bool `json:"present,omitempty"`
	// missingKeys are the keys that a use requires and that the source does not have.
	// +optional
	// +listType=set
	MissingKeys []string `json:"missingKeys,omitempty"`
	// moreMissingKeys is how many further required keys the source lacks: an object lists at most
	// 32 KiB of them.
	// +optional
	MoreMissingKeys int64 `json:"moreMissingKeys,omitempty"`
	// resourceVersion is the last version of the source that was read.
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// lastChangeTime is when a client that sets content of the source last wrote the source,
	// according to its managedFields, to the second.
	// +optional
	LastChangeTime *metav1.Time `json:"lastChangeTime,omitempty"`
	// stalePods is how many pods have a container that has not read the current content.
	// +optional
	StalePods int32 `json:"stalePods,omitempty"`
}

// PatternStatus shows which sources a pattern matches. It leaves out sources that spec.reload.exclude names, and sources
// that are annotated configdep.io/ignore. The sources are in spec.sources, too.
type PatternStatus struct {
	// kind is the kind of the sources: ConfigMap or Secret.
	Kind SourceKind `json:"kind"`
	// pattern is a name with *, or a regular expression that begins with ^.
	Pattern string `json:"pattern"`
	// count is how many sources it matches.
	Count int64 `json:"count"`
	// reason is NotObserved if configdep reads no sources of the kind, so that it does not know which
	// sources the pattern matches. Then none of them restarts the workload automatically.
	// +optional
	Reason string `json:"reason,omitempty"`
	// names are the first names of these sources. All patterns of an object together show
	// at most 100.
	// +optional
	// +listType=atomic
	Names []string `json:"names,omitempty"`
	// lastChangeTime is the last time that a client which sets content of one of these sources wrote
	// that source, according to its managedFields, to the second.
	// +optional
	LastChangeTime *metav1.Time `json:"lastChangeTime,omitempty"`
}

// LastReload describes the last restart by configdep.
type LastReload struct {
	// time is when the workload was restarted.
	Time metav1.Time `json:"time"`
	// trigger is what caused the restart: a source such as Secret/db, or Request.
	// +optional
	Trigger string `json:"trigger,omitempty"`
	// requestedBy is the name of the user who requested the restart.
	// +optional
	RequestedBy string `json:"requestedBy,omitempty"`
	// reason is the reason that the user gave.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Reload requests a restart of the pods of a workload, as a rollout. It is created on the
// subresource "reload" of the workload's ConfigDependency; an empty object is a valid
// request. The response contains the request and its status.
type Reload struct {
	metav1.TypeMeta `json:",inline"`
	// metadata may name the ConfigDependency; it may be empty.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says when and why to restart.
	// +optional
	Spec ReloadSpec `json:"spec,omitempty"`
	// status says what was done. It is set by the server.
	// +optional
	Status ReloadStatus `json:"status,omitempty"`
}

// ReloadRequestMode says when a Reload restarts the pods.
// +enum
type ReloadRequestMode string

const (
	// ReloadAlways restarts the pods even if they run with the current content.
	ReloadAlways ReloadRequestMode = "Always"
	// ReloadIfStale restarts the pods only if they are known to have been started with
	// other content.
	ReloadIfStale ReloadRequestMode = "IfStale"
)

// ReloadSpec says when and why to restart.
type ReloadSpec struct {
	// reason is shown in the event and in the lastReload of the workload. It has at most
	// 256 characters.
	// +optional
	Reason string `json:"reason,omitempty"`
	// mode is Always (the default: restart even if the pods run with the current content,
	// as kubectl rollout restart does) or IfStale (restart only if the pods are known to
	// have been started with other content; not if there are no pods).
	// +optional
	// +default="Always"
	Mode ReloadRequestMode `json:"mode,omitempty"`
	// preconditions must hold, or the request is refused with a conflict.
	// +optional
	Preconditions *ReloadPreconditions `json:"preconditions,omitempty"`
}

// ReloadPreconditions must hold, or the workload is not restarted.
type ReloadPreconditions struct {
	// uid is the UID of the ConfigDependency or of its workload.
	// +optional
	UID *types.UID `json:"uid,omitempty"`
	// configHash is the configHash of the ConfigDependency.
	// +optional
	ConfigHash *string `json:"configHash,omitempty"`
}

// ReloadStatus shows what a Reload did.
type ReloadStatus struct {
	// triggered reports whether the workload was restarted (or, in a dry run, would have
	// been).
	Triggered bool `json:"triggered"`
	// workloadRef names the workload.
	// +optional
	WorkloadRef *WorkloadReference `json:"workloadRef,omitempty"`
	// generation is the generation of the workload after the restart was requested: the
	// rollout is observed when the workload's status.observedGeneration reaches it.
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// previousHash is the hash of the content with which the pods were started. It is
	// empty if that is not known.
	// +optional
	PreviousHash string `json:"previousHash,omitempty"`
	// configHash is the hash of the content with which the new pods start.
	// +optional
	ConfigHash string `json:"configHash,omitempty"`
	// message describes in a sentence what was done, and why.
	// +optional
	Message string `json:"message,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Approval approves or denies the content of a workload that needs an approval before it
// is restarted automatically. It is created on the subresource "approval" of the
// workload's ConfigDependency. The response contains the request and its status.
type Approval struct {
	metav1.TypeMeta `json:",inline"`
	// metadata may name the ConfigDependency; it may be empty.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what is decided about which content.
	Spec ApprovalSpec `json:"spec"`
	// status says what was recorded. It is set by the server.
	// +optional
	Status ApprovalStatus `json:"status,omitempty"`
}

// ApprovalDecision is what is decided about content.
// +enum
type ApprovalDecision string

const (
	// ApprovalApproved lets the workload restart with the content, when windows and budgets
	// allow it.
	ApprovalApproved ApprovalDecision = "Approved"
	// ApprovalDenied keeps the workload from being restarted until the content changes again
	// or is approved.
	ApprovalDenied ApprovalDecision = "Denied"
)

// ApprovalSpec says what is decided about which content.
type ApprovalSpec struct {
	// decision is Approved (the workload is restarted when windows and budgets allow it) or
	// Denied (it is not restarted until the content changes again, or is approved after all).
	Decision ApprovalDecision `json:"decision"`
	// configHash is the status.configHash of the ConfigDependency when it was looked at. The
	// request is refused with a conflict if the content has changed since.
	ConfigHash string `json:"configHash"`
	// reason is shown in the event, and in the state of a workload that waits because its
	// content was denied. It has at most 256 characters.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// ApprovalStatus shows what an Approval did.
type ApprovalStatus struct {
	// workloadRef names the workload.
	// +optional
	WorkloadRef *WorkloadReference `json:"workloadRef,omitempty"`
	// decidedBy is the name of the user who decided.
	// +optional
	DecidedBy string `json:"decidedBy,omitempty"`
	// decisionTime is when that was recorded.
	// +optional
	DecisionTime *metav1.Time `json:"decisionTime,omitempty"`
	// message describes in a sentence what was recorded, and what happens next.
	// +optional
	Message string `json:"message,omitempty"`
}
