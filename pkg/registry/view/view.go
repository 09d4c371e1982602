// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/registry/watchcache"
)

// View computes the object of every item into a watch cache. It is a sink of the index: whatever changes is
// rendered at once, so that reading costs no work. That is done on snapshots of the graph, in the order
// of what happened. Only what reads the cache waits for it.
type View[K comparable, O any, P Object[O]] struct {
	resource schema.GroupResource
	renderer Renderer[K, O]
	meant    func(name string) (rule string, names []string)
	clock    clock.PassiveClock
	due      workqueue.TypedDelayingInterface[K] // that time alone changes
	// See maxPiece and maxBacklog.
	piece, backlog int
	cache          *watchcache.Cache[P]

	mu     sync.Mutex
	queue  []*step[K]    // what has yet to be rendered
	more   chan struct{} // has an element when there is something in the queue
	lives  int           // counts Reset
	states map[string]int

	rendering sync.Mutex       // is held while a step is taken, and guards the rest
	now       decide.Evaluator // without a graph: everything has been forgotten, or nothing waits
	progress  dependency.Progress
	// waiting are the items that time alone will change. While there are any, the graph of the
	// last step is kept.
	waiting sets.Set[K]
}

// Config is what a View is made from.
type Config[K comparable, O any] struct {
	Resource schema.GroupResource // as errors name it
	Renderer Renderer[K, O]
	// Meant returns how objects are named, and which names a client may have meant by one that does not exist; empty: it is a proper name. Nil: all are.
	Meant func(name string) (rule string, names []string)
	// HistoryBytes bounds about how much memory the events of the last minutes keep; 0: the default.
	HistoryBytes int
	Clock        clock.WithTicker
}

// New returns a View that has not synced. Run has to be called, even if only to end it.
func New[K comparable, O any, P Object[O]](c Config[K, O]) *View[K, O, P] {
	return &View[K, O, P]{
		resource: c.Resource,
		renderer: c.Renderer,
		meant:    c.Meant,
		clock:    c.Clock,
		due: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[K]{
			Clock: c.Clock,
		}),
		cache: watchcache.New(watchcache.Config[P]{
			New:      func() P { return new(O) },
			Copy:     func(o P) P { c := *o; return &c },
			Key:      func(o P) string { return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}.String() },
			NotReady: NotReady,
			Size:     func(o, other P) int { return c.Renderer.Size(o, other) },
			MaxBytes: c.HistoryBytes,
			Clock:    c.Clock,
			Tag:      uint16(rand.Uint32()), //nolint:gosec // no secrets
			First:    uint16(rand.Uint32()), //nolint:gosec // likewise
			Epoch:    rand.Uint64(),         //nolint:gosec // likewise
		}),
		piece:   maxPiece,
		backlog: maxBacklog,
		more:    make(chan struct{}, 1),
		states:  map[string]int{},
		waiting: sets.New[K](),
	}
}

// key returns the key in the cache of the object of an item.
func (v *View[K, O, P]) key(item K) string { return v.renderer.Name(item).String() }

// NotReady is the answer until the first sync: 503, and try again in a second.
func NotReady() *apierrors.StatusError {
	err := apierrors.NewServiceUnavailable("the dependency index has not synced yet")
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}

// Lookup returns the object of a name, which must not be changed. Its errors are API errors: not found,
// or unavailable before the first sync.
func (v *View[K, O, P]) Lookup(namespace, name string) (P, error) {
	return v.get(context.Background(), namespace, name, "")
}

func (v *View[K, O, P]) get(ctx context.Context, namespace, name, version string) (P, error) {
	o, found, err := v.cache.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}.String(), version)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, v.notFound(ctx, namespace, name)
	default:
		return o, nil
	}
}

// notFound returns the error for a name that does not exist. It names the objects that the client may have meant.
func (v *View[K, O, P]) notFound(ctx context.Context, namespace, name string) error {
	err := apierrors.NewNotFound(v.resource, name)
	if v.meant == nil {
		return err
	}
	rule, names := v.meant(name)
	if rule == "" {
		return err
	}
	var found []string
	for _, other := range names {
		if _, exists, err := v.cache.Get(ctx, types.NamespacedName{Namespace: namespace, Name: other}.String(), ""); err == nil && exists {
			found = append(found, other)
		}
	}
	err.ErrStatus.Message += ": " + rule
	if len(found) > 0 {
		err.ErrStatus.Message += "; did you mean " + strings.Join(found, ", ") + "?"
	}
	return err
}

// Reset forgets everything.
func (v *View[K, O, P]) Reset() {
	v.mu.Lock()
	v.lives++
	v.queue = nil
	v.mu.Unlock()
	v.rendering.Lock() // what is being rendered ends soon, as it is of the life before
	defer v.rendering.Unlock()
	v.cache.Reset()
	v.now = decide.Evaluator{}
	v.waiting.Clear()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.states = map[string]int{}
}

// Run renders what changes, and again what time alone has changed, until the context is done.
func (v *View[K, O, P]) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer v.due.ShutDown()
	wg.Go(func() {
		for {
			item, shutdown := v.due.Get()
			if shutdown {
				return
			}
			v.recheck(item)
			v.due.Done(item)
		}
	})
	for {
		select {
		case <-v.more:
			v.CatchUp(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// Ready returns nil once everything has been rendered that there was when the graph synced.
func (v *View[K, O, P]) Ready() error {
	if !v.cache.Synced() {
		return errors.New("rendering all " + v.resource.Resource)
	}
	return nil
}

// States returns the number of objects by state; see Renderer.State.
func (v *View[K, O, P]) States() map[string]int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.states)
}

// Each calls f for each object, by namespace and name, which must not be changed. No change waits for it.
func (v *View[K, O, P]) Each(f func(P)) { v.cache.Each(f) }

// Drain ends the watches that are open, within some time, so that their clients go to
// another replica.
func (v *View[K, O, P]) Drain(within time.Duration) { v.cache.Drain(within) }

// Watches returns the number of open watches, and of events that are kept for those who
// come back.
func (v *View[K, O, P]) Watches() (open, events int) {
	_, events, open = v.cache.Stats()
	return open, events
}

// Size returns how many objects there are, and about how many bytes each has.
func (v *View[K, O, P]) Size() (objects, averageBytes int) {
	objects, _, _ = v.cache.Stats()
	return objects, v.cache.AverageSize()
}

// neighbours tells the cache what versions of other replicas mean.
func (v *View[K, O, P]) neighbours(at dependency.Progress) {
	v.cache.SetAlone(!at.OneCounter)
	if at.SeveralCounters {
		v.cache.SetLocal()
	}
}
