// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/configdep/configdep/test/install"
	"github.com/configdep/configdep/test/node"
	"github.com/configdep/configdep/test/tour"
)

// overlay runs the shop of artifacts/examples with an image that is on the node. The init container, unlike its image, ends.
const overlay = `
resources: [../../../../artifacts/examples]
images:
- {name: registry.k8s.io/pause, newName: localhost/configdep-test/pause, newTag: "1"}
patches:
- target: {kind: Deployment, name: web}
  patch: |
    - {op: add, path: /spec/template/spec/initContainers/0/args, value: [done]}
`

// The tour prints what the document says, also on a real node.
func testTour(t *testing.T) {
	dir := filepath.Join(machine.Dir(), "shop")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(overlay), 0o644); err != nil {
		t.Fatal(err)
	}
	if node.PauseImage != "localhost/configdep-test/pause:1" {
		t.Fatal("the overlay has another image than " + node.PauseImage)
	}
	t.Cleanup(func() {
		if _, err := cluster.Kubectl(context.WithoutCancel(t.Context()), "delete", "-k", dir, "--timeout=3m"); err != nil {
			t.Error(err)
		}
	})
	kubectl(t, "apply", "-k", dir)
	for _, deployment := range []string{"api", "web"} {
		kubectl(t, "rollout", "status", "deployment/"+deployment, "-n", "shop", "--timeout=3m")
	}
	program, err := install.Build(t.Context(), "./cmd/kubectl-configdep", false)
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(program, filepath.Join(bin, "kubectl-configdep")); err != nil {
		t.Fatal(err)
	}
	wrong, err := tour.Run(t.Context(), cluster, "docs/getting-started.md", tour.Options{Root: root, Plugin: bin, Except: []string{
		// Simulated nodes start pods that lack something, end Jobs, and are three.
		"kubectl get configdependencies -A",
		"kubectl configdep stale -n shop",
		// An old pod may still be terminating.
		"kubectl configdep why deploy/web -n shop",
	}})
	if err != nil || wrong != nil {
		t.Error(err, wrong)
	}

	// The hook runs in a pod, with nothing but its ServiceAccount, and sees what the tour has left stale.
	hook, err := os.ReadFile(filepath.Join(root, "artifacts", "argo-cd", "wait.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	image := path.Dir(serverImage) + "/kubectl-configdep:" + versions[0]
	apply(t, "shop", strings.ReplaceAll(string(hook), "ghcr.io/configdep/kubectl-configdep:v0.1.0", image))
	kubectl(t, "wait", "--for=condition=Failed", "job/configdep-wait", "-n", "shop", "--timeout=2m")
	if out := kubectl(t, "logs", "job/configdep-wait", "-n", "shop"); !strings.Contains(out, "deployment/api is Stale (NotOptedIn)") {
		t.Errorf("the hook says %s", out)
	}
}
