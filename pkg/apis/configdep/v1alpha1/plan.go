// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"net/url"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ConfigDependencyPlan shows which workloads of a namespace will be restarted automatically,
// in which order, about when, and what holds the others. It is the subresource "plan" of any
// ConfigDependency of the namespace. It is computed when it is asked for, from what the
// cluster is at that time and as if nothing else happened.
type ConfigDependencyPlan struct {
	metav1.TypeMeta `json:",inline"`
	// metadata has the name, the namespace and the uid of the ConfigDependency.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// time is when the plan was made.
	Time metav1.Time `json:"time"`
	// assumed is the source whose content is assumed to change at that time, as in Secret/db.
	// +optional
	Assumed string `json:"assumed,omitempty"`
	// summary counts the restarts of the namespace, and of all namespaces.
	Summary PlanSummary `json:"summary"`
	// restarts are those of the namespace: first those that have begun, then those that
	// will begin, in this order, and then those that wait for something that cannot be
	// foreseen, by name. At most 1,000 are listed, and fewer if their messages are long.
	// +optional
	// +listType=map
	// +listMapKey=name
	Restarts []PlannedRestart `json:"restarts,omitempty"`
	// moreRestarts is the number of restarts that are not listed.
	// +optional
	MoreRestarts int64 `json:"moreRestarts,omitempty"`
	// truncated is true if more will happen in the cluster than was looked at: what lies more
	// than 31 days ahead, or after very many changes of budgets by their schedules.
	// +optional
	Truncated bool `json:"truncated,omitempty"`
}

// PlanSummary counts restarts.
type PlanSummary struct {
	// inProgress is the number of restarts that have begun and are not complete.
	InProgress int64 `json:"inProgress"`
	// failed is the number of those that have begun and whose pods fail.
	Failed int64 `json:"failed"`
	// planned is the number of those of which is known about when they begin.
	Planned int64 `json:"planned"`
	// held is the number of those that wait for something that cannot be foreseen, such as
	// an approval.
	Held int64 `json:"held"`
	// clusterInProgress is the number of restarts in progress in all namespaces.
	ClusterInProgress int64 `json:"clusterInProgress"`
	// clusterFailed is the number of restarts that fail in all namespaces.
	ClusterFailed int64 `json:"clusterFailed"`
	// clusterPlanned is the number of planned restarts in all namespaces.
	ClusterPlanned int64 `json:"clusterPlanned"`
	// completionTime is the approximate time at which all restarts of the namespace that are in progress or planned will be
	// complete.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
}

// PlannedRestart is an automatic restart of a workload that is in progress or due, or will be.
type PlannedRestart struct {
	// name is the name of the workload's ConfigDependency.
	Name string `json:"name"`
	// position is the place of the restart among all that are planned in the cluster, from 1.
	// It is 0 if the restart has begun, or is held.
	// +optional
	Position int64 `json:"position,omitempty"`
	// startTime is when the restart began, or about when it begins. It is absent if that
	// cannot be foreseen.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// completionTime is about when the restart is complete, if it takes as long as the last
	// one of the workload, or a minute if that is not known. It is absent if the restart
	// fails.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// state is the state of the ConfigDependency, now or when the restart becomes due.
	State State `json:"state"`
	// reason is why the workload is in this state.
	Reason string `json:"reason"`
	// message says what the restart waits for.
	Message string `json:"message"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// PlanOptions are the query parameters of the subresource "plan".
type PlanOptions struct {
	metav1.TypeMeta `json:",inline"`

	// assume is a source of the namespace, as in Secret/db. The plan is then made as if its
	// content changed at this time.
	// +optional
	Assume string `json:"assume,omitempty"`
	// allNamespaces extends assume to the sources of this kind and name in all namespaces.
	// +optional
	AllNamespaces bool `json:"allNamespaces,omitempty"`
}

func addConversions(scheme *runtime.Scheme) error {
	return scheme.AddConversionFunc((*url.Values)(nil), (*PlanOptions)(nil), func(from, to any, _ conversion.Scope) error {
		values, out := *from.(*url.Values), to.(*PlanOptions)
		out.Assume = values.Get("assume")
		if all := values.Get("allNamespaces"); all != "" {
			var err error
			out.AllNamespaces, err = strconv.ParseBool(all)
			return err
		}
		return nil
	})
}
