// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package sidebyside

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/configdep/configdep/test/install"
)

// account is the user name of the server.
const account = "system:serviceaccount:" + install.Namespace + ":" + install.Name

// auditPolicy makes kube-apiserver log what the server writes to workloads.
const auditPolicy = `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [
{"level": "Request", "users": ["` + account + `"], "verbs": ["create", "update", "patch", "delete", "deletecollection"], "resources": [{"group": "apps"}]},
{"level": "None"}
]}`

const auditFile = "audit.log"

// auditArgs returns the flags of kube-apiserver, and writes the policy into a folder.
func auditArgs(dir string) ([]string, error) {
	path := filepath.Join(dir, "audit-policy.json")
	return []string{"--audit-policy-file=" + path, "--audit-log-path=" + auditFile, "--audit-log-maxsize=1000"}, os.WriteFile(path, []byte(auditPolicy), 0o600)
}

// writes returns what the server has written to workloads since it was installed, and how often it has changed the pod template
// of each.
func writes(t *testing.T) (all []string, restarts map[string]int) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(cluster.Dir(), auditFile))
	if err != nil {
		t.Fatal(err)
	}
	restarts = map[string]int{}
	for line := range strings.Lines(string(content)) {
		var call struct {
			Verb      string `json:"verb"`
			ObjectRef struct {
				Resource  string `json:"resource"`
				Namespace string `json:"namespace"`
				Name      string `json:"name"`
			} `json:"objectRef"`
			ResponseStatus struct {
				Code int `json:"code"`
			} `json:"responseStatus"`
			RequestObject json.RawMessage `json:"requestObject"`
		}
		if err := json.Unmarshal([]byte(line), &call); err != nil {
			t.Fatalf("in line %q: %v", line, err)
		}
		ref := call.ObjectRef
		all = append(all, fmt.Sprintf("%s %s %s/%s: %d", call.Verb, ref.Resource, ref.Namespace, ref.Name, call.ResponseStatus.Code))
		if call.ResponseStatus.Code < 300 && strings.Contains(string(call.RequestObject), `"template"`) {
			restarts[ref.Resource+" "+ref.Namespace+"/"+ref.Name]++
		}
	}
	return all, restarts
}
