// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
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
func (c Scope) podStatuses(digester *dependency.Digester) []*stream {
	if !c.PodStatuses {
		return nil
	}
	s := &stream{
		name: PodStatuses, resource: podStatusResource, kind: podStatusKind, mounted: true, json: true,
		optional: &kind.Kind{Name: podStatusKind, Resource: podStatusResource, Optional: true, Versions: []string{podStatusResource.Version}},
	}
	s.reduce = func(m metav1.Object) (*object, error) {
		o := reduced(m)
		if whole, ok := m.(*unstructured.Unstructured); ok { // of a test
			p := &podStatus{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(whole.Object, p); err != nil {
				return nil, err
			}
			m = p
		}
		if p, ok := m.(*podStatus); ok && o.Name != "" { // a bookmark has no name
			o.mounted = p.reduce(digester)
			o.unmounted = o.mounted == nil
		}
		return o, nil
	}
	s.decode = func(raw []byte) (*object, error) {
		var p podStatus
		if err := json.Unmarshal(raw, &p); err != nil {
			return nil, err
		}
		return s.reduce(&p)
	}
	return []*stream{s}
}

// reduce returns what is kept of a status; nil: the pod has not mounted anything yet.
func (p *podStatus) reduce(digester *dependency.Digester) *dependency.PodStatus {
	class := p.Status.SecretProviderClassName
	if !p.Status.Mounted || len(validation.NameIsDNSSubdomain(class, false)) > 0 {
		return nil
	}
	objects := make([]dependency.PodObject, len(p.Status.Objects))
	for i, o := range p.Status.Objects {
		objects[i] = dependency.PodObject{ID: o.ID, Version: o.Version}
	}
	return dependency.FromPodStatus(digester, &p.ObjectMeta, strings.Clone(class), objects)
}
