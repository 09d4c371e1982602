// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package csi tests what rotations of secrets outside of the cluster restart, with the resource in which the Secrets Store CSI driver
// reports what pods have mounted. The tests write it as the driver does.
package csi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

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
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), 20*time.Minute, errors.New("not installed within twenty minutes"))
	defer cancel()
	if cluster, err = controlplane.Start(ctx, controlplane.Options{Nodes: 1, Log: os.Stderr, KeepDir: os.Getenv("CONTROLPLANE_KEEP") != ""}); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	if client, err = kubernetes.NewForConfig(cluster.RESTConfig()); err != nil {
		return 1, err
	}
	if api, err = versioned.NewForConfig(cluster.RESTConfig()); err != nil {
		return 1, err
	}
	if objects, err = dynamic.NewForConfig(cluster.RESTConfig()); err != nil {
		return 1, err
	}
	server, err = install.Install(ctx, cluster, install.Options{
		Race: install.RaceDetector,
		Args: []string{"--settle=1s", "--release-settle=0s", "--min-interval=0s", "--shutdown-delay-duration=0s"},
	})
	if err != nil {
		return 1, err
	}
	defer func() {
		server.Stop()
		err = errors.Join(err, server.CheckLogs())
	}()
	return m.Run(), nil
}
