// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package csi tests what rotations of secrets outside of the cluster restart, with the resource in which the Secrets Store CSI driver
// reports what pods have mounted. The tests write it as the driver does.
package csi

import (
	"os"
	"testing"

	"k8s.io/client-go/dynamic"
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
	objects dynamic.Interface
)

func TestMain(m *testing.M) {
	os.Exit(install.Run(m, controlplane.Options{Nodes: 1}, install.Options{
		Race: install.RaceDetector,
		Args: []string{"--settle=1s", "--release-settle=0s", "--min-interval=0s", "--shutdown-delay-duration=0s"},
	}, func(c *controlplane.ControlPlane, i *install.Installation) {
		cluster, server = c, i
		client, api = kubernetes.NewForConfigOrDie(c.RESTConfig()), versioned.NewForConfigOrDie(c.RESTConfig())
		objects = dynamic.NewForConfigOrDie(c.RESTConfig())
	}))
}
