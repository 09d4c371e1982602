// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package inplace tests that pods are restarted in place, one after the other and each once, also if replicas die.
// The nodes are simulated, so the tests have kubelets of their own, which restart containers.
package inplace

import (
	"context"
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
		Replicas: 2, Manifests: "overlays/in-place",
		Args: []string{
			"--settle=0s", "--release-settle=0s", "--min-interval=0s", "--shutdown-delay-duration=0s",
			"--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=500ms",
		},
	}, func(c *controlplane.ControlPlane, i *install.Installation) {
		cluster, server = c, i
		client, api = kubernetes.NewForConfigOrDie(c.RESTConfig()), versioned.NewForConfigOrDie(c.RESTConfig())
		if err := declareFeature(); err != nil {
			panic(err)
		}
	})
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// declareFeature lets the nodes declare, as kubelets do, that they can restart all containers of a pod: without that, no pod with such a rule
// is scheduled to them.
func declareFeature() error {
	nodes, err := client.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range nodes.Items {
		const patch = `{"status":{"declaredFeatures":["RestartAllContainersOnContainerExits"]}}`
		_, err := client.CoreV1().Nodes().Patch(context.Background(), nodes.Items[i].Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
		if err != nil {
			return err
		}
	}
	return nil
}
