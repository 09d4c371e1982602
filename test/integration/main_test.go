// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
	configdepv1alpha1 "github.com/configdep/configdep/pkg/generated/clientset/versioned/typed/configdep/v1alpha1"
	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
)

// All tests share these. The clients have all permissions.
var (
	cluster    *controlplane.ControlPlane
	server     *install.Installation
	agent      string // the program
	kube       kubernetes.Interface
	objects    dynamic.Interface
	configdep  configdepv1alpha1.ConfigdepV1alpha1Interface // through the aggregator
	installed  []endpoint                                   // the replicas
	everywhere []endpoint                                   // and the aggregator
)

func TestMain(m *testing.M) {
	if os.Getenv(beThePlugin) != "" {
		os.Exit(runPlugin())
	}
	if os.Getenv(informerKubeconfig) != "" {
		if err := beInformer(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	controlplane.Parallel(12)
	dir, err := os.MkdirTemp("", "integration-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	kinds := filepath.Join(dir, "kinds.yaml")
	audit := filepath.Join(dir, "audit-policy.yaml")
	for path, content := range map[string]string{kinds: kindsConfig(), audit: auditPolicy()} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			panic(err)
		}
	}
	receiver := httptest.NewServer(http.HandlerFunc(alerts.receive))
	defer receiver.Close()
	return install.Run(m, controlplane.Options{
		APIServerArgs: []string{"--audit-policy-file=" + audit, "--audit-log-path=" + auditFile, "--audit-log-maxsize=1000"},
	}, install.Options{
		Set:                 []string{"reload.strategies={annotation,env-var,agent,notify,recreate,in-place}", "reload.jobs=true"}, // all permissions
		ManagedCertificates: true,
		Replicas:            2,
		Race:                install.RaceDetector,
		Args: []string{
			"--kinds-config=" + kinds, "--read-secretproviderclasses=false",
			"--settle=0s", "--release-settle=0s", "--min-interval=0s",
			// The manifest has ten seconds, so that kubelets and endpoints can follow.
			"--shutdown-delay-duration=2s", "--max-version-lag=5s",
			"--leader-elect-lease-duration=8s",
		},
		Before:  defineKinds,
		OwnArgs: []string{"--namespaces-to-ignore=" + strings.Join(ownNamespaces(), ",")},
		Env:     []string{"ALERT_ON_RELOAD=true", "ALERT_WEBHOOK_URL=" + receiver.URL},
	}, func(c *controlplane.ControlPlane, i *install.Installation) {
		cluster, server = c, i
		kube, objects = kubernetes.NewForConfigOrDie(c.RESTConfig()), dynamic.NewForConfigOrDie(c.RESTConfig())
		configdep = versioned.NewForConfigOrDie(c.RESTConfig()).ConfigdepV1alpha1()
		for _, r := range i.Replicas {
			installed = append(installed, endpointOf(r))
		}
		everywhere = append(slices.Clone(installed), endpoint{"the aggregator", c.RESTConfig(), versioned.NewForConfigOrDie(c.RESTConfig())})
		if agent, err = install.Build(context.Background(), "./cmd/configdep-agent", install.RaceDetector); err != nil {
			panic(err)
		}
	})
}
