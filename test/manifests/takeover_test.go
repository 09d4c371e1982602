// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
)

// A user can switch from kustomize to the chart without removing anything: the names and the Deployment's selector
// are the same. After an attempt without a necessary flag, the next one with it succeeds.
func TestChartTakesOverFromKustomize(t *testing.T) {
	for name, attempts := range map[string]struct{ failing, last []string }{
		"first attempt": {last: []string{"install", "configdep"}},
		"after an attempt that did not own the objects": {
			failing: []string{"install", "configdep", mustAbs(t, chart)},
			last:    []string{"upgrade", "--install", "configdep"},
		},
		"after an attempt that met conflicts": {
			failing: []string{"install", "configdep", mustAbs(t, chart), "--take-ownership"},
			last:    []string{"upgrade", "--install", "configdep"},
		},
	} {
		t.Run(name, func(t *testing.T) { takeOver(t, attempts.failing, attempts.last) })
	}
}

func takeOver(t *testing.T, failing, last []string) {
	t.Helper()
	kubectl(t, "apply", "-k", filepath.Join(root, "artifacts", "base"))
	uid, err := cluster.Kubectl(t.Context(), "-n", namespace, "get", "deployment", name, "-o", "jsonpath={.metadata.uid}")
	if err != nil || uid == "" {
		t.Fatalf("UID of the Deployment = %q (%v)", uid, err)
	}
	run := func(args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		out, err := cluster.Command(ctx, filepath.Join(root, "hack", "helm.sh"), append(args, "--namespace", namespace)...).CombinedOutput()
		return string(out), err
	}
	if failing != nil {
		if out, err := run(failing...); err == nil {
			t.Errorf("helm %s succeeded, want an error:\n%s", strings.Join(failing, " "), out)
		}
	}
	if out, err := run(append(last, mustAbs(t, chart), "--take-ownership", "--force-conflicts")...); err != nil {
		t.Fatalf("helm %s: %v:\n%s", strings.Join(last, " "), err, out)
	}
	now, err := cluster.Kubectl(t.Context(), "-n", namespace, "get", "deployment", name, "-o", `jsonpath={.metadata.uid} {.metadata.labels.helm\.sh/chart}`)
	if err != nil || !strings.HasPrefix(now, uid+" configdep-") {
		t.Errorf("the Deployment had the UID %s, and now has the UID and chart %s (%v)", uid, now, err)
	}
	if out, err := run("uninstall", "configdep"); err != nil {
		t.Fatalf("helm uninstall: %v:\n%s", err, out)
	}
}
