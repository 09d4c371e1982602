// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
)

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
			body := &notingBody{Reader: iotest.HalfReader(bytes.NewReader(bytes.Join(test.body, nil)))}
			e := newEvents(body, streamOf(t, test.resource))
			n := 0
			var err error
			for ; err == nil; n++ {
				_, _, err = e.next()
			}
			if n-1 != test.decoded {
				t.Errorf("got %d events, then error %v", n-1, err)
			}
			e.window.clear()
			body.check(t, "at the end")
		})
	}
}

func framed(event string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(event))), event...)
}

// Events are read completely, however they arrive and whatever their size: the size of a buffer, or slightly more or less. A buffer that an event
// needed is not kept.
func TestEvents_OfAnySize(t *testing.T) {
	var body []byte
	n := 0
	for _, around := range []int{0, 4096, 65536, 1 << 20} {
		for size := max(0, around-80); size <= around+10; size++ {
			n++
			s := secretWith(password)
			s.Name, s.Data["large"] = fmt.Sprint("s", n), bytes.Repeat([]byte("x"), size)
			body = append(body, frame(t, watch.Added, inProtobuf(t, s))...)
		}
	}
	for name, arrives := range map[string]func(io.Reader) io.Reader{
		"at once": func(r io.Reader) io.Reader { return r }, "by halves": iotest.HalfReader, "with the end": iotest.DataErrReader,
	} {
		t.Run(name, func(t *testing.T) {
			e := newEvents(arrives(bytes.NewReader(bytes.Clone(body))), streamOf(t, "secrets"))
			for i := range n {
				if _, o, err := e.next(); err != nil || o.(*object).Name != fmt.Sprint("s", i+1) {
					t.Fatalf("event %d is read as %+v: %v", i+1, o, err)
				}
			}
			if _, _, err := e.next(); !errors.Is(err, io.EOF) {
				t.Errorf("error at the end = %v, want EOF", err)
			}
			if kept := len(e.window.buffer); kept > 64<<10 {
				t.Errorf("a buffer of %d bytes is kept", kept)
			}
		})
	}
	for name, tt := range map[string]struct {
		body []byte
		want error
	}{
		"in the size":  {framed("abc")[:2], io.ErrUnexpectedEOF},
		"in the event": {framed("abc")[:5], io.ErrUnexpectedEOF},
		"before it":    {framed("abc")[:4], io.ErrUnexpectedEOF},
		"too large":    {append([]byte{255, 0, 0, 1}, strings.Repeat("x", 50)...), errTooLarge},
		"of no type":   {framed(""), errNoEvent},
	} {
		if _, _, err := newEvents(bytes.NewReader(tt.body), streamOf(t, "secrets")).next(); !errors.Is(err, tt.want) {
			t.Errorf("%s: error = %v, want %v", name, err, tt.want)
		}
	}
}
