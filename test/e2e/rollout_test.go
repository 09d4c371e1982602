// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import "testing"

// A change of a ConfigMap gives containers new environment variables, subPath files and volumes, by a rollout. At no moment does the API
// say that pods have the current content while a pod that serves has other content.
func testRollout(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t, "rollout")
	apply(t, ns, content)
	apply(t, ns, deployment(2, `configdep.io/reload: auto, configdep.io/settle: 1s, configdep.io/min-interval: "0"`, "", ""))
	kubectl(t, "rollout", "status", "deployment/app", "-n", ns, "--timeout=3m")
	kubectl(t, "wait", "--for=condition=InSync", "cfgdep/deployment.app", "-n", ns, "--timeout=2m")
	follow(t, ns, "two")
}
