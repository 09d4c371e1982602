package watchcache

import (
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// begin finds where to start. Its errors are API errors: that is not known any more.
func (w *watcher[T]) begin(from version) error {
	now := w.cache.latest.Load()
	if !now.synced {
		return w.cache.NotReady()
	}
	w.epoch, w.farewell, w.floor, w.position = now.epoch, now.farewell, from, now.events.end
	switch {
	case w.initial:
		w.snapshot = now.collect(w.scope, w.options.Matches)
		w.floor = now.version
		if from > w.floor {
			w.floor = from.shared()
		}
		w.pending = w.options.AllowBookmarks && w.options.SendInitialEvents != nil
	case from == 0:
		w.floor = now.version
	case now.own(from):
		w.position = now.events.after(from).start
	case now.knowsAfter(from):
		w.foreign, w.beyond, w.began = true, from.watermark(), w.cache.Clock.Now()
		if w.options.Matches != nil || now.version.watermark() < w.beyond {
			w.members = map[string]bool{}
		}
		w.floor = from.shared()
		w.news = w.newsOf(now)
		if len(w.news) > 0 && now.version.watermark() < w.beyond {
			w.stray()
		}
		for i := range w.news {
			var v version // the next one that the client can have
			if i == len(w.news)-1 {
				v = now.version // only who has seen all of them has seen that
			}
			v, more := w.label(v)
			if !more {
				return w.expired()
			}
			w.news[i].Object.(T).SetResourceVersion(v.String())
		}
	default:
		return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %s (%s)", from, now.version))
	}
	return nil
}

// newsOf returns what a client that comes from elsewhere may not have seen, one event for
// each object: what has become of those that inputs beyond a watermark have touched, and of
// those that follow from the time, as there it may have been, or be, at another. What they
// have been meanwhile is left out: the client may have seen later states, and must not be
// shown earlier ones.
func (w *watcher[T]) newsOf(now *snapshot[T]) (out []watch.Event) {
	var none T
	type change struct {
		had, held bool // the client had it as a match; or may have had it as one
		before    T
		last      T // nil: no event tells of it
	}
	changes := map[string]*change{}
	now.timed.AscendGreaterOrEqual(w.scope.String(), func(key string) bool {
		if w.scope.has(key) {
			changes[key] = &change{}
			return true
		}
		return false
	})
	now.events.skip(func(e *event[T]) bool { return e.cause <= w.beyond }).each(func(e *event[T]) {
		if !w.scope.has(e.key) {
			return
		}
		k := changes[e.key]
		if k == nil {
			k = &change{}
			changes[e.key] = k
		}
		if k.last == none {
			k.before, k.had = e.previous, w.matches(e.previous)
		}
		k.held = k.held || w.mayMatch(e.previous) || w.mayMatch(e.object)
		if k.last = e.object; k.last == none {
			k.last = e.previous
		}
	})
	for _, key := range slices.Sorted(maps.Keys(changes)) {
		k := changes[key]
		o, found := now.get(key)
		has := found && w.matches(o)
		switch {
		case !has && k.had:
			o = k.before // as it was when it matched
		case !found:
			o = k.last
		}
		if k.last == none {
			k.had, k.held = has, w.mayMatch(o)
		}
		if w.members != nil {
			w.members[key] = has
		}
		typ := watch.Deleted
		switch {
		case has && k.had:
			typ = watch.Modified
		case has:
			typ = watch.Added
		case !k.held:
			continue
		}
		out = append(out, watch.Event{Type: typ, Object: w.cache.Copy(o)})
	}
	return out
}

// matches reports whether the watch is of an object, and mayMatch whether another replica may
// have shown it so: it has applied the inputs in another order.
func (w *watcher[T]) matches(o T) bool {
	var none T
	return o != none && (w.options.Matches == nil || w.options.Matches(o))
}

func (w *watcher[T]) mayMatch(o T) bool {
	var none T
	return o != none && (w.options.MatchesOwn == nil || w.options.MatchesOwn(o))
}
