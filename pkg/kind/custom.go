// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// The limits of what is kept of one object. What is beyond makes the workload truncated.
const (
	// maxTemplates is how many pod templates are kept.
	maxTemplates = 256
	// maxValues is how many values are kept.
	maxValues = 20_000
	// maxText is the size of the longest text that counts as a value.
	maxText = 4 << 10
)

// custom is an object of a kind that a Descriptor describes: its metadata, and what the descriptor names.
type custom struct {
	metav1.TypeMeta
	metav1.ObjectMeta

	layout *layout
	// values are those at the paths of the descriptor, as decoded JSON without anything else.
	values any
	// templates are the pod templates at each path of the descriptor.
	templates [][]*corev1.PodTemplateSpec
	truncated bool
}

// DeepCopyObject implements runtime.Object. What the descriptor names is shared: it never changes.
func (c *custom) DeepCopyObject() runtime.Object {
	out := *c
	c.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// UnmarshalJSON reads an object. A part that is not what the descriptor says is as good as missing, so that the odd object of one tenant
// cannot keep others from being read. Only invalid JSON and metadata that no API server sends are errors. It keeps nothing of raw.
func (c *custom) UnmarshalJSON(raw []byte) error {
	if !json.Valid(raw) { // limits the depth, too; and from here on, nothing needs to be checked
		return errors.New("invalid JSON")
	}
	r := &reader{raw: raw, left: maxValues, templates: make([][]*corev1.PodTemplateSpec, len(c.layout.templates))}
	if r.next() != '{' {
		return errors.New("not a JSON object")
	}
	var metadata []byte
	values, kept := r.walk([]*node{c.layout.tree}, func(name string, value []byte) {
		switch name {
		case "apiVersion":
			c.APIVersion = textOf(value)
		case "kind":
			c.Kind = textOf(value)
		case "metadata":
			metadata = value
		}
	})
	c.ObjectMeta, c.values = metav1.ObjectMeta{}, nil
	if kept {
		c.values = values
	}
	if metadata != nil {
		if err := utiljson.Unmarshal(metadata, &c.ObjectMeta); err != nil {
			return fmt.Errorf("decoding metadata: %w", err)
		}
	}
	delete(c.Annotations, corev1.LastAppliedConfigAnnotation) // as large as the object
	c.templates, c.truncated = r.templates, r.truncated
	return nil
}

// node is a place in objects that paths of a descriptor lead to.
type node struct {
	names map[string]*node
	all   *node
	// value: a text, number or boolean is kept.
	value bool
	// template is the number of the path of pod templates that ends here, from 1; 0: none does.
	template int
}

// at returns the node at the end of a path.
func (n *node) at(p Path) *node {
	for _, s := range p.segments {
		next := n.all
		if !s.all {
			next = n.names[s.name]
		}
		if next == nil {
			next = &node{}
			switch {
			case s.all:
				n.all = next
			case n.names == nil:
				n.names = map[string]*node{s.name: next}
			default:
				n.names[s.name] = next
			}
		}
		n = next
	}
	return n
}

// reads reports whether the value at a path, or one that it is part of, is kept. Of the names of the path, entry reports which are entries of
// lists.
func (n *node) reads(names []string, entry func(i int) bool) (found bool) {
	n.follow(names, entry, func(at []*node) bool {
		found = slices.ContainsFunc(at, func(n *node) bool { return n.value })
		return !found
	})
	return found
}

// follow calls f for the nodes at each part of a path, beginning with the shortest, until f returns false.
func (n *node) follow(names []string, entry func(i int) bool, f func([]*node) bool) {
	at := []*node{n}
	for i, name := range names {
		var next []*node
		for _, n := range at {
			if named := n.names[name]; named != nil && !entry(i) {
				next = append(next, named)
			}
			if n.all != nil {
				next = append(next, n.all)
			}
		}
		if at = next; !f(at) {
			return
		}
	}
}

// reader reads valid JSON. Its time is linear in the bytes and in the number of paths.
type reader struct {
	raw       []byte
	at        int
	left      int // how many more values are kept
	templates [][]*corev1.PodTemplateSpec
	kept      int // templates
	truncated bool
}

// next skips white space, and returns the next character.
func (r *reader) next() byte {
	for {
		switch c := r.raw[r.at]; c {
		case ' ', '\t', '\n', '\r':
			r.at++
		default:
			return c
		}
	}
}

// walk reads a value that is at some nodes, and returns the parts of it that they name. The next character must be its first one. Member, if
// it is not nil, is called for each member of the value.
func (r *reader) walk(nodes []*node, member func(name string, value []byte)) (value any, kept bool) {
	start := r.at
	is := func(what func(*node) bool) bool { return slices.ContainsFunc(nodes, what) }
	switch first := r.raw[start]; {
	case first == '{' && (member != nil || is(func(n *node) bool { return n.names != nil || n.all != nil })):
		value, kept = r.object(nodes, member)
	case first == '[' && is(func(n *node) bool { return n.all != nil }):
		value, kept = r.list(nodes)
	default:
		r.skip()
		if is(func(n *node) bool { return n.value }) {
			value, kept = r.scalar(r.raw[start:r.at])
		}
	}
	for _, n := range nodes {
		if n.template > 0 && r.raw[start] == '{' {
			r.template(n.template-1, r.raw[start:r.at])
		}
	}
	return value, kept
}

func (r *reader) object(nodes []*node, member func(name string, value []byte)) (any, bool) {
	var out map[string]any
	var within []*node
	for r.at++; r.next() != '}'; {
		name := r.name()
		within = within[:0]
		for _, n := range nodes {
			if next := n.names[name]; next != nil {
				within = append(within, next)
			}
			if n.all != nil {
				within = append(within, n.all)
			}
		}
		r.next()
		start := r.at
		if len(within) == 0 {
			r.skip()
		} else if value, kept := r.walk(within, nil); kept {
			if out == nil {
				out = map[string]any{}
			}
			out[name] = value
		}
		if member != nil {
			member(name, r.raw[start:r.at])
		}
		if r.next() == ',' {
			r.at++
		}
	}
	r.at++
	return out, out != nil
}

// list reads a list, and leaves out elements of which nothing is kept: paths do not count them.
func (r *reader) list(nodes []*node) (any, bool) {
	var out []any
	within := make([]*node, 0, len(nodes))
	for _, n := range nodes {
		if n.all != nil {
			within = append(within, n.all)
		}
	}
	for r.at++; r.next() != ']'; {
		if value, kept := r.walk(within, nil); kept {
			out = append(out, value)
		}
		if r.next() == ',' {
			r.at++
		}
	}
	r.at++
	return out, out != nil
}

// name reads the name of a member, and the colon after it.
func (r *reader) name() string {
	start := r.at
	r.skip()
	name := textOf(r.raw[start:r.at])
	r.next()
	r.at++
	return name
}

// skip skips a value.
func (r *reader) skip() {
	for depth := 0; ; {
		switch r.next() {
		case '{', '[':
			depth++
			r.at++
		case '}', ']':
			depth--
			r.at++
		case ',', ':': // within an object or a list
			r.at++
		case '"':
			for r.at++; r.raw[r.at] != '"'; r.at++ {
				if r.raw[r.at] == '\\' {
					r.at++
				}
			}
			r.at++
		default:
			for r.at < len(r.raw) && isPart(r.raw[r.at]) {
				r.at++
			}
		}
		if depth == 0 {
			return
		}
	}
}

// isPart reports whether a character is part of a number or a literal.
func isPart(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '+' || c == '.' || c == 'E'
}

// textOf returns a JSON string; "" for another value.
func textOf(raw []byte) (text string) {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	if inner := raw[1 : len(raw)-1]; !slices.ContainsFunc(inner, func(c byte) bool { return c == '\\' || c >= 0x80 }) {
		return string(inner)
	}
	if json.Unmarshal(raw, &text) != nil {
		return ""
	}
	return text
}

// scalar decodes a value as scalarOf does, while fewer than maxValues have been kept.
func (r *reader) scalar(raw []byte) (value any, kept bool) {
	if value, kept = scalarOf(raw); !kept {
		return nil, false
	}
	if r.left == 0 {
		r.truncated = true
		return nil, false
	}
	r.left--
	return value, true
}

// scalarOf decodes a text that is not too long, a number or a boolean.
func scalarOf(raw []byte) (value any, kept bool) {
	switch {
	case len(raw) > maxText:
		return nil, false
	case raw[0] == '"':
		return textOf(raw), true
	case raw[0] == 't', raw[0] == 'f':
		return raw[0] == 't', true
	case raw[0] == '-', '0' <= raw[0] && raw[0] <= '9':
		if i, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
			return i, true
		}
		f, err := strconv.ParseFloat(string(raw), 64)
		return f, err == nil
	default:
		return nil, false
	}
}

// textFrom returns a value as a text: labels of custom resources without a schema may be numbers.
func textFrom(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case bool, int64, float64:
		return fmt.Sprint(v)
	default:
		return ""
	}
}

// template decodes a pod template, or a whole Pod.
func (r *reader) template(path int, raw []byte) {
	if r.kept == maxTemplates {
		r.truncated = true
		return
	}
	template := &corev1.PodTemplateSpec{}
	if utiljson.Unmarshal(raw, template) != nil {
		return
	}
	r.kept++
	r.templates[path] = append(r.templates[path], template)
}
