// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
)

// elsewhere returns the version of a replica that has seen everything up to a revision.
func elsewhere(t *testing.T, revision uint64) *metainternalversion.ListOptions {
	t.Helper()
	other := newCluster(t)
	other.progress(revision)
	return &metainternalversion.ListOptions{ResourceVersion: other.list(t, "", nil).ResourceVersion}
}

// lag is the progress of a replica that waits for a resource on which nothing is written,
// while something has come of another one.
func (c *cluster) lag(latest uint64) dependency.Progress {
	at := c.at()
	at.Latest = latest
	return at
}

// A client that comes from another replica is sent what that may not have shown.
func TestWatchFromTheVersionOfAnotherReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		w := workload(kind.Pod, "ns", "1", nil)
		from := c.watch(t, "ns", elsewhere(t, 105))
		c.set(w)
		from.expect("an input that it has seen")
		c.views.Changed(c.now(), c.lag(110), dependency.Delta{Workloads: []dependency.WorkloadKey{keyOf(w)}})
		c.catchUp()
		from.expect("one that may be newer, and shows only now", "MODIFIED ns/pod.1@105")
	})
	synctest.Test(t, func(t *testing.T) {
		c := withWebInSync(t)
		c.set(secret("db", "two", metav1.NewTime(c.clock.Now())))
		from := c.watch(t, "shop", elsewhere(t, 105))
		c.run(t)
		c.pass(time.Second)
		from.expect("what follows from the time, and what time alone has caused", "MODIFIED shop/deployment.web@105", "MODIFIED shop/deployment.web@105")
	})
	synctest.Test(t, func(t *testing.T) {
		off := web()
		off.Annotations = map[string]string{policy.ReloadAnnotation: "off"}
		c := newCluster(t, secret("db", "one", secondOf(3)), secret("share-key", "one", secondOf(3)), off)
		c.startPod("web-1", c.minuteLater())
		c.watch(t, "shop", elsewhere(t, c.Version)).expect("containers that started after this replica")
	})
}

// minuteLater lets a minute pass, and returns the time.
func (c *cluster) minuteLater() metav1.Time {
	c.clock.Step(time.Minute)
	return metav1.NewTime(c.clock.Now())
}

// replica returns a replica that starts now and reads the same cluster. The one before reads nothing more.
func (c *cluster) replica(t *testing.T) *cluster {
	t.Helper()
	views := NewViews(0, nil, nil, c.clock)
	t.Cleanup(func() { end(views) })
	views.Reset()
	r := &cluster{c.Cluster, c.clock, views, NewREST(views, nil)}
	r.start(ingest.Scope{})
	r.sync(t)
	return r
}

// A replica that has seen what happened knows more than one that started later. A client that goes to the younger one is sent all workloads with containers
// that are older than that, and one that goes to the older one what that alone has seen.
func TestWatchFromAReplicaOfAnotherAge(t *testing.T) {
	labelled := func(s *corev1.Secret) *corev1.Secret {
		s.Labels = map[string]string{"team": "shop"}
		return s
	}
	for name, tt := range map[string]struct {
		change         func(*cluster)
		older, younger v1alpha1.State
		fromYounger    string // what a client gets from the older replica that comes from the younger one
	}{
		"nothing happens": {func(*cluster) {}, v1alpha1.StateInSync, v1alpha1.StateInSync, ""},
		"content has changed": {
			func(c *cluster) { c.set(secret("db", "two", c.minuteLater())) },
			v1alpha1.StateStale, v1alpha1.StateUnknown, "MODIFIED",
		},
		"content has changed, and a pod has read it": {
			func(c *cluster) {
				c.set(secret("db", "two", c.minuteLater()))
				c.startPod("web-1", c.minuteLater())
			},
			v1alpha1.StateInSync, v1alpha1.StateInSync, "",
		},
		"content has changed, a pod has read it, and then a label was written": {
			func(c *cluster) {
				c.set(secret("db", "two", c.minuteLater()))
				c.startPod("web-1", c.minuteLater())
				c.set(labelled(secret("db", "two", c.minuteLater())))
			},
			v1alpha1.StateInSync, v1alpha1.StateUnknown, "MODIFIED",
		},
		"a label was written": {
			func(c *cluster) { c.set(labelled(secret("db", "one", c.minuteLater()))) },
			v1alpha1.StateInSync, v1alpha1.StateUnknown, "MODIFIED",
		},
		"content has changed and changed back": {
			func(c *cluster) {
				c.set(secret("db", "two", c.minuteLater()))
				c.startPod("web-1", c.minuteLater())
				c.set(secret("db", "one", c.minuteLater()))
			},
			v1alpha1.StateStale, v1alpha1.StateUnknown, "MODIFIED",
		},
		"a key was removed, which leaves no time": {
			func(c *cluster) {
				c.minuteLater()
				s := secret("db", "one", secondOf(3))
				s.Data = nil
				c.set(s)
			},
			v1alpha1.StateStale, v1alpha1.StateInSync, "MODIFIED",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				older := newCluster(t, secret("db", "one", secondOf(3)), secret("share-key", "one", secondOf(3)), web(annotated(policy.ReloadAnnotation, "off")))
				older.startPod("web-1", older.minuteLater())
				tt.change(older)
				older.minuteLater()
				younger := older.replica(t)
				byOlder, byYounger := older.list(t, "shop", nil), younger.list(t, "shop", nil)
				if a, b := byOlder.Items[0].Status, byYounger.Items[0].Status; a.State != tt.older || b.State != tt.younger {
					t.Errorf("states %s (%s) and %s (%s), want %s and %s", a.State, a.Message, b.State, b.Message, tt.older, tt.younger)
				}
				for _, hop := range []struct {
					why  string
					to   *cluster
					from *v1alpha1.ConfigDependencyList
					want string
				}{{"from the older replica", younger, byOlder, "MODIFIED"}, {"from the younger replica", older, byYounger, tt.fromYounger}} {
					events, _ := hop.to.watch(t, "shop", &metainternalversion.ListOptions{ResourceVersion: hop.from.ResourceVersion}).next()
					got := strings.Join(told(t, events), ", ")
					if got, _, _ = strings.Cut(got, " shop/"); got != hop.want {
						t.Errorf("%s: %q, want %q", hop.why, got, hop.want)
					}
				}
			})
		})
	}
}

// Another replica may have shown for a moment that an object uses a source, or was in a
// state, as that depends on several resources; but never with a label that it had not.
func TestWhatMayHaveBeenSelectedElsewhere(t *testing.T) {
	for selector, want := range map[string][]string{
		"status.state=Failed":      {"DELETED ns/pod.1@101"},
		"source=Secret/db":         {"DELETED ns/pod.1@101"},
		"spec.workloadRef.name=2":  nil,
		"metadata.name=pod.2":      nil,
		"metadata.namespace=other": nil,
		"app=web":                  nil,
	} {
		t.Run(selector, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, workload(kind.Pod, "ns", "1", nil))
				options := elsewhere(t, 100)
				var err error
				if selector == "app=web" {
					options.LabelSelector, err = labels.Parse(selector)
				} else {
					options.FieldSelector, err = parseFields(t, selector)
				}
				if err != nil {
					t.Fatal(err)
				}
				from := c.watch(t, "ns", options)
				c.set(workload(kind.Pod, "ns", "1", nil))
				from.expect("something is written that it depends on", want...)
			})
		})
	}
}

// Where a resource was lost and listed again, what had gone meanwhile was not seen. Clients
// that may have seen it elsewhere list again.
func TestARelistEndsWatchesThatBeganElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, workload(kind.Pod, "ns", "1", nil))
		own := c.watch(t, "ns", nil)
		own.expect("at first", "ADDED ns/pod.1@100")
		from := c.watch(t, "ns", elsewhere(t, 105))
		c.progress(110)
		c.relist(t, 120)
		if got, open := from.next(); open || len(got) != 0 {
			t.Errorf("one that began elsewhere: got %v, open %v", told(t, got), open)
		}
		if got, open := c.watch(t, "ns", elsewhere(t, 115)).next(); open || !cmp.Equal(told(t, got), []string{"ERROR 410"}) {
			t.Errorf("from a version before the list: got %v, open %v", told(t, got), open)
		}
		c.set(workload(kind.Pod, "ns", "1", nil))
		own.expect("one that began here", "MODIFIED ns/pod.1@111")
	})
}

// Where resources do not have revisions of one counter, or that is not known yet, versions
// of other replicas say nothing.
func TestWithoutOneCounterVersionsOfOtherReplicasAreExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, workload(kind.Pod, "ns", "1", nil))
		own, from := c.watch(t, "ns", nil), c.watch(t, "ns", elsewhere(t, 105))
		own.expect("at first", "ADDED ns/pod.1@100")
		at := c.at()
		at.OneCounter = false
		c.views.Progressed(at)
		c.catchUp()
		if got, open := from.next(); open || len(got) != 0 {
			t.Errorf("one that began elsewhere: got %v, open %v", told(t, got), open)
		}
		if got, open := c.watch(t, "ns", elsewhere(t, 105)).next(); open || !cmp.Equal(told(t, got), []string{"ERROR 410"}) {
			t.Errorf("another one: got %v, open %v", told(t, got), open)
		}
		if _, err := c.rest.List(in("ns"), elsewhere(t, 100)); !apierrors.IsResourceExpired(err) {
			t.Errorf("list: %v", err)
		}
		c.progress(106)
		c.watch(t, "ns", elsewhere(t, 105)).expect("when it is known")

		at = c.at()
		at.OneCounter, at.SeveralCounters = false, true
		before := c.list(t, "ns", nil).ResourceVersion
		c.views.Progressed(at)
		c.catchUp()
		c.views.Changed(c.now(), at, dependency.Delta{Workloads: []dependency.WorkloadKey{{Kind: kind.Pod, Namespace: "ns", Name: "1"}}})
		c.catchUp()
		if after := c.list(t, "ns", nil).ResourceVersion; revisionOf(t, after) < 1<<39 || number(t, after) <= number(t, before) {
			t.Errorf("version %s after %s: it could be taken for one with a revision", after, before)
		}
		if events, open := own.next(); !open || len(events) != 1 || events[0].Type != watch.Modified {
			t.Errorf("one that began here: got %v, open %v", told(t, events), open)
		}
		c.progress(107)
		if got, open := c.watch(t, "ns", elsewhere(t, 107)).next(); open || !cmp.Equal(told(t, got), []string{"ERROR 410"}) {
			t.Errorf("it is so for ever: got %v, open %v", told(t, got), open)
		}
	})
}
