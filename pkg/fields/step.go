// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package fields

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const (
	// maxValue limits a value, in bytes, before each step. A Secret has at most 1 MiB.
	maxValue = 1 << 20
	// maxDocument limits a document in JSON or YAML, which takes many times as much memory when it is decoded.
	maxDocument = 256 << 10
	// MaxValues limits all values of an object together, in bytes: in JSON, a byte can become six, and the API server takes 3 MiB.
	MaxValues = 512 << 10
)

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
	var text strings.Builder
	text.WriteString(s.Name + " ")
	for _, name := range s.path {
		if plain.FindString(name) == name {
			text.WriteString("." + name)
		} else {
			text.WriteString("['" + name + "']")
		}
	}
	return text.String()
}

const (
	base64Step = "base64"
	yamlStep   = "yaml"
)

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
	case "json", yamlStep:
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
		var err error
		if value, err = a.Steps[i].decode(text); err != nil {
			return nil, fmt.Errorf("step %d (%s): %w", i+1, a.Steps[i].Name, err)
		}
	}
	if text, isText := value.(string); isText && !utf8.ValidString(text) {
		return nil, errors.New("the value is not UTF-8 text")
	}
	return value, nil
}

func (s *Step) decode(text string) (any, error) {
	most := maxValue
	if s.Name != base64Step {
		most = maxDocument
	}
	if len(text) > most {
		return nil, fmt.Errorf("the value has more than %d bytes", most)
	}
	switch s.Name {
	case base64Step:
		decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
		if err != nil {
			return nil, errors.New("the value is not base64")
		}
		return string(decoded), nil
	case yamlStep:
		return s.fromYAML(text)
	default:
		return s.fromJSON(text)
	}
}

func (s *Step) fromJSON(text string) (any, error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) != nil {
		return nil, errors.New("the value is not JSON")
	}
	for _, name := range s.path {
		members, _ := value.(map[string]any)
		var found bool
		if value, found = members[name]; !found {
			return nil, noMember(name)
		}
	}
	switch value.(type) {
	case string, bool, json.Number:
		return value, nil
	case nil:
		return nil, errNull
	default:
		return nil, errNotSingle
	}
}

var (
	errNull      = errors.New("the member is null")
	errNotSingle = errors.New("the member is no single value")
)

func noMember(name string) error { return fmt.Errorf("the value has no member %s", name) }

// fromYAML walks the nodes of a document, which is never decoded as a whole: with aliases, a small one can stand for any amount.
func (s *Step) fromYAML(text string) (any, error) {
	var document yaml.Node
	if yaml.Unmarshal([]byte(text), &document) != nil || len(document.Content) != 1 {
		return nil, errors.New("the value is not YAML")
	}
	node := document.Content[0]
	for _, name := range s.path {
		next := memberOf(node, name)
		if next == nil {
			return nil, noMember(name)
		}
		node = next
	}
	switch {
	case node.Kind == yaml.AliasNode:
		return nil, errors.New("the member is an alias, which is not followed")
	case node.Kind != yaml.ScalarNode:
		return nil, errNotSingle
	}
	switch node.ShortTag() {
	case "!!null":
		return nil, errNull
	case "!!bool":
		if text := strings.ToLower(node.Value); text == "true" || text == "false" {
			return text == "true", nil
		}
	case "!!int", "!!float":
		if number.MatchString(node.Value) {
			return json.Number(node.Value), nil
		}
	}
	return node.Value, nil // a tag may say anything of it
}

// number matches the numbers of JSON.
var number = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

// memberOf returns the value of a member of a mapping; nil: there is none.
func memberOf(node *yaml.Node, name string) *yaml.Node {
	if node.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if key := node.Content[i]; key.Kind == yaml.ScalarNode && key.Value == name {
			return node.Content[i+1]
		}
	}
	return nil
}
