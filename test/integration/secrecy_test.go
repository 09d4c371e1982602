// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
	"github.com/configdep/configdep/test/search"
)

// Digests replace the content of ConfigMaps and Secrets on arrival. Afterwards the content is nowhere: not in
// memory, logs, metrics or answers.
func TestContentIsNotKept(t *testing.T) {
	t.Parallel()
	binary, err := install.Build(t.Context(), "./test/integration/heapserver", false)
	if err != nil {
		t.Fatal(err)
	}
	s := newOwnShop(t)
	namespace := s.namespace
	dump := filepath.Join(t.TempDir(), "heap")
	content := &hidden{t: t, namespace: namespace, marker: rand.Text(),
		name: "name-" + strings.ToLower(rand.Text()), key: "key-" + rand.Text()}
	content.create()
	replica := s.serve(install.ReplicaOptions{
		Binary: binary, Args: []string{"-v=10"},
		// Free memory does not matter. But the runtime reuses it for stacks, whose unused parts are in the dump,
		// so it is overwritten when it is freed.
		Env: []string{"HEAP_DUMP=" + dump, "GODEBUG=clobberfree=1"},
	})
	answers := &bytes.Buffer{}
	ask := func(r request) {
		got := send(t, replica.AdminConfig(), r)
		fmt.Fprintf(answers, "%s %s: %d\n%v\n%s\n", r.method, r.path, got.code, got.header, got.body)
	}
	everyRequest(namespace, ask)
	content.update()
	everyRequest(namespace, ask)
	content.createMore()
	content.remove()
	everyRequest(namespace, ask)

	// Buffers that live as long as a connection contain the last data. This replaces them with other and longer
	// content.
	last := content.overwrite()
	s.view("deployment.last", at(last.secret), at(last.configMap)) // the server has read the last writes
	everyRequest(namespace, ask)
	ask(request{path: "/metrics"})

	// Twice: the buffers of net/http by which compressed answers are read come from pools, so that one that is in use at this very moment
	// may hold what it was used for before. What is kept is in both.
	heaps := make([][]byte, 2)
	for i := range heaps {
		if err := syscall.Kill(replica.PID(), syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		await.Until(t, "the heap is dumped", func(context.Context) error {
			_, err := os.Stat(dump)
			return err
		})
		if heaps[i], err = os.ReadFile(dump); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(dump); err != nil {
			t.Fatal(err)
		}
	}
	heap := heaps[1]
	if err := replica.Terminate(); err != nil {
		t.Error(err)
	}
	log, err := os.ReadFile(replica.Log())
	if err != nil {
		t.Fatal(err)
	}
	key, err := kube.CoreV1().Secrets(install.Namespace).Get(t.Context(), "configdep-hmac-key", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	written := kubectl(t, "-n", namespace, "get", "deployments,events", "-o", "json")

	places := map[string][]byte{
		"the heap": heap, "the log": log, "a body in the log": search.Bodies(log), "the answers": answers.Bytes(), "the cluster": []byte(written),
	}
	for place, where := range places {
		for _, form := range search.Forms(content.marker) {
			if place == "the heap" && len(search.Find(heaps[0], form)) == 0 {
				continue
			}
			for _, at := range search.Find(where, form) {
				t.Errorf("%s (%d bytes) contains content of a ConfigMap or Secret at %d:\n%q", place, len(where), at, search.Around(where, at))
			}
		}
		for _, form := range search.Forms(string(key.Data["key"])) {
			if at := search.Find(where, form); len(at) > 0 && place != "the heap" {
				t.Errorf("%s contains the key of the config hash at %d", place, at)
			}
		}
	}
	if bodies := places["a body in the log"]; len(bodies) > 0 { // no request may be logged with its body
		t.Errorf("the log contains bodies: %q", bodies[:min(len(bodies), 200)])
	}
	// The search finds names and keys, which may be kept, and the key of the config hash.
	for place, wants := range map[string][]string{
		"the heap":    {content.name, content.key, string(key.Data["key"])},
		"the log":     {"/" + namespace + "/secrets?fieldSelector=type%21%3D", "/" + namespace + "/secrets?allowWatchBookmarks=true&fieldSelector=type%21%3D"},
		"the answers": {content.name, content.key},
		"the cluster": {content.name, "configdep.io/applied-sources", "ConfigRestarted"},
	} {
		for _, want := range wants {
			if len(search.Find(places[place], want)) == 0 {
				t.Errorf("%s (%d bytes) lacks %q, so the search proves nothing", place, len(places[place]), want)
			}
		}
	}
}

// hidden is content of the cluster that the server must not keep.
type hidden struct {
	t         *testing.T
	namespace string
	marker    string
	name, key string // these may be kept
	round     int
}

// value returns a text that is different each time, with the marker at its start, in its middle and at its end.
func (c *hidden) value(size int) string {
	c.round++
	filling := strings.Repeat(fmt.Sprintf("%06d ", c.round), size/14)
	return c.marker + filling + c.marker + filling + c.marker
}

func (c *hidden) data() (text map[string]string, binary map[string][]byte) {
	return map[string]string{c.key: c.value(10), "large": c.value(200 << 10)},
		map[string][]byte{"binary": []byte("\xff\x00" + c.value(1<<10))}
}

// annotations are the annotations of kubectl apply.
func (c *hidden) annotations() map[string]string {
	return map[string]string{corev1.LastAppliedConfigAnnotation: `{"stringData":{"x":"` + c.value(10) + `"}}`}
}

func (c *hidden) fillSecret(s *corev1.Secret) {
	text, binary := c.data()
	s.StringData, s.Data, s.Annotations = text, binary, c.annotations()
}

func (c *hidden) fillConfigMap(m *corev1.ConfigMap) {
	m.Data, m.BinaryData = c.data()
	m.Annotations = c.annotations()
}

func (c *hidden) make(name string) {
	c.t.Helper()
	s, m := secret(name, nil), configMap(name, nil)
	c.fillSecret(s)
	c.fillConfigMap(m)
	create(c.t, kube.CoreV1().Secrets(c.namespace).Create, s)
	create(c.t, kube.CoreV1().ConfigMaps(c.namespace).Create, m)
}

// names are the names of the Secrets and ConfigMaps that exist at the start.
func (c *hidden) names() []string { return []string{c.name, "deleted", "unused"} }

func (c *hidden) create() {
	c.t.Helper()
	for _, name := range c.names() {
		c.make(name)
	}
	web := asleep("web", envFromSecret(c.name), envFromConfigMap(c.name), envSecretKey(c.name, c.key))
	web.Annotations = map[string]string{"configdep.io/reload": "auto", "configdep.io/settle": "0", "configdep.io/min-interval": "0"}
	create(c.t, kube.AppsV1().Deployments(c.namespace).Create, web)
	create(c.t, kube.AppsV1().Deployments(c.namespace).Create, asleep("api", envFromSecret("deleted"), envFromSecret("later")))
}

func (c *hidden) createMore() {
	c.t.Helper()
	c.make("later")
}

func (c *hidden) update() {
	c.t.Helper()
	for range 3 {
		for _, name := range c.names() {
			edit(c.t, kube.CoreV1().Secrets(c.namespace), name, c.fillSecret)
			edit(c.t, kube.CoreV1().ConfigMaps(c.namespace), name, c.fillConfigMap)
		}
	}
}

func (c *hidden) remove() {
	c.t.Helper()
	remove(c.t, kube.CoreV1().Secrets(c.namespace).Delete, "deleted")
	remove(c.t, kube.CoreV1().ConfigMaps(c.namespace).Delete, "deleted")
}

type pair struct {
	secret    *corev1.Secret
	configMap *corev1.ConfigMap
}

// overwrite writes longer content without the marker, and creates a workload that shows when the server has read
// the content.
func (c *hidden) overwrite() (last pair) {
	c.t.Helper()
	create(c.t, kube.AppsV1().Deployments(c.namespace).Create, asleep("last", envFromSecret("last"), envFromConfigMap("last")))
	core := kube.CoreV1()
	create(c.t, core.Secrets(c.namespace).Create, secret("last", nil))
	create(c.t, core.ConfigMaps(c.namespace).Create, configMap("last", nil))
	for i := range 4 {
		filling := map[string]string{"filling": strings.Repeat(fmt.Sprintf("%07d ", i), 900<<10/8)}
		last.secret = edit(c.t, core.Secrets(c.namespace), "last", func(s *corev1.Secret) { s.StringData = filling })
		last.configMap = edit(c.t, core.ConfigMaps(c.namespace), "last", func(m *corev1.ConfigMap) { m.Data = filling })
	}
	return last
}

// everyRequest sends every kind of request that the server answers, and many that it rejects.
func everyRequest(namespace string, ask func(request)) {
	all := resourcePath(namespace)
	web := all + "/deployment.web"
	for _, r := range []request{
		{path: all}, {path: all + "?limit=1"}, {path: web}, {path: apiPath + "/configdependencies?fieldSelector=source%3DSecret/deleted"},
		{path: web, header: header("Accept", "application/yaml")}, {path: web + "/pods"},
		{path: web + "/pods", header: header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")},
		{path: all, header: header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")},
		{http.MethodPost, web + "/reload?dryRun=All", inJSON, `{"spec":{"reason":"test"}}`},
		{http.MethodPost, web + "/reload", inJSON, `{"spec":{"mode":"IfStale"}}`},
		{http.MethodPost, web + "/reload", inJSON, `{"spec":{"preconditions":{"configHash":"x"}}}`},
		{http.MethodPost, web + "/reload", inJSON, `{"spec":{"mode":"Never"}}`},
		{http.MethodPost, web + "/reload", inJSON, `{}`},
		{http.MethodPost, web + "/reload", inJSON, `{`},
		{path: all + "?fieldSelector=x%3Dy"}, {path: all + "?continue=x"}, {path: all + "?watch=true&timeoutSeconds=1"}, {path: all + "/deployment.none"},
		{path: web + "/status"}, {method: http.MethodDelete, path: web}, {path: "/healthz"}, {path: "/readyz?verbose=1"}, {path: "/openapi/v2"},
	} {
		ask(r)
	}
}
