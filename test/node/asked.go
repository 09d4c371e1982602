// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"
)

// Asked is for TestMain: it reports whether tests on a real node run, and if not, with which code TestMain exits. They take minutes
// and need root, so that they run only if E2E_NODE in the environment asks for them.
func Asked() (asked bool, code int) {
	if os.Getenv("E2E_NODE") == "" {
		fmt.Fprintln(os.Stderr, "not run: make e2e-node runs the tests on a real node, and sets E2E_NODE")
		return false, 0
	}
	if err := Missing(); err != nil {
		fmt.Fprintf(os.Stderr, "this machine cannot run a node: %v\n", err)
		return false, 1
	}
	return true, 0
}
