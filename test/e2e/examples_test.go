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
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/test/await"
)

// application is what examples of artifacts/examples/agent run, in each mode.
type application struct {
	name       string // of its objects
	dependency string // the name of the workload's ConfigDependency
	inSync     string // the message of the server once all agents have applied the current content
	repository string // of the image in the manifests
	// add makes the image of the same program that is on the node instead.
	add func(t *testing.T, image string)
	// setting is the text in the ConfigMap, with %s for the value, and shown what the application shows of it.
	setting, shown string
	values         []string // of the setting; the manifests have the first
	wrong          string   // a text that is no valid setting
	// loaded returns what the application in a pod works with.
	loaded func(context.Context, *corev1.Pod) (string, error)

	once  sync.Once
	added bool
}

// image returns the image of the application, which is made once for all examples.
func (a *application) image(t *testing.T) string {
	t.Helper()
	image := "localhost/configdep-test/" + a.name + ":1"
	a.once.Do(func() {
		a.add(t, image)
		a.added = true
	})
	if !a.added {
		t.Fatalf("there is no image of %s", a.name)
	}
	return image
}

// example is an application that runs in one of the modes.
type example struct {
	*application
	namespace string
	running   []string // its containers
}

// newExample applies the manifests of an application, in which only the images are others, and what a test replaces. It waits until all its pods
// have a configuration, and the API says so.
func newExample(t *testing.T, mode string, a *application, replace *strings.Replacer) *example {
	t.Helper()
	image := a.image(t)
	manifests, err := os.ReadFile(filepath.Join(root, "artifacts", "examples", "agent", mode, a.name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	images := map[string]string{"ghcr.io/configdep/configdep-agent": agentImage, a.repository: image}
	references := regexp.MustCompile(`(image: |reference: ")([^\s":{]+):[^\s"]+`)
	e := &example{application: a, namespace: newNamespace(t, a.name+"-"+mode)}
	apply(t, e.namespace, references.ReplaceAllStringFunc(replace.Replace(string(manifests)), func(found string) string {
		reference := references.FindStringSubmatch(found)
		replacement, known := images[reference[2]]
		if !known {
			t.Fatalf("%s.yaml has an image that is not on the node: %s", e.name, found)
		}
		return reference[1] + replacement
	}))
	message := e.inSync
	if mode == "restarter" {
		message = ""
	}
	await.Until(t, e.name+" serves, and the API says that it is in sync", func(ctx context.Context) error {
		return errors.Join(e.serves(ctx, e.values[0]), e.shows(ctx, "", v1alpha1.StateInSync, "ContentApplied", message))
	})
	e.running = e.containers(t, 0)
	return e
}

// list returns the pods.
func (e *example) list(ctx context.Context) ([]corev1.Pod, error) {
	pods, err := client.CoreV1().Pods(e.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + e.name})
	if err != nil {
		return nil, err
	}
	return pods.Items, nil
}

// containers returns which containers run, in which pods. Each must have restarted as often as said.
func (e *example) containers(t *testing.T, restarts int32) (found []string) {
	t.Helper()
	pods, err := e.list(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods {
		for _, c := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
			if c.RestartCount != restarts {
				t.Errorf("%s of %s was restarted %d times, want %d", c.Name, pod.Name, c.RestartCount, restarts)
			}
			found = append(found, fmt.Sprintf("%s of %s (%s, %s)", c.Name, pod.Name, pod.UID, pod.Status.PodIP))
		}
	}
	return found
}

// serves returns an error unless the application works with a value in all pods, which are ready.
func (e *example) serves(ctx context.Context, value string) error {
	want := fmt.Sprintf(e.shown, value)
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

// text returns the text of the ConfigMap with one of the values.
func (e *example) text(value int) string { return fmt.Sprintf(e.setting, e.values[value]) }

// applies replaces a text in the ConfigMap, and waits until all pods work with a value, and the API says so. Their containers must be the same,
// and have restarted as often as said.
func (e *example) applies(t *testing.T, before, after, value, message string, restarts int32) {
	t.Helper()
	started := time.Now()
	version := e.change(t, before, after)
	var served, reported time.Duration
	await.Until(t, e.name+" serves "+value, func(ctx context.Context) error {
		notServed, notReported := e.serves(ctx, value), e.shows(ctx, version, v1alpha1.StateInSync, "ContentApplied", message)
		now := time.Since(started)
		first(&served, notServed == nil, now)
		first(&reported, notReported == nil, now)
		return errors.Join(notServed, notReported)
	})
	t.Logf("after the change: all pods serve it %.2f s, InSync %.2f s", served.Seconds(), reported.Seconds())
	if diff := cmp.Diff(e.running, e.containers(t, restarts)); diff != "" {
		t.Errorf("containers (-before +after):\n%s", diff)
	}
}

// refuses replaces a text in the ConfigMap by a wrong one, and waits until the API says that the agents failed, and why. The same containers
// go on with the value that they had.
func (e *example) refuses(t *testing.T, before, had, why string) {
	t.Helper()
	started := time.Now()
	version := e.change(t, before, e.wrong)
	await.Until(t, "the API says that agents failed", func(ctx context.Context) error {
		return e.shows(ctx, version, v1alpha1.StateFailed, "AgentFailed", "cannot apply the current content: "+why)
	})
	t.Logf("after the wrong change: Failed %.2f s", time.Since(started).Seconds())
	if err := e.serves(t.Context(), had); err != nil {
		t.Errorf("with a wrong configuration: %v", err)
	}
}

// What the server says of agents that have refused content.
const (
	refusedByNginx      = "check: nginx: exit code 1. 0 of 2 pods have applied the current content."
	refusedByPrometheus = "reload: POST http://127.0.0.1:9090/-/reload: the answer is 500 Internal Server Error; " +
		"the files that were applied last are back. 0 of 1 pod has applied the current content."
	refusedByPostgreSQL = "check: postgres: exit code 1. 0 of 1 pod has applied the current content."
)

// The agent, as a sidecar and as the parent process, gives nginx, Prometheus and PostgreSQL new content, which they read without a restart.
// They go on with the old if the new is wrong.
func testExamples(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		mode    string
		app     *application
		refused string // what the server says of a wrong setting; empty: it cannot know
	}{
		{"sidecar", nginx, refusedByNginx},
		{"sidecar", prometheus, refusedByPrometheus},
		{"sidecar", postgresql, ""}, // a signal has no answer
		{"parent", nginx, refusedByNginx},
		{"parent", prometheus, refusedByPrometheus},
		{"parent", postgresql, refusedByPostgreSQL},
	} {
		t.Run(test.app.name+" "+test.mode, func(t *testing.T) {
			t.Parallel()
			e := newExample(t, test.mode, test.app, strings.NewReplacer())
			e.applies(t, e.text(0), e.text(1), e.values[1], e.inSync, 0)
			if test.refused == "" {
				e.applies(t, e.text(1), e.wrong, e.values[1], e.inSync, 0)
			} else {
				e.refuses(t, e.text(1), e.values[1], test.refused)
			}
			e.applies(t, e.wrong, e.text(2), e.values[2], e.inSync, 0)
		})
	}
}

// The restarter and the strategy in-place restart nginx, Prometheus and PostgreSQL with new content, in the same pods.
func testExamplesInPlace(t *testing.T) {
	t.Parallel()
	for _, app := range []*application{nginx, prometheus, postgresql} {
		t.Run(app.name, func(t *testing.T) {
			t.Parallel()
			// It does not wait as long.
			e := newExample(t, "restarter", app, strings.NewReplacer("[restarter]", "[restarter, --min-uptime="+minUptime.String()+", --unready=1s]"))
			e.applies(t, e.text(0), e.text(1), e.values[1], "", 1)
		})
	}
}

var nginx = &application{
	name: "nginx", dependency: "deployment.nginx", inSync: "The agents of all 2 pods have applied the current content.",
	repository: "docker.io/nginxinc/nginx-unprivileged",
	add:        addNginx,
	setting:    `return 200 "%s\n"`, shown: "%s\n", values: []string{"one", "two", "three"}, wrong: `retrun 200 "two\n"`,
	loaded: func(ctx context.Context, pod *corev1.Pod) (string, error) { return get(ctx, pod, "/") },
}

var prometheus = &application{
	name: "prometheus", dependency: "deployment.prometheus", inSync: "The agent of the pod has applied the current content.",
	repository: "docker.io/prom/prometheus",
	add: func(t *testing.T, image string) {
		t.Helper()
		unpacked := unpack(t, "prometheus")
		addDebian(t, image, unpacked, []string{"usr/bin/prometheus"},
			"-user=65534:65534", "-entrypoint=prometheus", unpacked+"/usr/bin/prometheus=/usr/bin/prometheus")
	},
	setting: "scrape_interval: %s", shown: "scrape_interval: %s", values: []string{"30s", "20s", "10s"}, wrong: "scrape_interval: often",
	loaded: func(ctx context.Context, pod *corev1.Pod) (string, error) {
		return getAt(ctx, pod, "9090", "/api/v1/status/config")
	},
}

// postgresEntrypoint does, as that of the official image: it makes a database if there is none, with a server that runs for that time, which
// it reaches at the socket where clients look for it.
const postgresEntrypoint = `#!/bin/sh
set -eu
if [ "${1-}" = postgres ]; then
  shift
fi
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  echo "$POSTGRES_PASSWORD" >/tmp/password
  initdb --username=postgres --pwfile=/tmp/password
  pg_ctl --options="$* -c listen_addresses=" --wait start
  psql --username=postgres --command='SELECT 1'
  pg_ctl --mode=fast --wait stop
fi
exec postgres "$@"
`

var postgresql = &application{
	name: "postgresql", dependency: "statefulset.postgresql", inSync: "The agent of the pod has applied the current content.",
	repository: "docker.io/library/postgres",
	add: func(t *testing.T, image string) {
		t.Helper()
		unpacked := unpack(t, "postgresql-15", "postgresql-client-15", "libpq5", "busybox-static", "tzdata")
		entrypoint := filepath.Join(t.TempDir(), "entrypoint")
		if err := os.WriteFile(entrypoint, []byte(postgresEntrypoint), 0o755); err != nil {
			t.Fatal(err)
		}
		const programs = "usr/lib/postgresql/15/bin/"
		addDebian(t, image, unpacked,
			[]string{programs + "postgres", programs + "initdb", programs + "pg_ctl", programs + "pg_isready", programs + "psql"},
			"-user=999:999", "-entrypoint=docker-entrypoint.sh", "-env=PATH=/"+programs+":/bin", entrypoint+"=/bin/docker-entrypoint.sh",
			unpacked+"/bin/busybox=/bin/sh",
			unpacked+"/usr/lib/postgresql/=/usr/lib/postgresql",
			unpacked+"/usr/share/postgresql/=/usr/share/postgresql",
			unpacked+"/usr/share/zoneinfo/=/usr/share/zoneinfo")
	},
	setting: "work_mem = '%s'", shown: "%s\n", values: []string{"1MB", "2MB", "3MB"}, wrong: "work_mem = 'much'",
	loaded: func(ctx context.Context, pod *corev1.Pod) (string, error) {
		return cluster.Kubectl(ctx, "exec", "-n", pod.Namespace, pod.Name, "-c", "postgresql", "--",
			"psql", "-h", "/tmp", "-U", "postgres", "-Atc", "SHOW work_mem")
	},
}
