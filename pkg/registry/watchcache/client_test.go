// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"

	gocmp "github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// client keeps a copy by list and watch, as a reflector does, from any replica.
type client struct {
	t         *testing.T
	world     *world
	replicas  []*replica
	namespace string
	matches   func(*configMap) bool
	own       bool // the first stream alone decides what matches
	streaming bool // watch-list

	copy    map[string]string
	version string
	// held has each object as it was last shown, also in an earlier list: handlers of clients take
	// two states of one version for the same. They forget what a later list does not have.
	held  map[string]*configMap
	stop  context.CancelFunc
	watch watch.Interface
	log   []string
}

func (c *client) note(format string, args ...any) {
	c.log = append(c.log, fmt.Sprintf(format, args...))
}

func (c *client) any() (int, *replica) {
	i := c.world.rand.IntN(len(c.replicas))
	return i, c.replicas[i]
}

// connect lists if it must, and watches.
func (c *client) connect() {
	i, r := c.any()
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	options := WatchOptions[*configMap]{Namespace: c.namespace, Matches: c.matches, AllowBookmarks: true}
	if c.own {
		options.MatchesOwn = c.matches
	}
	if c.version == "" && c.streaming {
		yes := true
		options.SendInitialEvents = &yes
		c.copy = map[string]string{}
		c.note("watch-list from %d", i)
	} else {
		if c.version == "" {
			c.list(r, i)
			i, r = c.any()
		}
		options.ResourceVersion = c.version
		c.note("watch from %d at %s", i, c.version)
	}
	var err error
	c.watch, err = r.cache.Watch(ctx, options)
	if err != nil {
		c.t.Fatal(err)
	}
}

// list lists, in pages of which each comes from any replica.
func (c *client) list(r *replica, i int) {
	c.copy = map[string]string{}
	options := ListOptions[*configMap]{Namespace: c.namespace, Matches: c.matches, Limit: int64(c.world.rand.IntN(4))}
	for {
		list, err := r.cache.List(context.Background(), options)
		switch {
		case err != nil && options.Continue != "" && (apierrors.IsResourceExpired(err) || apierrors.IsTimeout(err)):
			c.note("page from %d: %v", i, err)
			options.Continue, c.copy = "", map[string]string{}
			continue
		case err != nil:
			c.t.Fatalf("list: %v", err)
		}
		for _, o := range list.Items {
			c.hold(o)
		}
		c.note("list from %d: %v at %s", i, c.copy, list.ResourceVersion)
		c.version = list.ResourceVersion
		if list.Continue == "" {
			c.letGo()
			return
		}
		options.Continue = list.Continue
		i, r = c.any()
	}
}

// drain takes what has come.
func (c *client) drain() {
	for c.watch != nil {
		select {
		case e, open := <-c.watch.ResultChan():
			if !open {
				c.disconnect()
				return
			}
			c.take(e)
		default:
			return
		}
	}
}

func (c *client) take(e watch.Event) {
	if e.Type == watch.Error {
		err := apierrors.FromObject(e.Object)
		c.note("error %v", err)
		if !apierrors.IsResourceExpired(err) && !storage.IsTooLargeResourceVersion(err) {
			c.t.Fatalf("watch: %v", err)
		}
		c.disconnect()
		c.version = ""
		return
	}
	o := unwrapped(e.Object)
	c.note("%s %s/%s=%s at %s", e.Type, o.Namespace, o.Name, o.value, o.ResourceVersion)
	if c.streaming && c.version == "" && e.Type == watch.Added {
		c.hold(o) // initial events are in no order
		return
	}
	if before(o.ResourceVersion, c.version) {
		c.t.Errorf("version %s after %s", o.ResourceVersion, c.version)
	}
	switch key := o.Namespace + "/" + o.Name; e.Type {
	case watch.Added, watch.Modified:
		c.hold(o)
	case watch.Deleted:
		delete(c.copy, key)
	}
	if o.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
		c.letGo()
	}
	if !c.streaming || c.version != "" || o.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
		c.version = o.ResourceVersion
	}
}

// hold takes an object as it is shown.
func (c *client) hold(o *configMap) {
	key := o.Namespace + "/" + o.Name
	if held := c.held[key]; held != nil && held.ResourceVersion == o.ResourceVersion && held.value != o.value {
		c.t.Errorf("%s is %s and %s in version %s", key, held.value, o.value, o.ResourceVersion)
	}
	if c.held == nil {
		c.held = map[string]*configMap{}
	}
	c.copy[key], c.held[key] = o.value, o
}

// letGo forgets the objects that a list does not have.
func (c *client) letGo() {
	maps.DeleteFunc(c.held, func(key string, _ *configMap) bool { return c.copy[key] == "" })
}

// unwrapped returns the object of an event.
func unwrapped(o runtime.Object) *configMap {
	if shared, ok := o.(runtime.CacheableObject); ok {
		o = shared.GetObject()
	}
	return o.(*configMap)
}

func before(a, b string) bool {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) < 0
}

func (c *client) disconnect() {
	if c.watch != nil {
		c.stop()
		c.watch = nil
	}
}

// hop takes what there is and goes on elsewhere, some times.
func (c *client) hop() {
	for range 1 + c.world.rand.IntN(3) {
		c.drain()
		c.disconnect()
		c.connect()
		synctest.Wait()
	}
}

func (c *client) check() {
	want := map[string]string{}
	for _, key := range keys {
		o := object(c.world.state, c.world.timed, key)
		if o != nil && (c.namespace == "" || o.Namespace == c.namespace) && (c.matches == nil || c.matches(o)) {
			want[key] = o.value
		}
	}
	if diff := gocmp.Diff(want, c.copy); diff != "" {
		c.t.Errorf("a client does not converge (-truth +client):\n%s\n%s", diff, strings.Join(c.log, "\n")+"\n\n"+strings.Join(c.world.log, "\n"))
	}
}
