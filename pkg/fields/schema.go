// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package fields

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Schema is the schema of a kind of custom resources.
type Schema struct{ root *spec.Schema }

// The extensions of schemas that matter here; see
// https://kubernetes.io/docs/reference/using-api/server-side-apply/#merge-strategy.
const (
	kindExtension     = "x-kubernetes-group-version-kind"
	listTypeExtension = "x-kubernetes-list-type"
	listKeysExtension = "x-kubernetes-list-map-keys"
	mapTypeExtension  = "x-kubernetes-map-type"
	unknownExtension  = "x-kubernetes-preserve-unknown-fields"
	eitherExtension   = "x-kubernetes-int-or-string"
	atomic            = "atomic"
)

// ParseSchema finds the schema of a kind in an OpenAPI v3 document of its group and version.
func ParseSchema(document []byte, gvk schema.GroupVersionKind) (*Schema, error) {
	var doc spec3.OpenAPI
	if err := json.Unmarshal(document, &doc); err != nil {
		return nil, fmt.Errorf("the OpenAPI document of %s: %w", gvk.GroupVersion(), err)
	}
	if doc.Components != nil {
		for _, s := range doc.Components.Schemas {
			kinds, _ := s.Extensions[kindExtension].([]any)
			if slices.ContainsFunc(kinds, func(k any) bool { return isKind(k, gvk) }) {
				return &Schema{s}, nil
			}
		}
	}
	return nil, fmt.Errorf("the OpenAPI document of %s has no schema of a %s", gvk.GroupVersion(), gvk.Kind)
}

func isKind(k any, gvk schema.GroupVersionKind) bool {
	is, _ := k.(map[string]any)
	return is["group"] == gvk.Group && is["version"] == gvk.Version && is["kind"] == gvk.Kind
}

// anything is a schema that allows anything.
var anything = &spec.Schema{}

// of returns the schema at a path, or anything. It refuses paths to which one value cannot be applied
// without replacing others.
func (s *Schema) of(p Path) (*spec.Schema, error) {
	at := s.root
	for i := range p {
		if at.Ref.String() != "" { // of CRDs, only the metadata is a reference
			return nil, fmt.Errorf("%s cannot be set", p[:i])
		}
		if kind, _ := at.Extensions.GetString(mapTypeExtension); kind == atomic {
			return nil, fmt.Errorf("%s can only be set as a whole (%s: %s)", p[:i], mapTypeExtension, atomic)
		}
		next, err := inner(at, &p[i])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p[:i+1], err)
		}
		if next == anything {
			if slices.ContainsFunc(p[i:], func(s Segment) bool { return s.Keys != nil }) {
				return nil, fmt.Errorf("%s: an entry of a list can only be set if the schema says by which keys entries are found", p)
			}
			return anything, nil
		}
		at = next
	}
	return at, nil
}

// inner returns the schema of a member or an entry.
func inner(at *spec.Schema, s *Segment) (*spec.Schema, error) {
	if s.Keys != nil {
		kind, _ := at.Extensions.GetString(listTypeExtension)
		keys, _ := at.Extensions.GetStringSlice(listKeysExtension)
		slices.Sort(keys)
		if kind != "map" || !slices.EqualFunc(keys, s.Keys, func(name string, k Key) bool { return name == k.Name }) {
			if kind == "map" {
				return nil, fmt.Errorf("entries of the list are found by the keys %s", strings.Join(keys, ", "))
			}
			return nil, errors.New("the list can only be set as a whole")
		}
		if at.Items == nil || at.Items.Schema == nil {
			return anything, nil
		}
		return at.Items.Schema, nil
	}
	if member, found := at.Properties[s.Name]; found {
		return &member, nil
	}
	if more := at.AdditionalProperties; more != nil && more.Schema != nil {
		return more.Schema, nil
	}
	if unknown, _ := at.Extensions.GetBool(unknownExtension); unknown {
		return anything, nil
	}
	return nil, errors.New("there is no such field")
}

// convert gives a decoded value the type that the schema asks for.
func (s *Schema) convert(p Path, value any) (any, error) {
	at, err := s.of(p)
	if err != nil || at == anything {
		return value, err
	}
	text := fmt.Sprint(value)
	trimmed := strings.TrimSpace(text)
	if either, _ := at.Extensions.GetBool(eitherExtension); either {
		if n, err := strconv.ParseInt(trimmed, 10, 64); err == nil && strconv.FormatInt(n, 10) == trimmed {
			return n, nil
		}
		return value, nil
	}
	switch {
	case at.Type.Contains("string"):
		return text, nil
	case at.Type.Contains("integer"):
		if n, err := strconv.ParseInt(trimmed, 10, 64); err == nil {
			return n, nil
		}
		return nil, fmt.Errorf("%s must be an integer, and the value is none", p)
	case at.Type.Contains("number"):
		if n, err := strconv.ParseFloat(trimmed, 64); err == nil && !math.IsNaN(n) && !math.IsInf(n, 0) { // which JSON does not have
			return n, nil
		}
		return nil, fmt.Errorf("%s must be a number, and the value is none", p)
	case at.Type.Contains("boolean"):
		if b, err := strconv.ParseBool(trimmed); err == nil {
			return b, nil
		}
		return nil, fmt.Errorf("%s must be true or false, and the value is neither", p)
	case len(at.Type) == 0:
		return value, nil
	default:
		return nil, fmt.Errorf("%s is of the type %s, and only single values can be set", p, strings.Join(at.Type, ", "))
	}
}
