// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ReloadPolicy limits when, and how many at a time, the workloads that it selects are restarted automatically. If several policies select a workload, all
// of them apply. What has begun is never interrupted.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Suspended",type=boolean,JSONPath=`.spec.suspend`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ReloadPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which workloads are limited, and how.
	// +optional
	Spec ReloadPolicySpec `json:"spec,omitempty"`
	// status is written by configdep.
	// +optional
	Status ReloadPolicyStatus `json:"status,omitempty"`
}

// ReloadPolicySpec says which workloads are limited, and how.
type ReloadPolicySpec struct {
	// namespaceSelector selects namespaces by their labels. If absent, it selects all.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// workloadSelector selects workloads by their labels. If absent, it selects all.
	// +optional
	WorkloadSelector *metav1.LabelSelector `json:"workloadSelector,omitempty"`
	// sources limits the policy to restarts that these sources cause. If absent, it applies to all restarts.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Sources []SourcePattern `json:"sources,omitempty"`
	// suspend stops all automatic restarts that have not begun.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
	// budgets limit how many workloads or pods are restarted at the same time. If several apply, the smallest one counts.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Budgets []Budget `json:"budgets,omitempty"`
	// windows are the times at which automatic restarts may begin. None begins while a window of the kind Deny is open. If there are
	// windows of the kind Allow, restarts begin only while one of them is open.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Windows []Window `json:"windows,omitempty"`
	// bakeTime is how long the pods of workloads with a lower order must have been ready before workloads with a higher order are
	// restarted. It applies to workloads that read the same source; the annotation configdep.io/order sets the order.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('168h')",message="must be between 0s and 168h"
	BakeTime *metav1.Duration `json:"bakeTime,omitempty"`
	// failureLimit is the number of workloads whose pods may fail with new content before no other workload is restarted for it. If
	// absent, failures stop nothing.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	FailureLimit *int32 `json:"failureLimit,omitempty"`
	// approval says whether a user must approve new content before workloads are restarted for it.
	// +optional
	// +kubebuilder:default=NotRequired
	Approval ApprovalRequirement `json:"approval,omitempty"`
	// requests says whether suspend and windows also hold Reloads, which users create.
	// +optional
	// +kubebuilder:default=Exempt
	Requests RequestLimit `json:"requests,omitempty"`
}

// SourcePattern names sources.
type SourcePattern struct {
	// kind is ConfigMap, Secret or SecretProviderClass.
	Kind SourceKind `json:"kind"`
	// name is a name, or a pattern of names in which * stands for any characters.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9*]([-.a-z0-9*]*[a-z0-9*])?$')",message="must consist of lower case alphanumeric characters, '-', '.' or '*', and must start and end with an alphanumeric character or '*'"
	Name string `json:"name"`
}

// SourceKind is a kind of sources.
// +kubebuilder:validation:Enum=ConfigMap;Secret;SecretProviderClass
type SourceKind string

// Budget limits how many workloads or pods are restarted at the same time. A workload counts, with all pods that it should have, from its restart by
// configdep until its rollout is complete or has failed.
// +kubebuilder:validation:XValidation:rule="has(self.workloads) != has(self.pods)",message="must have either workloads or pods"
// +kubebuilder:validation:XValidation:rule="has(self.schedule) == has(self.duration) && (!has(self.timeZone) || has(self.schedule))",message="schedule and duration must be set together, and timeZone only with them"
type Budget struct {
	// workloads is a number, or a percentage of the workloads in scope that configdep restarts, rounded up. With 0, no restart begins.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule=`type(self) == string ? self == '100%' || self.matches(r'^\d\d?%$') : self >= 0 && self <= 1000000`,message="must be an integer from 0 to 1000000, or a percentage from 0% to 100%"
	Workloads *intstr.IntOrString `json:"workloads,omitempty"`
	// pods is a number, or a percentage of the pods of these workloads, rounded up. With 0, no restart begins. A workload that has more
	// pods than that is restarted alone.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule=`type(self) == string ? self == '100%' || self.matches(r'^\d\d?%$') : self >= 0 && self <= 1000000`,message="must be an integer from 0 to 1000000, or a percentage from 0% to 100%"
	Pods *intstr.IntOrString `json:"pods,omitempty"`
	// scope says which workloads share the budget. Policy: all workloads of the policy. Namespace: the workloads of each namespace.
	// Source: the workloads that read the same source, where sources of one kind and name in different namespaces are the same.
	// +optional
	// +kubebuilder:default=Policy
	Scope BudgetScope `json:"scope,omitempty"`
	// schedule says when the budget begins to apply, like the schedule of a CronJob. If absent, it always applies.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^\s*(\S+\s+){4}\S+\s*$')`,message="must have the five fields of cron: minute, hour, day, month and weekday"
	Schedule string `json:"schedule,omitempty"`
	// duration is how long it then applies.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('8784h')",message="must be between 1m and 8784h"
	Duration *metav1.Duration `json:"duration,omitempty"`
	// timeZone is the time zone of the schedule, such as Europe/Berlin. If absent, it is UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self == '' || !self.contains(':') && self != 'Local' && timestamp('2000-01-01T00:00:00Z').getHours(self) >= 0",message="must be a name such as Europe/Berlin"
	TimeZone string `json:"timeZone,omitempty"`
}

// BudgetScope says which workloads share a budget.
// +kubebuilder:validation:Enum=Policy;Namespace;Source
type BudgetScope string

// The scopes of budgets.
const (
	ScopePolicy    BudgetScope = "Policy"
	ScopeNamespace BudgetScope = "Namespace"
	ScopeSource    BudgetScope = "Source"
)

// Window is a recurring period of time.
type Window struct {
	// kind is Allow or Deny.
	Kind WindowKind `json:"kind"`
	// schedule says when the window opens, like the schedule of a CronJob.
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^\s*(\S+\s+){4}\S+\s*$')`,message="must have the five fields of cron: minute, hour, day, month and weekday"
	Schedule string `json:"schedule"`
	// duration is how long the window then stays open.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('8784h')",message="must be between 1m and 8784h"
	Duration metav1.Duration `json:"duration"`
	// timeZone is the time zone of the schedule, such as Europe/Berlin. If absent, it is UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self == '' || !self.contains(':') && self != 'Local' && timestamp('2000-01-01T00:00:00Z').getHours(self) >= 0",message="must be a name such as Europe/Berlin"
	TimeZone string `json:"timeZone,omitempty"`
}

// WindowKind is Allow or Deny.
// +kubebuilder:validation:Enum=Allow;Deny
type WindowKind string

// ApprovalRequirement says whether content has to be approved.
// +kubebuilder:validation:Enum=NotRequired;Required
type ApprovalRequirement string

// The values of ApprovalRequirement.
const (
	ApprovalNotRequired ApprovalRequirement = "NotRequired"
	ApprovalRequired    ApprovalRequirement = "Required"
)

// RequestLimit says whether suspend and windows hold Reloads: Bound if they do, Exempt if not.
// +kubebuilder:validation:Enum=Exempt;Bound
type RequestLimit string

// The values of RequestLimit.
const (
	RequestsExempt RequestLimit = "Exempt"
	RequestsBound  RequestLimit = "Bound"
)

// ReloadPolicyStatus is written by configdep.
type ReloadPolicyStatus struct {
	// observedGeneration is the generation of the object that the conditions describe.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions describe the policy. Accepted: the policy is valid. While it is not, configdep restarts none of the selected workloads
	// automatically.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// The condition of a ReloadPolicy.
const (
	ConditionAccepted = "Accepted"

	ReasonAccepted = "Accepted"
	ReasonInvalid  = "Invalid"
)

// ReloadPolicyList is a list of policies.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type ReloadPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the policies.
	Items []ReloadPolicy `json:"items"`
}
