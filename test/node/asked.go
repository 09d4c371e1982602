// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"
)

// Asked is for TestMain: it reports whether tests on a real node run. They take minutes and need root, so that they run only if E2E_NODE
// in the environment asks for them: "required" makes it an error if the machine cannot run a node, "optional" does not. If they do not
// run, the reason is printed, and code is the exit code.
func Asked() (asked bool, code int) {
	wanted := os.Getenv("E2E_NODE")
	switch wanted {
	case "":
		fmt.Fprintln(os.Stderr, "tests on a real node run by make e2e-node alone, which sets E2E_NODE")
		return false, 0
	case "optional", "required":
	default:
		fmt.Fprintf(os.Stderr, "E2E_NODE=%q is neither optional nor required\n", wanted)
		return false, 2
	}
	err := Missing()
	if err == nil {
		return true, 0
	}
	fmt.Fprintf(os.Stderr, "this machine cannot run a node: %v\n", err)
	if wanted == "optional" {
		return false, 0
	}
	return false, 1
}
