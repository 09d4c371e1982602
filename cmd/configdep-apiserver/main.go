// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// The command configdep-apiserver serves the API group configdep.io.
package main

import (
	"os"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"

	"github.com/configdep/configdep/pkg/apiserver"
)

func main() {
	os.Exit(cli.Run(apiserver.NewCommand(genericapiserver.SetupSignalContext())))
}
