// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
)

// Custom resources, such as a kind of workload of another project, are read in JSON, because the API server has no other format for them. They are also read object by
// object, with the same limit on each. None of them is a ConfigMap or a Secret.

var errNoJSON = errors.New("the response is not a JSON object")

// readJSONList decodes a whole list, as the API server sends it, object by object.
func readJSONList(answer io.Reader, s *stream) (*metav1.List, error) {
	bounded := &boundedReader{from: answer}
	bounded.next()
	d := json.NewDecoder(bounded)
	list, kind := &metav1.List{}, ""
	err := eachMember(d, func(name string) error {
		bounded.next()
		switch name {
		case "kind": // comes after the items, as the members are in alphabetical order
			return d.Decode(&kind)
		case "metadata":
			return d.Decode(&list.ListMeta)
		case "items":
			return readJSONItems(d, bounded, s, list)
		default:
			var other json.RawMessage
			return d.Decode(&other)
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

// readJSONItems decodes the objects of a list.
func readJSONItems(d *json.Decoder, bounded *boundedReader, s *stream, list *metav1.List) error {
	var raw json.RawMessage // its memory is used again and again
	return eachItem(d, func() error {
		bounded.next()
		if err := d.Decode(&raw); err != nil {
			return err
		}
		o, err := s.decode(raw)
		if err != nil {
			return err
		}
		list.Items = append(list.Items, runtime.RawExtension{Object: o})
		return nil
	})
}

// eachItem calls f for each element of an array, which f reads.
func eachItem(d *json.Decoder, f func() error) error {
	switch begin, err := d.Token(); {
	case err != nil:
		return err
	case begin == nil: // null
		return nil
	case begin != json.Delim('['):
		return errNoJSON
	}
	for d.More() {
		if err := f(); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

// eachMember calls f for each member of an object, whose value f reads.
func eachMember(d *json.Decoder, f func(name string) error) error {
	if begin, err := d.Token(); err != nil {
		return err
	} else if begin != json.Delim('{') {
		return errNoJSON
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		if err := f(name.(string)); err != nil { // the decoder sees to that
			return err
		}
	}
	_, err := d.Token()
	return err
}

// boundedReader limits what is read for one object.
type boundedReader struct {
	from io.Reader
	left int
}

// next begins the next object.
func (r *boundedReader) next() { r.left = maxObject }

// Read implements io.Reader.
func (r *boundedReader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, fmt.Errorf("an object of more than %d bytes is not read", maxObject)
	}
	n, err := r.from.Read(p[:min(len(p), r.left)])
	r.left -= n
	return n, err
}

// jsonFramer separates the events of a watch in JSON.
type jsonFramer struct{ runtime.Framer }

func newJSONFramer() runtime.Framer { return jsonFramer{jsonserializer.Framer} }

// NewFrameReader implements runtime.Framer.
func (f jsonFramer) NewFrameReader(r io.ReadCloser) io.ReadCloser {
	bounded := &boundedReader{from: r}
	bounded.next()
	return &jsonFrameReader{f.Framer.NewFrameReader(struct {
		io.Reader
		io.Closer
	}{bounded, r}), bounded}
}

// jsonFrameReader reads events of limited size.
type jsonFrameReader struct {
	io.ReadCloser
	bounded *boundedReader
}

// Read reads an event, or the rest of one; with io.ErrShortBuffer there is more of it.
func (r *jsonFrameReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if err == nil {
		r.bounded.next()
	}
	return n, err
}

// jsonDecoder decodes the objects of a stream, and errors.
type jsonDecoder struct{ *stream }

// Decode implements runtime.Decoder.
func (d jsonDecoder) Decode(data []byte, _ *schema.GroupVersionKind, _ runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	var t metav1.TypeMeta
	if err := json.Unmarshal(data, &t); err != nil {
		return nil, nil, errNoJSON
	}
	gvk := t.GroupVersionKind()
	switch t.Kind {
	case d.kind:
		o, err := d.decode(data)
		return o, &gvk, err
	case "Status":
		status := &metav1.Status{}
		return status, &gvk, json.Unmarshal(data, status)
	default:
		return nil, nil, fmt.Errorf("a %s came instead of a %s", t.Kind, d.kind)
	}
}

// jsonEventDecoder decodes a watch event, without the object in it.
type jsonEventDecoder struct{}

// Decode implements runtime.Decoder.
func (jsonEventDecoder) Decode(data []byte, _ *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	event, ok := into.(*metav1.WatchEvent)
	if !ok {
		return nil, nil, fmt.Errorf("a watch event cannot be decoded into a %T", into)
	}
	defer clear(data) // it may contain values of Secrets, in fields
	return event, nil, json.Unmarshal(data, event)
}
