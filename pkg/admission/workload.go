// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/jsonpatch"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
)

// shape is a workload with only the parts that are needed, not decoded yet, so that the cost of decoding can be
// estimated.
type shape struct {
	labelled
	Spec struct {
		Paused   bool            `json:"paused"`
		Template json.RawMessage `json:"template"`
	} `json:"spec"`

	// whole is all of a custom resource, whose kind says where it names sources; its pod template is Spec.Template wherever it is.
	whole json.RawMessage
}

// labelled is the part of any object that is needed.
type labelled struct {
	Metadata struct {
		Annotations     json.RawMessage `json:"annotations"`
		Labels          json.RawMessage `json:"labels"`
		OwnerReferences json.RawMessage `json:"ownerReferences"`
	} `json:"metadata"`
}

// readShape reads a workload of a kind.
func readShape(k *kind.Kind, raw []byte) (*shape, error) {
	if k.Decode != nil {
		return readCustom(k, raw)
	}
	var s *shape
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, err
	}
	if s == nil {
		return nil, errNoObject
	}
	return s, nil
}

var errNoObject = errors.New("the request has no object")

// readCustom reads a custom resource. What is at the paths of workloads of Kubernetes may be something else.
func readCustom(k *kind.Kind, raw []byte) (*shape, error) {
	var l *labelled
	if err := json.Unmarshal(raw, &l); err != nil {
		return nil, err
	}
	if l == nil {
		return nil, errNoObject
	}
	s := &shape{labelled: *l, whole: slices.Clone(raw)}
	path := k.Traits.TemplatePath()
	if path == nil {
		return s, nil
	}
	var err error
	s.Spec.Template, err = member(s.whole, path)
	return s, err
}

// member returns the value at a path of an object; nil: there is none.
func member(raw json.RawMessage, path []string) (json.RawMessage, error) {
	for _, name := range path {
		d := json.NewDecoder(bytes.NewReader(raw))
		if begin, err := d.Token(); err != nil || begin != json.Delim('{') {
			return nil, err
		}
		var value, found json.RawMessage
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			if err := d.Decode(&value); err != nil { // in memory that is used again
				return nil, err
			}
			if key == name {
				found, value = value, nil
			}
		}
		if found == nil {
			return nil, nil
		}
		raw = found
	}
	if string(raw) == "null" {
		return nil, nil
	}
	return raw, nil
}

// cost returns an upper bound on the memory of a workload when it is decoded, to be compared and
// patched.
func (s *shape) cost() int64 {
	return int64(len(s.Metadata.Annotations)+len(s.Metadata.Labels)+len(s.Metadata.OwnerReferences)+2*len(s.Spec.Template)+2*len(s.whole)) + // its strings, of the template by each way
		(elements(s.Metadata.Annotations)+elements(s.Metadata.Labels)+elements(s.Metadata.OwnerReferences))*ofAnnotation + elements(s.Spec.Template)*ofAny
}

// size says what cost depends on.
func (s *shape) size() string {
	part := func(raw json.RawMessage) string {
		return fmt.Sprintf("%d bytes with %d elements", len(raw), elements(raw))
	}
	return "the annotations have " + part(s.Metadata.Annotations) + ", the labels " + part(s.Metadata.Labels) + ", the pod template " + part(s.Spec.Template)
}

// costOfTypes returns what is added if it is decoded with its type as well.
func (s *shape) costOfTypes() int64 {
	return (elements(s.Spec.Template) + elements(s.whole)) * ofElement
}

// written is a workload as it was sent: the parts that are read, and its annotations.
type written struct {
	*dependency.Workload

	annotations, labels map[string]string
	// The raw JSON, which may have fields that our libraries do not know, at the path of the template; empty: there is no template.
	template map[string]any
	path     string
}

// readWorkload reads a workload of one of the kinds whose pods can be restarted.
func readWorkload(kinds kind.Table, k *kind.Kind, dialects policy.Dialects, namespace, name string, s *shape) (*written, error) {
	w, err := s.marked()
	if err != nil {
		return nil, fmt.Errorf("reading a %s: %w", k.Name, err)
	}
	for _, name := range k.Traits.TemplatePath() {
		w.path = jsonpatch.Pointer(w.path, name)
	}
	object, err := s.object(k)
	if err != nil {
		return nil, fmt.Errorf("reading a %s: %w", k.Name, err)
	}
	// The namespace may be absent on create.
	object.Meta = &metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: w.annotations, Labels: w.labels}
	if len(s.Metadata.OwnerReferences) > 0 {
		if err := json.Unmarshal(s.Metadata.OwnerReferences, &object.Meta.OwnerReferences); err != nil {
			return nil, fmt.Errorf("reading a %s: %w", k.Name, err)
		}
	}
	kinds.Relate(object)
	w.Workload = dialects.ReadWorkload(object)
	if w.Truncated {
		return nil, fmt.Errorf("the %s names more than %d sources, or names them in more than %d places", k.Name, dependency.MaxSources, dependency.MaxUses)
	}
	return w, nil
}

// object reads what a workload consumes.
func (s *shape) object(k *kind.Kind) (*dependency.Object, error) {
	if s.whole != nil {
		o, err := k.Decode(s.whole)
		if err != nil {
			return nil, err
		}
		return k.Read(o)
	}
	o := &dependency.Object{Kind: k.Name, Traits: k.Traits, Template: &corev1.PodTemplateSpec{}, Status: dependency.Status{Paused: s.Spec.Paused}}
	if len(s.Spec.Template) > 0 {
		if err := json.Unmarshal(s.Spec.Template, o.Template); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// marked reads the annotations and labels, and the template without its type.
func (s *shape) marked() (*written, error) {
	w := &written{}
	if len(s.Metadata.Annotations) > 0 {
		if err := json.Unmarshal(s.Metadata.Annotations, &w.annotations); err != nil {
			return nil, err
		}
	}
	if len(s.Metadata.Labels) > 0 {
		if err := json.Unmarshal(s.Metadata.Labels, &w.labels); err != nil {
			return nil, err
		}
	}
	if len(s.Spec.Template) > 0 {
		decoder := json.NewDecoder(bytes.NewReader(s.Spec.Template))
		decoder.UseNumber() // no two numbers look alike
		if err := decoder.Decode(&w.template); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// remembered returns the record in the annotations of a workload.
func (w *written) remembered() *decide.Written {
	return &decide.Written{Workload: w.annotations, Template: w.templateAnnotations(), Labels: w.labels}
}

// templateAnnotations returns nil if there are none, and an empty map if they are empty.
func (w *written) templateAnnotations() map[string]string {
	metadata, _ := w.template["metadata"].(map[string]any)
	annotations, found := metadata["annotations"].(map[string]any)
	if !found {
		return nil
	}
	out := make(map[string]string, len(annotations))
	for key, value := range annotations {
		out[key], _ = value.(string)
	}
	return out
}
