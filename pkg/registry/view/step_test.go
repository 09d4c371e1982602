// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/configdep/configdep/pkg/dependency"
)

// What has been told is shown in the state of then and in its order, however late.
func TestView_RenderWhatWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := synced(t)
		events := c.watch(t, nil)
		events.expect("at first")
		c.tell(workload("a", nil, "one"))
		c.tell(workload("a", nil, "two"))
		c.graph.DeleteWorkload(keyOf("a"))
		events.expect("before it is rendered")
		c.catchUp()
		events.expect("afterwards", "ADDED a@101 one", "MODIFIED a@102 two")
	})
}

// An input that concerns many workloads is published a part at a time, and who has seen a part of
// it has not seen it: the version says so.
func TestView_PublishInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := synced(t)
		c.view.piece = 2
		events := c.watch(t, nil)
		var all []*dependency.Workload
		for i := range 5 {
			all = append(all, workload(fmt.Sprint(i), nil))
		}
		c.tell(all...)
		c.catchUp()
		events.expect("an input", "ADDED 0@100", "ADDED 1@100", "ADDED 2@100", "ADDED 3@100", "ADDED 4@101")
		if n := c.states()["always"]; n != 5 {
			t.Errorf("%d workloads are counted", n)
		}
	})
}

// When much has piled up, states that have passed are passed over. Not so where a client would not
// be told of what another replica may have shown it.
func TestView_PassOverStates(t *testing.T) {
	labelled := func(label, source string) *dependency.Workload {
		return workload("a", map[string]string{"app": label}, source)
	}
	tests := map[string]struct {
		then func(*things)
		want []string
	}{
		"other sources": {func(c *things) {
			c.tell(labelled("x", "two"))
			c.tell(labelled("x", "three"))
		}, []string{"ADDED a@103 three"}},
		"other labels": {func(c *things) {
			c.tell(labelled("y", "one"))
			c.tell(labelled("x", "one"))
		}, []string{"ADDED a@101 one", "MODIFIED a@102 one", "MODIFIED a@103 one"}},
		"another workload": {func(c *things) {
			c.tell(workload("b", nil))
		}, []string{"ADDED a@100 one", "ADDED b@102"}},
		"it goes, and comes": {func(c *things) {
			c.gone(keyOf("a"))
			c.tell(labelled("x", "two"))
		}, []string{"ADDED a@101 one", "DELETED a@102 one", "ADDED a@103 two"}},
		"it is another of the same name": {func(c *things) {
			again := labelled("x", "one")
			again.UID = "another"
			c.tell(again)
		}, []string{"ADDED a@101 one", "MODIFIED a@102 one"}},
		"time passes": {func(c *things) {
			c.view.recheck(keyOf("a"))
			c.tell(labelled("x", "two"))
		}, []string{"ADDED a@101 one", "MODIFIED a@102 two"}},
		"nothing": {func(c *things) {
			c.revision++
			c.view.Progressed(c.at())
			c.tell(labelled("x", "two"))
		}, []string{"ADDED a@103 two"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := synced(t)
				c.view.backlog = 1
				events := c.watch(t, nil)
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
func TestView_PassOverTheFirstStates(t *testing.T) {
	c := unsynced(t)
	c.view.backlog = 1
	c.graph.SetWorkload(workload("a", nil, "one"), dependency.Patterns{})
	c.revision = 100
	c.view.Synced(c.now(), c.at())
	c.tell(workload("a", nil, "two"), workload("b", nil))
	c.catchUp()
	list := c.list(t, nil)
	if len(list.Items) != 2 || list.Items[0].Data["sources"] != "two" || revisionOf(t, list.ResourceVersion) != 101 {
		t.Errorf("a list of %v at %s", list.Items, list.ResourceVersion)
	}
	if n := c.states()["always"]; n != 2 {
		t.Errorf("%d workloads are counted", n)
	}
}

// Until much has piled up, every state is shown.
func TestView_ShowEveryStateAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := synced(t)
		c.view.backlog = 2
		events := c.watch(t, nil)
		for range 5 {
			c.tell(workload("a", nil))
		}
		c.catchUp()
		events.expect("the first, and the others at once", "ADDED a@101", "MODIFIED a@105")
	})
}

// A client that selects by a label and comes from elsewhere may have been shown what was passed
// over by anything but labels.
func TestView_PassOverStatesForClientsFromElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := synced(t)
		c.view.backlog = 1
		other := elsewhere(t, 101)
		other.LabelSelector = labels.SelectorFromSet(labels.Set{"app": "y"})
		from := c.watch(t, other)
		for _, label := range []string{"x", "y", "x"} {
			c.tell(workload("a", map[string]string{"app": label}))
		}
		c.catchUp()
		from.expect("it may have been added there", "ADDED a@102", "DELETED a@103")
	})
}

// What is being rendered when everything is forgotten is not shown.
func TestView_ResetWhileRendering(t *testing.T) {
	c := synced(t)
	c.tell(workload("a", nil))
	r := &taker{View: c.view, ctx: t.Context()}
	var s *step[dependency.WorkloadKey]
	s, r.life = c.view.pop()
	c.view.Reset()
	r.changes(s)
	if n, _, _ := c.view.cache.Stats(); n != 0 || len(c.states()) != 0 {
		t.Errorf("%d objects are shown, states %v", n, c.states())
	}
	r.everything(&step[dependency.WorkloadKey]{now: c.now(), at: c.at(), synced: true})
	if c.view.Ready() == nil {
		t.Error("what was read before is shown")
	}
	c.sync(200)
	if err := c.view.Ready(); err != nil {
		t.Error(err)
	}
}

// Progress is told with what has yet to be rendered, if there is anything, or by itself.
func TestView_Progress(t *testing.T) {
	c := synced(t)
	for name, before := range map[string]func(){
		"by itself":             func() {},
		"after a change":        func() { c.tell(workload("a", nil)) },
		"after time has passed": func() { c.view.recheck(keyOf("a")) },
		"twice":                 func() { c.view.Progressed(c.at()) },
	} {
		before()
		c.progress(c.revision + 10)
		if got := revisionOf(t, c.list(t, nil).ResourceVersion); got != c.revision {
			t.Errorf("%s: a list at %d, want %d", name, got, c.revision)
		}
	}
}

// What time has done is told to those who come from elsewhere, whatever they have seen.
func TestView_RecheckForClientsFromElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := synced(t, workload("a", nil))
		from := c.watch(t, elsewhere(t, 105))
		c.tell(waiting("a", time.Second))
		c.catchUp()
		from.expect("after a change that they may have seen otherwise", "MODIFIED a@105")
		c.view.recheck(keyOf("a"))
		c.catchUp()
		from.expect("while time has changed nothing")
		c.clock.Step(time.Second)
		c.view.recheck(keyOf("a"))
		c.catchUp()
		from.expect("when it has", "MODIFIED a@105")
	})
}

// A server that ends renders no more than it has begun.
func TestView_EndWhileRendering(t *testing.T) {
	c := synced(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.tell(workload("a", nil))
	c.view.CatchUp(ctx)
	if n, _, _ := c.view.cache.Stats(); n != 0 {
		t.Errorf("%d objects are shown", n)
	}
	s, life := c.view.pop()
	(&taker{View: c.view, ctx: ctx, life: life}).changes(s)
	if n, _, _ := c.view.cache.Stats(); n != 0 {
		t.Errorf("%d objects are shown of a step that had begun", n)
	}
}

// The graph is kept while time may change what was rendered from it, and no longer.
func TestView_KeepTheGraphWhileTimeMatters(t *testing.T) {
	w := workload("a", nil)
	c := synced(t, w)
	if c.view.now.Graph != nil {
		t.Error("the graph is kept for nothing")
	}
	w = waiting("a", time.Second)
	c.tell(w)
	c.catchUp()
	if c.view.now.Graph == nil {
		t.Fatal("the graph is not kept while time will change an object")
	}
	c.graph.DeleteWorkload(w.WorkloadKey) // which has not been told yet
	c.clock.Step(time.Second)
	c.view.recheck(keyOf("a"))
	c.catchUp()
	if n := c.states()["late"]; n != 1 {
		t.Errorf("states %v", c.states())
	}
	if c.view.now.Graph != nil {
		t.Error("the graph is kept when nothing waits any more")
	}
	c.view.recheck(keyOf("a")) // a timer from before
	c.catchUp()
	if n := c.states()["late"]; n != 1 {
		t.Errorf("states %v", c.states())
	}
}

// Before the sync there is nothing that time could change.
func TestView_RecheckBeforeSync(t *testing.T) {
	c := unsynced(t)
	c.view.recheck(keyOf("a"))
	c.catchUp()
	if c.view.Ready() == nil {
		t.Error("ready before the sync")
	}
	if _, err := c.rest.List(in("ns"), &metainternalversion.ListOptions{}); err == nil {
		t.Error("a list before the sync")
	}
}
