// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// auditPolicy returns the audit policy of docs/security.md, which instead of all other requests logs that the server lists
// PodDisruptionBudgets.
func auditPolicy() string {
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		panic(err)
	}
	_, rules, _ := strings.Cut(string(page), "```yaml\napiVersion: audit.k8s.io/v1\n")
	rules, _, found := strings.Cut(rules, "- level: Metadata\n```")
	if !found {
		panic("docs/security.md has no audit policy that ends with a rule for all requests")
	}
	return "apiVersion: audit.k8s.io/v1\n" + rules + "- {level: Metadata, users: [" + strconv.Quote(serverAccount) + "], verbs: [list], resources: [{group: policy}]}\n- level: None\n"
}

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
		if strings.HasSuffix(line, "\n") && strings.Contains(line, `"resource":"poddisruptionbudgets","namespace":"`+namespace+`"`) {
			n++
		}
	}
	return n
}
