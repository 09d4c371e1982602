package configdependency

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
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
	wg.Go(func() { c.views.Run(t.Context(), c) })
	t.Cleanup(wg.Wait)
	synctest.Wait()
}

// pass lets time pass.
func (c *cluster) pass(d time.Duration) {
	synctest.Wait() // until the queue waits for it
	c.clock.Step(d)
	synctest.Wait()
}

// A client that lists and then watches sees what changes, in the order in which it does.
func TestWatchSendsWhatHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, workload(dependency.Pod, "a", "1", nil), workload(dependency.Pod, "b", "1", nil))
		all := c.watch(t, "", &metainternalversion.ListOptions{ResourceVersion: c.list(t, "", nil).ResourceVersion})
		a := c.watch(t, "a", &metainternalversion.ListOptions{ResourceVersion: c.list(t, "a", nil).ResourceVersion})
		byName, err := parseFields(t, "metadata.name=pod.2")
		if err != nil {
			t.Fatal(err)
		}
		second := c.watch(t, "a", &metainternalversion.ListOptions{FieldSelector: byName})
		anew := c.watch(t, "a", nil)
		anew.expect("without a version it begins with what is there", "ADDED a/pod.1@100")

		c.set(workload(dependency.Pod, "b", "2", nil))
		c.set(workload(dependency.Pod, "a", "2", nil))
		c.set(workload(dependency.Pod, "a", "1", map[string]string{"l": "v"}))
		c.progress(110)
		c.remove(workload(dependency.Pod, "b", "1", nil).WorkloadKey)
		all.expect("all namespaces", "ADDED b/pod.2@101", "ADDED a/pod.2@102", "MODIFIED a/pod.1@103", "DELETED b/pod.1@111")
		a.expect("one namespace", "ADDED a/pod.2@102", "MODIFIED a/pod.1@103")
		anew.expect("one namespace", "ADDED a/pod.2@102", "MODIFIED a/pod.1@103")
		second.expect("one name", "ADDED a/pod.2@102")
	})
}

// To a client that selects, an object that is selected no longer is gone: it is told so
// with the object as it last was for it, in the version of the change.
func TestAnObjectThatIsSelectedNoLongerIsSentAsDeleted(t *testing.T) {
	db := func() *dependency.Workload {
		return workload(dependency.Deployment, "shop", "web", map[string]string{"app": "web"}, "Secret/db")
	}
	tests := map[string]struct {
		labels, fields string
		change         *dependency.Workload
	}{
		"by its labels":           {"app=web", "", workload(dependency.Deployment, "shop", "web", map[string]string{"app": "www"}, "Secret/db")},
		"by labels it now has":    {"!tier", "", workload(dependency.Deployment, "shop", "web", map[string]string{"tier": "front"}, "Secret/db")},
		"by a source":             {"", "source=Secret/db", workload(dependency.Deployment, "shop", "web", map[string]string{"app": "web"}, "ConfigMap/db")},
		"by a source it now has":  {"", "source!=Secret/new", workload(dependency.Deployment, "shop", "web", nil, "Secret/db", "Secret/new")},
		"by a label and a source": {"app=web", "source=Secret/db", workload(dependency.Deployment, "shop", "web", nil, "Secret/db")},
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
				c.remove(db().WorkloadKey)
				w.expect("it is deleted", "DELETED shop/deployment.web@104")
			})
		})
	}
}

// A state can be left because somebody changes something, or because time goes by.
func TestAnObjectThatLeavesAStateIsSentAsDeletedToWhoSelectsTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, w := withWebInSync(t)
		selecting := map[v1alpha1.State]*watching{}
		for _, state := range []v1alpha1.State{v1alpha1.StateInSync, v1alpha1.StateSettling, v1alpha1.StatePending} {
			byState, err := parseFields(t, "status.state="+string(state))
			if err != nil {
				t.Fatal(err)
			}
			selecting[state] = c.watch(t, "shop", &metainternalversion.ListOptions{FieldSelector: byState})
		}
		selecting[v1alpha1.StateInSync].expect("at first", "ADDED shop/deployment.web@101")
		c.secret("db", "two", secondOf(4), now)
		c.set(w)
		selecting[v1alpha1.StateInSync].expect("content has changed", "DELETED shop/deployment.web@102")
		selecting[v1alpha1.StateSettling].expect("content has changed", "ADDED shop/deployment.web@102")
		c.run(t)
		c.pass(999 * time.Millisecond)
		selecting[v1alpha1.StateSettling].expect("before the time is over")
		c.pass(time.Millisecond)
		selecting[v1alpha1.StateSettling].expect("the time is over", "DELETED shop/deployment.web@102")
		selecting[v1alpha1.StatePending].expect("the time is over", "ADDED shop/deployment.web@102")
		selecting[v1alpha1.StateInSync].expect("it has been out of sync all the time")
	})
}

// withWebInSync returns a cluster with a workload that is in sync, at revision 101.
func withWebInSync(t *testing.T) (*cluster, *dependency.Workload) {
	t.Helper()
	c, w := newCluster(t), web()
	c.secret("db", "one", secondOf(3), time.Time{})
	c.secret("share-key", "one", secondOf(3), time.Time{})
	c.record(t, w)
	c.set(w)
	return c, w
}

// Nothing happens in the cluster, and yet a watch tells that the time has come.
func TestTimeAloneMakesAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, w := withWebInSync(t)
		c.secret("db", "two", secondOf(4), now)
		c.set(w)
		list := c.list(t, "shop", nil)
		if state := list.Items[0].Status.State; state != v1alpha1.StateSettling {
			t.Fatalf("state %s", state)
		}
		events := c.watch(t, "shop", &metainternalversion.ListOptions{ResourceVersion: list.ResourceVersion})
		c.run(t)
		c.pass(999 * time.Millisecond)
		events.expect("before the time is over")
		c.pass(time.Millisecond)
		typ, o := events.only()
		if typ != watch.Modified || o.Status.State != v1alpha1.StatePending {
			t.Errorf("%s with state %s", typ, o.Status.State)
		}
		if before := list.ResourceVersion; number(t, o.ResourceVersion) <= number(t, before) {
			t.Errorf("version %s after %s", o.ResourceVersion, before)
		}
		// Who has that version need not be told again, and who has the one before is.
		again := c.watch(t, "shop", &metainternalversion.ListOptions{ResourceVersion: o.ResourceVersion})
		again.expect("from the version of the event")
		before := c.watch(t, "shop", &metainternalversion.ListOptions{ResourceVersion: list.ResourceVersion})
		before.expect("from the version before", "MODIFIED shop/deployment.web@102")
	})
}

// The version of a deletion is beyond that of the object, so that a client that goes on
// from there is not told of it again.
func TestADeletionHasAVersionOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := workload(dependency.Deployment, "shop", "web", nil, "Secret/db")
		c := newCluster(t, w)
		list := c.list(t, "shop", nil)
		events := c.watch(t, "shop", &metainternalversion.ListOptions{ResourceVersion: list.ResourceVersion})
		c.remove(w.WorkloadKey)
		typ, o := events.only()
		if typ != watch.Deleted || o.UID != list.Items[0].UID || o.Spec.WorkloadRef.Name != "web" {
			t.Errorf("%s %+v", typ, o)
		}
		if last := list.Items[0].ResourceVersion; number(t, o.ResourceVersion) <= number(t, last) || revisionOf(t, o.ResourceVersion) != 101 {
			t.Errorf("deleted in version %s, the last one was %s", o.ResourceVersion, last)
		}
		again := c.watch(t, "shop", &metainternalversion.ListOptions{ResourceVersion: o.ResourceVersion})
		again.expect("from the version of the deletion")
		c.set(w)
		again.expect("from the version of the deletion on", "ADDED shop/deployment.web@102")
	})
}

// A workload of the same name is another object: clients that only look for changes would
// else take the one for the other.
func TestAWorkloadThatIsDeletedAndCreatedAgainIsAnotherObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := workload(dependency.Deployment, "shop", "web", nil, "Secret/db")
		c := newCluster(t, w)
		list := c.list(t, "shop", nil)
		events := c.watch(t, "shop", &metainternalversion.ListOptions{ResourceVersion: list.ResourceVersion})
		recreated := *w
		recreated.UID = "another"
		c.remove(w.WorkloadKey)
		c.set(&recreated)
		got, _ := events.next()
		if diff := cmp.Diff([]string{"DELETED shop/deployment.web@101", "ADDED shop/deployment.web@102"}, told(t, got)); diff != "" {
			t.Fatalf("events (-want +got):\n%s", diff)
		}
		if gone, there := plain(got[0].Object).UID, plain(got[1].Object).UID; gone != list.Items[0].UID || there != UID("another") {
			t.Errorf("%s has gone and %s come, in the place of %s", gone, there, list.Items[0].UID)
		}
	})
}

// Clients that ask for it get what is there as events, and are told when that was all.
func TestInitialEventsAndBookmarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, workload(dependency.Pod, "ns", "1", nil))
		yes, no := true, false
		asked := c.watch(t, "ns", &metainternalversion.ListOptions{SendInitialEvents: &yes, AllowWatchBookmarks: true})
		events, _ := asked.next()
		if diff := cmp.Diff([]string{"ADDED ns/pod.1@100", "BOOKMARK /@100"}, told(t, events)); diff != "" {
			t.Fatalf("events (-want +got):\n%s", diff)
		}
		if got := plain(events[1].Object).Annotations[metav1.InitialEventsAnnotationKey]; got != "true" {
			t.Errorf("the annotation is %q", got)
		}
		c.watch(t, "ns", &metainternalversion.ListOptions{SendInitialEvents: &yes}).expect("without bookmarks", "ADDED ns/pod.1@100")
		c.watch(t, "ns", &metainternalversion.ListOptions{SendInitialEvents: &no}).expect("without what is there")
	})
}

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
		w := workload(dependency.Pod, "ns", "1", nil)
		from := c.watch(t, "ns", elsewhere(t, 105))
		c.set(w)
		from.expect("an input that it has seen")
		c.views.Changed(c.graph, c.lag(110), []dependency.WorkloadKey{w.WorkloadKey})
		from.expect("one that may be newer, and shows only now", "MODIFIED ns/pod.1@105")
	})
	synctest.Test(t, func(t *testing.T) {
		c, w := withWebInSync(t)
		c.secret("db", "two", secondOf(4), now)
		c.set(w)
		from := c.watch(t, "shop", elsewhere(t, 105))
		c.run(t)
		c.pass(time.Second)
		from.expect("what follows from the time, and what time alone has caused", "MODIFIED shop/deployment.web@105", "MODIFIED shop/deployment.web@105")
	})
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
				c := newCluster(t, workload(dependency.Pod, "ns", "1", nil))
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
				c.set(workload(dependency.Pod, "ns", "1", nil))
				from.expect("something is written that it depends on", want...)
			})
		})
	}
}

// Where a resource was lost and listed again, what had gone meanwhile was not seen. Clients
// that may have seen it elsewhere begin anew.
func TestARelistEndsWatchesThatBeganElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, workload(dependency.Pod, "ns", "1", nil))
		own := c.watch(t, "ns", nil)
		own.expect("at first", "ADDED ns/pod.1@100")
		from := c.watch(t, "ns", elsewhere(t, 105))
		c.floor = 120
		c.progress(110)
		if got, open := from.next(); open || len(got) != 0 {
			t.Errorf("one that began elsewhere: got %v, open %v", told(t, got), open)
		}
		if got, open := c.watch(t, "ns", elsewhere(t, 115)).next(); open || !cmp.Equal(told(t, got), []string{"ERROR 410"}) {
			t.Errorf("from a version before the list: got %v, open %v", told(t, got), open)
		}
		c.set(workload(dependency.Pod, "ns", "1", nil))
		own.expect("one that began here", "MODIFIED ns/pod.1@111")
	})
}

// Where resources do not have revisions of one counter, or that is not known yet, versions
// of other replicas say nothing.
func TestWithoutOneCounterVersionsOfOtherReplicasAreExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, workload(dependency.Pod, "ns", "1", nil))
		own, from := c.watch(t, "ns", nil), c.watch(t, "ns", elsewhere(t, 105))
		own.expect("at first", "ADDED ns/pod.1@100")
		at := c.at()
		at.OneCounter = false
		c.views.Progressed(at)
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
		c.views.Changed(c.graph, at, []dependency.WorkloadKey{{Kind: dependency.Pod, Namespace: "ns", Name: "1"}})
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

// Before the sync nothing is known, and a watch is refused as every other request.
func TestWatchBeforeTheSync(t *testing.T) {
	c := unsynced(t)
	for _, version := range []string{"", "0", "123456789"} {
		w, err := c.rest.Watch(in(""), &metainternalversion.ListOptions{ResourceVersion: version})
		if seconds, ok := apierrors.SuggestsClientDelay(err); !apierrors.IsServiceUnavailable(err) || !ok || seconds != 1 {
			t.Errorf("from version %q: %v, %v, try again in %d s", version, w, err, seconds)
		}
	}
}

// With another key of the hashes everything is shown anew. Watches end, and cannot go on
// from where they were: clients list again, and have the new hashes.
func TestResetEndsWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, workload(dependency.Deployment, "ns", "web", nil, "Secret/db"))
		version := c.list(t, "", nil).ResourceVersion
		events := c.watch(t, "", &metainternalversion.ListOptions{ResourceVersion: version})
		events.expect("at first")
		c.digester = dependency.NewDigester(bytes.Repeat([]byte{9}, dependency.KeySize))
		c.views.Reset(c.digester)
		if got, open := events.next(); open || len(got) != 0 {
			t.Errorf("after the reset: got %v, open %v", told(t, got), open)
		}
		c.sync(200)
		got, open := c.watch(t, "", &metainternalversion.ListOptions{ResourceVersion: version}).next()
		if open || len(got) != 1 || !apierrors.IsResourceExpired(apierrors.FromObject(got[0].Object)) {
			t.Errorf("from the version before: got %v, open %v", told(t, got), open)
		}
		c.watch(t, "", nil).expect("a client that begins anew", "ADDED ns/deployment.web@200")
	})
}

// encodeEvent writes an event as the handlers of the generic API server do. What they ask
// of an object that many watches send is named by the format.
func encodeEvent(r *REST, format string, e watch.Event) ([]byte, error) {
	var out bytes.Buffer
	encode := func(o runtime.Object, w io.Writer) error {
		var inner []byte
		switch format {
		case "json":
			var err error
			if inner, err = runtime.Encode(encoder, o); err != nil {
				return err
			}
		case "table":
			table, err := r.ConvertToTable(in(""), o, &metav1.TableOptions{})
			if err != nil {
				return err
			}
			m, err := meta.Accessor(table.Rows[0].Object.Object)
			if err != nil {
				return err
			}
			partial := meta.AsPartialObjectMetadata(m)
			partial.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
			table.Rows[0].Object.Object = partial
			if inner, err = json.Marshal(table); err != nil {
				return err
			}
		}
		return json.NewEncoder(w).Encode(metav1.WatchEvent{Type: string(e.Type), Object: runtime.RawExtension{Raw: inner}})
	}
	var err error
	if shared, ok := e.Object.(runtime.CacheableObject); ok {
		err = shared.CacheEncode(runtime.Identifier(format+string(e.Type)), encode, &out)
	} else {
		err = encode(e.Object, &out)
	}
	return out.Bytes(), err
}

// Several watches send the same event, and each handler does with its object what it likes:
// it sets the type, converts it to a table, or changes all of it. None sees that of another,
// and nor do those who read the object afterwards. The race detector looks on.
func TestWhatAWatchDoesWithAnObjectIsNotSeenByOthers(t *testing.T) {
	c := newCluster(t, workload(dependency.Deployment, "ns", "web", map[string]string{"i": "0"}, "Secret/db"))
	const changes = 300
	from := &metainternalversion.ListOptions{ResourceVersion: c.list(t, "ns", nil).ResourceVersion}
	var wg sync.WaitGroup
	for range 2 {
		for _, format := range []string{"json", "table", "spoil"} {
			w, err := c.rest.Watch(in("ns"), from)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(w.Stop)
			wg.Go(func() {
				for i := range changes {
					e, open := <-w.ResultChan()
					if !open {
						t.Error("the watch has ended")
						return
					}
					if format == "spoil" {
						if got := plain(e.Object).Labels["i"]; got != fmt.Sprint(i+1) {
							t.Errorf("event %d has label %q", i, got)
						}
						spoil(plain(e.Object))
						continue
					}
					raw, err := encodeEvent(c.rest, format, e)
					if err != nil {
						t.Error(err)
						return
					}
					// Two labels tell that it is this event and that nobody has spoilt it.
					for _, want := range []string{`"type":"MODIFIED"`, fmt.Sprintf(`"i":"%d"`, i+1), `"name":"deployment.web"`} {
						if !strings.Contains(string(raw), want) {
							t.Errorf("event %d as %s has no %s: %s", i, format, want, raw)
							return
						}
					}
				}
			})
		}
	}
	for i := range changes {
		c.set(workload(dependency.Deployment, "ns", "web", map[string]string{"i": fmt.Sprint(i + 1)}, "Secret/db"))
	}
	wg.Wait()
	o, err := c.views.Lookup("ns", "deployment.web")
	if err != nil {
		t.Fatal(err)
	}
	want := c.render(workload(dependency.Deployment, "ns", "web", map[string]string{"i": fmt.Sprint(changes)}, "Secret/db"), number(t, o.ResourceVersion))
	if diff := cmp.Diff(want, o); diff != "" {
		t.Errorf("what is served (-want +got):\n%s", diff)
	}
}

// The same for the objects that a watch begins with, and for those that it sends as deleted.
func TestWhatAWatchBeginsWithIsACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, workload(dependency.Deployment, "ns", "web", map[string]string{"app": "web"}, "Secret/db"))
		before := c.list(t, "ns", nil)
		options := &metainternalversion.ListOptions{LabelSelector: labels.SelectorFromSet(labels.Set{"app": "web"})}
		one, other := c.watch(t, "ns", options), c.watch(t, "ns", options)
		_, o := one.only()
		spoil(o)
		if _, o := other.only(); !cmp.Equal(&before.Items[0], o) {
			t.Errorf("the other watch begins with (-want +got):\n%s", cmp.Diff(&before.Items[0], o))
		}
		if after := c.list(t, "ns", nil); !cmp.Equal(before, after) {
			t.Errorf("what is served has changed (-before +after):\n%s", cmp.Diff(before, after))
		}
		c.set(workload(dependency.Deployment, "ns", "web", nil, "Secret/db"))
		_, o = one.only()
		spoil(o)
		if typ, o := other.only(); typ != watch.Deleted || o.Name != "deployment.web" || o.Labels["app"] != "web" {
			t.Errorf("the other watch gets %s %+v", typ, o)
		}
	})
}
