// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package fields

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// maxValue limits a value, in bytes, before and after each step. A Secret has at most 1 MiB.
const maxValue = 1 << 20

// Step decodes a value. Its Name is base64, json or yaml; the latter two take the value at a path.
type Step struct {
	Name string
	path []string
}

// String returns the step as Parse reads it.
func (s *Step) String() string {
	if s.Name == base64Step {
		return s.Name
	}
	text := s.Name + " "
	for _, name := range s.path {
		if plain.FindString(name) == name {
			text += "." + name
		} else {
			text += "['" + name + "']"
		}
	}
	return text
}

const base64Step = "base64"

func parseStep(text string) (s Step, err error) {
	name, argument, _ := strings.Cut(text, " ")
	argument = strings.TrimSpace(argument)
	s.Name = name
	switch name {
	case base64Step:
		if argument != "" {
			return s, errors.New("the step base64 takes no argument")
		}
		return s, nil
	case "json", "yaml":
		s.path, err = parseMembers(name, argument)
		return s, err
	default:
		return s, fmt.Errorf("a decoding step must be json PATH, yaml PATH or base64, got %q", shorten(text))
	}
}

// parseMembers reads a path of members, such as .spec.secretS3.accessKeyID or .data['a.b'].
func parseMembers(step, text string) (names []string, err error) {
	for rest := text; rest != ""; {
		var name string
		if m := quoted.FindStringSubmatch(rest); m != nil {
			name, rest = m[1], rest[len(m[0]):]
		} else if name = strings.TrimPrefix(rest, "."); name != rest {
			name = plain.FindString(name)
			rest = rest[1+len(name):]
		} else {
			name = ""
		}
		if name == "" {
			return nil, fmt.Errorf("the step %s takes a path such as .spec.accessKey or .data['a.b'], got %q", step, shorten(text))
		}
		names = append(names, name)
	}
	if len(names) == 0 || len(names) > maxSegments {
		return nil, fmt.Errorf("the step %s takes a path of 1 to %d names, such as .spec.accessKey", step, maxSegments)
	}
	return names, nil
}

// Decode returns the value that a field gets: a string, a json.Number or a bool. Its errors do not contain the value.
func (a *Assignment) Decode(raw []byte) (any, error) {
	var value any = string(raw)
	for i := range a.Steps {
		text, isText := value.(string)
		if !isText {
			return nil, fmt.Errorf("step %d: the value before it is no text", i+1)
		}
		if len(text) > maxValue {
			return nil, fmt.Errorf("step %d: the value has more than %d bytes", i+1, maxValue)
		}
		var err error
		if value, err = a.Steps[i].decode(text); err != nil {
			return nil, fmt.Errorf("step %d (%s): %w", i+1, a.Steps[i].Name, err)
		}
	}
	return value, nil
}

func (s *Step) decode(text string) (any, error) {
	if s.Name == base64Step {
		decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
		if err != nil {
			return nil, errors.New("the value is not base64")
		}
		return string(decoded), nil
	}
	raw := []byte(text)
	if s.Name == "yaml" {
		converted, err := yaml.YAMLToJSON(raw) // with a limit on aliases
		if err != nil {
			return nil, errors.New("the value is not YAML")
		}
		raw = converted
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) != nil {
		return nil, errors.New("the value is not JSON")
	}
	for _, name := range s.path {
		members, _ := value.(map[string]any)
		var found bool
		if value, found = members[name]; !found {
			return nil, fmt.Errorf("the value has no member %s", name)
		}
	}
	switch value.(type) {
	case string, bool, json.Number:
		return value, nil
	case nil:
		return nil, errors.New("the member is null")
	default:
		return nil, errors.New("the member is no single value")
	}
}
