package manifests

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
)

// Who has installed by kustomize can go over to the chart without removing anything: the names,
// and the Deployment's selector, are the same.
func TestChartTakesOverFromKustomize(t *testing.T) {
	kubectl(t, "apply", "-k", filepath.Join(root, "artifacts", "base"))
	uid, err := cluster.Kubectl(t.Context(), "-n", namespace, "get", "deployment", name, "-o", "jsonpath={.metadata.uid}")
	if err != nil || uid == "" {
		t.Fatalf("the Deployment is %q (%v)", uid, err)
	}
	run := func(args ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		cmd := cluster.Command(ctx, filepath.Join(root, "hack", "helm.sh"), append(args, "--namespace", namespace)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("helm %s: %v:\n%s", strings.Join(args, " "), err, out)
		}
	}
	run("install", "configdep", mustAbs(t, chart), "--take-ownership", "--force-conflicts")
	now, err := cluster.Kubectl(t.Context(), "-n", namespace, "get", "deployment", name, "-o", `jsonpath={.metadata.uid} {.metadata.labels.helm\.sh/chart}`)
	if err != nil || !strings.HasPrefix(now, uid+" configdep-") {
		t.Errorf("the Deployment, which was %s, is %s (%v)", uid, now, err)
	}
	run("uninstall", "configdep")
	// An APIService without a server would hold up what other tests delete.
	if left, err := cluster.Kubectl(t.Context(), "get", "apiservice", "v1alpha1.configdep.io", "--ignore-not-found", "-o", "name"); err != nil || left != "" {
		t.Errorf("there is %s (%v)", left, err)
	}
}
