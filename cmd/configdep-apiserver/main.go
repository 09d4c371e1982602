// The command configdep-apiserver serves the API group configdep.io.
package main

import (
	"os"
	"runtime/debug"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/apiserver"
)

// gcPercent makes the garbage collector run twice as often as it does by default. What the
// server does makes little garbage, but reading the cluster at the start does, by which the
// limit of the container's memory must be set.
const gcPercent = 50

// memoryRefresh is how often it is looked whether the limit of the container's memory has changed, as it can while
// a pod runs.
const memoryRefresh = time.Minute

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ctx := genericapiserver.SetupSignalContext()
	// Near the limit of its memory, garbage is collected more often: 9/10 of it, unless GOMEMLIMIT says otherwise.
	if _, err := memlimit.Set(memlimit.WithRefreshInterval(ctx, memoryRefresh)); err != nil {
		klog.Background().Info("The limit of the container's memory is not known, so that the garbage collector does not follow it", "err", err)
	}
	os.Exit(cli.Run(apiserver.NewCommand(ctx)))
}
