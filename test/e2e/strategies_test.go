// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// inPlaceAllowed are the values with which the server may annotate pods.
const inPlaceAllowed = "reload.strategies={annotation,env-var,agent,in-place}"

// budget lets one pod of the application be unavailable.
const budget = `
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: app}
spec:
  maxUnavailable: 1
  selector: {matchLabels: {app: app}}
`

// The strategy in-place gives the containers of all pods new content without another pod, and never more than one of them is unavailable. At
// no moment does the API say that a pod has the current content that does not.
func testStrategyInPlace(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t, "strategy-in-place")
	apply(t, ns, content)
	apply(t, ns, budget)
	initContainer, volume := restarter(t)
	apply(t, ns, deployment(2, `configdep.io/reload: auto, configdep.io/strategy: in-place, configdep.io/settle: 1s, configdep.io/min-interval: "0"`, initContainer, volume+"\n"))
	kubectl(t, "rollout", "status", "deployment/app", "-n", ns, "--timeout=3m")
	kubectl(t, "wait", "--for=condition=InSync", "cfgdep/deployment.app", "-n", ns, "--timeout=2m")
	before, err := appPods(t.Context(), ns)
	if err != nil {
		t.Fatal(err)
	}
	awaitAge(t, ns)
	messages := map[string]bool{}
	most := 0
	r, moments := watch(t, ns, "two", func(ctx context.Context, _ *moment) error {
		shown, err := view.ConfigdepV1alpha1().ConfigDependencies(ns).Get(ctx, "deployment.app", metav1.GetOptions{})
		if err != nil {
			return err
		}
		messages[fmt.Sprintf("%s: %s", shown.Status.Reason, shown.Status.Message)] = true
		now, err := appPods(ctx, ns)
		if err != nil {
			return err
		}
		unavailable := 0
		for _, pod := range now {
			if !serves(pod) {
				unavailable++
			}
		}
		most = max(most, unavailable)
		return nil
	})
	t.Logf("after the change: first pod serves it %.2f s, both %.2f s, InSync %.2f s, in %d moments; at most %d unavailable",
		r.firstServes.Seconds(), r.serve.Seconds(), r.reported.Seconds(), moments, most)
	if most > 1 {
		t.Errorf("%d pods were unavailable at once", most)
	}
	for _, want := range []string{"RestartingInPlace: 0 of 2 pods have been restarted in place.", "RestartingInPlace: 1 of 2 pods has been restarted in place."} {
		found := false
		for message := range messages {
			found = found || strings.HasPrefix(message, want)
		}
		if !found {
			t.Errorf("no moment shows %q, only %v", want, messages)
		}
	}
	after, err := appPods(t.Context(), ns)
	if err != nil {
		t.Fatal(err)
	}
	for name, pod := range before {
		now := after[name]
		if now == nil || now.UID != pod.UID || now.Status.PodIP != pod.Status.PodIP {
			t.Errorf("pod %s was replaced", name)
			continue
		}
		for _, c := range append(now.Status.ContainerStatuses, now.Status.InitContainerStatuses...) {
			if c.RestartCount != 1 {
				t.Errorf("container %s of %s was restarted %d times, want 1", c.Name, name, c.RestartCount)
			}
		}
	}
	if sets := kubectl(t, "get", "replicasets", "-n", ns, "-o", "name"); strings.Count(sets, "\n") != 1 {
		t.Errorf("there are ReplicaSets\n%s", sets)
	}
}
