// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package clusters tests the server in clusters that are not as usual: etcd is restored from a backup, a resource is in an etcd of
// its own, kube-apiserver lacks features, and certificates live for seconds.
package clusters

import (
	"os"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
)

// These are of the cluster that tests share which do not start one.
var (
	cluster *controlplane.ControlPlane
	server  *install.Installation
	client  kubernetes.Interface
	api     versioned.Interface
)

func TestMain(m *testing.M) {
	os.Exit(install.Run(m, controlplane.Options{Nodes: 1, APIServerArgs: []string{withoutFeatures}}, install.Options{
		Race: install.RaceDetector, Values: "in-place", Replicas: 2,
		Args: []string{"--settle=0s", "--release-settle=0s", "--min-interval=0s", "--shutdown-delay-duration=0s"},
	}, func(c *controlplane.ControlPlane, i *install.Installation) {
		cluster, server, client, api = c, i, kubernetes.NewForConfigOrDie(c.RESTConfig()), versioned.NewForConfigOrDie(c.RESTConfig())
	}))
}

// start starts a control plane for one test.
func start(t *testing.T, o controlplane.Options) *controlplane.ControlPlane {
	t.Helper()
	o.Log = t.Output()
	c, err := controlplane.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// installed installs two replicas until the test ends.
func installed(t *testing.T, c *controlplane.ControlPlane, o install.Options) *install.Installation {
	t.Helper()
	o.Replicas, o.Args = 2, append(o.Args, "--shutdown-delay-duration=0s")
	i, err := install.Install(t.Context(), c, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		i.Stop()
		if err := i.CheckLogs(); err != nil {
			t.Error(err)
		}
	})
	return i
}
