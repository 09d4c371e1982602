package ingest

import (
	"context"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// How long a resource may be quiet before it is probed, and how often that is looked at.
const (
	silence    = 30 * time.Second
	probeCheck = 10 * time.Second
)

// probe keeps the watermark moving, and sees to it that it can be relied on, until the
// context is done.
//
// On a resource on which nothing is written, the API server sends a bookmark every
// minute, but with a newer revision only if it has learned of one. It does when somebody
// asks for the present state. Such an answer must be at least as new as whatever was seen
// before it was asked for, if all resources are in one etcd: so the same request tells
// when they are not.
func (x *Index) probe(ctx context.Context, synced <-chan struct{}, streams []*stream, revision func(context.Context, *stream) (uint64, error)) {
	select {
	case <-synced:
	case <-ctx.Done():
		return
	}
	asked := map[string]time.Time{}
	probe := func(ctx context.Context, of []*stream) (ok bool) {
		latest := x.latest()
		ok = true
		var wg sync.WaitGroup
		var mu sync.Mutex
		for _, s := range of {
			asked[s.name] = x.clock.Now()
			wg.Go(func() {
				v, err := revision(ctx, s)
				switch {
				case err != nil:
					klog.FromContext(ctx).V(2).Info("Asking for the present revision, will try again", "resource", s.name, "err", err)
				case v < latest:
					x.notOneCounter(ctx, s.name, v, latest)
				default:
					return
				}
				mu.Lock()
				ok = false
				mu.Unlock()
			})
		}
		wg.Wait()
		return ok
	}
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 100, Cap: 10 * time.Second}
	err := backoff.DelayFunc().Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		return probe(ctx, streams) || x.split(), nil
	})
	if err != nil {
		return // the context is done
	}
	x.oneCounter()
	ticker := time.NewTicker(probeCheck)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		var silent []*stream
		progress := x.LastProgress()
		for _, s := range streams {
			if now := x.clock.Now(); now.Sub(progress[s.name]) >= silence && now.Sub(asked[s.name]) >= silence {
				silent = append(silent, s)
			}
		}
		probe(ctx, silent)
	}
}

// latest returns the highest revision that has been applied.
func (x *Index) latest() uint64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.progress.Latest
}

// oneCounter notes that revisions can be compared, unless it is known that they cannot.
func (x *Index) oneCounter() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.progress.OneCounter = !x.notComparable
	x.tell(nil)
}

// notOneCounter notes that revisions of different resources cannot be compared.
func (x *Index) notOneCounter(ctx context.Context, resource string, revision, latest uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.notComparable {
		klog.FromContext(ctx).Error(nil, "The resources of this cluster are not in one etcd, so versions of other replicas say nothing: clients that change the replica list again",
			"resource", resource, "revision", revision, "seenBefore", strconv.FormatUint(latest, 10))
	}
	x.notComparable, x.progress.OneCounter = true, false
	x.tell(nil)
}

// split tells whether revisions are known not to be comparable.
func (x *Index) split() bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.notComparable
}
