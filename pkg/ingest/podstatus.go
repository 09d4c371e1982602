// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
)

// podStatusResource is what the Secrets Store CSI driver writes for each pod and SecretProviderClass. Its definition comes with the
// driver, so the stream is optional.
var podStatusResource = schema.GroupVersionResource{Group: "secrets-store.csi.x-k8s.io", Version: "v1", Resource: "secretproviderclasspodstatuses"}

const podStatusKind = "SecretProviderClassPodStatus"

// PodStatuses is the name of the stream of that resource in all namespaces.
var PodStatuses = podStatusResource.GroupResource().String()

// podStatusPart is what pods have mounted of SecretProviderClasses.
type podStatusPart struct{}

// podStatus is what is decoded of a SecretProviderClassPodStatus.
type podStatus struct {
	metav1.ObjectMeta `json:"metadata"`
	Status            struct {
		SecretProviderClassName string `json:"secretProviderClassName"`
		Mounted                 bool   `json:"mounted"`
		Objects                 []struct {
			ID      string `json:"id"`
			Version string `json:"version"`
		} `json:"objects"`
	} `json:"status"`
}

// podStatuses returns the stream of what pods have mounted of SecretProviderClasses.
func podStatuses() *stream {
	s := &stream{
		name: PodStatuses, resource: podStatusResource, kind: podStatusKind, part: podStatusPart{}, json: true,
		optional: &kind.Kind{Name: podStatusKind, Resource: podStatusResource, Optional: true, Versions: []string{podStatusResource.Version}},
	}
	s.read = func(m metav1.Object) (any, error) { return m.(*podStatus).reduce(), nil }
	s.decode = func(raw []byte) (*object, error) {
		var p podStatus
		if err := json.Unmarshal(raw, &p); err != nil {
			return nil, err
		}
		return s.reduce(&p)
	}
	return s
}

// reduce returns what is kept of a status; nil: the pod has not mounted anything yet.
func (p *podStatus) reduce() any {
	class := p.Status.SecretProviderClassName
	if !p.Status.Mounted || len(p.Status.Objects) == 0 || len(validation.NameIsDNSSubdomain(class, false)) > 0 {
		return nil
	}
	objects := make([]dependency.PodObject, len(p.Status.Objects))
	for i, o := range p.Status.Objects {
		objects[i] = dependency.PodObject{ID: o.ID, Version: o.Version}
	}
	return dependency.FromPodStatus(&p.ObjectMeta, strings.Clone(class), objects)
}

func (podStatusPart) each(g *dependency.Graph, f func(namespace, name string)) {
	g.EachPodStatus(func(p *dependency.PodStatus) { f(p.Namespace, p.Name) })
}

func (podStatusPart) holds(g *dependency.Graph, o *object) bool {
	p := g.PodStatus(o.Namespace, o.Name)
	return p != nil && p.ResourceVersion == o.ResourceVersion
}

func (podStatusPart) put(x *Index, o *object, _ dependency.Arrival) touched {
	return x.usersOf(x.graph.SetPodStatus(o.value.(*dependency.PodStatus)))
}

func (podStatusPart) drop(x *Index, namespace, name string, _ dependency.Arrival) touched {
	return x.usersOf(x.graph.DeletePodStatus(namespace, name))
}

// usersOf is users for several sources.
func (x *Index) usersOf(keys []dependency.SourceKey) (what touched) {
	for _, key := range keys {
		what.add(x.users(key))
	}
	return what
}
