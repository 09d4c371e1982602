// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// TestVersionsOfKubernetes: distributions append a suffix to the patch version.
func TestVersionsOfKubernetes(t *testing.T) {
	for version, want := range map[string]string{
		"v1.34.0":         "",
		"v1.34.0-alpha.1": "",
		"v1.34.4+k3s1":    "",
		"v1.37.1-gke.100": "",
		"v2.0.0":          "",
		"v1.33.99":        "this cluster has Kubernetes v1.33.99; the oldest version supported is 1.34",
		"v1.9.0":          "this cluster has Kubernetes v1.9.0; the oldest version supported is 1.34",
		"unknown":         "",
	} {
		got := ""
		if err := supports(version); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("version %s: error = %q, want %q", version, got, want)
		}
	}
}

// TestOldestKubernetes: the oldest version that is supported is tested, and is the one that the chart asks for.
func TestOldestKubernetes(t *testing.T) {
	for file, line := range map[string]string{
		"Makefile":                              "KUBERNETES_VERSION := v" + oldestKubernetes.String() + ".",
		"artifacts/charts/configdep/Chart.yaml": `kubeVersion: ">=` + oldestKubernetes.String() + ".0-0",
	} {
		content, err := os.ReadFile("../../" + file)
		if err != nil || !strings.Contains(string(content), line) {
			t.Errorf("%s does not say %s (%v)", file, line, err)
		}
	}
}

// TestEachKubernetesIsTried: each night, the tests run on each minor version from the oldest one to that of go.mod.
func TestEachKubernetesIsTried(t *testing.T) {
	nightly, err := os.ReadFile("../../.github/workflows/nightly.yml")
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile("../../hack/controlplane/kubernetes/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(module), "require k8s.io/kubernetes v1.")
	minor, _, _ := strings.Cut(rest, ".")
	newest, err := strconv.Atoi(minor)
	if !found || err != nil {
		t.Fatalf("the version of Kubernetes in go.mod is unknown (%v)", err)
	}
	for minor := oldestKubernetes.Minor(); minor <= uint(newest); minor++ {
		if want := fmt.Sprintf("make test-kubernetes KUBERNETES_VERSION=v1.%d.", minor); !strings.Contains(string(nightly), want) {
			t.Errorf("nightly.yml does not run %s", want)
		}
	}
}

// TestVersionOfKubernetesIsAwaited: the API server may not answer when the process starts.
func TestVersionOfKubernetesIsAwaited(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
			return
		}
		if err := json.NewEncoder(w).Encode(version.Info{GitVersion: "v1.29.3"}); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if err := checkKubernetes(t.Context(), client); err == nil {
		t.Error("an unsupported version is accepted")
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("the version was requested %d times", n)
	}
	server.Close()
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if err := checkKubernetes(done, client); err != nil {
		t.Errorf("once the context is done: error = %v, want nil", err)
	}
}
