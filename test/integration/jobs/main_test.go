// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package jobs tests that CronJobs and Jobs are run again when their content changes: once, and also if replicas die or quotas refuse
// Jobs.
package jobs

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

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
	// Tests mostly wait for the server.
	if err := flag.Set("test.parallel", "4"); err != nil { // -parallel overrides this
		panic(err)
	}
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
	server, err = install.Install(ctx, cluster, install.Options{
		Race:     install.RaceDetector,
		Replicas: 2, Manifests: "overlays/reload-jobs",
		// The default is to restart everything, which must not apply to CronJobs and Jobs.
		Args: []string{"--auto-reload-all", "--settle=0s", "--release-settle=0s", "--min-interval=0s", "--shutdown-delay-duration=0s"},
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
