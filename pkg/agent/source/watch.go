// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// MaxObjects is how many objects a selector may match.
const MaxObjects = 1000

// idle is how long a watch may be silent before it is begun again. The API server sends a bookmark about every minute.
const idle = 3 * time.Minute

// NewClient returns a client of ConfigMaps, Secrets and Events.
func NewClient(config *rest.Config) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/api", &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	return rest.RESTClientFor(config)
}

// Watcher reads the objects of one source, and keeps its copy of them up to date.
type Watcher struct {
	spec    *Spec
	client  rest.Interface
	changed func()
	now     func() time.Time

	mu       sync.Mutex
	objects  map[string]*Object // by name
	synced   bool
	err      error     // of the last list or watch
	progress time.Time // when the API server, or an error, was last heard
	heard    time.Time // when the API server was last heard
}

// NewWatcher returns a watcher of a source that is no Volume. It calls changed, without waiting, whenever what it has read changes.
func NewWatcher(client rest.Interface, s *Spec, changed func()) *Watcher {
	return &Watcher{spec: s, client: client, changed: changed, now: time.Now, objects: map[string]*Object{}}
}

// Objects returns what has been read, in the order of names, and whether all of it has been.
func (w *Watcher) Objects() (out []*Object, synced bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.objects {
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b *Object) int { return strings.Compare(a.Name, b.Name) })
	return out, w.synced
}

// Health is how a watcher gets on.
type Health struct {
	// Progress is when something arrived from the API server last, or a request failed: a watcher that works makes progress every few minutes.
	Progress time.Time
	// Heard is when something arrived from the API server.
	Heard time.Time
	// Err is why the last request failed, or nil if it did not.
	Err error
}

// Health returns how the watcher gets on.
func (w *Watcher) Health() Health {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Health{w.progress, w.heard, w.err}
}

// Run reads until the context ends.
func (w *Watcher) Run(ctx context.Context) {
	w.note(nil)
	var example runtime.Object = &corev1.ConfigMap{}
	if w.spec.Kind == Secret {
		example = &corev1.Secret{}
	}
	cache.NewReflectorWithOptions(w.listWatch(), example, store{w}, cache.ReflectorOptions{Name: w.spec.String()}).RunWithContext(ctx)
}

// note notes the outcome of a request.
func (w *Watcher) note(err error) {
	w.mu.Lock()
	first := err != nil && w.err == nil
	w.progress = w.now()
	if w.err = err; err == nil {
		w.heard = w.progress
	}
	w.mu.Unlock()
	if first {
		w.changed() // it may be why there is nothing yet
	}
}

func (w *Watcher) request(options metav1.ListOptions) *rest.Request {
	if w.spec.Selector != nil {
		options.LabelSelector = w.spec.Selector.String()
	} else {
		// With this, a Role with resourceNames is enough.
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, w.spec.Name).String()
	}
	resource := "configmaps"
	if w.spec.Kind == Secret {
		resource = "secrets"
	}
	return w.client.Get().Namespace(w.spec.Namespace).Resource(resource).VersionedParams(&options, metav1.ParameterCodec)
}

func (w *Watcher) listWatch() cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			var list runtime.Object = &corev1.ConfigMapList{}
			if w.spec.Kind == Secret {
				list = &corev1.SecretList{}
			}
			err := w.request(options).Timeout(time.Minute).Do(ctx).Into(list)
			w.note(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.Watch = true
			events, err := w.request(options).Watch(ctx)
			w.note(err)
			if err != nil {
				return nil, err
			}
			silent := time.AfterFunc(idle, events.Stop)
			return watch.Filter(events, func(e watch.Event) (watch.Event, bool) {
				silent.Reset(idle)
				w.note(nil)
				return e, true
			}), nil
		},
	}
}

// store is what a reflector writes to.
type store struct{ *Watcher }

func (w store) Add(object any) error    { return w.set(object) }
func (w store) Update(object any) error { return w.set(object) }
func (w store) Resync() error           { return nil }

func (w store) set(object any) error {
	o, err := w.read(object)
	if err != nil {
		return err
	}
	w.mu.Lock()
	if _, known := w.objects[o.Name]; !known && len(w.objects) >= MaxObjects {
		w.mu.Unlock()
		return w.tooMany()
	}
	w.objects[o.Name] = o
	w.mu.Unlock()
	w.changed()
	return nil
}

func (w store) tooMany() error {
	err := fmt.Errorf("%s: more than %d match", w.spec, MaxObjects)
	w.note(err)
	return err
}

func (w store) Delete(object any) error {
	o, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	w.mu.Lock()
	delete(w.objects, o.GetName())
	w.mu.Unlock()
	w.changed()
	return nil
}

// Replace takes a list in the place of all that was known.
func (w store) Replace(list []any, _ string) error {
	objects := make(map[string]*Object, len(list))
	for _, object := range list {
		o, err := w.read(object)
		if err != nil {
			return err
		}
		objects[o.Name] = o
	}
	if len(objects) > MaxObjects {
		return w.tooMany()
	}
	w.replace(objects)
	return nil
}

func (w *Watcher) replace(objects map[string]*Object) {
	w.mu.Lock()
	w.objects, w.synced = objects, true
	w.mu.Unlock()
	w.changed()
}

// read keeps what counts of an object.
func (w store) read(object any) (*Object, error) {
	o := &Object{}
	var m *metav1.ObjectMeta
	switch object := object.(type) {
	case *corev1.ConfigMap:
		m, o.Data = &object.ObjectMeta, make(map[string][]byte, len(object.Data)+len(object.BinaryData))
		for key, value := range object.Data {
			if w.spec.reads(key) {
				o.Data[key] = []byte(value)
			}
		}
		for key, value := range object.BinaryData {
			if w.spec.reads(key) {
				o.Data[key] = value
			}
		}
	case *corev1.Secret:
		m, o.Data = &object.ObjectMeta, make(map[string][]byte, len(object.Data))
		for key, value := range object.Data {
			if w.spec.reads(key) {
				o.Data[key] = value
			}
		}
	default:
		return nil, errors.New("neither a ConfigMap nor a Secret")
	}
	o.Namespace, o.Name, o.UID, o.ResourceVersion = m.Namespace, m.Name, string(m.UID), m.ResourceVersion
	if w.spec.DirAnnotation != "" {
		o.Dir = m.Annotations[w.spec.DirAnnotation]
	}
	return o, nil
}

func (s *Spec) reads(key string) bool {
	return len(s.Keys) == 0 || slices.ContainsFunc(s.Keys, func(k Key) bool { return k.Key == key })
}
