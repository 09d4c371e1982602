// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package inplace tests that pods are restarted in place, one after the other and each once, also if replicas die.
// The nodes are simulated, so the tests have kubelets of their own, which restart containers.
package inplace

import (
	"os"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
)

// All tests share these.
var (
	cluster *controlplane.ControlPlane
	server  *install.Installation
	client  kubernetes.Interface
	api     versioned.Interface
)

func TestMain(m *testing.M) {
	controlplane.Parallel(4)
	dir, err := os.MkdirTemp("", "inplace-")
	if err != nil {
		panic(err)
	}
	args, err := auditArgs(dir)
	if err != nil {
		panic(err)
	}
	code := install.Run(m, controlplane.Options{Nodes: 1, APIServerArgs: args}, install.Options{
		Race:     install.RaceDetector,
		Replicas: 2, Values: "in-place",
		Args: []string{
			"--settle=0s", "--release-settle=0s", "--min-interval=0s", "--shutdown-delay-duration=0s",
			"--leader-elect-lease-duration=4s",
		},
	}, func(c *controlplane.ControlPlane, i *install.Installation) {
		cluster, server = c, i
		client, api = kubernetes.NewForConfigOrDie(c.RESTConfig()), versioned.NewForConfigOrDie(c.RESTConfig())
	})
	_ = os.RemoveAll(dir)
	os.Exit(code)
}
