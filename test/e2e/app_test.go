// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/node"
)

// content is the ConfigMap of the application.
const content = `
apiVersion: v1
kind: ConfigMap
metadata: {name: app}
data: {greeting: one}
`

// security is what the strictest Pod Security asks for.
const security = `{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, runAsNonRoot: true,
          capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}`

// restricted returns the same for a manifest that is not text.
func restricted(t *testing.T) *corev1.SecurityContext {
	t.Helper()
	var context corev1.SecurityContext
	if err := yaml.UnmarshalStrict([]byte(security), &context); err != nil {
		t.Fatal(err)
	}
	return &context
}

// container is the application of tests, which reads the key greeting in three ways.
var container = `
      - name: app
        image: ` + node.AppImage + `
        env:
        - {name: GREETING, valueFrom: {configMapKeyRef: {name: app, key: greeting}}}
        readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1}
        securityContext: ` + security + `
        volumeMounts:
        - {name: content, mountPath: /volume}
        - {name: content, mountPath: /file, subPath: greeting}
`

// volume is the volume of the application.
const volume = `
      - {name: content, configMap: {name: app}}
`

// deployment returns a Deployment of the application. Annotations, init containers and volumes are lines of YAML, and may be empty.
func deployment(replicas int, annotations, initContainers, volumes string) string {
	if initContainers != "" {
		initContainers = "\n      initContainers:" + initContainers
	}
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata:
  name: app
  annotations: {%s}
spec:
  replicas: %d
  selector: {matchLabels: {app: app}}
  template:
    metadata:
      labels: {app: app}
    spec:%s
      containers:%s
      volumes:%s%s
`, annotations, replicas, initContainers, container, volume, volumes)
}

// read is what a container has of the key greeting.
type read struct{ Env, File, Volume string }

// all is what a container has that was started with a value.
func all(value string) read { return read{value, value, value} }

// readOf asks the application in a pod.
func readOf(ctx context.Context, pod *corev1.Pod) (read, error) {
	var r read
	var err error
	if r.Env, err = greeting(ctx, pod); err != nil {
		return r, err
	}
	if r.File, err = get(ctx, pod, "/file/file"); err != nil {
		return r, err
	}
	r.Volume, err = get(ctx, pod, "/file/volume/greeting")
	return r, err
}

// greeting asks the application in a pod for its environment variable.
func greeting(ctx context.Context, pod *corev1.Pod) (string, error) {
	env, err := get(ctx, pod, "/env")
	for line := range strings.Lines(env) {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), "GREETING="); found {
			return value, err
		}
	}
	return "", err
}

// has returns nil if a pod serves, and has read something.
func has(ctx context.Context, pod *corev1.Pod, want read) error {
	if !serves(pod) {
		return fmt.Errorf("pod %s does not serve", pod.Name)
	}
	got, err := readOf(ctx, pod)
	if err == nil && got != want {
		err = fmt.Errorf("pod %s has %+v", pod.Name, got)
	}
	return err
}

// get asks the application in a pod, from this machine.
func get(ctx context.Context, pod *corev1.Pod, path string) (string, error) {
	return getAt(ctx, pod, "8080", path)
}

// getAt asks what listens at a port of a pod.
func getAt(ctx context.Context, pod *corev1.Pod, port, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(pod.Status.PodIP, port)+path, nil)
	if err != nil {
		return "", err
	}
	request.Close = true // containers end, and Services choose a pod for each connection
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	return string(body), err
}

// appPods returns the pods of the application, by name.
func appPods(ctx context.Context, namespace string) (map[string]*corev1.Pod, error) {
	list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=app"})
	if err != nil {
		return nil, err
	}
	pods := map[string]*corev1.Pod{}
	for i := range list.Items {
		pods[list.Items[i].Name] = &list.Items[i]
	}
	return pods, nil
}

// serves reports whether Services may send requests to a pod.
func serves(pod *corev1.Pod) bool {
	if pod == nil || pod.DeletionTimestamp != nil {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// change changes the content of the application, and returns the new version of the ConfigMap.
func change(t *testing.T, namespace, value string) (resourceVersion string) {
	t.Helper()
	patched, err := client.CoreV1().ConfigMaps(namespace).Patch(t.Context(), "app", types.MergePatchType,
		fmt.Appendf(nil, `{"data":{"greeting":%q}}`, value), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return patched.ResourceVersion
}

// onePod waits for the one pod of the application to serve what it should have read.
func onePod(t *testing.T, namespace string, want read) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	await.Until(t, fmt.Sprintf("the pod has %+v", want), func(ctx context.Context) error {
		pods, err := appPods(ctx, namespace)
		if err != nil {
			return err
		}
		for _, pod := range pods {
			found = pod
		}
		if len(pods) != 1 || !serves(found) {
			return errors.New("there is no pod that serves")
		}
		got, err := readOf(ctx, found)
		if err == nil && got != want {
			err = fmt.Errorf("it has %+v", got)
		}
		return err
	})
	return found
}
