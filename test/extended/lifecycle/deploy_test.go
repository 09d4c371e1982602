// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

// The scripts deploy and undeploy the manifests, in steps that build on one another. No replica runs, and no pod becomes ready.
func TestDeployAndUndeploy(t *testing.T) {
	node := strings.TrimSpace(kubectl(t, "get", "nodes", "-o", "name"))
	kubectl(t, "cordon", node)
	defer kubectl(t, "uncordon", node)
	manifests := []string{"-k", base}
	if withoutPolicies(t) {
		manifests = []string{"-f", base + "/namespace.yaml", "-f", base + "/configdep.yaml"}
	}
	with := func(args ...string) []string { return append(args, manifests...) }
	// found returns the names of the manifests' objects that are in the cluster.
	found := func(t *testing.T) []string {
		t.Helper()
		return strings.Fields(kubectl(t, with("get", "--ignore-not-found", "-o", "name")...))
	}
	// deploy deploys without waiting, because no pods will run.
	deploy := func(t *testing.T, image string) {
		t.Helper()
		out, err := script(t, "deploy.sh", "IMAGE="+image, "WAIT=false")
		if err != nil {
			t.Fatalf("%v:\n%s", err, out)
		}
		// The API server warns of fields that are deprecated or unknown, and of pod security.
		if strings.Contains(out, "Warning:") {
			t.Errorf("warnings:\n%s", out)
		}
		if got := kubectl(t, "-n", install.Namespace, "get", "deployment", install.Name, "-o", "jsonpath={..image}"); got != image {
			t.Errorf("image = %s, want %s", got, image)
		}
	}
	t.Run("deploy requires an image", func(t *testing.T) {
		for _, env := range [][]string{{"IMAGE="}, {"IMAGE=a b"}, {"IMAGE=x", "WAIT=maybe"}} {
			if out, err := script(t, "deploy.sh", env...); err == nil {
				t.Errorf("%v: deploy succeeded:\n%s", env, out)
			}
		}
		if left := found(t); len(left) > 0 {
			t.Errorf("objects left: %v", left)
		}
	})
	t.Run("deploy creates every object of the manifests", func(t *testing.T) {
		deploy(t, "configdep/configdep-apiserver:one")
		want := strings.Fields(kubectl(t, with("create", "--dry-run=client", "-o", "name")...))
		if got := found(t); !slices.Equal(got, want) || len(want) < 10 {
			t.Errorf("objects = %v\nwant %v", got, want)
		}
	})
	t.Run("no manifest registers the server", func(t *testing.T) {
		if got := kubectl(t, "get", "apiservice", install.APIService, "--ignore-not-found", "-o", "name"); got != "" {
			t.Errorf("there is %s without a server", got)
		}
	})
	t.Run("pods are admitted under the restricted pod security standard", func(t *testing.T) {
		await.Until(t, "there are two pods", func(ctx context.Context) error {
			pods, err := client.CoreV1().Pods(install.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + install.Name})
			if err == nil && len(pods.Items) != 2 {
				err = fmt.Errorf("got %d pods", len(pods.Items))
			}
			return err
		})
	})
	// A diff must only show actual changes. kubectl sends the selector of a PodDisruptionBudget each time
	// (patchStrategy: replace), whatever the manifest contains; the API server then changes nothing.
	t.Run("applying the same manifests changes nothing", func(t *testing.T) {
		kubectl(t, with("apply")...)
		for line := range strings.Lines(kubectl(t, with("apply")...)) {
			if !strings.HasSuffix(line, " unchanged\n") && !strings.HasPrefix(line, "poddisruptionbudget.policy/") {
				t.Errorf("applied again: %s", line)
			}
		}
	})
	t.Run("deploying again updates the server", func(t *testing.T) {
		deploy(t, "configdep/configdep-apiserver:two")
	})
	t.Run("deploy reports why the server does not become ready", func(t *testing.T) {
		out, err := script(t, "deploy.sh", "IMAGE=configdep/configdep-apiserver:two", "TIMEOUT=1s")
		if err == nil || !strings.Contains(out, "deploy: the server is not ready; see: ") {
			t.Errorf("%v:\n%s", err, out)
		}
	})
	t.Run("undeploy removes everything, and succeeds again", func(t *testing.T) {
		undeploy(t)
		nothingLeft(t)
		undeploy(t)
	})
}
