// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Custom resources, such as a kind of workload of another project, are read in JSON, because the API server has no other format for them. They
// are also read object by object, with the same limit on each. None of them is a ConfigMap or a Secret, but fields may contain values of
// Secrets, so the buffers are overwritten too. The buffer of a json.Decoder cannot be.

var errNoJSON = errors.New("the response is not a JSON object")

// readJSONList decodes a whole list, as the API server sends it, object by object.
func readJSONList(answer io.Reader, s *stream) (*metav1.List, error) {
	w := newWindow(answer, 64<<10)
	defer w.clear()
	list, kind := &metav1.List{}, ""
	err := w.eachMember(func(name string) error {
		switch name {
		case "kind": // comes after the items, as the members are in alphabetical order
			return w.decodeJSON(&kind)
		case "metadata":
			return w.decodeJSON(&list.ListMeta)
		case "items":
			return readJSONItems(w, s, list)
		default:
			var other json.RawMessage
			return w.decodeJSON(&other)
		}
	})
	switch {
	case errors.Is(err, io.EOF):
		return nil, io.ErrUnexpectedEOF
	case err != nil:
		return nil, err
	}
	return list, checkWhole(list, kind, s)
}

// readJSONItems decodes the objects of a list, each of which it overwrites.
func readJSONItems(w *window, s *stream, list *metav1.List) error {
	return w.eachItem(func() error {
		raw, err := w.takeJSON()
		if err != nil {
			return err
		}
		defer clear(raw)
		o, err := s.decode(raw)
		if err != nil {
			return err
		}
		list.Items = append(list.Items, runtime.RawExtension{Object: o})
		return nil
	})
}

// decodeJSON decodes the next value.
func (w *window) decodeJSON(into any) error {
	raw, err := w.takeJSON()
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

// eachMember calls f for each member of an object, whose value f takes.
func (w *window) eachMember(f func(name string) error) error {
	return w.eachElement('{', '}', func() error {
		var name string
		if err := w.decodeJSON(&name); err != nil {
			return err
		}
		if err := w.takeCharacter(':'); err != nil {
			return err
		}
		return f(name)
	})
}

// eachItem calls f for each element of an array or null, which f takes.
func (w *window) eachItem(f func() error) error {
	switch first, err := w.peek(); {
	case err != nil:
		return err
	case first == 'n':
		var null []json.RawMessage
		return w.decodeJSON(&null)
	}
	return w.eachElement('[', ']', f)
}

// eachElement calls f for each element between two brackets, which f takes.
func (w *window) eachElement(open, end byte, f func() error) error {
	if err := w.takeCharacter(open); err != nil {
		return err
	}
	for first := true; ; first = false {
		switch next, err := w.peek(); {
		case err != nil:
			return err
		case next == end:
			return w.takeCharacter(end)
		}
		if !first {
			if err := w.takeCharacter(','); err != nil {
				return err
			}
		}
		if err := f(); err != nil {
			return err
		}
	}
}

// takeCharacter takes the next character, which must be a certain one.
func (w *window) takeCharacter(want byte) error {
	switch next, err := w.peek(); {
	case err != nil:
		return err
	case next != want:
		return errNoJSON
	}
	_, err := w.take(1)
	return err
}

// peek returns the next character that is not white space. It does not take it.
func (w *window) peek() (byte, error) {
	for range maxObject {
		if w.begin == w.end {
			if err := w.more(); err != nil {
				return 0, err
			}
		}
		switch c := w.buffer[w.begin]; c {
		case ' ', '\t', '\n', '\r':
			w.begin++
		default:
			return c, nil
		}
	}
	return 0, errTooLarge
}

var errTooLarge = fmt.Errorf("an object of more than %d bytes is not read", maxObject)

// more reads at least one more byte.
func (w *window) more() error {
	have := w.end - w.begin
	if have >= maxObject {
		return errTooLarge
	}
	return w.fill(have + 1)
}

// takeJSON takes the next value, as take does. It only finds its end: what decodes the value sees whether it is valid. io.EOF means that
// there is none.
func (w *window) takeJSON() ([]byte, error) {
	if _, err := w.peek(); err != nil {
		return nil, err
	}
	var end jsonEnd
	for n := 0; ; n++ {
		if w.begin+n == w.end {
			switch err := w.more(); {
			case errors.Is(err, io.EOF):
				return nil, io.ErrUnexpectedEOF
			case err != nil:
				return nil, err
			}
		}
		switch before, after := end.at(w.buffer[w.begin+n]); {
		case before && n == 0:
			return nil, errNoJSON
		case before:
			return w.take(n)
		case after:
			return w.take(n + 1)
		}
	}
}

// jsonEnd finds the end of a JSON value.
type jsonEnd struct {
	depth         int
	text, escaped bool // within a text, and after a backslash there
}

// at reports whether the value ends before or after its next character.
func (e *jsonEnd) at(c byte) (before, after bool) {
	switch {
	case e.escaped:
		e.escaped = false
	case e.text:
		e.escaped, e.text = c == '\\', c != '"'
		return false, !e.text && e.depth == 0
	case c == '"':
		e.text = true
	case c == '{', c == '[':
		e.depth++
	case e.depth > 0:
		if c == '}' || c == ']' {
			e.depth--
		}
		return false, e.depth == 0
	default:
		return strings.IndexByte(" \t\n\r,:]}", c) >= 0, false // after a number, or a word such as null
	}
	return false, false
}

// decodeTyped decodes an object that names its kind.
func (s *stream) decodeTyped(raw []byte) (runtime.Object, error) {
	var t metav1.TypeMeta
	if err := json.Unmarshal(raw, &t); err != nil {
		return nil, errNoJSON
	}
	switch t.Kind {
	case s.kind:
		return s.decode(raw)
	case "Status":
		status := &metav1.Status{}
		err := json.Unmarshal(raw, status)
		if s.hushes() {
			hush(status)
		}
		return status, err
	default:
		return nil, fmt.Errorf("a %s came instead of a %s", t.Kind, s.kind)
	}
}

// hushes reports whether errors about the objects are hushed, since fields may have values of sources.
func (s *stream) hushes() bool { return s.optional != nil && s.optional.Traits.Fields }

// hush removes from an error of the API server what may quote an object, as the text of a webhook that failed to convert it. What
// clients decide by stays.
func hush(status *metav1.Status) {
	status.Message = "the API server answered with " + string(status.Reason) + "; its text is not shown, because it may contain values of fields"
	if status.Details == nil {
		return
	}
	details := &metav1.StatusDetails{RetryAfterSeconds: status.Details.RetryAfterSeconds}
	for _, c := range status.Details.Causes {
		details.Causes = append(details.Causes, metav1.StatusCause{Type: c.Type})
	}
	status.Details = details
}
