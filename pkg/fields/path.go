// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package fields

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

const (
	maxSegments = 16
	maxKeys     = 4 // of one entry of a list
)

// Path is the place of a field in an object. Its first segment is spec.
type Path []Segment

// Segment is the name of a member of an object, or the keys of an entry of a list.
type Segment struct {
	Name string
	Keys []Key // sorted by name; nil: it is a member
}

// Key is a field of an entry of a list, by whose value the entry is found.
type Key struct{ Name, Value string }

// String returns the path as Parse reads it.
func (p Path) String() string {
	var b strings.Builder
	for i := range p {
		s := &p[i]
		switch {
		case s.Keys != nil:
			for j, k := range s.Keys {
				b.WriteByte("[,"[min(j, 1)])
				b.WriteString(k.Name + "=" + k.Value)
			}
			b.WriteByte(']')
		case plain.FindString(s.Name) != s.Name:
			b.WriteString("['" + s.Name + "']")
		default:
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(s.Name)
		}
	}
	return b.String()
}

var (
	plain  = regexp.MustCompile(`^[A-Za-z_$][-A-Za-z0-9_$]*`)
	quoted = regexp.MustCompile(`^\['([^'\x00-\x1f]{1,253})'\]`)
	entry  = regexp.MustCompile(`^\[([^\]'\x00-\x1f]{1,512})\]`)
	keyed  = regexp.MustCompile(`^([A-Za-z_$][-A-Za-z0-9_$]*)=([^=,\]]{1,253})$`)
)

// parsePath reads the path at the beginning of a text, and returns the rest.
func parsePath(text string) (p Path, rest string, err error) {
	const allowed = "must be like spec.storage.s3.accessKey, spec.env[name=KEY].value or spec['a.b/c'].d"
	rest = "." + text
	for {
		var s Segment
		switch {
		case strings.HasPrefix(rest, "."):
			s.Name = plain.FindString(rest[1:])
			if s.Name == "" {
				return nil, "", fmt.Errorf("a field %s", allowed)
			}
			rest = rest[1+len(s.Name):]
		case quoted.MatchString(rest):
			m := quoted.FindStringSubmatch(rest)
			s.Name, rest = m[1], rest[len(m[0]):]
		case entry.MatchString(rest):
			m := entry.FindStringSubmatch(rest)
			if s.Keys, err = parseKeys(m[1]); err != nil {
				return nil, "", err
			}
			rest = rest[len(m[0]):]
		case strings.HasPrefix(rest, "["):
			return nil, "", fmt.Errorf("a field %s", allowed)
		default:
			return p, rest, p.check()
		}
		if len(p) == maxSegments {
			return nil, "", fmt.Errorf("a field must not be more than %d levels deep", maxSegments)
		}
		p = append(p, s)
	}
}

func parseKeys(text string) (keys []Key, err error) {
	for part := range strings.SplitSeq(text, ",") {
		m := keyed.FindStringSubmatch(part)
		if m == nil {
			return nil, fmt.Errorf("an entry of a list must be named by its keys, as in [name=KEY], not by %q", shorten("["+text+"]"))
		}
		if slices.ContainsFunc(keys, func(k Key) bool { return k.Name == m[1] }) {
			return nil, fmt.Errorf("the key %s of an entry of a list is named twice", m[1])
		}
		keys = append(keys, Key{m[1], m[2]})
	}
	if len(keys) > maxKeys {
		return nil, fmt.Errorf("an entry of a list must not be named by more than %d keys", maxKeys)
	}
	slices.SortFunc(keys, func(a, b Key) int { return strings.Compare(a.Name, b.Name) })
	return keys, nil
}

// check refuses a path that does not lead to a member below spec, or is a key by which an entry of a list is found.
func (p Path) check() error {
	if p[0].Name != "spec" {
		return errors.New("a field must be below spec")
	}
	last := &p[len(p)-1]
	if len(p) < 2 || last.Keys != nil {
		return errors.New("a field must be a single value below spec")
	}
	for i := 1; i < len(p); i++ {
		if p[i].Keys != nil && p[i-1].Keys != nil {
			return fmt.Errorf("%s: an entry of a list cannot be a list", p)
		}
	}
	for _, k := range p[len(p)-2].Keys {
		if k.Name == last.Name {
			return fmt.Errorf("%s names the entry of the list, and cannot be set", p)
		}
	}
	return nil
}

// overlap reports whether one of two paths is the other one, or leads to it.
func overlap(a, b Path) bool {
	n := min(len(a), len(b))
	return slices.EqualFunc(a[:n], b[:n], func(x, y Segment) bool { return x.Name == y.Name && slices.Equal(x.Keys, y.Keys) })
}

// Find returns the value at the path of a decoded object. It returns false if there is none.
func (p Path) Find(object any) (value any, found bool) {
	value = object
	for i := range p {
		s := &p[i]
		if s.Keys == nil {
			members, _ := value.(map[string]any)
			if value, found = members[s.Name]; !found {
				return nil, false
			}
			continue
		}
		list, _ := value.([]any)
		at := slices.IndexFunc(list, s.names)
		if at < 0 {
			return nil, false
		}
		value = list[at]
	}
	return value, true
}

// names reports whether a segment names an entry of a list.
func (s *Segment) names(entry any) bool {
	members, isObject := entry.(map[string]any)
	if !isObject {
		return false
	}
	for _, k := range s.Keys {
		if value, found := members[k.Name]; !found || fmt.Sprint(value) != k.Value {
			return false
		}
	}
	return true
}
