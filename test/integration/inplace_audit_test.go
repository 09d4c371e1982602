// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// auditPolicy makes kube-apiserver log when the server lists PodDisruptionBudgets.
const auditPolicy = `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [
{"level": "Metadata", "users": ["` + serverAccount + `"], "verbs": ["list"], "resources": [{"group": "policy"}]},
{"level": "None"}
]}`

const auditFile = "audit.log"

// budgetsListed returns how often the server has listed the PodDisruptionBudgets of a namespace. One list ends before the pods of a
// workload are told, or not, and the next one begins after that.
func budgetsListed(t *testing.T, namespace string) (n int) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(cluster.Dir(), auditFile))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		if strings.HasSuffix(line, "\n") && strings.Contains(line, `"namespace":"`+namespace+`"`) {
			n++
		}
	}
	return n
}
