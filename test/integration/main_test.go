// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
)

// All tests share these.
var (
	cluster *controlplane.ControlPlane
	server  *install.Installation
)

func TestMain(m *testing.M) {
	if os.Getenv(informerKubeconfig) != "" {
		if err := beInformer(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	controlplane.Parallel(6)
	// Restarts are sent out of the cluster, too, so that the metrics about that are exposed.
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer receiver.Close()
	return install.Run(m, controlplane.Options{}, install.Options{
		Values:   "recreate", // has all permissions
		Replicas: 2,
		Race:     install.RaceDetector,
		// The manifest has ten seconds, so that kubelets and endpoints can follow.
		// A test is not so slow that a release seems to have ended.
		Args: []string{"--shutdown-delay-duration=2s", "--release-settle=1h"},
		Env:  []string{"ALERT_ON_RELOAD=true", "ALERT_WEBHOOK_URL=" + receiver.URL},
	}, func(c *controlplane.ControlPlane, i *install.Installation) { cluster, server = c, i })
}
