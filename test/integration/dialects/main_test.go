// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package dialects tests what users of Stakater Reloader, SAP pod-reloader and wave meet: their annotations, what restarts leave
// on pod templates, pauses of Deployments, and the switch from each tool.
package dialects

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
	os.Exit(install.Run(m, controlplane.Options{Nodes: 1}, install.Options{
		Race: install.RaceDetector,
		// Users of other tools expect a restart at once, also for the second change right after the first.
		Args: []string{"--strategies=annotation,env-var", "--settle=0s", "--release-settle=0s", "--min-interval=0s", "--shutdown-delay-duration=0s"},
	}, func(c *controlplane.ControlPlane, i *install.Installation) {
		cluster, server = c, i
		client, api = kubernetes.NewForConfigOrDie(c.RESTConfig()), versioned.NewForConfigOrDie(c.RESTConfig())
	}))
}
