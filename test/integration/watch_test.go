// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"context"
	"strings"
	"testing"
	"time"

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
