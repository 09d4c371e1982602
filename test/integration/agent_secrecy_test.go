// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/agent/status"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/search"
)

// Values of Secrets are in the files, and nowhere else: not if a check, an application or the API server quotes them, and not with the
// most detailed log.
func TestAgent_Secrecy(t *testing.T) {
	t.Parallel()
	const marker = "ZQ7VALUEOFASECRET"
	value := func(i int) string { return fmt.Sprintf("%s-%06d", marker, i) }
	p := newAgentShop(t, may("secrets", "tls", "env"),
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"patch"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create"}})
	pods := kube.CoreV1().Pods(p.namespace)
	p.serviceAccount("default")
	pod, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}}}, metav1.CreateOptions{})
	p.must(err)
	// An application that quotes what it has read, in its answer and in its headers.
	var code atomic.Int32
	code.Store(http.StatusOK)
	application := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		text, _ := os.ReadFile(p.dir + "/tls/key")
		w.Header().Set("X-Key", strings.TrimSpace(string(text)))
		w.Header().Set("Location", "/"+string(text))
		w.WriteHeader(int(code.Load()))
		_, _ = fmt.Fprintf(w, "wrong key %s", text)
	}))
	defer application.Close()
	p.write("Secret/tls", "key", value(1))
	p.write("Secret/env", "PASSWORD", value(2), "1-is-no-name", value(9))
	p.environment = append(os.Environ(), "POD_NAME=web-1", "POD_UID="+string(pod.UID))
	r := p.agent("--secret=tls;dir=tls", "--secret=env;env=DB_", "-v=10", "--report=annotation,events",
		`--check-command=["sh", "-c", "cat {dir}/tls/key; cat {dir}/tls/key >&2; ! grep -q BAD {dir}/tls/key"]`,
		"--reload-url="+application.URL, "--reload-by-restart", "--rollback-after=2", "--", "sleep", "1000")
	set := func(name, key, value string) (version string) {
		t.Helper()
		updated, err := kube.CoreV1().Secrets(p.namespace).Update(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{key: value}}, metav1.UpdateOptions{})
		p.must(err)
		return updated.ResourceVersion
	}
	reports := func(state status.State, version string) {
		t.Helper()
		r.until("the pod reports "+string(state), func(ctx context.Context) error {
			pod, err := pods.Get(ctx, "web-1", metav1.GetOptions{})
			if err == nil && (!strings.Contains(pod.Annotations[status.Annotation], fmt.Sprintf(`"state":%q`, state)) || !strings.Contains(pod.Annotations[status.Annotation], version)) {
				err = fmt.Errorf("it reports %s", pod.Annotations[status.Annotation])
			}
			return err
		})
	}
	has := func(want string) {
		t.Helper()
		r.ready("tls/key", want)
	}
	has(value(1))
	set("tls", "key", value(3))
	has(value(3))
	set("tls", "key", value(4)+"BAD")
	r.unready("check: sh: exit code 1")
	reports(status.Failed, "")
	p.told("Pod", pod.Name, "ConfigNotApplied")
	for i, answer := range []int{http.StatusInternalServerError, http.StatusFound} {
		code.Store(int32(answer))
		set("tls", "key", value(5+i))
		r.unready(fmt.Sprintf("the answer is %d", answer))
	}
	code.Store(http.StatusOK)
	set("tls", "other", value(7)) // without a file that was there, and with a new one
	r.ready("tls/other", value(7))
	version := set("env", "PASSWORD", value(8))
	reports(status.Applied, fmt.Sprintf(`"resourceVersion":%q`, version)) // what it reports may still be about the content of before
	places := map[string]string{}
	for _, path := range []string{"/metrics", "/readyz", "/livez", "/startupz"} {
		_, text, err := r.probe(t.Context(), path)
		p.must(err)
		places[path] = text
	}
	reported, err := pods.Get(t.Context(), "web-1", metav1.GetOptions{})
	p.must(err)
	events, err := kube.CoreV1().Events(p.namespace).List(t.Context(), metav1.ListOptions{})
	p.must(err)
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", r.pid))
	p.must(err)
	r.stop()
	places["the log"], places["the annotation"], places["the events"], places["the command line"] = r.text(), fmt.Sprint(reported.Annotations), events.String(), string(line)
	for place, want := range map[string]string{ // otherwise the search proves nothing
		"the log": "check", "the annotation": "Applied", "the events": "ConfigNotApplied", "/metrics": "\nconfigdep_agent_in_sync 1\n", "the command line": "--report",
	} {
		if !strings.Contains(places[place], want) {
			t.Errorf("%s lacks %s: %s", place, want, places[place])
		}
	}
	for place, text := range places {
		for _, form := range search.Forms(marker) {
			if found := search.Find([]byte(text), form); len(found) != 0 {
				t.Errorf("%s has a value: %q", place, search.Around([]byte(text), found[0]))
			}
		}
	}
}

// serviceAccount makes sure that a ServiceAccount exists, which a controller may have created.
func (p *agentShop) serviceAccount(name string) {
	p.Helper()
	await.Until(p.T, "there is a ServiceAccount "+name, func(ctx context.Context) error {
		_, err := kube.CoreV1().ServiceAccounts(p.namespace).Get(ctx, name, metav1.GetOptions{})
		return err
	})
}
