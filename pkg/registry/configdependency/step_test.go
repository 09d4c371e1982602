// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
)

// tell tells of workloads, and renders nothing yet.
func (c *cluster) tell(workloads ...*dependency.Workload) {
	c.revision++
	keys := make([]dependency.WorkloadKey, len(workloads))
	for i, w := range workloads {
		c.setWorkload(w)
		keys[i] = w.WorkloadKey
	}
	c.views.Changed(c.now(), c.at(), dependency.Delta{Workloads: keys})
}

// What has been told is shown in the state of then and in its order, however late.
func TestViews_RenderWhatWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		events := c.watch(t, "", nil)
		events.expect("at first")
		c.tell(workload(kind.Pod, "ns", "a", nil, "Secret/one"))
		c.tell(workload(kind.Pod, "ns", "a", nil, "Secret/two"))
		c.graph.DeleteWorkload(dependency.WorkloadKey{Kind: kind.Pod, Namespace: "ns", Name: "a"})
		events.expect("before it is rendered")
		c.catchUp()
		got, _ := events.next()
		if diff := cmp.Diff([]string{"ADDED ns/pod.a@101", "MODIFIED ns/pod.a@102"}, told(t, got)); diff != "" {
			t.Fatalf("events (-want +got):\n%s", diff)
		}
		for i, want := range []string{"one", "two"} {
			if o := plain(got[i].Object); o.Spec.Sources[0].Name != want {
				t.Errorf("event %d shows %s, want %s", i, o.Spec.Sources[0].Name, want)
			}
		}
	})
}

// An input that concerns many workloads is published a part at a time, and who has seen a part of
// it has not seen it: the version says so.
func TestViews_PublishInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.views.piece = 2
		events := c.watch(t, "", nil)
		var all []*dependency.Workload
		for i := range 5 {
			all = append(all, workload(kind.Pod, "ns", fmt.Sprint(i), nil))
		}
		c.tell(all...)
		c.catchUp()
		events.expect("an input", "ADDED ns/pod.0@100", "ADDED ns/pod.1@100", "ADDED ns/pod.2@100", "ADDED ns/pod.3@100", "ADDED ns/pod.4@101")
		if n := c.states()[v1alpha1.StateUnmanaged]; n != 5 {
			t.Errorf("%d workloads are counted", n)
		}
	})
}

// When much has piled up, states that have passed are passed over. Not so where a client would not
// be told of what another replica may have shown it.
func TestViews_PassOverStates(t *testing.T) {
	labelled := func(label, source string) *dependency.Workload {
		return workload(kind.Pod, "ns", "a", map[string]string{"app": label}, "Secret/"+source)
	}
	tests := map[string]struct {
		then func(*cluster)
		want []string
	}{
		"other sources": {func(c *cluster) {
			c.tell(labelled("x", "two"))
			c.tell(labelled("x", "three"))
		}, []string{"ADDED ns/pod.a@103"}},
		"other labels": {func(c *cluster) {
			c.tell(labelled("y", "one"))
			c.tell(labelled("x", "one"))
		}, []string{"ADDED ns/pod.a@101", "MODIFIED ns/pod.a@102", "MODIFIED ns/pod.a@103"}},
		"another workload": {func(c *cluster) {
			c.tell(workload(kind.Pod, "ns", "b", nil))
		}, []string{"ADDED ns/pod.a@100", "ADDED ns/pod.b@102"}},
		"it goes, and comes": {func(c *cluster) {
			c.graph.DeleteWorkload(labelled("x", "one").WorkloadKey)
			c.revision++
			c.views.Changed(c.now(), c.at(), dependency.Delta{Workloads: []dependency.WorkloadKey{labelled("x", "one").WorkloadKey}})
			c.tell(labelled("x", "two"))
		}, []string{"ADDED ns/pod.a@101", "DELETED ns/pod.a@102", "ADDED ns/pod.a@103"}},
		"it is another of the same name": {func(c *cluster) {
			again := labelled("x", "one")
			again.UID = "another"
			c.tell(again)
		}, []string{"ADDED ns/pod.a@101", "MODIFIED ns/pod.a@102"}},
		"time passes": {func(c *cluster) {
			c.views.recheck(labelled("x", "one").WorkloadKey)
			c.tell(labelled("x", "two"))
		}, []string{"ADDED ns/pod.a@101", "MODIFIED ns/pod.a@102"}},
		"nothing": {func(c *cluster) {
			c.revision++
			c.views.Progressed(c.at())
			c.tell(labelled("x", "two"))
		}, []string{"ADDED ns/pod.a@103"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.views.backlog = 1
				events := c.watch(t, "", nil)
				events.expect("at first")
				c.tell(labelled("x", "one"))
				tt.then(c)
				c.catchUp()
				events.expect("in the end", tt.want...)
			})
		})
	}
}

// What changes before the first lists have been rendered is rendered with them.
func TestViews_PassOverTheFirstStates(t *testing.T) {
	c := unsynced(t)
	c.views.backlog = 1
	c.setWorkload(workload(kind.Pod, "ns", "a", nil, "Secret/one"))
	c.revision = 100
	c.views.Synced(c.now(), c.at())
	c.tell(workload(kind.Pod, "ns", "a", nil, "Secret/two"), workload(kind.Pod, "ns", "b", nil))
	c.catchUp()
	list := c.list(t, "", nil)
	if got := listNames(t, list); len(got) != 2 || list.Items[0].Spec.Sources[0].Name != "two" || revisionOf(t, list.ResourceVersion) != 101 {
		t.Errorf("a list of %v at %s", got, list.ResourceVersion)
	}
	if n := c.states()[v1alpha1.StateUnmanaged]; n != 2 {
		t.Errorf("%d workloads are counted", n)
	}
}

// Until much has piled up, every state is shown.
func TestViews_ShowEveryStateAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.views.backlog = 2
		events := c.watch(t, "", nil)
		for range 5 {
			c.tell(workload(kind.Pod, "ns", "a", nil))
		}
		c.catchUp()
		events.expect("the first, and the others at once", "ADDED ns/pod.a@101", "MODIFIED ns/pod.a@105")
	})
}

// A client that selects by a label and comes from elsewhere may have been shown what was passed
// over by anything but labels.
func TestViews_PassOverStatesForClientsFromElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.views.backlog = 1
		other := elsewhere(t, 101)
		other.LabelSelector = labels.SelectorFromSet(labels.Set{"app": "y"})
		from := c.watch(t, "", other)
		for _, label := range []string{"x", "y", "x"} {
			c.tell(workload(kind.Pod, "ns", "a", map[string]string{"app": label}))
		}
		c.catchUp()
		from.expect("it may have been added there", "ADDED ns/pod.a@102", "DELETED ns/pod.a@103")
	})
}

// What is being rendered when everything is forgotten is not shown.
func TestViews_ResetWhileRendering(t *testing.T) {
	c := newCluster(t)
	c.tell(workload(kind.Pod, "ns", "a", nil))
	r := &renderer{Views: c.views, ctx: t.Context()}
	var s *step
	s, r.life = c.views.pop()
	c.views.Reset()
	r.changes(s)
	if n, _, _ := c.views.cache.Stats(); n != 0 || len(c.states()) != 0 {
		t.Errorf("%d objects are shown, states %v", n, c.states())
	}
	r.everything(&step{now: c.now(), at: c.at(), synced: true})
	if c.views.Ready() == nil {
		t.Error("what was read before is shown")
	}
	c.sync(200)
	if err := c.views.Ready(); err != nil {
		t.Error(err)
	}
}

// Progress is told with what has yet to be rendered, if there is anything, or by itself.
func TestViews_Progress(t *testing.T) {
	c := newCluster(t)
	for name, before := range map[string]func(){
		"by itself":             func() {},
		"after a change":        func() { c.tell(workload(kind.Pod, "ns", "a", nil)) },
		"after time has passed": func() { c.views.recheck(dependency.WorkloadKey{Kind: kind.Pod, Namespace: "ns", Name: "a"}) },
		"twice":                 func() { c.views.Progressed(c.at()) },
	} {
		before()
		c.progress(c.revision + 10)
		if got := revisionOf(t, c.list(t, "", nil).ResourceVersion); got != c.revision {
			t.Errorf("%s: a list at %d, want %d", name, got, c.revision)
		}
	}
}

// What time has done is told to those who come from elsewhere, whatever they have seen.
func TestViews_RecheckForClientsFromElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, w := withWebInSync(t)
		from := c.watch(t, "", elsewhere(t, 105))
		c.secret("db", "two", secondOf(4), now)
		c.set(w)
		from.expect("after a change that they may have seen otherwise", "MODIFIED shop/deployment.web@105")
		c.views.recheck(w.WorkloadKey)
		c.catchUp()
		from.expect("while time has changed nothing")
		c.clock.Step(time.Second)
		c.views.recheck(w.WorkloadKey)
		c.catchUp()
		from.expect("when it has", "MODIFIED shop/deployment.web@105")
	})
}

// A server that ends renders no more than it has begun.
func TestViews_EndWhileRendering(t *testing.T) {
	c := newCluster(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.tell(workload(kind.Pod, "ns", "a", nil))
	c.views.catchUp(ctx)
	if n, _, _ := c.views.cache.Stats(); n != 0 {
		t.Errorf("%d objects are shown", n)
	}
	s, life := c.views.pop()
	(&renderer{Views: c.views, ctx: ctx, life: life}).changes(s)
	if n, _, _ := c.views.cache.Stats(); n != 0 {
		t.Errorf("%d objects are shown of a step that had begun", n)
	}
}

// The graph is kept while time may change what was rendered from it, and no longer.
func TestViews_KeepTheGraphWhileTimeMatters(t *testing.T) {
	c, w := withWebInSync(t)
	if c.views.now.Graph != nil {
		t.Error("it is kept for nothing")
	}
	c.secret("db", "two", secondOf(4), now)
	c.set(w)
	if c.views.now.Graph == nil {
		t.Fatal("it is not kept while content settles")
	}
	c.graph.DeleteWorkload(w.WorkloadKey) // which has not been told yet
	c.clock.Step(time.Second)
	c.views.recheck(w.WorkloadKey)
	c.catchUp()
	if n := c.states()[v1alpha1.StatePending]; n != 1 {
		t.Errorf("states %v", c.states())
	}
	if c.views.now.Graph != nil {
		t.Error("it is kept when nothing waits any more")
	}
	c.views.recheck(w.WorkloadKey) // a timer from before
	c.catchUp()
	if n := c.states()[v1alpha1.StatePending]; n != 1 {
		t.Errorf("states %v", c.states())
	}
}

// Before the sync there is nothing that time could change.
func TestViews_RecheckBeforeSync(t *testing.T) {
	c := unsynced(t)
	c.views.recheck(dependency.WorkloadKey{Kind: kind.Pod, Namespace: "ns", Name: "a"})
	c.catchUp()
	if c.views.Ready() == nil {
		t.Error("ready before the sync")
	}
	if _, err := c.rest.List(in("ns"), &metainternalversion.ListOptions{}); err == nil {
		t.Error("a list before the sync")
	}
}
