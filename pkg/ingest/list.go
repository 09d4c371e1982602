// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// readList decodes a whole list, as the API server sends it, object by object.
func readList(answer io.Reader, s *stream) (*metav1.List, error) {
	if s.json {
		return readJSONList(answer, s)
	}
	w := newWindow(answer, 64<<10)
	defer w.clear()
	head, err := w.take(len(magic))
	if err != nil || string(head) != magic {
		return nil, errNoObject
	}
	var kind string
	var list *metav1.List
	err = w.eachField(-1, func(field protowire.Number, size int) error {
		switch field { // of runtime.Unknown
		case 1:
			typeMeta, err := w.take(size)
			if err != nil {
				return err
			}
			kind, err = kindOf(typeMeta)
			return err
		case 2:
			if kind != s.kind+"List" {
				return fmt.Errorf("a %s came instead of a %sList", kind, s.kind)
			}
			list = &metav1.List{}
			return w.eachField(size, func(field protowire.Number, size int) error { return readItem(w, s, list, field, size) })
		}
		_, err := w.take(size)
		return err
	})
	switch {
	case errors.Is(err, io.EOF):
		return nil, io.ErrUnexpectedEOF
	case err != nil:
		return nil, err
	case list == nil:
		return nil, errNoObject
	}
	return list, checkWhole(list, kind, s)
}

// checkWhole refuses a list that is not what was requested.
func checkWhole(list *metav1.List, kind string, s *stream) error {
	switch {
	case kind != s.kind+"List" && (s.optional == nil || !strings.HasSuffix(kind, "List")): // a definition may name it otherwise
		return fmt.Errorf("a %s came instead of a %sList", kind, s.kind)
	case list.Continue != "": // what it lacks would be taken for deleted
		return fmt.Errorf("a %sList came in pages, which were not requested: only whole lists are read", s.kind)
	}
	return nil
}

// readItem decodes one field of a list: its metadata, or an object, which it overwrites.
func readItem(w *window, s *stream, list *metav1.List, field protowire.Number, size int) error {
	raw, err := w.take(size)
	if err != nil {
		return err
	}
	defer clear(raw)
	switch field { // of every list
	case 1:
		return list.ListMeta.Unmarshal(raw)
	case 2:
		o, err := s.decode(raw)
		if err != nil {
			return err
		}
		list.Items = append(list.Items, runtime.RawExtension{Object: o})
	}
	return nil
}

// window is the part of a response that has been read but not decoded. Its buffer is
// reused, and no part of the response stays in it.
type window struct {
	from       io.Reader
	buffer     []byte
	size       int // of the buffer at first
	begin, end int // of it in the buffer
	taken      int // so far
}

func newWindow(answer io.Reader, size int) *window {
	return &window{from: answer, buffer: make([]byte, size), size: size}
}

// shrink gives up a buffer that was needed for a large object, once everything in it has been taken and overwritten.
func (w *window) shrink() {
	if w.begin == w.end && len(w.buffer) > 64<<10 {
		w.buffer, w.begin, w.end = make([]byte, w.size), 0, 0
	}
}

// maxObject limits what is allocated for one object. By default, etcd accepts no request
// beyond 1.5 MB.
const maxObject = 64 << 20

// take returns the next bytes. They may be changed, and are valid until the next call.
func (w *window) take(n int) ([]byte, error) {
	if n > maxObject {
		return nil, fmt.Errorf("%w: it has %d", errTooLarge, n)
	}
	if err := w.fill(n); err != nil {
		return nil, err
	}
	taken := w.buffer[w.begin : w.begin+n]
	w.begin, w.taken = w.begin+n, w.taken+n
	return taken, nil
}

// fill reads until there are n bytes.
func (w *window) fill(n int) error {
	have := w.end - w.begin
	if have >= n {
		return nil
	}
	switch {
	case n > len(w.buffer):
		larger := make([]byte, max(n, 2*len(w.buffer)))
		copy(larger, w.buffer[w.begin:w.end])
		clear(w.buffer)
		w.buffer, w.begin, w.end = larger, 0, have
	case w.begin+n > len(w.buffer):
		copy(w.buffer, w.buffer[w.begin:w.end])
		clear(w.buffer[have:w.end])
		w.begin, w.end = 0, have
	}
	read, err := io.ReadAtLeast(w.from, w.buffer[w.end:], n-have)
	w.end += read
	return err
}

func (w *window) clear() { clear(w.buffer) }

// ReadByte implements io.ByteReader.
func (w *window) ReadByte() (byte, error) {
	b, err := w.take(1)
	if err != nil {
		return 0, err
	}
	return b[0], nil
}

// eachField calls f for each length-delimited field of a message, and f takes it; numbers
// are skipped. The message has size bytes, or with -1 ends with the input.
func (w *window) eachField(size int, f func(field protowire.Number, size int) error) error {
	end := w.taken + size
	for size < 0 || w.taken < end {
		tag, err := binary.ReadUvarint(w)
		if size < 0 && errors.Is(err, io.EOF) {
			return nil // where a message may end
		}
		if err != nil {
			return err
		}
		value, err := binary.ReadUvarint(w)
		if err != nil {
			return err
		}
		switch field, typ := protowire.DecodeTag(tag); {
		case typ == protowire.VarintType:
		case typ != protowire.BytesType, value > math.MaxInt, size >= 0 && value > uint64(end-w.taken):
			return errNoObject
		default:
			if err := f(field, int(value)); err != nil {
				return err
			}
		}
	}
	if w.taken > end && size >= 0 {
		return errNoObject
	}
	return nil
}
