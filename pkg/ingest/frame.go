// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"encoding/binary"
	"io"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// framer separates the events of a watch in protobuf, each of which is preceded by its
// size.
type framer struct{ runtime.Framer }

func newFramer() runtime.Framer { return framer{protobuf.LengthDelimitedFramer} }

// NewFrameReader implements runtime.Framer.
func (framer) NewFrameReader(r io.ReadCloser) io.ReadCloser { return &frameReader{ReadCloser: r} }

// frameReader reads an event only into a buffer that has room for it: the decoder of client-go begins with a small
// buffer, doubles it as long as it is too small, and leaves the old one to the garbage collector, where content could
// be found until the memory is reused. The decoder has to get some data each time, so it gets one byte, which precedes
// any content.
type frameReader struct {
	io.ReadCloser
	left int // bytes of the event
}

// Read reads the rest of an event, or returns io.ErrShortBuffer.
func (r *frameReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		var size [4]byte
		if _, err := io.ReadFull(r.ReadCloser, size[:]); err != nil {
			return 0, err
		}
		r.left = int(binary.BigEndian.Uint32(size[:]))
	}
	take := r.left
	if take > len(p) {
		take = min(1, len(p))
	}
	n, err := io.ReadFull(r.ReadCloser, p[:take])
	r.left -= n
	switch {
	case err != nil:
		clear(p[:n])
		return 0, err
	case r.left > 0:
		return n, io.ErrShortBuffer
	}
	return n, nil
}
