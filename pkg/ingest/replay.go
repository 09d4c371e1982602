// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/configdep/configdep/pkg/apis/policy/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
)

// Replay feeds an index with API objects instead of an API server: in simulations, or from
// files. ConfigMaps, Secrets and pods are first encoded as the API server does, and then decoded.
type Replay struct {
	index   *Index
	streams map[string]*stream
}

// NewReplay returns a Replay of an index that is not running.
func NewReplay(x *Index, digester *dependency.Digester) *Replay {
	r := &Replay{index: x, streams: map[string]*stream{}}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.graph.SetDigester(digester)
	clear(x.unprobed)
	for _, s := range x.scope.streams(digester) {
		r.streams[s.name] = s
	}
	return r
}

// List applies the first list of every resource, at one version.
func (r *Replay) List(version string, objects ...runtime.Object) error {
	lists := map[string][]any{}
	for _, o := range objects {
		s, m, err := r.streamOf(o)
		if err != nil {
			return err
		}
		reduced, err := r.reduce(s, m)
		if err != nil {
			return err
		}
		lists[s.name] = append(lists[s.name], reduced)
	}
	for name, s := range r.streams {
		r.index.replace(s, lists[name], version)
	}
	return nil
}

// ListOf applies a list of one resource, named as in a path of the API: the first, or one
// after a watch has ended.
func (r *Replay) ListOf(resource, version string, objects ...runtime.Object) error {
	s, err := r.stream(resource)
	if err != nil {
		return err
	}
	list := make([]any, 0, len(objects))
	for _, o := range objects {
		m, ok := o.(metav1.Object)
		if !ok {
			return fmt.Errorf("a %T has no metadata", o)
		}
		reduced, err := r.reduce(s, m)
		if err != nil {
			return err
		}
		list = append(list, reduced)
	}
	r.index.replace(s, list, version)
	return nil
}

// Set applies an object that was added or changed.
func (r *Replay) Set(o runtime.Object) error {
	s, m, err := r.streamOf(o)
	if err != nil {
		return err
	}
	reduced, err := r.reduce(s, m)
	if err == nil {
		r.index.set(s, reduced)
	}
	return err
}

// Delete applies the deletion of an object, whose resourceVersion is that of the deletion.
func (r *Replay) Delete(o runtime.Object) error {
	s, m, err := r.streamOf(o)
	if err == nil {
		r.index.remove(s, metadata(m))
	}
	return err
}

// Bookmark applies that everything up to a version of a resource has been read.
func (r *Replay) Bookmark(resource, version string) error {
	s, err := r.stream(resource)
	if err != nil {
		return err
	}
	r.index.bookmark(s, version)
	return nil
}

// Probe applies the answer to a request for the current revision of a resource, made just
// now. If revisions have gone back, the index is reset, and everything has to be listed
// again by a new Replay.
func (r *Replay) Probe(ctx context.Context, resource string, revision uint64) error {
	s, err := r.stream(resource)
	if err != nil {
		return err
	}
	before, own := r.index.latest(s)
	r.index.probed(ctx, s, r.index.clock.Now(), revision, before, own)
	if r.index.hasRegressed() {
		r.index.Reset()
	}
	return nil
}

// reduce reduces an object.
func (r *Replay) reduce(s *stream, m metav1.Object) (*object, error) {
	var raw []byte
	var err error
	switch s.part.(type) {
	case sourcePart, podPart:
		raw, err = m.(interface{ Marshal() ([]byte, error) }).Marshal()
	case podStatusPart:
		raw, err = json.Marshal(m)
	default:
		return s.reduce(m)
	}
	if err != nil {
		return nil, err
	}
	return s.decode(raw)
}

func (r *Replay) streamOf(o runtime.Object) (*stream, metav1.Object, error) {
	m, ok := o.(metav1.Object)
	if !ok {
		return nil, nil, fmt.Errorf("a %T has no metadata", o)
	}
	var name string
	switch o := o.(type) {
	case *corev1.ConfigMap:
		name = "configmaps"
	case *corev1.Secret:
		name = "secrets"
		if unread := name + "/" + string(o.Type); r.streams[unread] != nil {
			name = unread
		}
	case *corev1.Namespace:
		name = "namespaces"
	case *corev1.Pod:
		name = Pods
	case *metav1.PartialObjectMetadata:
		name = ReplicaSets
	case *v1alpha1.ReloadPolicy:
		name = Policies
	default:
		k := r.kindOf(o)
		switch {
		case k != nil:
			name = StreamOf(k)
		case o.GetObjectKind().GroupVersionKind() == podStatusResource.GroupVersion().WithKind(podStatusKind):
			name = PodStatuses
		default:
			return nil, nil, fmt.Errorf("a %T is not read", o)
		}
	}
	s, err := r.stream(name)
	return s, m, err
}

func (r *Replay) stream(name string) (*stream, error) {
	if s := r.streams[name]; s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("%s are not read", name)
}

// kindOf returns the kind of a workload, or nil. Several kinds may have objects of one Go type, which then say of which kind
// they are.
func (r *Replay) kindOf(o runtime.Object) *kind.Kind {
	if gvk := o.GetObjectKind().GroupVersionKind(); !gvk.Empty() {
		return r.index.scope.Kinds.OfGroupKind(gvk.GroupKind())
	}
	return r.index.scope.Kinds.OfObject(o)
}
