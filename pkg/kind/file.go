// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	strictjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// The version and the kind of a file with descriptors.
const (
	FileAPIVersion = "config.configdep.io/v1alpha1"
	FileKind       = "WorkloadKinds"
)

// File is the content of a file with descriptors.
type File struct {
	metav1.TypeMeta `json:",inline"`
	// Kinds are the kinds that it describes: 1 to 64.
	Kinds []Descriptor `json:"kinds"`
}

const (
	maxFile  = 1 << 20 // bytes
	maxKinds = 64
)

// ReadFile returns the kinds that a file describes, or everything that is wrong with it.
func ReadFile(path string) ([]*Kind, []error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, []error{err}
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(content) > maxFile {
		err = fmt.Errorf("must not have more than %d bytes", maxFile)
	}
	if err != nil {
		return nil, []error{fmt.Errorf("%s: %w", path, err)}
	}
	kinds, errs := ParseFile(content)
	for i, err := range errs {
		errs[i] = fmt.Errorf("%s: %w", path, err)
	}
	return kinds, errs
}

// ParseFile returns the kinds that the content of a file describes, or everything that is wrong with it.
func ParseFile(content []byte) ([]*Kind, []error) {
	file, errs := decodeFile(content)
	if len(errs) > 0 {
		return nil, errs
	}
	at := field.NewPath("kinds")
	if n := len(file.Kinds); n == 0 || n > maxKinds {
		return nil, []error{fmt.Errorf("%s: must have 1 to %d elements, got %d", at, maxKinds, n)}
	}
	var kinds Table
	for i := range file.Kinds {
		k, wrong := New(file.Kinds[i], at.Index(i))
		if k != nil {
			if other := kinds.like(k); other != nil {
				wrong = append(wrong, field.Duplicate(at.Index(i), k.describe()))
			}
			kinds = append(kinds, k)
		}
		for _, err := range wrong {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return kinds, nil
}

func decodeFile(content []byte) (*File, []error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	first, err := documents.Read()
	if err == nil {
		if _, more := documents.Read(); !errors.Is(more, io.EOF) {
			return nil, []error{errors.New("must have one YAML document")}
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, []error{err}
	}
	raw, err := yaml.YAMLToJSONStrict(first)
	if err != nil {
		return nil, []error{err}
	}
	file := &File{}
	unknown, err := strictjson.UnmarshalStrict(raw, file)
	if err != nil {
		return nil, []error{inWords(err, raw)}
	}
	if file.APIVersion != FileAPIVersion || file.Kind != FileKind {
		return nil, []error{fmt.Errorf("must be a %s of %s, got a %q of %q", FileKind, FileAPIVersion, file.Kind, file.APIVersion)}
	}
	return file, unknown
}

// inWords says in terms of the file which of its fields is of another type than it must be.
func inWords(err error, raw []byte) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err
	}
	field := wrong.Field
	if rest, within := strings.CutPrefix(field, "kinds"); within {
		field = "kinds" + whichOf(raw) + rest
	}
	if field != "" {
		field += ": "
	}
	must, hint := "an object", ""
	switch wrong.Type.Kind() {
	case reflect.String:
		must = "a text"
		if wrong.Value != "object" && wrong.Value != "array" {
			hint = ": write it in quotes"
		}
	case reflect.Bool:
		must = "true or false"
	case reflect.Slice:
		must = "a list"
	}
	got, _, _ := strings.Cut(wrong.Value, " ") // after the type may come the value
	return fmt.Errorf("%smust be %s, got %s%s", field, must, got, hint)
}

// whichOf returns the index of the first element of kinds that cannot be decoded, in brackets; "": kinds are no list.
func whichOf(raw []byte) string {
	var file struct {
		Kinds []json.RawMessage `json:"kinds"`
	}
	if json.Unmarshal(raw, &file) != nil {
		return ""
	}
	for i, each := range file.Kinds {
		if _, err := strictjson.UnmarshalStrict(each, &Descriptor{}); err != nil {
			return fmt.Sprintf("[%d]", i)
		}
	}
	return ""
}

// like returns a kind with the same name in views, or the same resource, or nil.
func (t Table) like(k *Kind) *Kind {
	return t.find(func(other *Kind) bool {
		return strings.EqualFold(string(other.Name), string(k.Name)) ||
			other.Resource.GroupResource() == k.Resource.GroupResource() || other.GroupVersionKind().GroupKind() == k.GroupVersionKind().GroupKind()
	})
}

func (k *Kind) describe() string {
	return fmt.Sprintf("%s (%s)", k.Name, k.Resource.GroupResource())
}

// PresetNames returns the names of all presets.
func PresetNames() (names []string) {
	for _, p := range Presets() {
		names = append(names, p.Name)
	}
	return names
}

// NewTable returns the kinds that are built in, those of presets, and others. One of the others takes the place of a preset for the
// same resource. The error names what is not unique, or no preset.
func NewTable(presets []string, others []*Kind) (Table, error) {
	table := Table(BuiltIn())
	for i, name := range presets {
		at := slices.IndexFunc(Presets(), func(p Preset) bool { return p.Name == name })
		if at < 0 {
			return nil, fmt.Errorf("%q is no preset: must be any of %s", name, strings.Join(PresetNames(), ", "))
		}
		if slices.Contains(presets[:i], name) {
			return nil, fmt.Errorf("the preset %s is named twice", name)
		}
		k, errs := New(Presets()[at].Descriptor, nil)
		if len(errs) > 0 {
			return nil, fmt.Errorf("the preset %s: %w", name, errs.ToAggregate()) // impossible: a test makes all of them
		}
		if !slices.ContainsFunc(others, func(o *Kind) bool { return o.Resource.GroupResource() == k.Resource.GroupResource() }) {
			table = append(table, k)
		}
	}
	for _, k := range others {
		if other := table.like(k); other != nil {
			return nil, fmt.Errorf("the kind %s has the same name or resource as %s: set alias to another name", k.describe(), other.describe())
		}
		table = append(table, k)
	}
	return table, nil
}
