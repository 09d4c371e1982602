package admission

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// written is a workload as it came: what is read of it, and its annotations as they are.
type written struct {
	*dependency.Workload
	shape
}

// shape is the part of a workload in JSON on which a patch depends.
type shape struct {
	Metadata struct {
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		// As it is written: it may have fields that our libraries do not know.
		Template map[string]any `json:"template"`
	} `json:"spec"`
}

// readWorkload reads a workload of a kind that there is a reader for.
func readWorkload(kind, namespace string, raw []byte) (*written, error) {
	s, err := readShape(kind, raw)
	if err != nil {
		return nil, err
	}
	w := &written{shape: *s}
	if w.Workload, err = readers[kind](raw); err != nil {
		return nil, fmt.Errorf("reading a %s: %w", kind, err)
	}
	if w.Truncated {
		return nil, fmt.Errorf("a %s that consumes more than %d sources, or consumes them in more than %d places, is left to the controller", kind, dependency.MaxSources, dependency.MaxUses)
	}
	w.Namespace = namespace // one that is created need not say it
	return w, nil
}

func readShape(kind string, raw []byte) (*shape, error) {
	s := &shape{}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber() // no two numbers look alike
	if err := decoder.Decode(s); err != nil {
		return nil, fmt.Errorf("reading a %s: %w", kind, err)
	}
	return s, nil
}

// workload returns what is remembered of a workload by its annotations.
func (s *shape) workload() *dependency.Workload {
	return &dependency.Workload{
		Annotations:         dependency.OwnAnnotations(s.Metadata.Annotations),
		TemplateAnnotations: dependency.OwnAnnotations(s.templateAnnotations()),
	}
}

// templateAnnotations returns nil when there are none, and an empty map when they are empty.
func (s *shape) templateAnnotations() map[string]string {
	metadata, _ := s.Spec.Template["metadata"].(map[string]any)
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

// readers read workloads by their kind.
var readers = map[string]func([]byte) (*dependency.Workload, error){
	string(dependency.Deployment):  reader(dependency.FromDeployment),
	string(dependency.StatefulSet): reader(dependency.FromStatefulSet),
	string(dependency.DaemonSet):   reader(dependency.FromDaemonSet),
}

func reader[T any](from func(*T) *dependency.Workload) func([]byte) (*dependency.Workload, error) {
	return func(raw []byte) (*dependency.Workload, error) {
		o := new(T)
		if err := json.Unmarshal(raw, o); err != nil {
			return nil, err
		}
		return from(o), nil
	}
}

// sameTemplate reports whether two workloads have the same pod template, but for our
// annotations.
func sameTemplate(a, b *shape) bool {
	return reflect.DeepEqual(unmarked(a.Spec.Template), unmarked(b.Spec.Template))
}

// unmarked returns a template without our annotations, and without an empty map of them.
func unmarked(template map[string]any) map[string]any {
	metadata, _ := template["metadata"].(map[string]any)
	annotations, found := metadata["annotations"].(map[string]any)
	if !found {
		return template
	}
	template, metadata, annotations = maps.Clone(template), maps.Clone(metadata), maps.Clone(annotations)
	for _, key := range policy.TemplateMarks() {
		delete(annotations, key)
	}
	metadata["annotations"] = annotations
	if len(annotations) == 0 {
		delete(metadata, "annotations")
	}
	template["metadata"] = metadata
	return template
}
