// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/render"
)

// A client that lists and then watches sees what changes, in the order in which it does.
func TestWatchSendsWhatHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, workload(kind.Pod, "a", "1", nil), workload(kind.Pod, "b", "1", nil))
		all := c.watch(t, "", &metainternalversion.ListOptions{ResourceVersion: c.list(t, "", nil).ResourceVersion})
		a := c.watch(t, "a", &metainternalversion.ListOptions{ResourceVersion: c.list(t, "a", nil).ResourceVersion})
		byName, err := parseFields(t, "metadata.name=pod.2")
		if err != nil {
			t.Fatal(err)
		}
		second := c.watch(t, "a", &metainternalversion.ListOptions{FieldSelector: byName})
		fresh := c.watch(t, "a", nil)
		fresh.expect("without a version it begins with what is there", "ADDED a/pod.1@100")

		c.set(workload(kind.Pod, "b", "2", nil))
		c.set(workload(kind.Pod, "a", "2", nil))
		c.set(workload(kind.Pod, "a", "1", map[string]string{"l": "v"}))
		c.progress(110)
		c.remove(workload(kind.Pod, "b", "1", nil))
		all.expect("all namespaces", "ADDED b/pod.2@101", "ADDED a/pod.2@102", "MODIFIED a/pod.1@103", "DELETED b/pod.1@111")
		a.expect("one namespace", "ADDED a/pod.2@102", "MODIFIED a/pod.1@103")
		fresh.expect("one namespace", "ADDED a/pod.2@102", "MODIFIED a/pod.1@103")
		second.expect("one name", "ADDED a/pod.2@102")
	})
}

// To a client that selects, an object that is selected no longer is gone: it is told so
// with the object as it last was for it, in the version of the change.
func TestAnObjectThatIsSelectedNoLongerIsSentAsDeleted(t *testing.T) {
	db := func() ingesttest.Object {
		return workload(kind.Deployment, "shop", "web", map[string]string{"app": "web"}, "Secret/db")
	}
	tests := map[string]struct {
		labels, fields string
		change         ingesttest.Object
	}{
		"by its labels":           {"app=web", "", workload(kind.Deployment, "shop", "web", map[string]string{"app": "www"}, "Secret/db")},
		"by labels it now has":    {"!tier", "", workload(kind.Deployment, "shop", "web", map[string]string{"tier": "front"}, "Secret/db")},
		"by a source":             {"", "source=Secret/db", workload(kind.Deployment, "shop", "web", map[string]string{"app": "web"}, "ConfigMap/db")},
		"by a source it now has":  {"", "source!=Secret/new", workload(kind.Deployment, "shop", "web", nil, "Secret/db", "Secret/new")},
		"by a label and a source": {"app=web", "source=Secret/db", workload(kind.Deployment, "shop", "web", nil, "Secret/db")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, db())
				options := &metainternalversion.ListOptions{}
				var err error
				if options.LabelSelector, err = labels.Parse(tt.labels); err != nil {
					t.Fatal(err)
				}
				if options.FieldSelector, err = parseFields(t, tt.fields); err != nil {
					t.Fatal(err)
				}
				before := c.list(t, "shop", options)
				if len(before.Items) != 1 {
					t.Fatalf("the object is not selected to begin with: %v", listNames(t, before))
				}
				options.ResourceVersion = before.ResourceVersion
				w := c.watch(t, "shop", options)
				c.set(tt.change)
				changed, err := c.views.Lookup("shop", "deployment.web")
				if err != nil {
					t.Fatal(err)
				}
				typ, o := w.only()
				want := before.Items[0]
				want.ResourceVersion = changed.ResourceVersion
				if diff := cmp.Diff(&want, o); typ != watch.Deleted || diff != "" {
					t.Errorf("%s, the object (-want +got):\n%s", typ, diff)
				}
				c.set(tt.change)
				w.expect("a change of what is not selected")
				c.set(db())
				w.expect("it is selected again", "ADDED shop/deployment.web@103")
				c.remove(db())
				w.expect("it is deleted", "DELETED shop/deployment.web@104")
			})
		})
	}
}

// A state can be left because a user changes something, or because time goes by.
func TestAnObjectThatLeavesAStateIsSentAsDeletedToWhoSelectsTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := withWebInSync(t)
		selecting := map[v1alpha1.State]*watching{}
		for _, state := range []v1alpha1.State{v1alpha1.StateInSync, v1alpha1.StateSettling, v1alpha1.StatePending} {
			byState, err := parseFields(t, "status.state="+string(state))
			if err != nil {
				t.Fatal(err)
			}
			selecting[state] = c.watch(t, "shop", &metainternalversion.ListOptions{FieldSelector: byState})
		}
		selecting[v1alpha1.StateInSync].expect("at first", "ADDED shop/deployment.web@102")
		c.set(secret("db", "two", metav1.NewTime(c.clock.Now())))
		selecting[v1alpha1.StateInSync].expect("content has changed", "DELETED shop/deployment.web@103")
		selecting[v1alpha1.StateSettling].expect("content has changed", "ADDED shop/deployment.web@103")
		c.run(t)
		c.pass(999 * time.Millisecond)
		selecting[v1alpha1.StateSettling].expect("before the time is over")
		c.pass(time.Millisecond)
		selecting[v1alpha1.StateSettling].expect("the time is over", "DELETED shop/deployment.web@103")
		selecting[v1alpha1.StatePending].expect("the time is over", "ADDED shop/deployment.web@103")
		selecting[v1alpha1.StateInSync].expect("it has been out of sync all the time")
	})
}

// withWebInSync returns a cluster with a workload that is in sync, at revision 102.
func withWebInSync(t *testing.T) *cluster {
	t.Helper()
	w := web()
	c := newCluster(t, secret("db", "one", secondOf(3)), secret("share-key", "one", secondOf(3)), w)
	c.startPod("web-1", metav1.NewTime(secondOf(3).Add(time.Minute)))
	c.record(t, w)
	return c
}

// A workload of the same name is another object: clients that only look for changes would
// else take the one for the other.
func TestAWorkloadThatIsDeletedAndCreatedAgainIsAnotherObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := workload(kind.Deployment, "shop", "web", nil, "Secret/db")
		c := newCluster(t, w)
		list := c.list(t, "shop", nil)
		events := c.watch(t, "shop", &metainternalversion.ListOptions{ResourceVersion: list.ResourceVersion})
		c.remove(w)
		w.SetUID("another")
		c.set(w)
		got, _ := events.next()
		if diff := cmp.Diff([]string{"DELETED shop/deployment.web@101", "ADDED shop/deployment.web@102"}, told(t, got)); diff != "" {
			t.Fatalf("events (-want +got):\n%s", diff)
		}
		if gone, there := plain(got[0].Object).UID, plain(got[1].Object).UID; gone != list.Items[0].UID || there != render.UID("another") {
			t.Errorf("%s has gone and %s come, in the place of %s", gone, there, list.Items[0].UID)
		}
	})
}

// With another key of the hashes everything is shown again. Watches end, and cannot go on
// from where they were: clients list again, and have the new hashes.
func TestResetEndsWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, workload(kind.Deployment, "ns", "web", nil, "Secret/db"))
		version := c.list(t, "", nil).ResourceVersion
		events := c.watch(t, "", &metainternalversion.ListOptions{ResourceVersion: version})
		events.expect("at first")
		c.rekey(func() {
			if got, open := events.next(); open || len(got) != 0 {
				t.Errorf("after the reset: got %v, open %v", told(t, got), open)
			}
		})
		got, open := c.watch(t, "", &metainternalversion.ListOptions{ResourceVersion: version}).next()
		if open || len(got) != 1 || !apierrors.IsResourceExpired(apierrors.FromObject(got[0].Object)) {
			t.Errorf("from the version before: got %v, open %v", told(t, got), open)
		}
		c.watch(t, "", nil).expect("a client that lists again", "ADDED ns/deployment.web@200")
	})
}
