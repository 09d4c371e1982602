// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package jobs tests that CronJobs and Jobs are run again when their content changes: once, and also if replicas die or quotas refuse
// Jobs.
package jobs

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
		Race:     install.RaceDetector,
		Replicas: 2, Values: "reload-jobs",
		// The default is to restart everything, which must not apply to CronJobs and Jobs.
		Args: []string{"--auto-reload-all", "--settle=0s", "--release-settle=0s", "--min-interval=0s", "--shutdown-delay-duration=0s"},
	}, func(c *controlplane.ControlPlane, i *install.Installation) {
		cluster, server = c, i
		client, api = kubernetes.NewForConfigOrDie(c.RESTConfig()), versioned.NewForConfigOrDie(c.RESTConfig())
	}))
}
