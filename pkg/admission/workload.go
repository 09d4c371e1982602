// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
)

// shape is a workload with only the parts that are needed, not decoded yet, so that the cost of decoding can be
// estimated.
type shape struct {
	Metadata struct {
		Annotations json.RawMessage `json:"annotations"`
		Labels      json.RawMessage `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		Paused   bool            `json:"paused"`
		Template json.RawMessage `json:"template"`
	} `json:"spec"`
}

func readShape(raw []byte) (*shape, error) {
	var s *shape
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, err
	}
	if s == nil {
		return nil, errors.New("the request has no object")
	}
	return s, nil
}

// cost returns an upper bound on the memory of a workload when it is decoded, to be compared and
// patched.
func (s *shape) cost() int64 {
	return int64(len(s.Metadata.Annotations)+len(s.Metadata.Labels)+2*len(s.Spec.Template)) + // its strings, of the template by each way
		(elements(s.Metadata.Annotations)+elements(s.Metadata.Labels))*ofAnnotation + elements(s.Spec.Template)*ofAny
}

// size says what cost depends on.
func (s *shape) size() string {
	part := func(raw json.RawMessage) string {
		return fmt.Sprintf("%d bytes with %d elements", len(raw), elements(raw))
	}
	return "the annotations have " + part(s.Metadata.Annotations) + ", the labels " + part(s.Metadata.Labels) + ", the pod template " + part(s.Spec.Template)
}

// costOfTypes returns what is added if it is decoded with its type as well.
func (s *shape) costOfTypes() int64 { return elements(s.Spec.Template) * ofElement }

// written is a workload as it was sent: the parts that are read, and its annotations.
type written struct {
	*dependency.Workload

	annotations, labels map[string]string
	// The raw JSON, which may have fields that our libraries do not know.
	template map[string]any
}

// readWorkload reads a workload of a kind whose pods can be restarted.
func readWorkload(k *kind.Kind, dialects policy.Dialects, namespace, name string, s *shape) (*written, error) {
	w, err := s.marked()
	if err != nil {
		return nil, fmt.Errorf("reading a %s: %w", k.Name, err)
	}
	var template corev1.PodTemplateSpec
	if len(s.Spec.Template) > 0 {
		if err := json.Unmarshal(s.Spec.Template, &template); err != nil {
			return nil, fmt.Errorf("reading a %s: %w", k.Name, err)
		}
	}
	// The namespace may be absent on create.
	w.Workload = dialects.ReadWorkload(&dependency.Object{
		Kind: k.Name, Traits: k.Traits, Template: &template,
		Meta:   &metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: w.annotations, Labels: w.labels},
		Status: dependency.Status{Paused: s.Spec.Paused},
	})
	if w.Truncated {
		return nil, fmt.Errorf("the %s names more than %d sources, or names them in more than %d places", k.Name, dependency.MaxSources, dependency.MaxUses)
	}
	return w, nil
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
func (w *written) remembered() *policy.Written {
	return &policy.Written{Workload: w.annotations, Template: w.templateAnnotations(), Labels: w.labels}
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
