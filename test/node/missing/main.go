// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// The program missing prints why this machine cannot run a node, and then fails.
package main

import (
	"fmt"
	"os"

	"github.com/configdep/configdep/test/node"
)

func main() {
	if err := node.Missing(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
