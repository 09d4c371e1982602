// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/judge"
	"github.com/configdep/configdep/test/await"
)

// awaitPods waits until each replica shows the wanted states of the pods of a workload, by name. Replicas see
// changes independently.
func awaitPods(t *testing.T, namespace, name string, want map[string]v1alpha1.ContentState) (got *v1alpha1.ConfigDependencyPods) {
	t.Helper()
	for _, where := range everywhere {
		await.Until(t, fmt.Sprintf("%s knows the pods of %s", where.name, name), func(ctx context.Context) error {
			var err error
			got, err = where.ConfigdepV1alpha1().ConfigDependencies(namespace).GetPods(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			states := map[string]v1alpha1.ContentState{}
			for i := range got.Pods {
				states[got.Pods[i].Name] = got.Pods[i].State
			}
			if diff := cmp.Diff(want, states); diff != "" {
				return fmt.Errorf("(-want +got):\n%s\n%+v", diff, got.Pods)
			}
			return nil
		})
	}
	return got
}

// awaitAge waits until all containers of the pods of an application have run for so long that a change can be told from
// their starts.
func awaitAge(t *testing.T, namespace, app string) {
	t.Helper()
	const age = judge.ClockMargin + 2*time.Second // and the precision of both times
	await.Until(t, fmt.Sprintf("the containers of %s have run for %v", app, age), func(ctx context.Context) error {
		list, err := kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
		if err != nil {
			return err
		}
		for i := range list.Items {
			p := &list.Items[i]
			for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
				started := p.CreationTimestamp.Time
				switch {
				case c.State.Running != nil:
					started = c.State.Running.StartedAt.Time
				case c.State.Terminated != nil:
					started = c.State.Terminated.StartedAt.Time
				}
				if ran := time.Since(started); ran < age {
					return fmt.Errorf("%s of %s has run for %v", c.Name, p.Name, ran)
				}
			}
		}
		return nil
	})
}

// A rollout that waits until pods are deleted leaves pods with old content, which are distinguished from the new
// ones.
func TestPodsThatWereNotReplacedAreStale(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	write(t, namespace, "Secret/db", "password", "x", "unread", "x")
	o := statefulSet("web", envSecretKey("db", "password"))
	o.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
	o.Spec.Template.Spec.Containers = append(o.Spec.Template.Spec.Containers, corev1.Container{Name: "side", Image: "side"})
	optedIn(o)
	create(t, kube.AppsV1().StatefulSets(namespace).Create, o)
	runningPods(t, namespace, "web", 2, nil)
	view(t, namespace, "statefulset.web", applied)
	current, stale := v1alpha1.ContentCurrent, v1alpha1.ContentStale
	before := awaitPods(t, namespace, "statefulset.web", map[string]v1alpha1.ContentState{"web-0": current, "web-1": current})

	awaitAge(t, namespace, "web")
	write(t, namespace, "Secret/db", "unread", "y")
	write(t, namespace, "Secret/db", "password", "y")
	view(t, namespace, "statefulset.web", is(v1alpha1.StateStale, "Held"))
	awaitPods(t, namespace, "statefulset.web", map[string]v1alpha1.ContentState{"web-0": stale, "web-1": stale})

	answer := reload(t, namespace, "statefulset.web", v1alpha1.ReloadSpec{Mode: v1alpha1.ReloadIfStale})
	if want := "but 2 of 2 pods have an older pod template; its update strategy is OnDelete"; answer.Triggered || !strings.Contains(answer.Message, want) {
		t.Errorf("answer = %+v, want %q", answer, want)
	}

	remove(t, kube.CoreV1().Pods(namespace).Delete, "web-1")
	got := awaitPods(t, namespace, "statefulset.web", map[string]v1alpha1.ContentState{"web-0": stale, "web-1": current})
	if want := (v1alpha1.PodSummary{Current: 1, Stale: 1}); got.Summary != want {
		t.Errorf("summary = %+v", got.Summary)
	}
	web0, web1 := &got.Pods[0], &got.Pods[1]
	if got.TemplateRevision == before.TemplateRevision || web1.TemplateRevision != got.TemplateRevision || web0.TemplateRevision != before.TemplateRevision {
		t.Errorf("revision = %[2]q, was %[1]q; the pods have %[3]q and %[4]q", before.TemplateRevision, got.TemplateRevision, web0.TemplateRevision, web1.TemplateRevision)
	}
	if !slices.Equal(web0.StaleSources, []string{"Secret/db"}) || web0.Reason != "StartedBefore" || web0.NodeName == "" || web0.UID == "" {
		t.Errorf("%+v", web0)
	}
	var states []string
	for _, c := range web0.Containers {
		states = append(states, fmt.Sprintf("%s %s %s", c.Name, c.State, c.Reason))
		if c.StartedAt.IsZero() || c.Type != v1alpha1.ContainerRegular {
			t.Errorf("%+v", c)
		}
	}
	if diff := cmp.Diff([]string{"app Stale StartedBefore", "side Current NothingRead"}, states); diff != "" {
		t.Errorf("containers of web-0 (-want +got):\n%s", diff)
	}
	if sources := web0.Containers[0].Sources; len(sources) != 1 || sources[0].Kind != "Secret" || sources[0].Name != "db" || sources[0].LastChangeTime.IsZero() {
		t.Errorf("sources of web-0 = %+v", sources)
	}

	t.Run("kubectl prints a table", func(t *testing.T) {
		lines := shown(namespace, kubectl(t, "-n", namespace, "get", "cfgdep", "statefulset.web", "--subresource=pods"))
		for i := range lines {
			lines[i] = strings.NewReplacer(before.TemplateRevision, "OLD", got.TemplateRevision, "NEW", web0.NodeName, "NODE", web1.NodeName, "NODE").Replace(lines[i])
		}
		want := []string{
			"NAME | STATE | NODE | REVISION | STARTED | AGE | STALE SOURCES",
			"web-0 | Stale | NODE | OLD (old) | 1s | 1s | Secret/db",
			"web-1 | Current | NODE | NEW | 1s | 1s | <none>",
		}
		if diff := cmp.Diff(want, lines); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		wide := kubectl(t, "-n", namespace, "get", "cfgdep", "statefulset.web", "--subresource=pods", "-o", "wide")
		for _, want := range []string{"CONTAINERS", "app=Stale(StartedBefore), side=Current(NothingRead)", "Secret db has changed since the container started."} {
			if !strings.Contains(wide, want) {
				t.Errorf("-o wide lacks %q:\n%s", want, wide)
			}
		}
	})
	t.Run("kubectl prints JSON", func(t *testing.T) {
		path := resourcePath(namespace) + "/statefulset.web/pods"
		for _, args := range [][]string{
			{"get", "--raw", path},
			{"-n", namespace, "get", "cfgdep", "statefulset.web", "--subresource=pods", "-o", "json"},
		} {
			var printed v1alpha1.ConfigDependencyPods
			if err := json.Unmarshal([]byte(kubectl(t, args...)), &printed); err != nil {
				t.Fatal(err)
			}
			if printed.Kind != "ConfigDependencyPods" || printed.Name != "statefulset.web" || len(printed.Pods) != 2 {
				t.Errorf("%q prints %+v", args, printed)
			}
		}
		names := kubectl(t, "-n", namespace, "get", "cfgdep", "statefulset.web", "--subresource=pods", "-o", `jsonpath={.pods[?(@.state=="Stale")].name}`)
		if names != "web-0" {
			t.Errorf("stale pods = %q", names)
		}
	})
}
