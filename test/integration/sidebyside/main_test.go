// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package sidebyside runs the server beside a stand-in for Stakater Reloader, as docs/migration.md describes: first it only
// observes, then it takes over, and in the end Reloader does again.
package sidebyside

import (
	"os"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
	"github.com/configdep/configdep/test/controlplane"
)

var (
	cluster *controlplane.ControlPlane
	client  kubernetes.Interface
	api     versioned.Interface
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "sidebyside-")
	if err != nil {
		panic(err)
	}
	args, err := auditArgs(dir)
	if err != nil {
		panic(err)
	}
	code := controlplane.Run(m, controlplane.Options{Nodes: 1, APIServerArgs: args}, func(c *controlplane.ControlPlane) {
		cluster, client, api = c, kubernetes.NewForConfigOrDie(c.RESTConfig()), versioned.NewForConfigOrDie(c.RESTConfig())
	})
	_ = os.RemoveAll(dir)
	os.Exit(code)
}
