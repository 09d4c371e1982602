// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
)

// All histories share these.
var (
	cluster *controlplane.ControlPlane
	server  *install.Installation
	proxies []*proxy // of the replicas
)

const replicaCount = 2

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// run runs the tests. CONTROLPLANE_KEEP=1 in the environment keeps the folder with the logs.
func run(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), 20*time.Minute, errors.New("not installed within twenty minutes"))
	defer cancel()
	cluster, err = controlplane.Start(ctx, controlplane.Options{Nodes: 2, Log: os.Stderr, KeepDir: os.Getenv("CONTROLPLANE_KEEP") != ""})
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	defer func() {
		for _, p := range proxies {
			p.close()
		}
	}()
	server, err = install.Install(ctx, cluster, install.Options{
		Values:   "recreate",
		Replicas: replicaCount,
		Race:     install.RaceDetector,
		Args: []string{
			"--shutdown-delay-duration=500ms", "--settle=500ms", "--release-settle=1s", "--min-interval=0",
			"--leader-elect-lease-duration=4s", "--max-version-lag=5s",
		},
		Kubeconfig: func(_, kubeconfig string) (string, error) {
			p, err := newProxy(cluster)
			if err != nil {
				return "", err
			}
			proxies = append(proxies, p)
			return p.kubeconfig(kubeconfig)
		},
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
