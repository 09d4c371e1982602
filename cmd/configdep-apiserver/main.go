// The command configdep-apiserver serves the API group configdep.io.
package main

import (
	"os"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"

	"github.com/configdep/configdep/pkg/apiserver"
)

func main() {
	ctx := genericapiserver.SetupSignalContext()
	os.Exit(cli.Run(apiserver.NewCommand(ctx)))
}
