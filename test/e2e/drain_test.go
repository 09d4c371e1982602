// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/test/await"
)

// service is the Service of the application.
const service = `
apiVersion: v1
kind: Service
metadata: {name: app}
spec:
  selector: {app: app}
  ports: [{port: 8080}]
`

// Before its containers restart in place, the application of a pod is told to drain, and its Service sends it no requests: the EndpointSlice says
// that the pod is not ready while the application still answers, and no request of the Service's clients fails at any time.
func testDrain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		restarter func(*corev1.Container)
		// drains returns nil once the drain has begun, while the containers run as before, and end lets it end.
		drains func(context.Context, *corev1.Pod) error
		end    func(context.Context, *corev1.Pod) error
	}{
		"url": {
			restarter: func(c *corev1.Container) {
				c.Args = append(c.Args, "--unready=5s", "--drain=http://127.0.0.1:8080/drain", "--drain-timeout=3m")
			},
			drains: func(ctx context.Context, pod *corev1.Pod) error { return answers(ctx, pod, "/draining", "1") },
			end:    func(ctx context.Context, pod *corev1.Pod) error { return answers(ctx, pod, "/drained", "") },
		},
		"command": { // the one program of the image; what it writes stays
			restarter: func(c *corev1.Container) {
				// Long enough to look meanwhile on a slow machine. Other tests that run at the same time take longer.
				c.Args = append(c.Args, "--unready=1m", "--drain=/configdep-agent --once --volume=/etc/configdep --dir=/drained --file-mode=0444 --listen=")
				c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "drained", MountPath: "/drained"})
			},
			drains: func(ctx context.Context, pod *corev1.Pod) error {
				return answers(ctx, pod, "/file/drained/restart", "two")
			},
			end: func(context.Context, *corev1.Pod) error { return nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := newNamespace(t, "drain-"+name)
			apply(t, ns, content)
			apply(t, ns, service)
			initContainer, volume := restarter(t, tc.restarter)
			const mount = "        - {name: content, mountPath: /volume}\n"
			apply(t, ns, strings.Replace(deployment(2, "", initContainer, volume+"\n      - {name: drained, emptyDir: {medium: Memory}}\n"),
				mount, mount+"        - {name: drained, mountPath: /drained, readOnly: true}\n", 1))
			kubectl(t, "rollout", "status", "deployment/app", "-n", ns, "--timeout=3m")
			pods, err := appPods(t.Context(), ns)
			if err != nil {
				t.Fatal(err)
			}
			var pod *corev1.Pod
			for _, pod = range pods {
				await.Until(t, "the Service has both pods", func(ctx context.Context) error { return endpoint(ctx, pod, true) })
			}
			clients := callService(t, ns)
			change(t, ns, "two")
			started := time.Now()
			annotate(t, pod, "configdep.io/restart", "two")
			await.Until(t, "the pod drains, and the Service does not send it requests", func(ctx context.Context) error {
				return errors.Join(tc.drains(ctx, pod), endpoint(ctx, pod, false))
			})
			unready := time.Since(started)
			if got, err := readOf(t.Context(), pod); err != nil || got.Env != "one" {
				t.Errorf("when the Service did not send it requests, the application had %+v, as after a restart (%v)", got, err)
			}
			await.Until(t, "the drain ends", func(ctx context.Context) error { return tc.end(ctx, pod) })
			await.Until(t, "the pod has restarted, and the Service sends it requests", func(ctx context.Context) error {
				now, err := client.CoreV1().Pods(ns).Get(ctx, pod.Name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				for _, c := range append(now.Status.ContainerStatuses, now.Status.InitContainerStatuses...) {
					if c.RestartCount != 1 {
						err = fmt.Errorf("container %s was restarted %d times", c.Name, c.RestartCount)
					}
				}
				return errors.Join(err, has(ctx, now, all("two")), endpoint(ctx, pod, true), clients.got("two"))
			})
			clients.stop()
			t.Logf("from the annotation: drained and not in the Service %.2f s, in it again %.2f s; %d requests, %d failed",
				unready.Seconds(), time.Since(started).Seconds(), clients.answered, len(clients.failed))
			if len(clients.failed) > 0 || clients.answered < 100 {
				t.Errorf("%d requests to the Service succeeded, %d failed: %v", clients.answered, len(clients.failed), errors.Join(clients.failed...))
			}
		})
	}
}

// answers returns nil if an application answers with a text.
func answers(ctx context.Context, pod *corev1.Pod, path, want string) error {
	got, err := get(ctx, pod, path)
	if err == nil && got != want {
		err = fmt.Errorf("%s answers %q", path, got)
	}
	return err
}

// endpoint returns nil if the Service of a pod sends it requests, or does not.
func endpoint(ctx context.Context, pod *corev1.Pod, want bool) error {
	slices, err := client.DiscoveryV1().EndpointSlices(pod.Namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=app"})
	if err != nil {
		return err
	}
	for _, slice := range slices.Items {
		for _, e := range slice.Endpoints {
			if e.TargetRef != nil && e.TargetRef.UID == pod.UID && e.Conditions.Ready != nil && *e.Conditions.Ready == want {
				return nil
			}
		}
	}
	return fmt.Errorf("the EndpointSlices do not say of pod %s that it is ready: %t", pod.Name, want)
}

// calls are requests to the Service of the application, one after the other, each with a connection of its own.
type calls struct {
	stop func()

	mu       sync.Mutex
	answered int
	failed   []error
	last     map[string]int // answers, by what the application had
}

// got returns nil if the application answered with a value.
func (c *calls) got(value string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last[value] == 0 {
		return fmt.Errorf("no request to the Service was answered with %s", value)
	}
	return nil
}

// callService calls the Service until the end of the test, or until it is stopped.
func callService(t *testing.T, namespace string) *calls {
	t.Helper()
	s, err := client.CoreV1().Services(namespace).Get(t.Context(), "app", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var calling sync.WaitGroup
	c := &calls{last: map[string]int{}, stop: func() { cancel(); calling.Wait() }}
	t.Cleanup(c.stop)
	to := &corev1.Pod{Status: corev1.PodStatus{PodIP: s.Spec.ClusterIP}}
	calling.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			got, err := greeting(ctx, to)
			c.mu.Lock()
			switch {
			case err == nil:
				c.answered++
				c.last[got]++
			case ctx.Err() == nil:
				c.failed = append(c.failed, fmt.Errorf("at %s: %w", time.Now().Format(time.TimeOnly), err))
			}
			c.mu.Unlock()
			<-tick.C
		}
	})
	return c
}
