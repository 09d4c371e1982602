// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/configdep/configdep/test/controlplane"
)

// Run is for TestMain: it starts one control plane for all tests of a package, installs the server, passes both to
// set, and runs the tests. It returns the exit code, which is not 0 either if [Installation.CheckLogs] finds something.
//
//	func TestMain(m *testing.M) {
//		os.Exit(install.Run(m, controlplane.Options{}, install.Options{}, func(c *controlplane.ControlPlane, i *install.Installation) {
//			cluster, server = c, i
//		}))
//	}
func Run(m *testing.M, c controlplane.Options, o Options, set func(*controlplane.ControlPlane, *Installation)) int {
	var cluster *controlplane.ControlPlane
	return controlplane.Run(tests(func() (code int) {
		ctx, cancel := context.WithTimeoutCause(context.Background(), 20*time.Minute, errors.New("not installed within twenty minutes"))
		defer cancel()
		started := time.Now()
		server, err := Install(ctx, cluster, o)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() {
			server.Stop()
			if err := server.CheckLogs(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = max(code, 1)
			}
		}()
		fmt.Fprintf(os.Stderr, "installed in %.1f s\n", time.Since(started).Seconds())
		set(cluster, server)
		return m.Run()
	}), c, func(started *controlplane.ControlPlane) { cluster = started })
}

// tests is what controlplane.Run runs.
type tests func() int

func (t tests) Run() int { return t() }
