// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
)

// What the progress says about other replicas reaches the cache.
func TestView_TellsTheCacheOfOtherReplicas(t *testing.T) {
	expired := func(c *things, t *testing.T, version *metainternalversion.ListOptions) bool {
		t.Helper()
		_, err := c.rest.List(in(""), version)
		return apierrors.IsResourceExpired(err)
	}
	t.Run("a list after which nothing is known of before", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := synced(t, workload("a", nil))
			from := c.watch(t, elsewhere(t, 105))
			c.floor = 120
			c.progress(110)
			synctest.Wait()
			if e, open := <-from.ResultChan(); open {
				t.Errorf("a watch that began elsewhere goes on with %v", e)
			}
		})
	})
	t.Run("several counters of revisions", func(t *testing.T) {
		c := synced(t)
		other := elsewhere(t, 100)
		if expired(c, t, other) {
			t.Fatal("a version of another replica has expired while there is one counter")
		}
		at := c.at()
		at.OneCounter = false
		c.view.Progressed(at)
		c.catchUp()
		if !expired(c, t, other) {
			t.Error("a version of another replica means something while it is not known whether there is one counter")
		}
		at.SeveralCounters = true
		c.view.Progressed(at)
		c.catchUp()
		if v := revisionOf(t, c.list(t, nil).ResourceVersion); v < 1<<39 {
			t.Errorf("revision %d in a version that could be taken for one of a revision", v)
		}
	})
	t.Run("several counters at first", func(t *testing.T) {
		c := unsynced(t)
		c.revision = 100
		at := c.at()
		at.OneCounter = false
		c.view.Synced(c.now(), at)
		c.catchUp()
		if !expired(c, t, elsewhere(t, 100)) {
			t.Error("a version of another replica means something")
		}
	})
	t.Run("the current revision", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := synced(t, workload("a", nil))
			from := c.watch(t, elsewhere(t, 105))
			c.tell(workload("a", nil)) // at 101, which the client has seen elsewhere
			c.catchUp()
			from.expect("what was seen elsewhere")
			// Nothing that any client has seen is beyond 105, where this replica is too: from the next event on, the watch
			// is one of its own.
			c.clock.Step(time.Second)
			c.current, c.asked = 105, c.clock.Now()
			c.progress(105)
			c.tell(workload("b", nil))
			c.catchUp()
			from.expect("an event", "ADDED b@106")
			c.floor = 120 // would end one of another replica
			c.progress(110)
			c.tell(workload("a", nil))
			c.catchUp()
			from.expect("as one of its own", "MODIFIED a@111")
		})
	})
	for name, shows := range map[string]func(*testing.T) *things{
		"what is timed before the sync": func(t *testing.T) *things {
			t.Helper()
			return synced(t, waiting("a", time.Minute))
		},
		"what becomes timed": func(t *testing.T) *things {
			t.Helper()
			c := synced(t, workload("a", nil))
			c.tell(waiting("a", time.Minute))
			c.catchUp()
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shows(t).watch(t, elsewhere(t, 105)).expect("a neighbour may have shown something else", "MODIFIED a@105")
			})
		})
	}
}

// What is read just after everything has been read again is an event, however much waits: a client that has seen
// everything up to then elsewhere is told.
func TestView_ChangeAfterASync(t *testing.T) {
	for _, due := range []int{0, maxBacklog - 2, maxBacklog} {
		t.Run(fmt.Sprint(due, " items to be rendered again"), func(t *testing.T) {
			from := elsewhere(t, 201)
			synctest.Test(t, func(t *testing.T) {
				c := synced(t, workload("a", nil, "one"))
				c.view.Reset()
				for i := range due {
					c.view.recheck(keyOf(fmt.Sprint(i)))
				}
				c.revision, c.floor = 200, 200
				c.view.Synced(c.now(), c.at())
				c.revision = 202
				c.tell(workload("a", nil, "two"))
				c.catchUp()
				c.watch(t, from).expect("from another replica", "MODIFIED a@203 two")
			})
		})
	}
}

// counting counts what is rendered, and does something before each.
type counting struct {
	renderer
	n      int
	before func(n int)
}

func (r *counting) Render(now decide.Evaluator, key dependency.WorkloadKey, at time.Time) Rendered[object] {
	r.n++
	r.before(r.n)
	return r.renderer.Render(now, key, at)
}

// Between two parts of an input it is seen that the server ends.
func TestView_EndBetweenParts(t *testing.T) {
	for name, tell := range map[string]func(*things, []*dependency.Workload){
		"an input": func(c *things, all []*dependency.Workload) { c.tell(all...) },
		"everything": func(c *things, all []*dependency.Workload) {
			for _, w := range all {
				c.graph.SetWorkload(w, dependency.Patterns{})
			}
			c.view.Synced(c.now(), c.at())
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			r := &counting{before: func(n int) {
				if n == 3 {
					cancel()
				}
			}}
			c := synced(t)
			c.view.piece, c.view.renderer = 2, r
			var all []*dependency.Workload
			for i := range 7 {
				all = append(all, workload(fmt.Sprint(i), nil))
			}
			tell(c, all)
			c.view.CatchUp(ctx)
			if r.n != 4 {
				t.Errorf("%d objects were rendered, want 4: the part that had begun", r.n)
			}
		})
	}
}

// An object shares with its state before what has not changed.
func TestView_Share(t *testing.T) {
	c := synced(t, workload("a", map[string]string{"app": "x"}))
	before, err := c.view.Lookup("ns", "a")
	if err != nil {
		t.Fatal(err)
	}
	c.tell(workload("a", map[string]string{"app": "x"}, "one"))
	c.catchUp()
	after, err := c.view.Lookup("ns", "a")
	if err != nil {
		t.Fatal(err)
	}
	if after.Data["sources"] != "one" || reflect.ValueOf(before.Labels).Pointer() != reflect.ValueOf(after.Labels).Pointer() {
		t.Errorf("after %v: %v, with labels of its own", before, after)
	}
}

// A resource says by what it can be selected, and how it is printed.
func TestREST(t *testing.T) {
	c := synced(t, workload("a", map[string]string{"app": "x"}), workload("b", nil), waiting("c", time.Minute))
	for selector, want := range map[string][]string{"": {"a", "b", "c"}, "metadata.name=a": {"a"}, "state=early": {"c"}, "state!=early,metadata.name!=a": {"b"}} {
		field, err := fields.ParseSelector(selector)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		list := c.list(t, &metainternalversion.ListOptions{FieldSelector: field})
		for i := range list.Items {
			got = append(got, list.Items[i].Name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q selects (-want +got):\n%s", selector, diff)
		}
		table, err := c.rest.ConvertToTable(t.Context(), list, nil)
		if err != nil || len(table.Rows) != len(want) || len(table.ColumnDefinitions) != 2 || table.ResourceVersion != list.ResourceVersion {
			t.Errorf("%q as a table: %v, error %v", selector, table, err)
		}
	}
	if list := c.list(t, &metainternalversion.ListOptions{LabelSelector: labels.SelectorFromSet(labels.Set{"app": "x"})}); len(list.Items) != 1 {
		t.Errorf("selected by a label: %v", list.Items)
	}
	if _, err := c.rest.List(in(""), &metainternalversion.ListOptions{FieldSelector: fields.OneTermEqualSelector("data", "x")}); !apierrors.IsBadRequest(err) {
		t.Errorf("selected by a field that cannot be: %v", err)
	}
	if _, err := c.rest.Get(in("ns"), "z", &metav1.GetOptions{}); !apierrors.IsNotFound(err) || err.Error() != `things "z" not found` {
		t.Errorf("what is not there: %v", err)
	}
}
