// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// magic precedes every object that the API server encodes in protobuf.
const magic = "k8s\x00"

var errNoObject = errors.New("the response is not a protobuf object")

// decodeAny decodes an object of the stream, or an error of the API server, as they come in a watch.
func (s *stream) decodeAny(raw []byte) (runtime.Object, error) {
	if s.json {
		return s.decodeTyped(raw)
	}
	return s.decodeEnvelope(raw)
}

// decodeEnvelope decodes an envelope: the kind, and the object itself.
func (s *stream) decodeEnvelope(data []byte) (runtime.Object, error) {
	if len(data) < len(magic) || string(data[:len(magic)]) != magic {
		return nil, errNoObject
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
		return nil, err
	}
	switch kind {
	case s.kind:
		return s.decode(raw)
	case "Status":
		status := &metav1.Status{}
		return status, status.Unmarshal(raw)
	default:
		return nil, fmt.Errorf("a %s came instead of a %s", kind, s.kind)
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
	isData := func(field protowire.Number) bool {
		return field == dataField || field == binaryDataField && d.kind == dependency.ConfigMap
	}
	n := 0
	err := eachField(raw, func(field protowire.Number, _ []byte) error {
		if isData(field) {
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
		case isData(field):
			key, err := d.key(value)
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

// blankAnnotations overwrites the values of annotations that no dialect reads: one of them, kubectl's
// last-applied-configuration, contains all content again.
func blankAnnotations(metadata []byte, dialects policy.Dialects) error {
	return eachField(metadata, func(field protowire.Number, entry []byte) error {
		if field != annotationsField {
			return nil
		}
		key, value, err := entryOf(entry)
		if !dialects.Owns(key) {
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
