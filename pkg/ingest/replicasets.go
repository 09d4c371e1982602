// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
)

// replicaSetPart is the newest ReplicaSet of each Deployment. The graph keeps no others, and no versions, so it is lossy.
type replicaSetPart struct{}

// ReplicaSets is the name of the stream of ReplicaSets of Deployments in all namespaces.
const ReplicaSets = "replicasets/deployments"

// replicaSets returns the stream of the metadata of ReplicaSets of Deployments, which tells the label of the pods that have the current template.
func (c Scope) replicaSets() *stream {
	s := newStream(appsv1.SchemeGroupVersion.WithKind(partialKind), "replicasets", replicaSetPart{}, replicaSet)
	s.name, s.labels, s.lossy = ReplicaSets, appsv1.DefaultDeploymentUniqueLabelKey, true
	return s
}

// replicaSet returns what is kept of a ReplicaSet; nil: it belongs to no Deployment.
func replicaSet(m *metav1.PartialObjectMetadata) any {
	owner := metav1.GetControllerOfNoCopy(m)
	if owner == nil || owner.Kind != string(kind.Deployment) {
		return nil
	}
	return &dependency.ReplicaSet{
		Namespace: m.Namespace, Name: m.Name, Owner: owner.UID, Number: dependency.ParseVersion(m.Annotations[kind.RevisionAnnotation]),
		Deployment: owner.Name, Revision: dependency.Intern(m.Labels[appsv1.DefaultDeploymentUniqueLabelKey]),
	}
}

func (replicaSetPart) each(g *dependency.Graph, f func(namespace, name string)) {
	g.EachReplicaSet(func(r *dependency.ReplicaSet) { f(r.Namespace, r.Name) })
}

func (replicaSetPart) holds(*dependency.Graph, *object) bool { return false }

func (replicaSetPart) put(x *Index, o *object, _ dependency.Arrival) touched {
	r := o.value.(*dependency.ReplicaSet)
	if !x.graph.SetReplicaSet(r) {
		return touched{}
	}
	return x.known([]dependency.WorkloadKey{{Kind: kind.Deployment, Namespace: r.Namespace, Name: r.Deployment}}, false)
}

func (replicaSetPart) drop(x *Index, namespace, name string, _ dependency.Arrival) touched {
	if r := x.graph.DeleteReplicaSet(namespace, name); r != nil {
		return x.known([]dependency.WorkloadKey{{Kind: kind.Deployment, Namespace: namespace, Name: r.Deployment}}, false)
	}
	return touched{}
}
