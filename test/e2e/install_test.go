// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/test/await"
)

const chart = "artifacts/charts/configdep"

// The chart with its defaults, in a namespace with the strictest Pod Security: two replicas serve the API by a real Service, with
// the token of their ServiceAccount.
func testInstall(t *testing.T) {
	kubectl(t, "create", "namespace", namespace)
	kubectl(t, "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
	helm(t, "install", "configdep", chart, "--namespace", namespace, "--wait", "--timeout=5m")
	kubectl(t, "wait", "--for=create", "apiservice/"+apiService, "--timeout=2m")
	kubectl(t, "wait", "--for=condition=Available", "apiservice/"+apiService, "--timeout=2m")
	if got := running(t); len(got) != 2 || got[0] != versions[0] || got[1] != versions[0] {
		t.Errorf("the versions that run are %v, want two replicas of %s", got, versions[0])
	}
	if token := kubectl(t, "get", "pods", "-n", namespace, "-l", "app.kubernetes.io/name="+name,
		"-o", "jsonpath={.items[*].spec.volumes[*].projected.sources[*].serviceAccountToken.path}"); !strings.Contains(token, "token") {
		t.Errorf("the pods of the server have no projected token: %q", token)
	}
}

// running returns the versions that the replicas run, by the tags of their images.
func running(t *testing.T) (found []string) {
	t.Helper()
	pods, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods.Items {
		_, version, _ := strings.Cut(pod.Status.ContainerStatuses[0].Image, ":")
		found = append(found, version)
	}
	return found
}

// An upgrade to another version, with more strategies, replaces the replicas one by one, and the API answers all the time.
func testUpgrade(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var (
		asking   sync.WaitGroup
		requests int
		refused  []error
	)
	asking.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			_, err := view.ConfigdepV1alpha1().ConfigDependencies("").List(ctx, metav1.ListOptions{})
			requests++
			if err != nil && ctx.Err() == nil {
				refused = append(refused, fmt.Errorf("at %s: %w", time.Now().Format(time.TimeOnly), err))
			}
			<-tick.C
		}
	})
	started := time.Now()
	helm(t, "upgrade", "configdep", chart, "--namespace", namespace, "--set", "image.tag="+versions[1], "--set", inPlaceAllowed, "--wait", "--timeout=8m")
	t.Logf("the upgrade took %.1f s", time.Since(started).Seconds())
	cancel()
	asking.Wait()
	t.Logf("%d requests during the upgrade, %d failed", requests, len(refused))
	if len(refused) > 0 || requests < 100 {
		t.Errorf("%d of %d requests during the upgrade failed: %v", len(refused), requests, errors.Join(refused...))
	}
	// Those of the old version end a while later, and answer on connections that exist already.
	await.Until(t, "two replicas of the new version run, and no other", func(context.Context) error {
		if got := running(t); !slices.Equal(got, []string{versions[1], versions[1]}) {
			return fmt.Errorf("the versions that run are %v", got)
		}
		return nil
	})
}

// An uninstallation leaves nothing in the cluster but the namespace, which helm has not made.
func testUninstall(t *testing.T) {
	helm(t, "uninstall", "configdep", "--namespace", namespace, "--wait", "--timeout=5m")
	kubectl(t, "delete", "namespace", namespace, "--timeout=2m")
	await.Until(t, "nothing is left", func(context.Context) error {
		if diff := cmp.Diff(untouched, objects(t)); diff != "" {
			return fmt.Errorf("objects (-before +after):\n%s", diff)
		}
		return nil
	})
}

// objects returns the names of all objects in the cluster, except those that come and go by themselves.
func objects(t *testing.T) []string {
	t.Helper()
	kinds := strings.Fields(kubectl(t, "api-resources", "--verbs=list", "-o", "name"))
	kinds = slices.DeleteFunc(kinds, func(kind string) bool {
		return kind == "events" || kind == "events.events.k8s.io" || strings.HasSuffix(kind, ".metrics.k8s.io")
	})
	names := kubectl(t, "get", strings.Join(kinds, ","), "-A", "--ignore-not-found", "--show-kind", "--no-headers", "-o",
		`jsonpath={range .items[*]}{.kind}{" "}{.metadata.namespace}{"/"}{.metadata.name}{"\n"}{end}`)
	return slices.Sorted(strings.Lines(names))
}
