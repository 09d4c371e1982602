// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/utils/clock"
)

// store is a cache behind the interface of the storage of kube-apiserver, so that the
// tests of the latter can run against it. A write is an input of the next revision that
// causes one change.
type store struct {
	storage.Interface // nil: what no test needs
	cache             *Cache[*example.Pod]
	versions          versions
	transformer       value.Transformer // if any, it is called when a list or watch reads an object

	mu sync.Mutex
	at []version // by revision: the version after it
}

// versions says what clients see of the versions of the cache.
type versions int

const (
	// asTheyAre shows them unchanged. A client gets back to the replica that it knows.
	asTheyAre versions = iota
	// ofNeighbour hides which replica they are from, so that it may be another.
	ofNeighbour
	// asRevisions shows the revision instead, as some tests calculate with it, or compare
	// the version of a first page with that of an object.
	asRevisions
)

const podPrefix = "/pods/"

func newStore(v versions) *store {
	c := New(Config[*example.Pod]{
		New:   func() *example.Pod { return &example.Pod{} },
		Copy:  func(o *example.Pod) *example.Pod { c := *o; return &c },
		Key:   func(o *example.Pod) string { return o.Namespace + "/" + o.Name },
		Clock: clock.RealClock{},
		Tag:   1,
	})
	c.Replace(nil, nil, 1, 0)
	return &store{cache: c, versions: v, at: []version{0, c.latest.Load().version}}
}

// show returns what the client sees of a version.
func (s *store) show(rv string) string {
	v, err := parseVersion(rv)
	switch {
	case err != nil || v == 0 || s.versions == asTheyAre:
		return rv
	case s.versions == ofNeighbour:
		return v.shared().String()
	default:
		return strconv.FormatUint(v.watermark(), 10)
	}
}

// read returns the version that a client means.
func (s *store) read(rv string) string {
	n, err := strconv.ParseUint(rv, 10, 63)
	if err != nil || n == 0 || s.versions != asRevisions {
		return rv
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n < uint64(len(s.at)) {
		return s.at[n].String()
	}
	return newVersion(min(n, maxWatermark), 0, s.cache.Tag).String()
}

// showToken and readToken do the same for continue tokens.
func (s *store) showToken(token, prefix string) string {
	key, rv, err := storage.DecodeContinue(token, "/")
	if err != nil || s.versions != asRevisions {
		return token
	}
	v, last, _ := strings.Cut(key[1:], "/")
	if rv > 0 {
		rv = int64(mustParse(s.show(v)))
	}
	return encodeToken(podPrefix+last+"\x00", prefix, rv)
}

func (s *store) readToken(token, prefix string) string {
	key, rv, err := storage.DecodeContinue(token, prefix)
	if err != nil || s.versions != asRevisions {
		return token
	}
	// Those of etcd tell where the page begins, not the last key of the page before.
	last, after := strings.CutSuffix(strings.TrimPrefix(key, podPrefix), "\x00")
	if !after {
		last = last[:len(last)-1] + string(last[len(last)-1]-1) + "~"
	}
	if rv < 0 {
		return encodeToken("/0/"+last, "/", rv)
	}
	v := s.read(strconv.FormatInt(rv, 10))
	return encodeToken("/"+v+"/"+last, "/", int64(mustParse(v).shared()))
}

func encodeToken(key, prefix string, rv int64) string {
	token, err := storage.EncodeContinue(key, prefix, rv)
	if err != nil {
		panic(err)
	}
	return token
}

func mustParse(rv string) version {
	v, err := parseVersion(rv)
	if err != nil {
		panic(err)
	}
	return v
}

// write applies an input. The lock is held.
func (s *store) write(key string, o *example.Pod) {
	revision := uint64(len(s.at))
	s.cache.Apply(revision, []Change[*example.Pod]{{Key: cacheKey(key), Object: o, Cause: revision}})
	s.at = append(s.at, s.cache.latest.Load().version)
}

// progress counts a revision that is no input of the cache.
func (s *store) progress(context.Context, *testing.T) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	revision := len(s.at)
	s.cache.Progress(uint64(revision))
	s.at = append(s.at, s.cache.latest.Load().version)
	return int64(revision)
}

// compact forgets the events up to a version, as time does. In an etcd that is a write.
func (s *store) compact(ctx context.Context, t *testing.T, rv string) {
	t.Helper()
	v := mustParse(s.read(rv))
	c := s.cache
	c.change(func() {
		least := c.MinEvents
		after := c.events.after(v)
		c.MinEvents = int(after.end - after.start)
		c.trim(c.Clock.Now().Add(2 * c.History))
		c.MinEvents = least
	})
	s.progress(ctx, t)
}

// split returns the namespace and name that a key stands for.
func split(key string, recursive bool) (namespace, name string) {
	key = strings.TrimPrefix(key, podPrefix)
	if recursive {
		return strings.TrimSuffix(key, "/"), ""
	}
	if namespace, name, found := strings.Cut(key, "/"); found {
		return namespace, name
	}
	return "", key
}

func cacheKey(key string) string {
	namespace, name := split(key, false)
	return namespace + "/" + name
}

func (s *store) present(ctx context.Context, key string) *example.Pod {
	// As in an etcd, a write goes on when its client has gone.
	o, found, err := s.cache.Get(context.WithoutCancel(ctx), cacheKey(key), "")
	if err != nil || !found {
		return nil
	}
	return o.DeepCopy()
}

// give gives an object to a client.
func (s *store) give(o *example.Pod, out runtime.Object) {
	if out != nil {
		pod := out.(*example.Pod)
		*pod = *o
		pod.ResourceVersion = s.show(o.ResourceVersion)
	}
}

func (s *store) Create(ctx context.Context, key string, obj, out runtime.Object, _ uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.present(ctx, key) != nil {
		return storage.NewKeyExistsError(key, 0)
	}
	s.write(key, obj.(*example.Pod).DeepCopy())
	s.give(s.present(ctx, key), out)
	return nil
}

func (s *store) Delete(ctx context.Context, key string, out runtime.Object, _ *storage.Preconditions, _ storage.ValidateObjectFunc, _ runtime.Object, _ storage.DeleteOptions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.present(ctx, key)
	if o == nil {
		return storage.NewKeyNotFoundError(key, 0)
	}
	s.write(key, nil)
	o.ResourceVersion = s.at[len(s.at)-1].String()
	s.give(o, out)
	return nil
}

func (s *store) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool, _ *storage.Preconditions, update storage.UpdateFunc, _ runtime.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.present(ctx, key)
	switch {
	case o == nil && !ignoreNotFound:
		return storage.NewKeyNotFoundError(key, 0)
	case o == nil:
		o = &example.Pod{}
	}
	updated, _, err := update(o, storage.ResponseMeta{})
	if err != nil {
		return err
	}
	s.write(key, updated.(*example.Pod).DeepCopy())
	s.give(s.present(ctx, key), out)
	return nil
}

// patience is how long a client waits for a version from the future.
const patience = time.Second

func (s *store) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	o, found, err := s.cache.Get(ctx, cacheKey(key), s.read(opts.ResourceVersion))
	switch {
	case err != nil:
		return err
	case found:
		s.give(o, out)
		return nil
	case opts.IgnoreNotFound:
		*out.(*example.Pod) = example.Pod{}
		return nil
	default:
		return storage.NewKeyNotFoundError(key, 0)
	}
}

// matches returns what selects the objects of a request in its namespace; nil: all.
func (s *store) matches(ctx context.Context, opts storage.ListOptions, name string) func(*example.Pod) bool {
	if opts.Recursive && opts.Predicate.Empty() && s.transformer == nil {
		return nil
	}
	return func(o *example.Pod) bool {
		if s.transformer != nil {
			if _, _, err := s.transformer.TransformFromStorage(ctx, nil, value.DefaultContext{}); err != nil {
				panic(err)
			}
		}
		matches, err := opts.Predicate.Matches(o)
		return matches && err == nil && (opts.Recursive || o.Name == name)
	}
}

func (s *store) GetList(ctx context.Context, key string, opts storage.ListOptions, out runtime.Object) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	namespace, name := split(key, opts.Recursive)
	prefix := strings.TrimSuffix(key, "/") + "/"
	list, err := s.cache.List(ctx, ListOptions[*example.Pod]{
		Namespace:            namespace,
		Matches:              s.matches(ctx, opts, name),
		ResourceVersion:      s.read(opts.ResourceVersion),
		ResourceVersionMatch: opts.ResourceVersionMatch,
		Limit:                opts.Predicate.Limit,
		Continue:             s.readToken(opts.Predicate.Continue, prefix),
	})
	if status := (*apierrors.StatusError)(nil); errors.As(err, &status) {
		status.ErrStatus.Continue = s.showToken(status.ErrStatus.Continue, prefix)
	}
	if err != nil {
		return err
	}
	pods := &example.PodList{Items: make([]example.Pod, len(list.Items)), ListMeta: metav1.ListMeta{
		ResourceVersion:    s.show(list.ResourceVersion),
		Continue:           s.showToken(list.Continue, prefix),
		RemainingItemCount: list.Remaining,
	}}
	for i, o := range list.Items {
		s.give(o, &pods.Items[i])
	}
	*out.(*example.PodList) = *pods
	return nil
}

func (s *store) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	namespace, name := split(key, opts.Recursive)
	w, err := s.cache.Watch(ctx, WatchOptions[*example.Pod]{
		Namespace:         namespace,
		Matches:           s.matches(ctx, opts, name),
		MatchesOwn:        s.matches(ctx, opts, name),
		ResourceVersion:   s.read(opts.ResourceVersion),
		SendInitialEvents: opts.SendInitialEvents,
		AllowBookmarks:    opts.Predicate.AllowWatchBookmarks || opts.ProgressNotify,
	})
	if err != nil || s.versions == asTheyAre {
		return w, err
	}
	return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
		if shared, ok := e.Object.(runtime.CacheableObject); ok {
			e.Object = shared.GetObject()
		}
		if pod, ok := e.Object.(*example.Pod); ok {
			pod.ResourceVersion = s.show(pod.ResourceVersion)
		}
		return e, true
	}), nil
}

func (s *store) Stats(context.Context) (storage.Stats, error) {
	objects, _, _ := s.cache.Stats()
	return storage.Stats{ObjectCount: int64(objects)}, nil
}

func (s *store) GetCurrentResourceVersion(context.Context) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return uint64(mustParse(s.show(s.at[len(s.at)-1].String()))), nil
}

// UpdatePrefixTransformer is what a test calls to write while a list or watch reads.
func (s *store) UpdatePrefixTransformer(f storagetesting.PrefixTransformerModifier) func() {
	s.transformer = f(storagetesting.NewPrefixTransformer(nil, false))
	return func() { s.transformer = nil }
}
