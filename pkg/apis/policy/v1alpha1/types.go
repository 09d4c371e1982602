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
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is which workloads are limited, and how.
	// +optional
	Spec ReloadPolicySpec `json:"spec,omitempty"`
	// Status is written by configdep.
	// +optional
	Status ReloadPolicyStatus `json:"status,omitempty"`
}

// ReloadPolicySpec is which workloads are limited, and how.
type ReloadPolicySpec struct {
	// NamespaceSelector selects namespaces by their labels; absent: all.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// WorkloadSelector selects workloads by their labels; absent: all.
	// +optional
	WorkloadSelector *metav1.LabelSelector `json:"workloadSelector,omitempty"`
	// Sources limits the policy to restarts because of some sources; absent: because of any.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Sources []SourcePattern `json:"sources,omitempty"`
	// Suspend lets no automatic restart begin.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
	// Budgets limit how many workloads, or pods, are being restarted at a time. The smallest one counts.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Budgets []Budget `json:"budgets,omitempty"`
	// Windows are the times at which automatic restarts may begin: not while one of the kind Deny is open, and if there are any of the kind Allow, while
	// one of these is.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Windows []Window `json:"windows,omitempty"`
	// BakeTime is for how long all pods of the workloads of a lower order (annotation configdep.io/order) that read the same source must have been ready
	// before those of a higher order are restarted.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('168h')",message="must be between 0s and 168h"
	BakeTime *metav1.Duration `json:"bakeTime,omitempty"`
	// FailureLimit is after how many workloads that fail with some content no other one is restarted for it; absent: any number may.
	// +optional
	// +kubebuilder:validation:Minimum=1
	FailureLimit *int32 `json:"failureLimit,omitempty"`
	// Approval says whether a user has to approve content before workloads are restarted for it.
	// +optional
	// +kubebuilder:default=NotRequired
	Approval ApprovalRequirement `json:"approval,omitempty"`
	// Requests says whether Reloads that users create are held by suspend and windows, too.
	// +optional
	// +kubebuilder:default=Exempt
	Requests RequestLimit `json:"requests,omitempty"`
}

// SourcePattern names sources.
type SourcePattern struct {
	// Kind is ConfigMap, Secret or SecretProviderClass.
	Kind SourceKind `json:"kind"`
	// Name is a name, or a pattern of names in which * stands for any characters.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9*]([-.a-z0-9*]*[a-z0-9*])?$')",message="must consist of lower case alphanumeric characters, '-', '.' or '*', and must start and end with an alphanumeric character or '*'"
	Name string `json:"name"`
}

// SourceKind is a kind of sources.
// +kubebuilder:validation:Enum=ConfigMap;Secret;SecretProviderClass
type SourceKind string

// Budget limits what is being restarted at a time: workloads, or pods. A workload counts from when configdep restarts it until its rollout is complete or
// has failed, with as many pods as it should have.
// +kubebuilder:validation:XValidation:rule="has(self.workloads) != has(self.pods)",message="must have either workloads or pods"
// +kubebuilder:validation:XValidation:rule="has(self.schedule) == has(self.duration) && (!has(self.timeZone) || has(self.schedule))",message="schedule and duration must be set together, and timeZone only with them"
type Budget struct {
	// Workloads is a number, or a percentage of the workloads in scope that may be restarted, rounded up. 0: none may begin.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule=`type(self) == string ? self == '100%' || self.matches(r'^\d\d?%$') : self >= 0 && self <= 1000000`,message="must be an integer from 0 to 1000000, or a percentage from 0% to 100%"
	Workloads *intstr.IntOrString `json:"workloads,omitempty"`
	// Pods is a number, or a percentage of the pods of these workloads, rounded up. 0: none may begin. A workload with more pods is restarted while no
	// other one in scope is.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule=`type(self) == string ? self == '100%' || self.matches(r'^\d\d?%$') : self >= 0 && self <= 1000000`,message="must be an integer from 0 to 1000000, or a percentage from 0% to 100%"
	Pods *intstr.IntOrString `json:"pods,omitempty"`
	// Scope is what has this budget: all workloads of the policy together, those of each namespace, or those that read a source, where sources of one kind
	// and name in different namespaces are one.
	// +optional
	// +kubebuilder:default=Policy
	Scope BudgetScope `json:"scope,omitempty"`
	// Schedule is when the budget begins to apply, as that of a CronJob; absent: it always applies.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^\s*(\S+\s+){4}\S+\s*$')`,message="must have the five fields of cron: minute, hour, day, month and weekday"
	Schedule string `json:"schedule,omitempty"`
	// Duration is for how long it then applies.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('8784h')",message="must be between 1m and 8784h"
	Duration *metav1.Duration `json:"duration,omitempty"`
	// TimeZone is that of the schedule, such as Europe/Berlin; absent: UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self == '' || !self.contains(':') && self != 'Local' && timestamp('2000-01-01T00:00:00Z').getHours(self) >= 0",message="must be a name such as Europe/Berlin"
	TimeZone string `json:"timeZone,omitempty"`
}

// BudgetScope is what has a budget.
// +kubebuilder:validation:Enum=Policy;Namespace;Source
type BudgetScope string

// The scopes of budgets.
const (
	ScopePolicy    BudgetScope = "Policy"
	ScopeNamespace BudgetScope = "Namespace"
	ScopeSource    BudgetScope = "Source"
)

// Window is a list of times, each of which begins when a schedule fires.
type Window struct {
	// Kind is Allow or Deny.
	Kind WindowKind `json:"kind"`
	// Schedule has the five fields of that of a CronJob.
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^\s*(\S+\s+){4}\S+\s*$')`,message="must have the five fields of cron: minute, hour, day, month and weekday"
	Schedule string `json:"schedule"`
	// Duration is for how long the window is open.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('8784h')",message="must be between 1m and 8784h"
	Duration metav1.Duration `json:"duration"`
	// TimeZone is that of the schedule, such as Europe/Berlin; absent: UTC.
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

// RequestLimit says whether suspend and windows hold Reloads that users create: Bound, or not: Exempt.
// +kubebuilder:validation:Enum=Exempt;Bound
type RequestLimit string

// The values of RequestLimit.
const (
	RequestsExempt RequestLimit = "Exempt"
	RequestsBound  RequestLimit = "Bound"
)

// ReloadPolicyStatus is written by configdep.
type ReloadPolicyStatus struct {
	// ObservedGeneration is the generation of the object that the conditions are about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Accepted says whether the policy is valid. While it is not, none of the workloads that it selects is restarted automatically.
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
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ReloadPolicy `json:"items"`
}
