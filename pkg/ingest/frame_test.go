// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	restclientwatch "k8s.io/client-go/rest/watch"
)

// events decodes a watch as client-go does, and records the buffers into which it is read.
type events struct {
	*restclientwatch.Decoder
	buffers *[][]byte
}

func decodeEvents(t *testing.T, resource string, body io.Reader) *events {
	t.Helper()
	info := serializer{&objectDecoder{streamOf(t, resource)}}.SupportedMediaTypes()[0]
	noting := &notingReader{ReadCloser: info.StreamSerializer.NewFrameReader(io.NopCloser(body))}
	return &events{restclientwatch.NewDecoder(streaming.NewDecoder(noting, info.StreamSerializer.Serializer), info.Serializer), &noting.buffers}
}

type notingReader struct {
	io.ReadCloser
	buffers [][]byte
}

func (r *notingReader) Read(p []byte) (int, error) {
	r.buffers = append(r.buffers, p)
	return r.ReadCloser.Read(p)
}

// largeSecret returns a Secret that contains the password a few hundred thousand times.
func largeSecret() *corev1.Secret {
	s := secretWith(password)
	s.Data["large"] = bytes.Repeat([]byte(password), 50_000)
	return s
}

// workloadWith returns a workload with a literal value in its environment.
func workloadWith(value string) *corev1.Pod {
	p := &corev1.Pod{}
	p.Namespace, p.Name, p.ResourceVersion = "shop", "toolbox", "7"
	p.Spec.Containers = []corev1.Container{{Name: "app", Env: []corev1.EnvVar{{Name: "PASSWORD", Value: value}}}}
	return p
}

// Nothing of an event is left in memory, whatever the event: neither in the buffer that contained it, nor in buffers that
// were too small.
func TestNothingIsLeftOfEvents(t *testing.T) {
	secret, large := inProtobuf(t, secretWith(password)), inProtobuf(t, largeSecret())
	status := []byte("k8s\x00\x0a\x0c\x0a\x02v1\x12\x06Secret\x12") // its size is missing
	for name, test := range map[string]struct {
		resource string
		body     [][]byte
		decoded  int
	}{
		"events that need larger and larger buffers": {
			"secrets", [][]byte{frame(t, watch.Added, secret), frame(t, watch.Modified, large), frame(t, watch.Deleted, secret)}, 3,
		},
		"a workload":                     {"pods", [][]byte{frame(t, watch.Added, inProtobuf(t, workloadWith(password)))}, 1},
		"a workload instead of a Secret": {"secrets", [][]byte{frame(t, watch.Added, inProtobuf(t, workloadWith(password)))}, 0},
		"a corrupt object":               {"secrets", [][]byte{frame(t, watch.Added, append(bytes.Clone(status), "\xff"+password...))}, 0},
		"a corrupt event":                {"secrets", [][]byte{framed("\x0a\x05ADDED\x12\x7f" + password)}, 0},
		"no object":                      {"secrets", [][]byte{frame(t, watch.Added, []byte(password))}, 0},
		"an event that breaks off": {
			"secrets", [][]byte{frame(t, watch.Added, secret), frame(t, watch.Modified, large)[:200_000]}, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := decodeEvents(t, test.resource, iotest.HalfReader(bytes.NewReader(bytes.Join(test.body, nil))))
			n := 0
			var err error
			for ; err == nil; n++ {
				_, _, err = e.Decode()
				for _, b := range *e.buffers {
					if bytes.Contains(b, []byte(password)) {
						t.Errorf("after event %d, a buffer of %d bytes holds the password", n, len(b))
					}
				}
			}
			if n-1 != test.decoded {
				t.Errorf("got %d events, then error %v", n-1, err)
			}
			if len(*e.buffers) == 0 {
				t.Error("no buffer was recorded")
			}
		})
	}
}

func framed(event string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(event))), event...)
}

// noted is a decoder that records the size of its input.
type noted struct{ size int }

// Decode implements runtime.Decoder.
func (n *noted) Decode(data []byte, _ *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	n.size = bytes.Count(data, []byte("x"))
	return into, nil, nil
}

// Events are read completely, however they arrive and whatever their size: the size of a buffer, or slightly more or less.
func TestFrames(t *testing.T) {
	var sizes []int
	var body []byte
	for _, around := range []int{0, 1, 2, 1024, 2048, 4096, 65536} {
		for size := max(0, around-15); size <= around+15; size++ {
			sizes = append(sizes, size)
			body = append(body, framed(strings.Repeat("x", size))...)
		}
	}
	for name, arrives := range map[string]func(io.Reader) io.Reader{
		"at once": func(r io.Reader) io.Reader { return r }, "by halves": iotest.HalfReader, "byte by byte": iotest.OneByteReader, "with the end": iotest.DataErrReader,
	} {
		t.Run(name, func(t *testing.T) {
			into := &noted{}
			d := streaming.NewDecoder(newFramer().NewFrameReader(io.NopCloser(arrives(bytes.NewReader(body)))), into)
			for i, size := range sizes {
				if _, _, err := d.Decode(nil, nil); err != nil {
					t.Fatalf("event %d of %d bytes: %v", i, size, err)
				}
				if into.size != size {
					t.Fatalf("event %d has %d bytes, want %d", i, into.size, size)
				}
			}
			if _, _, err := d.Decode(nil, nil); !errors.Is(err, io.EOF) {
				t.Errorf("error at the end = %v, want EOF", err)
			}
		})
	}
	for name, body := range map[string]struct {
		body []byte
		want error
	}{
		"in the size":  {framed("abc")[:2], io.ErrUnexpectedEOF},
		"in the event": {framed("abc")[:5], io.ErrUnexpectedEOF},
		"too large":    {append([]byte{1, 0, 0, 1}, strings.Repeat("x", 50)...), streaming.ErrObjectTooLarge},
	} {
		d := streaming.NewDecoder(newFramer().NewFrameReader(io.NopCloser(bytes.NewReader(body.body))), &noted{})
		if _, _, err := d.Decode(nil, nil); !errors.Is(err, body.want) {
			t.Errorf("%s: error = %v", name, err)
		}
	}
}
