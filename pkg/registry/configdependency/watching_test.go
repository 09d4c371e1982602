// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

// watching is a watch that a test reads, in a bubble of synctest.
type watching struct {
	t *testing.T
	watch.Interface
}

// watch begins a watch, which ends with the test.
func (c *cluster) watch(t *testing.T, namespace string, options *metainternalversion.ListOptions) *watching {
	t.Helper()
	w, err := c.rest.Watch(in(namespace), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return &watching{t, w}
}

// next returns what has come since the last time, and whether the watch goes on.
func (w *watching) next() (events []watch.Event, open bool) {
	w.t.Helper()
	for {
		synctest.Wait()
		select {
		case e, open := <-w.ResultChan():
			if !open {
				return events, false
			}
			events = append(events, e)
		default:
			return events, true
		}
	}
}

// only returns the one event that has come.
func (w *watching) only() (watch.EventType, *v1alpha1.ConfigDependency) {
	w.t.Helper()
	events, open := w.next()
	if len(events) != 1 || !open {
		w.t.Fatalf("got %v, open %v, want one event", told(w.t, events), open)
	}
	return events[0].Type, plain(events[0].Object)
}

// expect fails unless just these events have come: TYPE NAMESPACE/NAME@REVISION.
func (w *watching) expect(why string, want ...string) {
	w.t.Helper()
	events, open := w.next()
	if diff := cmp.Diff(want, told(w.t, events)); diff != "" || !open {
		w.t.Fatalf("%s: events (-want +got), open %v:\n%s", why, open, diff)
	}
}

func told(t *testing.T, events []watch.Event) (out []string) {
	t.Helper()
	for _, e := range events {
		if status, ok := e.Object.(*metav1.Status); ok {
			out = append(out, fmt.Sprintf("%s %d", e.Type, status.Code))
			continue
		}
		o := plain(e.Object)
		out = append(out, fmt.Sprintf("%s %s/%s@%d", e.Type, o.Namespace, o.Name, revisionOf(t, o.ResourceVersion)))
	}
	return out
}

// plain returns the object of an event, which may be one that is encoded once for all.
func plain(o runtime.Object) *v1alpha1.ConfigDependency {
	if shared, ok := o.(runtime.CacheableObject); ok {
		o = shared.GetObject()
	}
	return o.(*v1alpha1.ConfigDependency)
}

// run renders workloads again when time has changed them, until the end of the test.
func (c *cluster) run(t *testing.T) {
	t.Helper()
	var wg sync.WaitGroup
	wg.Go(func() { c.views.Run(t.Context()) })
	t.Cleanup(wg.Wait)
	synctest.Wait()
}

// pass lets time pass.
func (c *cluster) pass(d time.Duration) {
	synctest.Wait() // until the queue waits for it
	c.clock.Step(d)
	synctest.Wait()
}
