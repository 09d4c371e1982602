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
// YAML. It does not wait as long.
func restarter(t *testing.T) (initContainer, volume string) {
	t.Helper()
	spec := manifest(t, "RestartAllContainers")
	c := spec.InitContainers[0]
	c.Image = agentImage
	c.Args = append(c.Args, "--min-uptime="+minUptime.String(), "--unready=1s")
	c.SecurityContext = restricted(t)
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

// An annotation of the pod restarts all its containers in place, with new content of every kind; the pod stays.
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
		await.Until(t, "the restarter restarts at once", func(context.Context) error {
			if up := time.Since(pod.Status.InitContainerStatuses[0].State.Running.StartedAt.Time); up < minUptime+time.Second {
				return fmt.Errorf("it has run for %v", up)
			}
			return nil
		})
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
}

// An annotation of a pod, whichever, makes the kubelet refresh the files of its volumes at once, and not within a minute or more.
func testNudge(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t, "nudge")
	apply(t, ns, content)
	apply(t, ns, deployment(1, "", "", ""))
	pod := onePod(t, ns, all("one"))
	for i := range 5 {
		value := fmt.Sprint("nudged-", i)
		change(t, ns, value)
		started := time.Now()
		annotate(t, pod, "example.com/nudge", value)
		onePod(t, ns, read{Env: "one", File: "one", Volume: value})
		took := time.Since(started)
		t.Logf("from the annotation to the new file: %.2f s", took.Seconds())
		if took > 30*time.Second {
			t.Errorf("the file changed after %v, as without an annotation", took)
		}
	}
	// The kubelet may have another reason to look, such as the last annotation. Then it does so after a minute or more.
	var longest time.Duration
	for i := 0; i < 10 && longest < 10*time.Second; i++ {
		value := fmt.Sprint("alone-", i)
		change(t, ns, value)
		changed := time.Now()
		onePod(t, ns, read{Env: "one", File: "one", Volume: value})
		longest = max(longest, time.Since(changed))
	}
	t.Logf("from the change to the new file, without an annotation: %.2f s", longest.Seconds())
	if longest < 10*time.Second {
		t.Error("the kubelet refreshes files as soon without an annotation, so that the times with one show nothing")
	}
}
