// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/test/await"
)

// inPlaceAnnotations let the server restart the pods of a Deployment in place, at once.
const inPlaceAnnotations = `configdep.io/reload: auto, configdep.io/strategy: in-place, configdep.io/settle: 1s, configdep.io/min-interval: "0"`

// switched makes the application start as the key mode of its ConfigMap says.
func switched(manifests string) string {
	const env = "        env:\n"
	return strings.Replace(manifests, env, "        args: [$(MODE)]\n"+env+"        - {name: MODE, valueFrom: {configMapKeyRef: {name: app, key: mode}}}\n", 1)
}

// A pod that does not come back from its restart in place halts that: no other pod is told, and they keep their containers and content. With
// content with which pods come back, all are restarted in place, that one too.
func testStrategyInPlaceHalts(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]string{"ends": "wrong", "not ready": "unready"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const (
				replicas = 3
				deadline = time.Minute
			)
			ns := newNamespace(t, "in-place-"+mode)
			set := func(value, mode string) {
				t.Helper()
				patch := fmt.Appendf(nil, `{"data":{"greeting":%q,"mode":%q}}`, value, mode)
				if _, err := client.CoreV1().ConfigMaps(ns).Patch(t.Context(), "app", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			// shown waits until the API shows the Deployment in a state, and returns the message.
			shown := func(state v1alpha1.State, reason string) string {
				t.Helper()
				return await.Passes(t, fmt.Sprintf("it is %s, %s", state, reason), func(ctx context.Context) (*v1alpha1.ConfigDependency, error) {
					return view.ConfigdepV1alpha1().ConfigDependencies(ns).Get(ctx, "deployment.app", metav1.GetOptions{})
				}, func(o *v1alpha1.ConfigDependency) error {
					if o.Status.State != state || o.Status.Reason != reason {
						return fmt.Errorf("it is %s, %s: %s", o.Status.State, o.Status.Reason, o.Status.Message)
					}
					return nil
				}).Status.Message
			}
			// have waits until all pods serve a content.
			have := func(value string) (pods map[string]*corev1.Pod) {
				t.Helper()
				await.Until(t, "all pods have "+value, func(ctx context.Context) (err error) {
					if pods, err = appPods(ctx, ns); err != nil {
						return err
					}
					if len(pods) != replicas {
						err = fmt.Errorf("there are %d pods", len(pods))
					}
					for _, pod := range pods {
						err = errors.Join(err, has(ctx, pod, all(value)))
					}
					return err
				})
				return pods
			}
			apply(t, ns, content)
			set("one", "serve")
			initContainer, volume := restarter(t)
			// More pods may be unavailable, so that not this keeps the others from being told.
			spec := fmt.Sprintf("\nspec:\n  strategy: {rollingUpdate: {maxUnavailable: %d}}\n  progressDeadlineSeconds: %d\n", replicas-1, int(deadline.Seconds()))
			apply(t, ns, strings.Replace(switched(deployment(replicas, inPlaceAnnotations, initContainer, volume+"\n")), "\nspec:\n", spec, 1))
			before := have("one")
			shown(v1alpha1.StateInSync, "ContentApplied")

			for _, pod := range before { // else the restarters wait, within the deadline
				awaitUptime(t, pod, minUptime)
			}
			set("two", mode)
			started := time.Now()
			message := shown(v1alpha1.StateFailed, "RestartFailed")
			t.Logf("from the change to the state Failed: %.2f s", time.Since(started).Seconds())
			found := regexp.MustCompile(`^(Pod (\S+) has not become ready within ` + deadline.String() + ` of its restart in place\.) 0 of 3 pods have been restarted in place\. ` +
				`The restart goes on when this pod is ready or has been deleted, or when content changes again\.`).FindStringSubmatch(message)
			if len(found) == 0 || before[found[2]] == nil {
				t.Fatalf("the message is %q, and the pods are %v", message, before)
			}
			broken := found[2]
			awaitEvent(t, ns, "ConfigRestartFailed", found[1])
			halted, err := appPods(t.Context(), ns)
			if err != nil {
				t.Fatal(err)
			}
			for name, pod := range halted {
				told := pod.Annotations["configdep.io/restart"] != ""
				switch {
				case before[name] == nil:
					t.Errorf("there is another pod %s", name)
				case name == broken:
					if !told || serves(pod) || restarts(pod) == 0 {
						t.Errorf("pod %s, which does not come back, was told %t, serves %t, and its application was restarted %d times", name, told, serves(pod), restarts(pod))
					}
				case told || restarts(pod) != 0:
					t.Errorf("pod %s was told to restart (%t), or its application was restarted %d times", name, told, restarts(pod))
				default:
					// The volume changes by itself.
					if got, err := readOf(t.Context(), pod); err != nil || got.Env != "one" || got.File != "one" || !serves(pod) {
						t.Errorf("pod %s has %+v, serves %t (%v)", name, got, serves(pod), err)
					}
				}
			}

			set("three", "serve")
			started = time.Now()
			after := have("three")
			shown(v1alpha1.StateInSync, "ContentApplied")
			t.Logf("from the repair to InSync: %.2f s", time.Since(started).Seconds())
			for name, pod := range before {
				now := after[name]
				if now == nil || now.UID != pod.UID {
					t.Errorf("pod %s was replaced", name)
				} else if name != broken && restarts(now) != 1 {
					t.Errorf("the application of pod %s was restarted %d times, want 1", name, restarts(now))
				}
			}
			if sets := kubectl(t, "get", "replicasets", "-n", ns, "-o", "name"); strings.Count(sets, "\n") != 1 {
				t.Errorf("there are ReplicaSets\n%s", sets)
			}
		})
	}
}

// Pods without a restarter are replaced by a rollout, and the API says why.
func testStrategyInPlaceWithoutRestarter(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t, "in-place-no-restarter")
	apply(t, ns, content)
	apply(t, ns, deployment(2, inPlaceAnnotations, "", ""))
	kubectl(t, "rollout", "status", "deployment/app", "-n", ns, "--timeout=3m")
	kubectl(t, "wait", "--for=condition=InSync", "cfgdep/deployment.app", "-n", ns, "--timeout=2m")
	const why = "Restarts are rollouts and not in place, because its pod template has no restarter."
	says := func() {
		t.Helper()
		if got := kubectl(t, "get", "cfgdep", "deployment.app", "-n", ns, "-o", "jsonpath={.status.message}"); !strings.Contains(got, why) {
			t.Errorf("the message is %q, without %q", got, why)
		}
	}
	says()
	follow(t, ns, "two")
	says()
	if sets := kubectl(t, "get", "replicasets", "-n", ns, "-o", "name"); strings.Count(sets, "\n") != 2 {
		t.Errorf("there are ReplicaSets\n%s", sets)
	}
	awaitEvent(t, ns, "ConfigRestarted", "Restarted because ConfigMap/app has changed: by a rollout and not in place, because its pod template has no restarter")
}

// awaitEvent waits for the one event of the Deployment with a reason.
func awaitEvent(t *testing.T, namespace, reason, message string) {
	t.Helper()
	await.Until(t, "there is an event "+reason, func(ctx context.Context) error {
		events, err := client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=app,reason=" + reason})
		if err == nil && (len(events.Items) != 1 || events.Items[0].Message != message) {
			err = fmt.Errorf("want %q, and there are %v", message, events.Items)
		}
		return err
	})
}
