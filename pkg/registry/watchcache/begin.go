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
	c := w.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.synced {
		return c.NotReady()
	}
	w.epoch, w.farewell, w.floor = c.epoch, c.farewell, from
	if w.initial {
		w.position = c.events.end()
		w.snapshot = c.collect(w.scope, w.options.Matches)
		w.floor = c.version()
		if from > w.floor {
			w.floor = from.shared()
		}
		w.pending = w.options.AllowBookmarks && w.options.SendInitialEvents != nil
		return nil
	}
	switch {
	case from == 0:
		w.position = c.events.end()
		w.floor = c.version()
	case c.own(from):
		w.position = c.events.after(from)
	case c.knowsAfter(from):
		w.foreign, w.beyond, w.members = true, from.watermark(), map[string]bool{}
		w.floor = from.shared()
		w.position = c.events.end()
		w.news = w.newsOf()
		if len(w.news) > 0 && c.watermark < w.beyond {
			w.stray()
		}
		for i := range w.news {
			v := from.shared()
			if i == len(w.news)-1 {
				v = c.version() // only who has seen all of them has seen that
			}
			v, more := w.label(v)
			if !more {
				return w.expired()
			}
			w.news[i].Object.(T).SetResourceVersion(v.String())
		}
	default:
		return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %s (%s)", from, c.version()))
	}
	return nil
}

// newsOf returns what a client that comes from elsewhere may not have seen, one event for
// each object: what has become of those that inputs beyond a watermark have touched, and of
// those that follow from the time, as there it may have been, or be, at another. What they
// have been meanwhile is left out: the client may have seen later states, and must not be
// shown earlier ones. The lock is held.
func (w *watcher[T]) newsOf() (out []watch.Event) {
	c := w.cache
	var none T
	type change struct {
		news      bool
		had, held bool // the client had it as a match; or may have had it as one
		before    T
		last      T
	}
	changes := map[string]*change{}
	of := func(key string) *change {
		if changes[key] == nil {
			changes[key] = &change{}
		}
		return changes[key]
	}
	for key := range c.timed {
		if w.scope.has(key) {
			of(key).news = true
		}
	}
	for _, e := range c.events.since(0) {
		if !w.scope.has(e.key) {
			continue
		}
		switch k, beyond := of(e.key), e.cause != Always && e.cause > w.beyond; {
		case !beyond && k.last == none:
			k.news = e.timed
		default:
			if k.last == none {
				k.before, k.had = e.previous, w.matches(e.previous)
			}
			k.news, k.held = true, k.held || w.mayMatch(e.previous) || w.mayMatch(e.object)
			if k.last = e.object; k.last == none {
				k.last = e.previous
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(changes)) {
		k := changes[key]
		it, found := c.objects.Get(item[T]{key: key})
		has := found && w.matches(it.object)
		if !k.news || !found && k.last == none {
			continue
		}
		o := it.object
		switch {
		case !has && k.had:
			o = k.before // as it was when it matched
		case !found:
			o = k.last
		}
		if k.last == none {
			k.had, k.held = has, w.mayMatch(o)
		}
		w.members[key] = has
		typ := watch.Deleted
		switch {
		case has && k.had:
			typ = watch.Modified
		case has:
			typ = watch.Added
		case !k.held:
			continue
		}
		out = append(out, watch.Event{Type: typ, Object: c.Copy(o)})
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

// own reports whether this replica has published a version, and remembers what came after.
// Another may have the same tag, so that it has to be one that was published here: that of an
// event, or of a watermark before the first.
func (c *Cache[T]) own(v version) bool {
	if v.tag() != c.Tag || v < c.since || v > c.version() {
		return false
	}
	return v.counter() == uint64(c.First) || v == c.since || c.events.published(v)
}

// knowsAfter reports whether everything is known that came after a version of another
// replica.
func (c *Cache[T]) knowsAfter(v version) bool {
	return !c.alone && !v.strays() && !v.local() && v.watermark() >= c.floor && v.watermark() >= c.dropped
}

// collect returns the objects of a scope that match. The lock is held.
func (c *Cache[T]) collect(s scope, matches func(T) bool) []T {
	var out []T
	c.ascend(c.objects, s, "", func(o T) bool {
		if matches == nil || matches(o) {
			out = append(out, o)
		}
		return true
	})
	return out
}
