// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/yaml"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	policyv1alpha1 "github.com/configdep/configdep/pkg/apis/policy/v1alpha1"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

// wave is what happened to the Deployments of a shop since one moment.
type wave struct {
	begun []string // those whose template has changed, in this order
	most  int      // how many were in progress at a time
}

// watchWave watches Deployments until all of them have been restarted since a moment. It returns what happened.
func (s *shop) watchWave(since string, n int) (w wave) {
	s.Helper()
	events, err := kube.AppsV1().Deployments(s.namespace).Watch(s.Context(), metav1.ListOptions{ResourceVersion: since})
	s.must(err)
	defer events.Stop()
	templates, inProgress, done := map[string]string{}, map[string]bool{}, map[string]bool{}
	for e := range events.ResultChan() {
		d, is := e.Object.(*appsv1.Deployment)
		if !is || e.Type != watch.Modified {
			s.Fatalf("event %v", e)
		}
		if hash := d.Spec.Template.Annotations[record.ConfigHashAnnotation]; hash != "" && templates[d.Name] != hash {
			templates[d.Name], inProgress[d.Name] = hash, true
			w.begun = append(w.begun, d.Name)
		}
		if st := &d.Status; inProgress[d.Name] && st.ObservedGeneration == d.Generation && st.UpdatedReplicas == *d.Spec.Replicas && st.AvailableReplicas == *d.Spec.Replicas && st.Replicas == *d.Spec.Replicas {
			delete(inProgress, d.Name)
			done[d.Name] = true
		}
		if w.most = max(w.most, len(inProgress)); len(done) == n {
			return w
		}
	}
	s.Fatal("the watch has ended")
	return w
}

// plan returns the names of the Deployments of the plan, in this order, if a source changed now.
func (s *shop) plan(assume string) (names []string) {
	s.Helper()
	o := &v1alpha1.ConfigDependencyPlan{}
	get := s.client.RESTClient().Get().Namespace(s.namespace).Resource("configdependencies").Name("deployment.a").SubResource("plan").Param("assume", assume)
	s.must(get.Do(s.Context()).Into(o))
	for _, r := range o.Restarts {
		names = append(names, strings.TrimPrefix(r.Name, "deployment."))
	}
	return names
}

// Restarts for one change come one after the other: not more at a time than the flag allows, and those of a lower order first. The API says for what each
// waits.
func TestWave(t *testing.T) {
	t.Parallel()
	s := newOwnShop(t)
	s.write(db, "password", "x")
	names := []string{"a", "b", "c", "d", "e", "f"}
	for _, name := range names {
		d := owned(name)
		switch name {
		case "f":
			d.Annotations["configdep.io/order"] = "-1"
		case "a":
			d.Annotations["configdep.io/order"] = "1"
		}
		s.create(d)
	}
	told := owned("told")
	told.Annotations["configdep.io/strategy"] = "notify"
	s.create(told)
	s.serve(install.ReplicaOptions{Args: []string{"--max-rollouts-in-progress=2", "--strategies=annotation,notify"}})
	for _, name := range names {
		s.view("deployment."+name, applied)
		awaitAge(t, s.namespace, name)
	}
	var seen []string // states
	views, err := s.api().Watch(t.Context(), metav1.ListOptions{})
	s.must(err)
	defer views.Stop()
	foreseen := s.plan("Secret/db")
	since := s.write(db, "password", "y").GetResourceVersion()
	w := s.watchWave(since, len(names))
	for i, name := range w.begun {
		if at := slices.Index(foreseen, name); len(foreseen) != len(names)+1 || at < i-1 || at > i+1 { // two begin at the same time
			t.Errorf("%s was restarted as number %d, and the plan was %v", name, i, foreseen)
		}
	}
	if w.most != 2 || w.begun[0] != "f" || w.begun[len(names)-1] != "a" || len(w.begun) != len(names) {
		t.Errorf("%d were in progress at most, want 2; restarted in the order %v", w.most, w.begun)
	}
	for _, name := range names {
		s.view("deployment."+name, applied, restartedFor(string(db)))
	}
	s.view("deployment.told", is(v1alpha1.StateStale, "NotifyOnly"))
	await.Until(t, "the watch shows for what each waited", func(context.Context) error {
		for {
			select {
			case e := <-views.ResultChan():
				if o, is := e.Object.(*v1alpha1.ConfigDependency); is && o.Status.State == v1alpha1.StatePending {
					seen = append(seen, fmt.Sprintf("%s: %s: %s", o.Name, o.Status.Reason, o.Status.Message))
				}
			default:
				for _, want := range []string{
					"deployment.a: Order: Secret/db has changed. A restart is due when workloads of a lower order that read Secret/db are up to date and ready, such as Deployment ",
					"deployment.b: Order: Secret/db has changed. A restart is due when workloads of a lower order that read Secret/db are up to date and ready, such as Deployment f.",
					"deployment.e: Budget: Secret/db has changed. A restart is due when it is its turn: 2 workloads may be restarted at a time (--max-rollouts-in-progress).",
				} {
					if !slices.ContainsFunc(seen, func(s string) bool { return strings.HasPrefix(s, want) }) {
						return errors.New("not " + want + " in\n" + strings.Join(seen, "\n"))
					}
				}
				return nil
			}
		}
	})
}

// limit creates a ReloadPolicy for the namespace of a shop, or changes it, and waits until its status says whether it is valid.
func (s *shop) limit(name, spec string, accepted metav1.ConditionStatus) {
	s.Helper()
	client := objects.Resource(reloadPolicies)
	o := &unstructured.Unstructured{Object: map[string]any{}}
	s.must(yaml.Unmarshal([]byte(spec), &o.Object))
	o.Object = map[string]any{"apiVersion": policyv1alpha1.SchemeGroupVersion.String(), "kind": "ReloadPolicy", "metadata": map[string]any{"name": name}, "spec": o.Object}
	s.must(unstructured.SetNestedField(o.Object, s.namespace, "spec", "namespaceSelector", "matchLabels", corev1.LabelMetadataName))
	before, err := client.Get(s.Context(), name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = client.Create(s.Context(), o, metav1.CreateOptions{})
		s.Cleanup(func() { _ = client.Delete(context.WithoutCancel(s.Context()), name, metav1.DeleteOptions{}) })
	case err == nil:
		o.SetResourceVersion(before.GetResourceVersion())
		_, err = client.Update(s.Context(), o, metav1.UpdateOptions{})
	}
	s.must(err)
	await.Until(s.T, "the status of the ReloadPolicy "+name, func(ctx context.Context) error {
		o, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		p := decodePolicy(s.T, o)
		c := meta.FindStatusCondition(p.Status.Conditions, policyv1alpha1.ConditionAccepted)
		if p.Status.ObservedGeneration != p.Generation || c == nil || c.Status != accepted {
			return fmt.Errorf("status %+v", p.Status)
		}
		return nil
	})
}

// crash lets a pod of a Deployment crash that has the current template, or run again.
func (s *shop) crash(name string, is bool) {
	s.Helper()
	await.Until(s.T, fmt.Sprintf("a pod of %s crashes: %t", name, is), func(ctx context.Context) error {
		d := s.deployment(name)
		list, err := kube.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			return err
		}
		for i := range list.Items {
			p := &list.Items[i]
			if p.DeletionTimestamp != nil || p.Annotations[record.ConfigHashAnnotation] != d.Spec.Template.Annotations[record.ConfigHashAnnotation] {
				continue
			}
			if len(p.Status.ContainerStatuses) == 0 {
				return errors.New("it has yet to start")
			}
			ready := corev1.ConditionTrue
			for i := range p.Status.ContainerStatuses {
				c := &p.Status.ContainerStatuses[i]
				c.RestartCount, c.Ready, c.State = 4, true, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
				if is {
					ready, c.RestartCount, c.Ready, c.State = corev1.ConditionFalse, 3, false, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
				}
			}
			for i := range p.Status.Conditions {
				if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady || c.Type == corev1.ContainersReady {
					c.Status, c.LastTransitionTime = ready, metav1.Now()
				}
			}
			_, err := kube.CoreV1().Pods(s.namespace).UpdateStatus(ctx, p, metav1.UpdateOptions{})
			return err
		}
		return errors.New("there is none")
	})
}

// A ReloadPolicy limits what it selects: while it suspends restarts, or is invalid, none begins; while a workload fails with some content, no other one is
// restarted for it, until that recovers or the content changes again. Reloads go. Without it, nothing is limited.
func TestReloadPolicy_Limits(t *testing.T) {
	t.Parallel()
	s := newOwnShop(t)
	s.write(db, "password", "x")
	names := []string{"a", "b", "c"}
	for _, name := range names {
		d := owned(name)
		if name == "a" {
			d.Annotations["configdep.io/order"] = "-1"
		}
		s.create(d)
	}
	s.serve(install.ReplicaOptions{})
	for _, name := range names {
		s.view("deployment."+name, applied)
		awaitAge(t, s.namespace, name)
	}
	policy := "of-" + s.namespace
	s.limit(policy, "suspend: true", metav1.ConditionTrue)
	s.write(db, "password", "y")
	for _, name := range names {
		s.view("deployment."+name, is(v1alpha1.StateBlocked, "PolicySuspended"), func(o *v1alpha1.ConfigDependency) error {
			if want := "Secret/db has changed. The ReloadPolicy " + policy + " suspends restarts."; o.Status.Message != want || !slices.Equal(o.Status.Policies, []string{policy}) {
				return fmt.Errorf("%q, policies %v", o.Status.Message, o.Status.Policies)
			}
			return nil
		})
	}
	s.limit(policy, `windows: [{kind: Allow, schedule: "0 1 99 * *", duration: 1h}]`, metav1.ConditionFalse)
	s.view("deployment.a", is(v1alpha1.StateBlocked, "PolicyInvalid"))

	s.limit(policy, "failureLimit: 1\nbakeTime: 1h", metav1.ConditionTrue)
	s.view("deployment.a", applied, restartedFor(string(db)))
	s.view("deployment.c", is(v1alpha1.StatePending, "Order"))
	s.crash("a", true)
	for _, name := range names[1:] {
		s.view("deployment."+name, is(v1alpha1.StateBlocked, "HaltedAfterFailure"), func(o *v1alpha1.ConfigDependency) error {
			if !strings.Contains(o.Status.Message, "because Deployment a fails with the content of Secret/db (ReloadPolicy "+policy+")") {
				return errors.New(o.Status.Message)
			}
			return nil
		})
	}
	_, err := s.api().Reload(t.Context(), "deployment.b", &v1alpha1.Reload{}, metav1.CreateOptions{})
	s.must(err)
	s.view("deployment.b", applied, restartedFor("Request"))
	awaitAge(t, s.namespace, "b") // so that its pods are known to be older than the next change
	s.view("deployment.c", is(v1alpha1.StateBlocked, "HaltedAfterFailure"))
	s.write(db, "password", "z")
	s.view("deployment.c", is(v1alpha1.StatePending, "Order"))
	s.must(await.NextSecond(t.Context()))
	s.crash("a", false) // the kubelet starts it again, with the new content
	s.view("deployment.a", is(v1alpha1.StateInSync, ""))
	s.view("deployment.c", is(v1alpha1.StatePending, "Order"))
	s.limit(policy, "failureLimit: 1", metav1.ConditionTrue)
	for _, name := range names[1:] {
		s.view("deployment."+name, applied, restartedFor(string(db)))
	}
	s.must(objects.Resource(reloadPolicies).Delete(t.Context(), policy, metav1.DeleteOptions{}))
	s.view("deployment.a", func(o *v1alpha1.ConfigDependency) error {
		if len(o.Status.Policies) > 0 {
			return fmt.Errorf("policies %v", o.Status.Policies)
		}
		return nil
	})
}
