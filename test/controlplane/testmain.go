// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
)

// Tests is *testing.M, or what runs it.
type Tests interface{ Run() (code int) }

// Parallel is for TestMain: n tests run at once, unless -parallel says otherwise. It is for tests that mostly wait for the
// server, so that n may be larger than the number of CPUs.
func Parallel(n int) {
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err) // there is such a flag, and it takes numbers
	}
}

// Run is for TestMain: it starts one control plane for all tests of a package, passes it to set, runs the tests, and
// returns the exit code. Nothing is left behind, even if a test panics or the tests are interrupted.
//
// CONTROLPLANE_KEEP=1 in the environment keeps the folder, so that its logs can be read.
//
//	func TestMain(m *testing.M) {
//		os.Exit(controlplane.Run(m, controlplane.Options{}, func(c *controlplane.ControlPlane) { cluster = c }))
//	}
func Run(m Tests, o Options, set func(*ControlPlane)) (code int) {
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
