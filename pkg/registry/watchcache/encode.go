// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"bytes"
	"io"
	"math"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
)

// encodedOnce is an object that many watches send. The API server encodes it once for each format that
// they ask for, and not for each of them.
type encodedOnce[T Object] struct {
	metav1.Object
	object T
	copy   func(T) T

	mu      sync.Mutex
	results map[runtime.Identifier]*encoded
	// shared is the same in the version that belongs to no replica, and blank in one in the place of
	// which any other can be put; nil: it is not needed.
	shared, blank *encodedOnce[T]
}

type encoded struct {
	once sync.Once
	raw  []byte
	err  error
}

// encodeOnce returns what watches send of an event: the object, or if it has gone the one
// before in the version of the deletion.
func (c *Cache[T]) encodeOnce(e *event[T]) *encodedOnce[T] {
	var none T
	o := e.object
	if o == none {
		o = c.stamp(e.previous, e.version)
	}
	return once(c.Copy, o)
}

func once[T Object](copied func(T) T, o T) *encodedOnce[T] {
	return &encodedOnce[T]{Object: o, object: o, copy: copied}
}

// as returns the object in a version. That which belongs to no replica may be of most watches, such
// as after another replica has gone; others are of few.
func (o *encodedOnce[T]) as(v version) runtime.Object {
	own, _ := parseVersion(o.GetResourceVersion())
	switch v {
	case own:
		return o
	case own.shared():
		return o.inVersion(&o.shared, v.String())
	}
	version := v.String()
	if len(version) < leastPlaceholder {
		return o.stamped(version)
	}
	return &relabelled[T]{o.inVersion(&o.blank, placeholder[:len(version)]), version}
}

func (o *encodedOnce[T]) inVersion(kept **encodedOnce[T], version string) *encodedOnce[T] {
	o.mu.Lock()
	defer o.mu.Unlock()
	if *kept == nil || (*kept).GetResourceVersion() != version {
		*kept = once(o.copy, o.stamped(version))
	}
	return *kept
}

// stamped returns a copy of the object in a version.
func (o *encodedOnce[T]) stamped(version string) T {
	out := o.copy(o.object)
	out.SetResourceVersion(version)
	return out
}

// result returns an encoding.
func (o *encodedOnce[T]) result(id runtime.Identifier, encode func(runtime.Object, io.Writer) error) ([]byte, error) {
	o.mu.Lock()
	r := o.results[id]
	if r == nil {
		if o.results == nil {
			o.results = map[runtime.Identifier]*encoded{}
		}
		r = &encoded{}
		o.results[id] = r
	}
	o.mu.Unlock()
	r.once.Do(func() {
		var b bytes.Buffer
		r.err = encode(o.GetObject(), &b)
		r.raw = b.Bytes()
	})
	return r.raw, r.err
}

// CacheEncode implements runtime.CacheableObject.
func (o *encodedOnce[T]) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	raw, err := o.result(id, encode)
	if err != nil {
		return err
	}
	return splice(w, raw)
}

// splice writes what is not changed any more.
func splice(w io.Writer, raw []byte) error {
	if s, ok := w.(runtime.Splice); ok {
		s.Splice(raw)
		return nil
	}
	_, err := w.Write(raw)
	return err
}

// GetObject implements runtime.CacheableObject. Encoding changes the copy.
func (o *encodedOnce[T]) GetObject() runtime.Object { return o.copy(o.object) }

// GetObjectKind implements runtime.Object.
func (o *encodedOnce[T]) GetObjectKind() schema.ObjectKind { return o.object.GetObjectKind() }

// DeepCopyObject implements runtime.Object.
func (o *encodedOnce[T]) DeepCopyObject() runtime.Object { return o.object.DeepCopyObject() }

// placeholder begins with what stands for a version in encodings in which any of as many characters
// can be put in its place. It is random, so that nothing else in an object is the same, if it has at
// least so many. Versions have, once there were 120 writes to etcd.
var placeholder = utilrand.String(len(version(math.MaxInt64).String()))

const leastPlaceholder = 10

// relabelled is an object in a version that few watches send. What they send differs in that alone.
type relabelled[T Object] struct {
	*encodedOnce[T] // under the placeholder
	version         string
}

// CacheEncode implements runtime.CacheableObject.
func (o *relabelled[T]) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	raw, err := o.result(id, encode)
	if err != nil {
		return err
	}
	return splice(w, bytes.ReplaceAll(raw, []byte(placeholder[:len(o.version)]), []byte(o.version)))
}

// GetObject implements runtime.CacheableObject.
func (o *relabelled[T]) GetObject() runtime.Object { return o.stamped(o.version) }

// GetResourceVersion implements metav1.Object.
func (o *relabelled[T]) GetResourceVersion() string { return o.version }

// DeepCopyObject implements runtime.Object.
func (o *relabelled[T]) DeepCopyObject() runtime.Object {
	out := o.object.DeepCopyObject().(T)
	out.SetResourceVersion(o.version)
	return out
}
