// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/judge"
	"github.com/configdep/configdep/test/await"
)

// moment is what the API says of the Deployment, and what its containers have, at about the same time.
type moment struct {
	at    time.Duration // since the change
	known bool          // the API knows of the change
	state v1alpha1.State
	hash  string // of the content with which the pods should run
	pods  *v1alpha1.ConfigDependencyPods
	reads map[string]read // by the name of a pod that served before, during and after, with the same containers
}

// observe asks the API and the containers.
func observe(ctx context.Context, namespace, version string) (moment, error) {
	m := moment{reads: map[string]read{}}
	before, err := appPods(ctx, namespace)
	if err != nil {
		return m, err
	}
	dependencies := view.ConfigdepV1alpha1().ConfigDependencies(namespace)
	shown, err := dependencies.Get(ctx, "deployment.app", metav1.GetOptions{})
	if err != nil {
		return m, err
	}
	m.state, m.hash, m.known = shown.Status.State, shown.Status.ConfigHash, shown.Status.Sources[0].ResourceVersion == version
	if m.pods, err = dependencies.GetPods(ctx, "deployment.app", metav1.GetOptions{}); err != nil {
		return m, err
	}
	for name, pod := range before {
		if got, err := readOf(ctx, pod); err == nil && serves(pod) {
			m.reads[name] = got
		}
	}
	after, err := appPods(ctx, namespace)
	if err != nil {
		return m, err
	}
	for name := range m.reads {
		if !serves(after[name]) || restarts(after[name]) != restarts(before[name]) {
			delete(m.reads, name)
		}
	}
	return m, nil
}

// restarts returns how often the application of a pod was restarted.
func restarts(pod *corev1.Pod) int32 { return pod.Status.ContainerStatuses[0].RestartCount }

// reached is when something was first so, since a change.
type reached struct{ known, firstServes, serve, reported time.Duration }

// first notes a time, once.
func first(d *time.Duration, is bool, at time.Duration) {
	if is && *d == 0 {
		*d = at
	}
}

// awaitAge waits until all containers of the application have run for so long that it is not in doubt that they started before what comes next.
func awaitAge(t *testing.T, namespace string) {
	t.Helper()
	const age = judge.ClockMargin + 2*time.Second // and the precision of both times
	await.Until(t, fmt.Sprintf("the containers have run for %v", age), func(ctx context.Context) error {
		pods, err := appPods(ctx, namespace)
		if err != nil {
			return err
		}
		for name, pod := range pods {
			for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
				if r := c.State.Running; r != nil && time.Since(r.StartedAt.Time) < age {
					return fmt.Errorf("%s of %s has run for %v", c.Name, name, time.Since(r.StartedAt.Time))
				}
			}
		}
		return nil
	})
}

// watch changes the content of the Deployment, which has two replicas, and compares what the API says with what containers have until both
// have the new content. It calls each at each moment.
func watch(t *testing.T, namespace, value string, each func(context.Context, *moment) error) (r reached, seen int) {
	t.Helper()
	var moments []moment
	started := time.Now()
	version := change(t, namespace, value)
	await.Watching(t, "all pods have the new content, and the API says so", func(ctx context.Context) error {
		at := time.Since(started)
		m, err := observe(ctx, namespace, version)
		if err != nil {
			return err
		}
		m.at = at
		moments = append(moments, m)
		if err := each(ctx, &m); err != nil {
			return err
		}
		renewed := 0
		for _, got := range m.reads {
			if got == all(value) {
				renewed++
			}
		}
		inSync := m.known && m.state == v1alpha1.StateInSync
		now := time.Since(started)
		first(&r.known, m.known, now)
		first(&r.firstServes, renewed > 0, now)
		first(&r.serve, renewed == 2 && len(m.reads) == 2, now)
		first(&r.reported, inSync, now)
		if !inSync || r.serve == 0 {
			return fmt.Errorf("the state is %s, and pods have %v", m.state, m.reads)
		}
		return nil
	})
	check(t, moments, value)
	return r, len(moments)
}

// follow is watch for a rollout.
func follow(t *testing.T, namespace, value string) {
	t.Helper()
	deployments := client.AppsV1().Deployments(namespace)
	old, err := deployments.Get(t.Context(), "app", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	awaitAge(t, namespace)
	var patched time.Duration
	started := time.Now()
	r, moments := watch(t, namespace, value, func(ctx context.Context, _ *moment) error {
		now, err := deployments.Get(ctx, "app", metav1.GetOptions{})
		if err != nil {
			return err
		}
		first(&patched, now.Spec.Template.Annotations["configdep.io/config-hash"] != old.Spec.Template.Annotations["configdep.io/config-hash"], time.Since(started))
		return nil
	})
	t.Logf("after the change: shown %.2f s, template patched %.2f s, first pod serves it %.2f s, both %.2f s, InSync %.2f s, in %d moments",
		r.known.Seconds(), patched.Seconds(), r.firstServes.Seconds(), r.serve.Seconds(), r.reported.Seconds(), moments)
}

// check compares what the API says with what containers have, at each moment.
func check(t *testing.T, moments []moment, value string) {
	t.Helper()
	hash := moments[len(moments)-1].hash
	stale, other := 0, 0
	for _, m := range moments {
		if m.known && m.hash != hash {
			t.Errorf("after %v the hash of the new content is %s, and %s in the end", m.at, m.hash, hash)
		}
		states := map[string]v1alpha1.ContentState{}
		if m.pods.ConfigHash == hash { // otherwise the API does not know of the change yet
			for _, pod := range m.pods.Pods {
				states[pod.Name] = pod.State
			}
		}
		for name, got := range m.reads {
			isNew := got.Env == value && got.File == value
			if m.known && m.state == v1alpha1.StateInSync && !isNew {
				t.Errorf("after %v the state is InSync, and the pod %s has %+v", m.at, name, got)
			}
			switch state := states[name]; {
			case state == v1alpha1.ContentCurrent && !isNew:
				t.Errorf("after %v the pod %s is said to be Current, and has %+v", m.at, name, got)
			case state == v1alpha1.ContentStale && isNew:
				t.Errorf("after %v the pod %s is said to be Stale, and has %+v", m.at, name, got)
			case state == v1alpha1.ContentStale:
				stale++
			}
		}
		if m.known && m.state != v1alpha1.StateInSync {
			other++
		}
	}
	// So that this cannot pass for want of looking.
	if stale == 0 || other == 0 {
		t.Errorf("%d moments, of which none shows a pod that is Stale, or a state other than InSync", len(moments))
	}
}
