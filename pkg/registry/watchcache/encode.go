package watchcache

import (
	"bytes"
	"io"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// encodedOnce is the object of an event that many watches send. The API server encodes it
// once for each format that they ask for, and not for each of them.
type encodedOnce[T Object] struct {
	metav1.Object
	object T
	copy   func(T) T

	mu      sync.Mutex
	results map[runtime.Identifier]*encoded
	// shared is the same in the version that belongs to no replica; nil: it is not needed.
	shared *encodedOnce[T]
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
	return c.once(o)
}

func (c *Cache[T]) once(o T) *encodedOnce[T] {
	return &encodedOnce[T]{Object: o, object: o, copy: c.Copy, results: map[runtime.Identifier]*encoded{}}
}

// inShared returns what watches send of an event, in the version that belongs to no replica, that
// began at a version of another replica. They may be most of all, such as after that has gone.
func (c *Cache[T]) inShared(sent *encodedOnce[T], v version) *encodedOnce[T] {
	sent.mu.Lock()
	defer sent.mu.Unlock()
	if sent.shared == nil {
		sent.shared = c.once(c.stamp(sent.object, v))
	}
	return sent.shared
}

// CacheEncode is part of runtime.CacheableObject.
func (o *encodedOnce[T]) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	o.mu.Lock()
	r := o.results[id]
	if r == nil {
		r = &encoded{}
		o.results[id] = r
	}
	o.mu.Unlock()
	r.once.Do(func() {
		var b bytes.Buffer
		r.err = encode(o.GetObject(), &b)
		r.raw = b.Bytes()
	})
	if r.err != nil {
		return r.err
	}
	if s, ok := w.(runtime.Splice); ok {
		s.Splice(r.raw)
		return nil
	}
	_, err := w.Write(r.raw)
	return err
}

// GetObject is part of runtime.CacheableObject. Encoding changes the copy.
func (o *encodedOnce[T]) GetObject() runtime.Object { return o.copy(o.object) }

// GetObjectKind is part of runtime.Object.
func (o *encodedOnce[T]) GetObjectKind() schema.ObjectKind { return o.object.GetObjectKind() }

// DeepCopyObject is part of runtime.Object.
func (o *encodedOnce[T]) DeepCopyObject() runtime.Object { return o.object.DeepCopyObject() }
