// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/test/await"
)

// example is an application of artifacts/examples/agent that runs. Its objects have its name.
type example struct {
	namespace, name string
	dependency      string   // the name of the workload's ConfigDependency
	inSync          string   // the message once all pods have the current content
	running         []string // its containers
	// loaded returns what the application in a pod works with.
	loaded func(context.Context, *corev1.Pod) (string, error)
}

// run applies the manifests of an application, in which only the images are others, and waits until all its pods have a configuration.
func (e *example) run(t *testing.T, repository, image, want string) {
	t.Helper()
	manifests, err := os.ReadFile(filepath.Join(root, "artifacts", "examples", "agent", e.name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	images := map[string]string{"ghcr.io/configdep/configdep-agent": agentImage, repository: image}
	references := regexp.MustCompile(`(image: |reference: ")([^\s":{]+):[^\s"]+`)
	e.namespace = newNamespace(t, e.name+"-example")
	apply(t, e.namespace, references.ReplaceAllStringFunc(string(manifests), func(found string) string {
		reference := references.FindStringSubmatch(found)
		replacement, known := images[reference[2]]
		if !known {
			t.Fatalf("%s.yaml has an image that is not on the node: %s", e.name, found)
		}
		return reference[1] + replacement
	}))
	await.Until(t, e.name+" serves, and the API says that it is in sync", func(ctx context.Context) error {
		return errors.Join(e.serves(ctx, want), e.shows(ctx, "", v1alpha1.StateInSync, "ContentApplied", e.inSync))
	})
	e.running = e.containers(t)
}

// list returns the pods.
func (e *example) list(ctx context.Context) ([]corev1.Pod, error) {
	pods, err := client.CoreV1().Pods(e.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + e.name})
	if err != nil {
		return nil, err
	}
	return pods.Items, nil
}

// containers returns which containers run, in which pods. None may have restarted.
func (e *example) containers(t *testing.T) (found []string) {
	t.Helper()
	pods, err := e.list(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods {
		for _, c := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
			if c.RestartCount != 0 {
				t.Errorf("%s of %s was restarted %d times", c.Name, pod.Name, c.RestartCount)
			}
			found = append(found, fmt.Sprintf("%s of %s (%s)", c.Name, pod.Name, pod.UID))
		}
	}
	return found
}

// serves returns an error unless the application works with a configuration in all pods, which are ready.
func (e *example) serves(ctx context.Context, want string) error {
	pods, err := e.list(ctx)
	if err == nil && len(pods) == 0 {
		err = errors.New("there are no pods")
	}
	if err != nil {
		return err
	}
	for i := range pods {
		if !serves(&pods[i]) {
			return fmt.Errorf("%s is not ready", pods[i].Name)
		}
		got, err := e.loaded(ctx, &pods[i])
		if err != nil {
			return err
		}
		if !strings.Contains(got, want) {
			return fmt.Errorf("%s has %q", pods[i].Name, got)
		}
	}
	return nil
}

// shows returns an error unless the API shows a state, with a part of the message, for a version of the ConfigMap, or any if that is empty.
func (e *example) shows(ctx context.Context, version string, state v1alpha1.State, reason, message string) error {
	shown, err := view.ConfigdepV1alpha1().ConfigDependencies(e.namespace).Get(ctx, e.dependency, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if s := &shown.Status; s.State != state || s.Reason != reason || !strings.Contains(s.Message, message) {
		return fmt.Errorf("the API says %s, %s, %s", s.State, s.Reason, s.Message)
	}
	for _, s := range shown.Status.Sources {
		if s.Kind == v1alpha1.SourceConfigMap && s.Name == e.name && (version == "" || s.ResourceVersion == version) {
			return nil
		}
	}
	return fmt.Errorf("the API shows the sources %+v", shown.Status.Sources)
}

// change replaces a text in the ConfigMap, and returns the new version.
func (e *example) change(t *testing.T, before, after string) (version string) {
	t.Helper()
	configMaps := client.CoreV1().ConfigMaps(e.namespace)
	configMap, err := configMaps.Get(t.Context(), e.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range configMap.Data {
		if !strings.Contains(value, before) {
			t.Fatalf("%s lacks %q: %s", key, before, value)
		}
		configMap.Data[key] = strings.Replace(value, before, after, 1)
	}
	changed, err := configMaps.Update(t.Context(), configMap, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return changed.ResourceVersion
}

// applies replaces a text in the ConfigMap, and waits until the same containers work with that, and the API says so.
func (e *example) applies(t *testing.T, before, after, want string) {
	t.Helper()
	started := time.Now()
	version := e.change(t, before, after)
	var served, reported time.Duration
	await.Until(t, e.name+" serves "+want, func(ctx context.Context) error {
		notServed, notReported := e.serves(ctx, want), e.shows(ctx, version, v1alpha1.StateInSync, "ContentApplied", e.inSync)
		if notServed == nil && served == 0 {
			served = time.Since(started)
		}
		if notReported == nil && reported == 0 {
			reported = time.Since(started)
		}
		return errors.Join(notServed, notReported)
	})
	t.Logf("after the change: all pods serve it %.2f s, InSync %.2f s", served.Seconds(), reported.Seconds())
	if diff := cmp.Diff(e.running, e.containers(t)); diff != "" {
		t.Errorf("containers (-before +after):\n%s", diff)
	}
}

// refuses replaces a text in the ConfigMap by a wrong one, and waits until the API says that the agents failed, and why. The same containers
// go on with what they had.
func (e *example) refuses(t *testing.T, before, after, had, why string) {
	t.Helper()
	started := time.Now()
	version := e.change(t, before, after)
	await.Until(t, "the API says that agents failed", func(ctx context.Context) error {
		return e.shows(ctx, version, v1alpha1.StateFailed, "AgentFailed", "cannot apply the current content: "+why)
	})
	t.Logf("after the wrong change: Failed %.2f s", time.Since(started).Seconds())
	if err := e.serves(t.Context(), had); err != nil {
		t.Errorf("with a wrong configuration: %v", err)
	}
}

// nginx, of which the agent is the parent process, comes with an image volume, serves new content, and goes on with the old if the new is
// wrong.
func testNginxExample(t *testing.T) {
	t.Parallel()
	const image = "localhost/configdep-test/nginx:1"
	addNginx(t, image)
	e := example{
		name: "nginx", dependency: "deployment.nginx", inSync: "The agents of all 2 pods have applied the current content.",
		loaded: func(ctx context.Context, pod *corev1.Pod) (string, error) { return get(ctx, pod, "/") },
	}
	e.run(t, "docker.io/nginxinc/nginx-unprivileged", image, "one")
	e.applies(t, `return 200 "one\n"`, `return 200 "two\n"`, "two")
	e.refuses(t, "return 200", "retrun 200", "two", "check: nginx: exit code 1. 0 of 2 pods have applied the current content.")
	e.applies(t, `retrun 200 "two\n"`, `return 200 "three\n"`, "three")
}

// Prometheus loads what its sidecar writes, at a request. After it has refused that three times, it has the files of before again.
func testPrometheusExample(t *testing.T) {
	t.Parallel()
	const image = "localhost/configdep-test/prometheus:1"
	unpacked := unpack(t, "prometheus")
	addDebian(t, image, unpacked, []string{"usr/bin/prometheus"},
		"-user=65534:65534", "-entrypoint=prometheus", unpacked+"/usr/bin/prometheus=/usr/bin/prometheus")
	e := example{
		name: "prometheus", dependency: "deployment.prometheus", inSync: "The agent of the pod has applied the current content.",
		loaded: func(ctx context.Context, pod *corev1.Pod) (string, error) {
			return getAt(ctx, pod, "9090", "/api/v1/status/config")
		},
	}
	e.run(t, "docker.io/prom/prometheus", image, "scrape_interval: 30s")
	e.applies(t, "scrape_interval: 30s", "scrape_interval: 20s", "scrape_interval: 20s")
	e.refuses(t, "scrape_interval: 20s", "scrape_interval: often", "scrape_interval: 20s", "reload: POST http://127.0.0.1:9090/-/reload: "+
		"the answer is 500 Internal Server Error; the files that were applied last are back. 0 of 1 pod has applied the current content.")
	e.applies(t, "scrape_interval: often", "scrape_interval: 10s", "scrape_interval: 10s")
}

// postgresEntrypoint does, as that of the official image: it makes a database if there is none, with a server that runs for that time, which
// it reaches at the socket where clients look for it.
const postgresEntrypoint = `#!/bin/sh
set -eu
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  echo "$POSTGRES_PASSWORD" >/tmp/password
  initdb --username=postgres --pwfile=/tmp/password
  pg_ctl --options="$* -c listen_addresses=" --wait start
  psql --username=postgres --command='SELECT 1'
  pg_ctl --mode=fast --wait stop
fi
exec postgres "$@"
`

// PostgreSQL reads its settings again when the sidecar sends a signal to its process, which is of another container.
func testPostgreSQLExample(t *testing.T) {
	t.Parallel()
	const image = "localhost/configdep-test/postgresql:1"
	unpacked := unpack(t, "postgresql-15", "postgresql-client-15", "libpq5", "busybox-static", "tzdata")
	entrypoint := filepath.Join(t.TempDir(), "entrypoint")
	if err := os.WriteFile(entrypoint, []byte(postgresEntrypoint), 0o755); err != nil {
		t.Fatal(err)
	}
	const programs = "usr/lib/postgresql/15/bin/"
	addDebian(t, image, unpacked,
		[]string{programs + "postgres", programs + "initdb", programs + "pg_ctl", programs + "pg_isready", programs + "psql"},
		"-user=999:999", "-entrypoint=/entrypoint", "-env=PATH=/"+programs+":/bin", entrypoint+"=/entrypoint",
		unpacked+"/bin/busybox=/bin/sh",
		unpacked+"/usr/lib/postgresql/=/usr/lib/postgresql",
		unpacked+"/usr/share/postgresql/=/usr/share/postgresql",
		unpacked+"/usr/share/zoneinfo/=/usr/share/zoneinfo")
	e := example{
		name: "postgresql", dependency: "statefulset.postgresql", inSync: "The agent of the pod has applied the current content.",
		loaded: func(ctx context.Context, pod *corev1.Pod) (string, error) {
			return cluster.Kubectl(ctx, "exec", "-n", pod.Namespace, pod.Name, "-c", "postgresql", "--",
				"psql", "-h", "/tmp", "-U", "postgres", "-Atc", "SHOW work_mem")
		},
	}
	e.run(t, "docker.io/library/postgres", image, "1MB")
	e.applies(t, "work_mem = '1MB'", "work_mem = '2MB'", "2MB")
	// PostgreSQL refuses this, which the agent cannot know.
	e.applies(t, "work_mem = '2MB'", "work_mem = 'much'", "2MB")
	e.applies(t, "work_mem = 'much'", "work_mem = '3MB'", "3MB")
}
