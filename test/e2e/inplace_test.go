// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/test/await"
)

// minUptime is the least that the restarter waits between two restarts.
const minUptime = 10 * time.Second

// restarter returns the sidecar of docs/agent.md that restarts all containers, with the field that mounts no token, and its volume, as lines of
// YAML. It does not wait as long, unless a change makes it.
func restarter(t *testing.T, changes ...func(*corev1.Container)) (initContainer, volume string) {
	t.Helper()
	spec := manifest(t, "RestartAllContainers")
	c := spec.InitContainers[0]
	c.Image = agentImage
	c.Args = append(c.Args, "--min-uptime="+minUptime.String(), "--unready=1s")
	c.SecurityContext = restricted(t)
	for _, change := range changes {
		change(&c)
	}
	return "\n      - " + encode(t, c) + "\n      automountServiceAccountToken: " + encode(t, spec.AutomountServiceAccountToken),
		"\n      - " + encode(t, spec.Volumes[0])
}

// encode returns a part of a manifest in one line.
func encode(t *testing.T, part any) string {
	t.Helper()
	line, err := json.Marshal(part)
	if err != nil {
		t.Fatal(err)
	}
	return string(line)
}

// annotate sets an annotation of a pod.
func annotate(t *testing.T, pod *corev1.Pod, key, value string) {
	t.Helper()
	_, err := client.CoreV1().Pods(pod.Namespace).Patch(t.Context(), pod.Name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, key, value), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// An annotation of the pod restarts all its containers in place, with new content of every kind; the pod stays. It does so once if more
// annotations come before the containers have run for a while, and not before that.
func testInPlace(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t, "in-place")
	apply(t, ns, content)
	initContainer, volume := restarter(t)
	apply(t, ns, deployment(1, "", initContainer, volume+"\n"))
	pod := onePod(t, ns, all("one"))
	for _, v := range pod.Spec.Volumes {
		if v.Projected != nil { // in which the API server mounts tokens
			t.Errorf("volume %+v", v)
		}
	}
	for i, value := range []string{"two", "three"} {
		change(t, ns, value)
		awaitUptime(t, pod, minUptime+time.Second)
		started := time.Now()
		annotate(t, pod, "configdep.io/restart", value)
		restarted := onePod(t, ns, all(value))
		t.Logf("from the annotation to new content that serves: %.2f s", time.Since(started).Seconds())
		if restarted.UID != pod.UID || restarted.Status.PodIP != pod.Status.PodIP {
			t.Errorf("pod %s at %s was replaced by %s at %s", pod.UID, pod.Status.PodIP, restarted.UID, restarted.Status.PodIP)
		}
		for _, c := range append(restarted.Status.ContainerStatuses, restarted.Status.InitContainerStatuses...) {
			if int(c.RestartCount) != i+1 {
				t.Errorf("container %s was restarted %d times, want %d", c.Name, c.RestartCount, i+1)
			}
		}
		shown, err := view.ConfigdepV1alpha1().ConfigDependencies(ns).GetPods(t.Context(), "deployment.app", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		// The API tells times in seconds, so that it cannot always know which came first.
		for _, p := range shown.Pods {
			if p.State == v1alpha1.ContentStale {
				t.Errorf("the pod has new content, and the API says that %v changed since: %s", p.StaleSources, p.Message)
			}
		}
		pod = restarted
	}
	change(t, ns, "four")
	annotate(t, pod, "configdep.io/restart", "four")
	annotate(t, pod, "configdep.io/restart", "five")
	early := onePod(t, ns, all("four"))
	if up := startOf(early).Sub(startOf(pod)); up < minUptime {
		t.Errorf("the containers have restarted after %v, want %v", up, minUptime)
	}
	// By then the containers would have restarted again, after --unready.
	awaitUptime(t, early, minUptime+5*time.Second)
	if pod = onePod(t, ns, all("four")); restarts(pod) != 3 || restarts(early) != 3 {
		t.Errorf("the application was restarted %d times, and then %d times, want 3", restarts(early), restarts(pod))
	}
}

// startOf returns when the restarter of a pod has started.
func startOf(pod *corev1.Pod) time.Time {
	return pod.Status.InitContainerStatuses[0].State.Running.StartedAt.Time
}

// awaitUptime waits until the restarter of a pod has run for a while, or would have.
func awaitUptime(t *testing.T, pod *corev1.Pod, enough time.Duration) {
	t.Helper()
	await.Until(t, "the restarter has run long enough", func(context.Context) error {
		if up := time.Since(startOf(pod)); up < enough {
			return fmt.Errorf("it has run for %v", up)
		}
		return nil
	})
}
