// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// magic precedes every object that the API server encodes in protobuf.
const magic = "k8s\x00"

var errNoObject = errors.New("the response is not a protobuf object")

// objectDecoder decodes everything except lists that an API server sends: the objects of
// a stream, and errors.
type objectDecoder struct{ *stream }

// Decode decodes an envelope: the kind, and the object itself. It overwrites what it decodes, or
// fails to decode, except errors of the API server, which client-go may read again.
func (d *objectDecoder) Decode(data []byte, _ *schema.GroupVersionKind, _ runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	o, gvk, err := d.decodeEnvelope(data)
	if _, isStatus := o.(*metav1.Status); !isStatus {
		clear(data)
	}
	return o, gvk, err
}

func (d *objectDecoder) decodeEnvelope(data []byte) (runtime.Object, *schema.GroupVersionKind, error) {
	if len(data) < len(magic) || string(data[:len(magic)]) != magic {
		return nil, nil, errNoObject
	}
	var kind string
	var raw []byte
	err := eachField(data[len(magic):], func(field protowire.Number, value []byte) (err error) {
		switch field { // of runtime.Unknown
		case 1:
			kind, err = kindOf(value)
		case 2:
			raw = value
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	gvk := &schema.GroupVersionKind{Version: "v1", Kind: kind}
	switch kind {
	case d.kind:
		o, err := d.decode(raw)
		return o, gvk, err
	case "Status":
		status := &metav1.Status{}
		return status, gvk, status.Unmarshal(raw)
	default:
		return nil, nil, fmt.Errorf("a %s came instead of a %s", kind, d.kind)
	}
}

// kindOf returns the kind that a runtime.TypeMeta names.
func kindOf(typeMeta []byte) (kind string, err error) {
	err = eachField(typeMeta, func(field protowire.Number, value []byte) error {
		if field == 2 {
			kind = string(value)
		}
		return nil
	})
	return kind, err
}

// eventDecoder decodes a watch event without a copy of the object in it. The decoder of
// the object is done with it, and overwrites it, before the buffer is used again.
type eventDecoder struct{}

// Decode implements runtime.Decoder.
func (eventDecoder) Decode(data []byte, _ *schema.GroupVersionKind, into runtime.Object) (_ runtime.Object, _ *schema.GroupVersionKind, err error) {
	defer func() {
		if err != nil {
			clear(data)
		}
	}()
	event, ok := into.(*metav1.WatchEvent)
	if !ok {
		return nil, nil, fmt.Errorf("a watch event cannot be decoded into a %T", into)
	}
	err = eachField(data, func(field protowire.Number, value []byte) error {
		switch field { // of meta/v1 WatchEvent
		case 1:
			event.Type = string(value)
		case 2:
			return eachField(value, func(field protowire.Number, value []byte) error {
				if field == 1 { // of RawExtension
					event.Object.Raw = value
				}
				return nil
			})
		}
		return nil
	})
	return event, nil, err
}

// sourceDecoder decodes ConfigMaps or Secrets: it digests their values in place, so no
// object with content is ever created.
type sourceDecoder struct {
	kind     dependency.SourceKind
	dialects policy.Dialects
	digester *dependency.Digester
}

// The fields of core/v1 ConfigMap and Secret. The second of a Secret is its data.
const (
	metadataField   = 1
	dataField       = 2
	binaryDataField = 3 // of a ConfigMap; the type of a Secret
	immutableField  = 4 // of a ConfigMap; that of a Secret is the next

	annotationsField = 12 // of meta/v1 ObjectMeta
)

func (d *sourceDecoder) decode(raw []byte) (*object, error) {
	var m metav1.ObjectMeta
	isBinary := func(field protowire.Number) bool { return field == binaryDataField && d.kind == dependency.ConfigMap }
	n := 0
	err := eachField(raw, func(field protowire.Number, _ []byte) error {
		if field == dataField || isBinary(field) {
			n++
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	keys := make([]dependency.KeyDigest, 0, n) // they are kept, so that no more is allocated than there are
	immutable := false
	err = eachValue(raw, func(field protowire.Number, value []byte, number uint64) error {
		binary := isBinary(field)
		switch {
		case value == nil: // a number
			if field == immutableField && d.kind == dependency.ConfigMap || field == immutableField+1 && d.kind == dependency.Secret {
				immutable = number != 0
			}
		case field == metadataField:
			if err := blankAnnotations(value, d.dialects); err != nil {
				return err
			}
			return m.Unmarshal(value)
		case field == dataField || binary:
			key, err := d.key(value)
			key.Binary = binary
			keys = append(keys, key)
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return reduced(&m, func(metav1.Object) (any, error) {
		s := dependency.NewSource(d.kind, &m, d.dialects.ReadSource(m.Annotations), keys)
		s.Immutable = immutable
		return s, nil
	})
}

// decodeMetadata decodes the metadata of an object, and nothing else.
func decodeMetadata(raw []byte, dialects policy.Dialects) (*metav1.ObjectMeta, error) {
	m := &metav1.ObjectMeta{}
	err := eachField(raw, func(field protowire.Number, value []byte) error {
		if field != metadataField {
			return nil
		}
		if err := blankAnnotations(value, dialects); err != nil {
			return err
		}
		return m.Unmarshal(value)
	})
	return m, err
}

// blankAnnotations overwrites the values of annotations that no dialect reads and that do not
// belong to bookmarks: one of them, kubectl's last-applied-configuration, contains all content
// again.
func blankAnnotations(metadata []byte, dialects policy.Dialects) error {
	return eachField(metadata, func(field protowire.Number, entry []byte) error {
		if field != annotationsField {
			return nil
		}
		key, value, err := entryOf(entry)
		if !dialects.Owns(key) && key != metav1.InitialEventsAnnotationKey {
			clear(value)
		}
		return err
	})
}

// key digests an entry of a map, and overwrites its value.
func (d *sourceDecoder) key(entry []byte) (dependency.KeyDigest, error) {
	key, value, err := entryOf(entry)
	return dependency.KeyDigest{Key: key, Digest: d.digester.Content(value)}, err
}

// entryOf returns an entry of a map, with the value in place.
func entryOf(entry []byte) (key string, value []byte, err error) {
	err = eachField(entry, func(field protowire.Number, content []byte) error {
		switch field {
		case 1:
			key = string(content)
		case 2:
			value = content
		}
		return nil
	})
	return key, value, err
}

// eachField calls f for each length-delimited field of a message; others are skipped.
func eachField(message []byte, f func(protowire.Number, []byte) error) error {
	return eachValue(message, func(field protowire.Number, value []byte, _ uint64) error {
		if value == nil { // a number
			return nil
		}
		return f(field, value)
	})
}
