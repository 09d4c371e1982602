// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// The command configdep-apiserver serves the API group configdep.io.
package main

import (
	"os"
	"runtime/debug"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"

	"github.com/configdep/configdep/pkg/apiserver"
)

// gcPercent makes the garbage collector run twice as often as it does by default. What the
// server does makes little garbage, but reading the cluster at the start does, by which the
// limit of the container's memory must be set.
const gcPercent = 50

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	os.Exit(cli.Run(apiserver.NewCommand(genericapiserver.SetupSignalContext())))
}
