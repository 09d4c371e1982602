// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/test/await"
)

// moment is what the API says of the Deployment, and what its containers have, at about the same time.
type moment struct {
	at    time.Duration // since the change
	state v1alpha1.State
	hash  string // of the content with which the pods should run
	pods  *v1alpha1.ConfigDependencyPods
	reads map[string]read // by the name of a pod that served before, during and after
}

// A change of a ConfigMap gives containers new environment variables, subPath files and volumes, by a rollout. At no moment does the API
// say that pods have the current content while a pod that serves has other content.
func testRollout(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t, "rollout")
	apply(t, ns, content)
	manifests := deployment(2, `configdep.io/reload: auto, configdep.io/settle: 1s, configdep.io/min-interval: "0"`, "", "")
	if got := tryApply(t, ns, manifests); !strings.Contains(got, "configdep.io/config-hash") {
		t.Errorf("the webhook has not recorded the content on:\n%s", got)
	}
	apply(t, ns, manifests)
	kubectl(t, "rollout", "status", "deployment/app", "-n", ns, "--timeout=3m")
	kubectl(t, "wait", "--for=condition=InSync", "cfgdep/deployment.app", "-n", ns, "--timeout=2m")
	old, err := client.AppsV1().Deployments(ns).Get(t.Context(), "app", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	started := time.Now()
	version := change(t, ns, "two")
	var (
		moments                                        []moment
		noticed, patched, firstReady, allNew, reported time.Duration
	)
	first := func(d *time.Duration, reached bool) {
		if reached && *d == 0 {
			*d = time.Since(started)
		}
	}
	await.Until(t, "all pods have the new content, and the API says so", func(ctx context.Context) error {
		before, err := appPods(ctx, ns)
		if err != nil {
			return err
		}
		shown, err := view.ConfigdepV1alpha1().ConfigDependencies(ns).Get(ctx, "deployment.app", metav1.GetOptions{})
		if err != nil {
			return err
		}
		pods, err := view.ConfigdepV1alpha1().ConfigDependencies(ns).GetPods(ctx, "deployment.app", metav1.GetOptions{})
		if err != nil {
			return err
		}
		m := moment{at: time.Since(started), state: shown.Status.State, pods: pods, reads: map[string]read{}}
		for name, pod := range before {
			if got, err := readOf(ctx, pod); err == nil && serves(pod) {
				m.reads[name] = got
			}
		}
		after, err := appPods(ctx, ns)
		if err != nil {
			return err
		}
		renewed := 0
		for name := range m.reads {
			if !serves(after[name]) {
				delete(m.reads, name)
			} else if m.reads[name].Env == "two" {
				renewed++
			}
		}
		if shown.Status.Sources[0].ResourceVersion == version {
			m.hash = shown.Status.ConfigHash
		}
		moments = append(moments, m)

		now, err := client.AppsV1().Deployments(ns).Get(ctx, "app", metav1.GetOptions{})
		if err != nil {
			return err
		}
		inSync := m.hash != "" && m.state == v1alpha1.StateInSync
		first(&noticed, m.hash != "")
		first(&patched, now.Generation > old.Generation)
		first(&firstReady, renewed > 0)
		first(&allNew, renewed == 2 && len(m.reads) == 2)
		first(&reported, inSync)
		if !inSync || allNew == 0 {
			return fmt.Errorf("the state is %s, and pods have %v", m.state, m.reads)
		}
		return nil
	})
	t.Logf("after the change: shown %.2f s, patched %.2f s, first new pod serves %.2f s, all %.2f s, InSync %.2f s, in %d moments",
		noticed.Seconds(), patched.Seconds(), firstReady.Seconds(), allNew.Seconds(), reported.Seconds(), len(moments))
	check(t, moments)
	last := moments[len(moments)-1]
	for name, got := range last.reads {
		if got != all("two") {
			t.Errorf("pod %s has %+v in the end", name, got)
		}
	}
}

// check compares what the API says with what containers have, at each moment.
func check(t *testing.T, moments []moment) {
	t.Helper()
	hash := moments[len(moments)-1].hash
	stale, other := 0, 0
	for _, m := range moments {
		if m.hash != "" && m.hash != hash {
			t.Errorf("after %v the hash of the new content is %s, and %s in the end", m.at, m.hash, hash)
		}
		states := map[string]v1alpha1.ContentState{}
		if m.pods.ConfigHash == hash { // otherwise the API does not know of the change yet
			for _, pod := range m.pods.Pods {
				states[pod.Name] = pod.State
			}
		}
		for name, got := range m.reads {
			isNew := got.Env == "two" && got.File == "two"
			if m.hash != "" && m.state == v1alpha1.StateInSync && !isNew {
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
		if m.hash != "" && m.state != v1alpha1.StateInSync {
			other++
		}
	}
	// So that this cannot pass for want of looking.
	if stale == 0 || other == 0 {
		t.Errorf("%d moments, of which none shows a pod that is Stale, or a state other than InSync", len(moments))
	}
}
