// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/judge"
	"github.com/configdep/configdep/test/await"
)

// randomChanges is how many random changes each test of the truth makes; E2E_CHANGES sets another number.
const randomChanges = 5

// truth makes random changes, and compares at each moment what the API says of pods with what their containers have.
type truth struct {
	*rand.Rand

	namespace, value, version string
	changes                   int
	verdicts                  map[v1alpha1.ContentState]int
	margins                   int // verdicts Unknown of pods that started at about the time of a change
	wrong                     []string
}

// testTruth tests it with annotations of the Deployment. Whatever happens, no pod is said to be Current that has other content than the current, or Stale that
// has read it.
func testTruth(name, annotations string, inPlace bool) func(*testing.T) {
	return func(t *testing.T) {
		t.Parallel()
		number := randomChanges
		if asked := os.Getenv("E2E_CHANGES"); asked != "" {
			var err error
			if number, err = strconv.Atoi(asked); err != nil {
				t.Fatal(err)
			}
		}
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		x := &truth{Rand: rand.New(rand.NewPCG(seed, 0)), namespace: newNamespace(t, "truth-"+name), verdicts: map[v1alpha1.ContentState]int{}}
		apply(t, x.namespace, content)
		initContainer, more := "", ""
		if inPlace {
			initContainer, more = restarter(t)
			more += "\n"
		}
		apply(t, x.namespace, deployment(2, annotations, initContainer, more))
		kubectl(t, "rollout", "status", "deployment/app", "-n", x.namespace, "--timeout=3m")
		x.value = "one"
		awaitAge(t, x.namespace)
		for range number {
			x.change(t)
			x.look(t, time.Duration(4+x.IntN(12))*time.Second)
		}
		total := 0
		for _, state := range slices.Sorted(maps.Keys(x.verdicts)) {
			total += x.verdicts[state]
			t.Logf("%d pods %s", x.verdicts[state], state)
		}
		for _, wrong := range x.wrong {
			t.Error(wrong)
		}
		if total == x.verdicts[v1alpha1.ContentUnknown] {
			t.Errorf("%d verdicts were compared, all of them Unknown", total)
		}
		// Content changes and pods start every few seconds here, so that they often do so at about the same time.
		t.Logf("%d pods started at about the time of a change", x.margins)
		if unknown := x.verdicts[v1alpha1.ContentUnknown] - x.margins; number >= 100 && unknown*20 > total {
			t.Errorf("%d of %d verdicts are Unknown", unknown, total)
		}
	}
}

// change does something at random.
func (x *truth) change(t *testing.T) {
	t.Helper()
	switch n := x.IntN(10); {
	case n < 5 || x.version == "":
		x.changes++
		x.value = fmt.Sprint("value ", x.changes)
		if x.IntN(4) == 0 {
			x.value = "one"
		}
		x.version = change(t, x.namespace, x.value)
		t.Logf("the content is %q", x.value)
	case n < 7:
		pods, err := appPods(t.Context(), x.namespace)
		if err != nil {
			t.Fatal(err)
		}
		for name, pod := range pods {
			if serves(pod) {
				t.Logf("%s crashes: %v", name, crash(t.Context(), pod))
				break
			}
		}
	case n < 8:
		kubectl(t, "rollout", "restart", "deployment/app", "-n", x.namespace)
		t.Log("its owner restarts it")
	case n < 9:
		_, err := cluster.Kubectl(t.Context(), "rollout", "undo", "deployment/app", "-n", x.namespace) // there may be no earlier revision
		t.Logf("its owner takes a rollout back: %v", err)
	default:
		_, err := view.ConfigdepV1alpha1().ConfigDependencies(x.namespace).Reload(t.Context(), "deployment.app", &v1alpha1.Reload{}, metav1.CreateOptions{})
		t.Logf("a Reload: %v", err)
	}
}

// crash lets the application of a pod end.
func crash(ctx context.Context, pod *corev1.Pod) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+net.JoinHostPort(pod.Status.PodIP, "8080")+"/exit", http.NoBody)
	if err != nil {
		return err
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// look compares for a while, and at least once the API knows of the last change.
func (x *truth) look(t *testing.T, long time.Duration) {
	t.Helper()
	until := time.Now().Add(long)
	await.Watching(t, "the API knows of the change", func(ctx context.Context) error {
		m, err := observe(ctx, x.namespace, x.version)
		if err != nil {
			return err
		}
		if x.compare(&m); !m.known || time.Now().Before(until) {
			return fmt.Errorf("known: %v", m.known)
		}
		return nil
	})
}

// compare compares what the API says with what containers have.
func (x *truth) compare(m *moment) {
	if !m.known || m.pods.ConfigHash != m.hash {
		return
	}
	for i := range m.pods.Pods {
		p := &m.pods.Pods[i]
		got, is := m.reads[p.Name]
		if !is {
			continue
		}
		if x.verdicts[p.State]++; p.State == v1alpha1.ContentUnknown && p.Reason == judge.ReasonClockMargin {
			x.margins++
		}
		isNew := got.Env == x.value && got.File == x.value
		if p.State == v1alpha1.ContentCurrent && !isNew || p.State == v1alpha1.ContentStale && isNew {
			x.wrong = append(x.wrong, fmt.Sprintf("the content is %q, and pod %s, which is said to be %s (%s), has %+v", x.value, p.Name, p.State, p.Message, got))
		}
		if m.state == v1alpha1.StateInSync && !isNew {
			x.wrong = append(x.wrong, fmt.Sprintf("the content is %q, the state is InSync, and pod %s has %+v", x.value, p.Name, got))
		}
	}
}
