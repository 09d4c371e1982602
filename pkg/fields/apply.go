// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package fields

import (
	"encoding/json"
	"fmt"
)

// Value is an assignment with its decoded value.
type Value struct {
	*Assignment
	Value any
}

// Configuration returns the fields of an object that are applied: nested maps, in which entries of lists have their keys. It gives each
// of the values the type that the schema asks for. Its errors name fields and types, and no values.
func Configuration(s *Schema, values []Value) (map[string]any, error) {
	out := map[string]any{}
	for i := range values {
		v := &values[i]
		typed, err := s.convert(v.Path, v.Value)
		if err != nil {
			return nil, err
		}
		v.Value = typed
		if err := s.put(out, v.Path, typed); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// put sets a value in a configuration.
func (s *Schema) put(out map[string]any, p Path, value any) error {
	at := out
	for i := 0; i < len(p)-1; i++ {
		name := p[i].Name
		if keys := p[i+1].Keys; keys != nil { // the member is a list
			list, _ := at[name].([]any)
			i++
			found := -1
			for j := range list {
				if p[i].names(list[j]) {
					found = j
				}
			}
			if found < 0 {
				entry := map[string]any{}
				for _, k := range keys {
					typed, err := s.convert(append(p[:i+1:i+1], Segment{Name: k.Name}), k.Value)
					if err != nil {
						return err
					}
					if _, isText := typed.(string); !isText { // the entry is looked for by the text
						if text := string(Canonical(typed)); text != k.Value {
							return fmt.Errorf("%s: the key %s must be written as %s", p[:i+1], k.Name, text)
						}
					}
					entry[k.Name] = typed
				}
				list, found = append(list, entry), len(list)
				at[name] = list
			}
			at = list[found].(map[string]any) //nolint:forcetypeassert // made above
			continue
		}
		member, _ := at[name].(map[string]any)
		if member == nil {
			member = map[string]any{}
			at[name] = member
		}
		at = member
	}
	at[p[len(p)-1].Name] = value
	return nil
}

// Canonical returns a text that is the same for equal values of a field, to be digested. A number is the same however it is written.
func Canonical(value any) []byte {
	if n, isNumber := value.(json.Number); isNumber {
		if i, err := n.Int64(); err == nil {
			value = i
		} else if f, err := n.Float64(); err == nil {
			value = f
		}
	}
	if f, isFloat := value.(float64); isFloat && f == float64(int64(f)) {
		value = int64(f)
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return nil // impossible: it was decoded from JSON
	}
	return raw
}
