// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"os"
	"testing"
)

// Run is for TestMain: it starts one control plane for all tests of a package, passes it to set, runs the tests, and
// returns the exit code. Nothing is left behind, even if a test panics or the tests are interrupted.
//
// CONTROLPLANE_KEEP=1 in the environment keeps the folder, so that its logs can be read.
//
//	func TestMain(m *testing.M) {
//		os.Exit(controlplane.Run(m, controlplane.Options{}, func(c *controlplane.ControlPlane) { cluster = c }))
//	}
func Run(m *testing.M, o Options, set func(*ControlPlane)) (code int) {
	if o.Log == nil {
		o.Log = os.Stderr
	}
	o.KeepDir = o.KeepDir || os.Getenv("CONTROLPLANE_KEEP") != ""
	c, err := Start(context.Background(), o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := c.Stop(); err != nil {
			fmt.Fprintf(os.Stderr, "stop control plane: %v\n", err)
			code = max(code, 1)
		}
	}()
	set(c)
	return m.Run()
}
