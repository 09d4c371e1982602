// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

// watching is a watch in a test.
type watching struct {
	t *testing.T
	watch.Interface
	// version is the version of the last event.
	version string
}

func startWatch(t *testing.T, where endpoint, namespace string, options metav1.ListOptions) *watching {
	t.Helper()
	w, err := where.ConfigdepV1alpha1().ConfigDependencies(namespace).Watch(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return &watching{t: t, Interface: w}
}

// next returns the next event, which must come.
func (w *watching) next() (watch.Event, *v1alpha1.ConfigDependency) {
	w.t.Helper()
	select {
	case e, open := <-w.ResultChan():
		if !open {
			w.t.Fatal("the watch has ended")
		}
		o, ok := e.Object.(*v1alpha1.ConfigDependency)
		if !ok {
			w.t.Fatalf("%s: %v", e.Type, apierrors.FromObject(e.Object))
		}
		w.version = o.ResourceVersion
		return e, o
	case <-time.After(await.Limit):
		w.t.Fatal("no event arrived")
	}
	return watch.Event{}, nil
}

// until returns the first event that a check accepts. Versions must increase.
func (w *watching) until(what string, check func(watch.EventType, *v1alpha1.ConfigDependency) bool) *v1alpha1.ConfigDependency {
	w.t.Helper()
	deadline := time.Now().Add(await.Limit)
	for time.Now().Before(deadline) {
		before := w.version
		e, o := w.next()
		if before != "" {
			if c, err := resourceversion.CompareResourceVersion(before, o.ResourceVersion); err != nil || c > 0 {
				w.t.Errorf("version %s after %s, %v", o.ResourceVersion, before, err)
			}
		}
		if check(e.Type, o) {
			return o
		}
	}
	w.t.Fatalf("never: %s", what)
	return nil
}

// event accepts an event of one object.
func event(want watch.EventType, name string) func(watch.EventType, *v1alpha1.ConfigDependency) bool {
	return func(typ watch.EventType, o *v1alpha1.ConfigDependency) bool { return typ == want && o.Name == name }
}

// Through the aggregator and at each replica, a watch from the version of a list sends every change after it, each
// with its own version.
func TestWatchFromAList(t *testing.T) {
	t.Parallel()
	for _, where := range everywhere {
		t.Run(where.name, func(t *testing.T) {
			t.Parallel()
			namespace := newNamespace(t)
			apps := kube.AppsV1().Deployments(namespace)
			list, err := where.ConfigdepV1alpha1().ConfigDependencies(namespace).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if list.ResourceVersion == "" || len(list.Items) != 0 {
				t.Fatalf("empty list: version %q, %d objects", list.ResourceVersion, len(list.Items))
			}
			w := startWatch(t, where, namespace, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
			w.version = list.ResourceVersion
			made := create(t, apps.Create, asleep("web", envFromSecret("db")))
			added := w.until("web is added", event(watch.Added, "deployment.web"))
			if added.Spec.WorkloadRef.UID != made.UID {
				t.Errorf("the UID is %s, not %s", added.Spec.WorkloadRef.UID, made.UID)
			}
			write(t, namespace, "Secret/db", "password", "x")
			w.until("the Secret is present", func(typ watch.EventType, o *v1alpha1.ConfigDependency) bool {
				return typ == watch.Modified && present(v1alpha1.SourceSecret, "db", true)(o) == nil
			})
			before := w.version
			remove(t, apps.Delete, "web")
			gone := w.until("web is deleted", event(watch.Deleted, "deployment.web"))
			if gone.ResourceVersion == before || gone.UID != added.UID {
				t.Errorf("deleted at version %s after %s, UID %s after %s", gone.ResourceVersion, before, gone.UID, added.UID)
			}
			again := create(t, apps.Create, asleep("web", envFromSecret("db")))
			if o := w.until("web is created again", event(watch.Added, "deployment.web")); o.UID == added.UID || o.Spec.WorkloadRef.UID != again.UID {
				t.Error("the workload that was created again has the UID of the previous one")
			}
			if err := kube.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			w.until("web is deleted with its namespace", event(watch.Deleted, "deployment.web"))

			// A client that resumes gets all these events again.
			again2 := startWatch(t, where, namespace, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
			for _, want := range []watch.EventType{watch.Added, watch.Deleted, watch.Added, watch.Deleted} {
				again2.until("the event is replayed", event(want, "deployment.web"))
			}
		})
	}
}

// The ways to start a watch.
func TestWatchFromTheBeginning(t *testing.T) {
	t.Parallel()
	namespace, empty := newNamespace(t), newNamespace(t)
	for _, name := range []string{"a", "b"} {
		create(t, kube.AppsV1().Deployments(namespace).Create, asleep(name))
		view(t, namespace, "deployment."+name)
	}
	yes, no := true, false
	notOlder := metav1.ResourceVersionMatchNotOlderThan
	all := []string{"ADDED deployment.a", "ADDED deployment.b"}
	for name, tt := range map[string]struct {
		namespace string
		options   metav1.ListOptions
		want      []string
	}{
		"without a version":                 {namespace, metav1.ListOptions{}, all},
		"from any version":                  {namespace, metav1.ListOptions{ResourceVersion: "0"}, all},
		"with bookmarks":                    {namespace, metav1.ListOptions{AllowWatchBookmarks: true}, all},
		"a label":                           {namespace, metav1.ListOptions{LabelSelector: "app=b"}, all[1:]},
		"a name":                            {namespace, metav1.ListOptions{FieldSelector: "metadata.name=deployment.a"}, all[:1]},
		"a state":                           {namespace, metav1.ListOptions{FieldSelector: "status.state=InSync"}, all},
		"watch-list":                        {namespace, metav1.ListOptions{SendInitialEvents: &yes, ResourceVersionMatch: notOlder, AllowWatchBookmarks: true}, append(all[:2:2], "BOOKMARK true")},
		"watch-list of nothing":             {empty, metav1.ListOptions{SendInitialEvents: &yes, ResourceVersionMatch: notOlder, AllowWatchBookmarks: true}, []string{"BOOKMARK true"}},
		"watch-list from any version":       {namespace, metav1.ListOptions{SendInitialEvents: &yes, ResourceVersionMatch: notOlder, AllowWatchBookmarks: true, ResourceVersion: "0"}, append(all[:2:2], "BOOKMARK true")},
		"watch-list of a label":             {namespace, metav1.ListOptions{SendInitialEvents: &yes, ResourceVersionMatch: notOlder, AllowWatchBookmarks: true, LabelSelector: "app=a"}, []string{all[0], "BOOKMARK true"}},
		"watch-list without initial events": {namespace, metav1.ListOptions{SendInitialEvents: &no, ResourceVersionMatch: notOlder, AllowWatchBookmarks: true}, nil},
		"watch-list without bookmarks":      {namespace, metav1.ListOptions{SendInitialEvents: &yes, ResourceVersionMatch: notOlder}, all},
	} {
		for _, where := range everywhere {
			t.Run(name+", "+where.name, func(t *testing.T) {
				t.Parallel()
				w := startWatch(t, where, tt.namespace, tt.options)
				var got []string
				for range tt.want {
					e, o := w.next()
					got = append(got, fmt.Sprint(e.Type, " ", o.Name, o.Annotations[metav1.InitialEventsAnnotationKey]))
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// Requests for versions that cannot be served get the errors that clients expect.
func TestVersionsThatCannotBeServed(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	path := resourcePath(namespace)
	for _, where := range everywhere {
		t.Run(where.name, func(t *testing.T) {
			t.Parallel()
			list, err := where.ConfigdepV1alpha1().ConfigDependencies(namespace).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			now, err := strconv.ParseUint(list.ResourceVersion, 10, 63)
			if err != nil {
				t.Fatal(err)
			}
			future := strconv.FormatUint(now*1000, 10)
			for what, query := range map[string]url.Values{
				"a watch from an invalid version":   {"watch": {"1"}, "resourceVersion": {"abc"}},
				"a list at an invalid version":      {"resourceVersion": {"abc"}},
				"a list at a negative version":      {"resourceVersion": {"-1"}},
				"exactly version 0":                 {"resourceVersion": {"0"}, "resourceVersionMatch": {"Exact"}},
				"a match without a version":         {"resourceVersionMatch": {"Exact"}},
				"an invalid token":                  {"continue": {"abc"}},
				"a watch-list without a match":      {"watch": {"1"}, "sendInitialEvents": {"true"}},
				"a watch-list with another match":   {"watch": {"1"}, "sendInitialEvents": {"true"}, "resourceVersionMatch": {"Exact"}},
				"a watch with an unsupported field": {"watch": {"1"}, "fieldSelector": {"spec.replicas=1"}},
			} {
				if got := send(t, where.Config, request{path: path + "?" + query.Encode()}); got.code != http.StatusBadRequest && got.code != http.StatusUnprocessableEntity {
					t.Errorf("%s: %d: %s", what, got.code, got.body)
				}
			}
			for what, query := range map[string]string{
				"list": "?resourceVersion=" + future, "get": "/deployment.x?resourceVersion=" + future,
			} {
				got := send(t, where.Config, request{path: path + query})
				var status metav1.Status
				if err := json.Unmarshal(got.body, &status); err != nil {
					t.Fatal(err)
				}
				if got.code != http.StatusGatewayTimeout || got.header.Get("Retry-After") == "" || !apierrors.HasStatusCause(&apierrors.StatusError{ErrStatus: status}, metav1.CauseTypeResourceVersionTooLarge) {
					t.Errorf("a %s at a future version: %d, Retry-After %q: %s", what, got.code, got.header.Get("Retry-After"), got.body)
				}
			}
			if got := send(t, where.Config, request{path: path + "?resourceVersionMatch=Exact&resourceVersion=1"}); got.code != http.StatusGone {
				t.Errorf("exactly an expired version: %d: %s", got.code, got.body)
			}
			// A watch gets this as an event: after an HTTP error, some clients retry for ever.
			w, err := where.ConfigdepV1alpha1().ConfigDependencies(namespace).Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			e := <-w.ResultChan()
			if err := apierrors.FromObject(e.Object); e.Type != watch.Error || !apierrors.IsResourceExpired(err) {
				t.Errorf("a watch from an expired version: %s %v", e.Type, err)
			}
		})
	}
}

// A watch ends after its timeout, shortly after a bookmark if the client wants bookmarks, from which the client
// can resume at any replica.
func TestWatchThatEnds(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	seconds := int64(4)
	for _, where := range everywhere {
		t.Run(where.name, func(t *testing.T) {
			t.Parallel()
			list, err := where.ConfigdepV1alpha1().ConfigDependencies(namespace).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			w := startWatch(t, where, namespace, metav1.ListOptions{ResourceVersion: list.ResourceVersion, TimeoutSeconds: &seconds, AllowWatchBookmarks: true})
			e, o := w.next()
			if e.Type != watch.Bookmark || o.Name != "" || o.Annotations[metav1.InitialEventsAnnotationKey] != "" {
				t.Errorf("%s of %q with annotations %v", e.Type, o.Name, o.Annotations)
			}
			if _, open := <-w.ResultChan(); open {
				t.Error("another event arrived")
			}
			plain := startWatch(t, where, namespace, metav1.ListOptions{TimeoutSeconds: &seconds})
			if e, open := <-plain.ResultChan(); open {
				t.Errorf("got a %s that was not requested", e.Type)
			}
		})
	}
}

// A watch is open for an hour. If it occupied a seat of priority and fairness all that time, a few watches would
// block all other requests.
func TestWatchesHoldNoSeat(t *testing.T) {
	t.Parallel()
	r := replica(t, "few-seats", install.ReplicaOptions{Args: []string{"--max-requests-inflight=2", "--max-mutating-requests-inflight=1"}})
	namespace := newNamespace(t)
	// Not as an administrator, who is exempt from limits.
	config := r.RESTConfig()
	create(t, kube.CoreV1().ServiceAccounts(namespace).Create, &corev1.ServiceAccount{ObjectMeta: metadata("viewer")})
	bind(t, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "viewer"}, namespace, "configdep-view", toRead)
	config.BearerToken = tokenOf(t, namespace, "viewer")
	where := endpoint{"few seats", config, clientset(t, config)}
	for range 30 {
		startWatch(t, where, namespace, metav1.ListOptions{AllowWatchBookmarks: true})
	}
	if _, err := where.ConfigdepV1alpha1().ConfigDependencies(namespace).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("list during 30 watches: %v", err)
	}
}

// kubectl get -w prints changes, and kubectl wait returns when its condition is met.
func TestKubectlWatch(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	write(t, namespace, "Secret/db", "password", "x")
	web := single("web", envFromSecret("db"))
	create(t, kube.AppsV1().Deployments(namespace).Create, web)
	view(t, namespace, "deployment.web")

	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	defer cancel()
	lines := make(chan string, 100)
	for _, args := range [][]string{
		{"get", "cfgdep", "-w"}, {"get", "cfgdep", "deployment.web", "-w"}, {"get", "cfgdep", "--watch-only", "-o", "name"},
	} {
		prefix := strings.Join(args, " ") + ": "
		cmd := cluster.Command(ctx, cluster.KubectlPath(), append([]string{"-n", namespace}, args...)...)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() {
			for scanner := bufio.NewScanner(out); scanner.Scan(); {
				lines <- prefix + strings.Join(strings.Fields(scanner.Text()), " ")
			}
		}()
		t.Cleanup(func() { _ = cmd.Wait() }) // killed with the context
	}
	seen := map[string]bool{}
	await := func(want ...string) {
		t.Helper()
		for _, prefix := range want {
			for found := false; !found; {
				for line := range seen {
					found = found || strings.HasPrefix(line, prefix)
				}
				if found {
					break
				}
				select {
				case line := <-lines:
					seen[line] = true
				case <-ctx.Done():
					t.Fatalf("kubectl did not print %q, but %v", prefix, seen)
				}
			}
		}
	}
	await("get cfgdep -w: deployment.web InSync", "get cfgdep deployment.web -w: deployment.web InSync")
	edit(t, kube.AppsV1().Deployments(namespace), "web", func(o *appsv1.Deployment) { optedIn(o) })
	await("get cfgdep -w: deployment.web InSync", "get cfgdep deployment.web -w: deployment.web InSync",
		"get cfgdep --watch-only -o name: configdependency.configdep.io/deployment.web")
	write(t, namespace, "Secret/db", "password", "y")
	kubectl(t, "-n", namespace, "wait", "--for=condition=InSync", "cfgdep/deployment.web", "--timeout=2m")
	kubectl(t, "-n", namespace, "wait", "--for=jsonpath={.status.lastReload.trigger}", "cfgdep/deployment.web", "--timeout=2m")
	remove(t, kube.AppsV1().Deployments(namespace).Delete, "web")
	kubectl(t, "-n", namespace, "wait", "--for=delete", "cfgdep/deployment.web", "--timeout=2m")
}
