// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
)

// All tests share these.
var (
	cluster *controlplane.ControlPlane
	server  *install.Installation
)

func TestMain(m *testing.M) {
	// Tests mostly wait for the server.
	if err := flag.Set("test.parallel", "8"); err != nil { // -parallel overrides this
		panic(err)
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// run runs the tests. CONTROLPLANE_KEEP=1 in the environment keeps the folder with the logs.
func run(m *testing.M) (code int, err error) {
	if os.Getenv(informerKubeconfig) != "" {
		return 0, beInformer()
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), 20*time.Minute, errors.New("not installed within twenty minutes"))
	defer cancel()
	started := time.Now()
	cluster, err = controlplane.Start(ctx, controlplane.Options{Log: os.Stderr, KeepDir: os.Getenv("CONTROLPLANE_KEEP") != ""})
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()

	// Restarts are sent out of the cluster, too, so that the metrics about that are exposed.
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer receiver.Close()
	server, err = install.Install(ctx, cluster, install.Options{
		Manifests: "overlays/recreate", // has all permissions
		Replicas:  2,
		Race:      install.RaceDetector,
		// The manifest has ten seconds, so that kubelets and endpoints can follow.
		// A test is not so slow that a release seems to have ended.
		Args: []string{"--shutdown-delay-duration=2s", "--release-settle=1h"},
		Env:  []string{"ALERT_ON_RELOAD=true", "ALERT_WEBHOOK_URL=" + receiver.URL},
	})
	if err != nil {
		return 1, err
	}
	defer func() {
		server.Stop()
		err = errors.Join(err, server.CheckLogs())
	}()
	fmt.Fprintf(os.Stderr, "installed in %.1f s\n", time.Since(started).Seconds())
	return m.Run(), nil
}
