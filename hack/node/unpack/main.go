// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// The program unpack downloads packages of Debian, unpacks them into the cache of the repository, and prints the folder. Scripts use it
// for libraries that need not be installed.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/configdep/configdep/test/debian"
)

func main() {
	root, err := debian.Unpack(context.Background(), os.Args[1:]...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(root)
}
