// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// parse reads values, which are one document.
func parse(text []byte) (values map[string]any, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&values); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	var more any
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("there must be one document, not several separated by ---")
	}
	return values, nil
}

// kind is what a value must be: it returns the value as it is in the output. Otherwise, allowed says what is allowed.
type kind func(value any) (converted any, allowed string)

func boolean(value any) (any, string) {
	if _, is := value.(bool); !is {
		return nil, "must be true or false"
	}
	return value, ""
}

func text(value any) (any, string) {
	if _, is := value.(string); !is {
		return nil, "must be text; put it in quotes"
	}
	return value, ""
}

// whole is a whole number that is not negative.
func whole(value any) (any, string) {
	if n, is := value.(int); !is || n < 0 {
		return nil, "must be a whole number, and not negative"
	}
	return value, ""
}

// numberOrText is for numbers and percentages of pods.
func numberOrText(value any) (any, string) {
	if n, is := value.(int); is && n >= 0 {
		return value, ""
	}
	if _, is := value.(string); !is {
		return nil, "must be a whole number or a percentage"
	}
	return value, ""
}

func mapping(value any) (any, string) {
	if _, is := value.(map[string]any); !is {
		return nil, "must be a map"
	}
	return value, ""
}

// texts is a map of texts, such as labels.
func texts(value any) (any, string) {
	m, is := value.(map[string]any)
	if !is {
		return nil, "must be a map"
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if _, is := m[key].(string); !is {
			return nil, fmt.Sprintf("must have text for %s; put it in quotes", key)
		}
	}
	return value, ""
}

// objects is a list of maps.
func objects(value any) (any, string) {
	list, is := value.([]any)
	if !is || slices.ContainsFunc(list, func(element any) bool { _, is := element.(map[string]any); return !is }) {
		return nil, "must be a list of maps"
	}
	return value, ""
}

// secretNames is a list of references to Secrets, as in a pod. In the output it has names alone.
func secretNames(value any) (any, string) {
	const allowed = "must be a list of {name: SECRET}"
	list, is := value.([]any)
	if !is {
		return nil, allowed
	}
	names := make([]any, len(list))
	for i, element := range list {
		reference, _ := element.(map[string]any)
		name, is := reference["name"].(string)
		if !is || len(reference) != 1 {
			return nil, allowed
		}
		names[i] = name
	}
	return names, ""
}

// names is a list, or a text with commas. In the output it is a list, without names that are repeated.
func names(value any) (any, string) {
	const allowed = "must be a list of names, or names separated by commas"
	var all []string
	switch value := value.(type) {
	case string:
		all = strings.Split(value, ",")
	case []any:
		for _, element := range value {
			name, is := element.(string)
			if !is {
				return nil, allowed
			}
			all = append(all, name)
		}
	default:
		return nil, allowed
	}
	out := []any{}
	for _, name := range all {
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(out, any(name)) {
			out = append(out, name)
		}
	}
	return out, ""
}

// oneOf is a text out of some.
func oneOf(allowed ...string) kind {
	return func(value any) (any, string) {
		if s, is := value.(string); !is || !slices.Contains(allowed, s) {
			return nil, "must be one of " + strings.Join(allowed, ", ")
		}
		return value, ""
	}
}

// empty reports whether a value says nothing, as in charts.
func empty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case string:
		return value == ""
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	}
	return false
}
