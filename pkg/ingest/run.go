// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"context"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/sharedsecret"
)

// retries are the delays between requests of a stream that fail: at most 20 seconds. With client-go's own, a replica may read on
// only a minute after its API server has returned.
var retries = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 1, Steps: 100, Cap: 10 * time.Second}

// Run keeps the index equal to the cluster until the context is done. It loads the key of
// the digests from a Secret (see NewKeySecret; nil: a key in memory), calls ready, and reads everything. When the key is
// replaced, or revisions go back, it begins again; see Reset.
func (x *Index) Run(ctx context.Context, reader *Reader, secret *sharedsecret.Secret, ready func()) {
	shared := sharedKey{secret}
	for ctx.Err() == nil {
		key, err := shared.load(ctx)
		if err != nil {
			return // the context is done
		}
		ready()
		x.run(ctx, reader, dependency.NewDigester(key), func(ctx context.Context, changed func()) { shared.watch(ctx, key, changed) })
		if ctx.Err() == nil {
			x.Reset() // nothing that was read can be compared with what comes
		}
	}
}

// run reads the cluster until the context is done or the key has changed.
func (x *Index) run(ctx context.Context, reader *Reader, digester *dependency.Digester, watchKey func(context.Context, func())) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	x.mu.Lock()
	x.restart = stop
	x.graph.SetDigester(digester)
	x.mu.Unlock()
	var wg sync.WaitGroup
	synced := make(chan struct{})
	optional := &followed{index: x, reader: reader, synced: synced, ask: make(chan struct{}, 1)}
	for _, s := range x.scope.streams(digester) {
		if s.optional != nil {
			optional.add(s)
			continue
		}
		if s.namespaces() {
			optional.always = s
		}
		watches := make(chan time.Duration, 1)
		into := &store{x, s, synced}
		r := cache.NewReflectorWithOptions(reader.lister(s, watches, into.apply), nil, into, cache.ReflectorOptions{
			Name:            "configdep",
			TypeDescription: s.name,
			Backoff:         new(retries),
		})
		wg.Go(func() { r.RunWithContext(ctx) })
		wg.Go(func() { x.probe(ctx, s, synced, watches, reader.revision) })
	}
	if len(optional.kinds) > 0 {
		wg.Go(func() { optional.run(ctx) })
	}
	wg.Go(func() { watchKey(ctx, stop) })
	wg.Wait()
}

// store passes what a reflector reads to the index. Its methods return no errors: the
// reflector would log the object with them.
type store struct {
	index  *Index
	stream *stream
	synced chan<- struct{} // is closed after the last of the first lists
}

var _ cache.ReflectorStore = &store{}

func (s *store) Add(o any) error    { s.index.set(s.stream, o.(*object)); return nil }
func (s *store) Update(o any) error { s.index.set(s.stream, o.(*object)); return nil }
func (s *store) Delete(o any) error { s.index.remove(s.stream, o.(*object)); return nil }

func (s *store) Replace(objects []any, version string) error {
	tell(s.synced, s.index.replace(s.stream, objects, version))
	return nil
}

func (s *store) Bookmark(version string) error { s.index.bookmark(s.stream, version); return nil }
func (s *store) Resync() error                 { return nil }

// apply applies an event of a watch.
func (s *store) apply(what watch.EventType, o *object) {
	switch what {
	case watch.Bookmark:
		_ = s.Bookmark(o.ResourceVersion)
	case watch.Deleted:
		_ = s.Delete(o)
	default:
		_ = s.Update(o)
	}
}

// tell closes a channel if the last of the first lists has been applied.
func tell(synced chan<- struct{}, last bool) {
	if last {
		close(synced)
		// What the first lists have left behind is many times the index.
		go debug.FreeOSMemory()
	}
}
