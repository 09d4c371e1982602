// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// expiring is an API server whose configdep cannot compare the version of the cluster with its own in the first answers.
func expiring(t *testing.T, answers int32) (url string) {
	t.Helper()
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case !strings.HasPrefix(r.URL.Path, "/apis/configdep.io/"):
			fmt.Fprint(w, `{"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "5"}}`)
		case asked.Add(1) <= answers:
			w.WriteHeader(http.StatusGone)
			fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410, "message": "resource version 5 is of another replica"}`)
		default:
			fmt.Fprint(w, `{"kind": "ConfigDependencyList", "apiVersion": "configdep.io/v1alpha1", "items": [{"metadata": {"name": "deployment.web", "namespace": "default"}, "spec": {"workloadRef": {"kind": "Deployment", "name": "web"}},
				"status": {"state": "InSync", "conditions": [{"type": "InSync", "status": "True"}]}}]}`)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// For two minutes after the definition of an optional kind appears, a replica cannot compare versions.
func TestWait_VersionThatCannotBeComparedYet(t *testing.T) {
	if code, out, errOut := run(t, "", "wait", "deploy/web", "--server="+expiring(t, 1)); code != exitDone || !strings.Contains(out, "deployment/web: InSync") {
		t.Errorf("code %d, %s%s", code, out, errOut)
	}
	code, _, errOut := run(t, "", "wait", "deploy/web", "--timeout=5s", "--server="+expiring(t, 1<<30))
	if code != exitTimeout || !strings.Contains(errOut, "it is not known which workloads run with the current content after 5s: resource version 5 is of another replica") {
		t.Errorf("it stays so: code %d, %s", code, errOut)
	}
}
