// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/configdep/configdep/pkg/dependency"
)

// object is what a reflector sees instead of an API object: enough of its metadata to track it,
// and the value for the graph. It has one of workload, source, unread, mounted, agent and namespace (its
// annotations), or, for a workload that is not shown, its key in dropped; a bookmark has none of
// them.
type object struct {
	metav1.ObjectMeta
	workload  *dependency.Workload
	source    *dependency.Source
	unread    *dependency.Unread
	mounted   *dependency.PodStatus
	agent     *dependency.AgentPod
	namespace *map[string]string
	dropped   dependency.WorkloadKey
	// unmounted: it says that a pod has mounted nothing of a SecretProviderClass yet.
	unmounted bool
	// unowned: it is a pod with an agent that belongs to no workload.
	unowned bool
	// terminating: the namespace is being deleted.
	terminating bool
}

// reduced returns an object with the metadata that reflectors and bookmarks need.
func reduced(m metav1.Object) *object {
	o := &object{ObjectMeta: metav1.ObjectMeta{
		Namespace:       m.GetNamespace(),
		Name:            m.GetName(),
		ResourceVersion: m.GetResourceVersion(),
	}}
	if end := m.GetAnnotations()[metav1.InitialEventsAnnotationKey]; end != "" {
		o.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: end}
	}
	return o
}

// kept reports whether the object has a value for the graph.
func (o *object) kept() bool {
	return o.workload != nil || o.source != nil || o.unread != nil || o.mounted != nil || o.agent != nil || o.namespace != nil
}

// GetObjectKind implements runtime.Object.
func (o *object) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. The values behind an object are immutable.
func (o *object) DeepCopyObject() runtime.Object {
	c := *o
	return &c
}
