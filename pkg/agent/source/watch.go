// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

const (
	// MaxObjects is how many objects a selector may match.
	MaxObjects = 1000
	// pageSize is how many objects are asked for at a time.
	pageSize = 100
)

// pace is how long things take.
type pace struct {
	list     time.Duration // for one page
	answer   time.Duration // until a watch begins
	watch    time.Duration // at least, of each watch; at most twice as long
	idle     time.Duration // how long a watch may be silent: the API server sends a bookmark about every minute. Then the objects are listed
	min, max time.Duration // between two tries after failures
}

var defaultPace = pace{list: time.Minute, answer: time.Minute, watch: 5 * time.Minute, idle: 3 * time.Minute, min: time.Second, max: 30 * time.Second}

// Watcher reads the objects of one source, and keeps its copy of them up to date.
//
// It is no informer of client-go, since a hundred of these take three times the memory: each has several goroutines, and the types of all
// of Kubernetes come with them. One goroutine lists and watches here, and keeps what counts of each object while it is decoded.
type Watcher struct {
	spec     *Spec
	client   *Client
	changed  func()
	pace     pace
	maxBytes int

	mu      sync.Mutex
	objects map[string]*Object // by name
	synced  bool
	health  Health
}

// NewWatcher returns a watcher of a source that is no Volume, whose objects may have so many bytes together. It calls changed, which must
// not wait, whenever what it has read changes.
func NewWatcher(client *Client, s *Spec, maxBytes int, changed func()) *Watcher {
	return &Watcher{spec: s, client: client, maxBytes: maxBytes, changed: changed, pace: defaultPace, objects: map[string]*Object{}}
}

// Objects returns what has been read, in the order of names, and whether all of it has been.
func (w *Watcher) Objects() (out []*Object, synced bool) {
	w.mu.Lock()
	objects, synced := w.objects, w.synced // the map is not changed, but replaced
	w.mu.Unlock()
	for _, o := range objects {
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b *Object) int { return strings.Compare(a.Name, b.Name) })
	return out, synced
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
	return w.health
}

// Run reads until the context ends.
func (w *Watcher) Run(ctx context.Context) {
	failures, version := 0, ""
	for ctx.Err() == nil {
		var err error
		begun, listed := time.Now(), version == ""
		if listed {
			version, err = w.list(ctx)
		}
		if err == nil {
			version, err = w.watch(ctx, version)
		}
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errSilent): // it may have lost what has changed
			version, failures = "", 0
			continue
		case (err == nil || errors.Is(err, io.EOF)) && time.Since(begun) >= w.pace.min: // the watch has ended
			if failures = 0; time.Since(begun) < w.pace.watch {
				version = "" // too early, as when the API server ends, which may be for a restore of etcd
			}
			continue
		case err == nil || errors.Is(err, io.EOF):
			err = errors.New("the API server ended the watch at once")
		case expired(err) && !listed:
			version = ""
			failures = 0
			continue
		}
		if w.note(err) {
			klog.FromContext(ctx).Error(err, "A source cannot be read, will retry", "source", w.spec.String())
		}
		failures++
		// What is wrong with it may be what is wrong; and while no API server answers, etcd may be restored, after which others write as
		// many revisions again.
		version = ""
		delay := min(w.pace.min<<min(failures-1, 10), w.pace.max)
		select {
		case <-time.After(delay/2 + rand.N(delay/2+1)): //nolint:gosec // no secret
		case <-ctx.Done():
		}
	}
}

// hear notes that the API server has been heard.
func (w *Watcher) hear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.health.Progress = time.Now()
	w.health.Heard = w.health.Progress
}

// note notes the outcome of a request, and reports whether it is a failure of another kind than the last one.
func (w *Watcher) note(err error) (failed bool) {
	if err == nil {
		w.hear()
	}
	failed = err != nil && kindOf(err) != kindOf(w.health.Err) // only this goroutine writes it
	changed := failed || refused(err) != refused(w.health.Err)
	w.mu.Lock()
	w.health.Err, w.health.Progress = err, time.Now()
	w.mu.Unlock()
	if changed {
		w.changed() // it may be why there is nothing yet, or not what there is now
	}
	return failed
}

// LimitError is returned for objects or files that are too many, or too large together. Unlike with other errors, it is known that what
// was read last is not what there is now.
type LimitError struct{ what string }

func (e *LimitError) Error() string { return e.what }

func refused(err error) bool {
	_, is := errors.AsType[*LimitError](err)
	return is
}

// kindOf returns what an error says without numbers, such as those of ports, which differ each time.
func kindOf(err error) string {
	if err == nil {
		return ""
	}
	return WithoutNumbers(err.Error())
}

// WithoutNumbers returns a text without digits.
func WithoutNumbers(s string) string {
	return strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return -1
		}
		return r
	}, s)
}

// query returns the parameters of each request: with a name, a Role with resourceNames is enough.
func (w *Watcher) query() url.Values {
	if w.spec.Selector != nil {
		return url.Values{"labelSelector": {w.spec.Selector.String()}}
	}
	return url.Values{"fieldSelector": {"metadata.name=" + w.spec.Name}}
}

func (w *Watcher) path() string {
	resource := "configmaps"
	if w.spec.Kind == Secret {
		resource = "secrets"
	}
	return "/api/v1/namespaces/" + w.spec.Namespace + "/" + resource
}

// list reads all objects, and takes them in the place of all that was known.
func (w *Watcher) list(ctx context.Context) (version string, err error) {
	objects, size := map[string]*Object{}, 0
	query := w.query()
	query.Set("limit", strconv.Itoa(pageSize))
	for {
		page, cancel := context.WithTimeoutCause(ctx, w.pace.list, fmt.Errorf("no answer within %v", w.pace.list))
		var meta listMeta
		meta, err = w.client.list(page, w.path(), query, func(o *apiObject) error {
			read, err := w.read(o)
			if err != nil {
				return err
			}
			size += read.size
			objects[read.Name] = read
			return w.limit(len(objects), size)
		})
		cancel()
		if errors.Is(err, io.EOF) { // which is no end of a watch
			err = errUnanswered
		}
		if err != nil {
			return "", err
		}
		w.hear()
		if meta.Continue == "" {
			version = meta.ResourceVersion
			break
		}
		query.Set("continue", meta.Continue)
	}
	w.mu.Lock()
	w.objects, w.synced = objects, true
	if refused(w.health.Err) {
		w.health.Err = nil
	} // another one counts as the same as long as no watch can be opened
	w.mu.Unlock()
	w.changed()
	return version, nil
}

// limit returns an error if objects are too many, or too large together.
func (w *Watcher) limit(objects, size int) error {
	switch {
	case objects > MaxObjects:
		return &LimitError{fmt.Sprintf("more than %d objects match", MaxObjects)}
	case size > w.maxBytes:
		return &LimitError{fmt.Sprintf("the content has more than %d bytes", w.maxBytes)}
	}
	return nil
}

var errUnanswered = errors.New("the connection ended without an answer")

// errSilent: nothing has arrived in a watch for too long.
var errSilent = errors.New("the watch is silent")

// watch follows the changes after a version, and returns the version of the last. The error is io.EOF if the watch ended as it should.
func (w *Watcher) watch(ctx context.Context, version string) (string, error) {
	long := w.pace.watch + rand.N(w.pace.watch)                               //nolint:gosec // no secret
	ctx, cancel := context.WithTimeoutCause(ctx, long+w.pace.list, errSilent) // it should have ended by itself
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	silent := time.AfterFunc(w.pace.idle, func() { stop(errSilent) })
	defer silent.Stop()
	unanswered := time.AfterFunc(w.pace.answer, func() { stop(fmt.Errorf("no answer within %v", w.pace.answer)) })
	defer unanswered.Stop()
	answered := false
	opened := func() {
		answered = true
		unanswered.Stop()
		w.note(nil)
	}
	query := w.query()
	query.Set("watch", "true")
	query.Set("resourceVersion", version)
	query.Set("allowWatchBookmarks", "true")
	query.Set("timeoutSeconds", strconv.Itoa(int(long.Seconds())))
	err := w.client.watch(ctx, w.path(), query, opened, func(kind string, o *apiObject) error {
		silent.Reset(w.pace.idle)
		w.note(nil)
		if err := w.take(kind, o); err != nil {
			return err
		}
		version = o.Metadata.ResourceVersion
		return nil
	})
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case !answered && errors.Is(err, io.EOF): // which is no end of a watch
		err = errUnanswered
	}
	return version, err
}

// take takes an event.
func (w *Watcher) take(kind string, o *apiObject) error {
	next := maps.Clone(w.objects) // only this goroutine writes them
	switch kind {
	case "ADDED", "MODIFIED":
		read, err := w.read(o)
		if err != nil {
			return err
		}
		next[read.Name] = read
		size := 0
		for _, object := range next {
			size += object.size
		}
		if err := w.limit(len(next), size); err != nil {
			return err
		}
	case "DELETED":
		delete(next, o.Metadata.Name)
	default: // a bookmark
		return nil
	}
	w.mu.Lock()
	w.objects = next
	w.mu.Unlock()
	w.changed()
	return nil
}

// read keeps what counts of an object.
func (w *Watcher) read(from *apiObject) (*Object, error) {
	m := &from.Metadata
	o := &Object{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, Created: m.Created, Data: map[string][]byte{}}
	if w.spec.DirAnnotation != "" {
		o.Dir = m.Annotations[w.spec.DirAnnotation]
	}
	for key, value := range from.Data {
		if !w.spec.reads(key) {
			continue
		}
		if w.spec.Kind == Secret {
			n, err := base64.StdEncoding.Decode(value, value)
			if err != nil {
				return nil, fmt.Errorf("%s: key %q is not in base64", w.spec, key) // without what it is
			}
			value = value[:n]
		}
		o.Data[key] = value
	}
	for key, value := range from.BinaryData {
		if w.spec.reads(key) {
			o.Data[key] = value
		}
	}
	for key, value := range o.Data {
		o.size += len(key) + len(value)
	}
	return o, nil
}

func (s *Spec) reads(key string) bool {
	return len(s.Keys) == 0 || slices.ContainsFunc(s.Keys, func(k Key) bool { return k.Key == key })
}
