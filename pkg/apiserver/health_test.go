// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/server/healthz"
)

// The verbose answer names the kinds that may not be read, and the server stays ready.
func TestWorkloadKinds(t *testing.T) {
	many := map[string]bool{}
	for i := range maxShownKinds + 2 {
		many[fmt.Sprintf("kind%02d.example.com", i)] = true
	}
	for name, tt := range map[string]struct {
		forbidden map[string]bool
		query     string
		want      string
	}{
		"none":     {nil, "?verbose", "[+]workload-kinds ok\n"},
		"all read": {map[string]bool{"rollouts.argoproj.io": false}, "?verbose", "[+]workload-kinds ok\n"},
		"some": {
			map[string]bool{"rollouts.argoproj.io": true, "boats.sea.example.com": true, "clonesets.apps.kruise.io": false}, "?verbose",
			"[+]workload-kinds (not authorized to list and watch boats.sea.example.com, rollouts.argoproj.io) ok\n",
		},
		"many":     {many, "?verbose", "kind19.example.com and 2 more) ok\n"},
		"excluded": {map[string]bool{"rollouts.argoproj.io": true}, "?verbose&exclude=workload-kinds", "excluded with workload-kinds: ok\n"},
		"short":    {map[string]bool{"rollouts.argoproj.io": true}, "", "ok"},
	} {
		t.Run(name, func(t *testing.T) {
			mux := http.NewServeMux()
			healthz.InstallReadyzHandler(mux, &workloadKinds{forbidden: func() map[string]bool { return tt.forbidden }})
			mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/readyz", http.NoBody)) // as a kubelet does
			answer := httptest.NewRecorder()
			mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz"+tt.query, http.NoBody))
			body, err := io.ReadAll(answer.Body)
			if err != nil || answer.Code != http.StatusOK || !strings.Contains(string(body), tt.want) {
				t.Errorf("%d %v: %s", answer.Code, err, body)
			}
		})
	}
}
