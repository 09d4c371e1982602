// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/configdep/configdep/test/install"
)

// An upgrade of the chart of the policies updates their definition, and uninstalling it loses no policy: it can be installed again.
func TestPolicies_ByHelm(t *testing.T) {
	const definition, policy = "customresourcedefinition/reloadpolicies.policy.configdep.io", "reloadpolicy/production"
	makeNamespaces(t, install.Namespace)
	chart := t.TempDir()
	if err := os.CopyFS(chart, os.DirFS(filepath.Join(root, "artifacts", "charts", "configdep-policies"))); err != nil {
		t.Fatal(err)
	}
	helm := func(args ...string) {
		t.Helper()
		cmd := cluster.Command(t.Context(), filepath.Join(root, "hack", "helm.sh"), append(args, "--namespace", install.Namespace)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("helm %s: %v:\n%s", args[0], err, out)
		}
	}
	helm("install", "configdep-policies", chart)
	kubectl(t, "wait", "--for=condition=Established", definition, "--timeout=2m")
	kubectl(t, "apply", "-f", filepath.Join(root, "artifacts", "examples", "reloadpolicy.yaml"))

	const file = "templates/policy.configdep.io_reloadpolicies.yaml"
	text, err := os.ReadFile(filepath.Join(chart, file))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(chart, file), []byte(strings.Replace(string(text), "name: Suspended", "name: Paused", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	helm("upgrade", "configdep-policies", chart)
	if got := kubectl(t, "get", definition, "-o", "jsonpath={.spec.versions[0].additionalPrinterColumns[0].name}"); got != "Paused" {
		t.Errorf("first column after the upgrade = %q, want Paused", got)
	}
	helm("uninstall", "configdep-policies")
	kubectl(t, "get", policy)
	helm("install", "configdep-policies", chart)
	kubectl(t, "get", policy)
	helm("uninstall", "configdep-policies")
	kubectl(t, "delete", definition, "namespace/"+install.Namespace, "--timeout=2m")
}
