// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// The command heapserver is the server with one addition: on SIGUSR1, it writes a dump of its heap to the file in
// HEAP_DUMP. A test searches the dump for content that the server must not keep.
package main

import (
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/apiserver"
)

func main() {
	ctx := genericapiserver.SetupSignalContext()
	requests := make(chan os.Signal, 1)
	signal.Notify(requests, syscall.SIGUSR1)
	go func() {
		for range requests {
			if err := dump(os.Getenv("HEAP_DUMP")); err != nil {
				klog.FromContext(ctx).Error(err, "Dumping the heap")
			}
		}
	}()
	os.Exit(cli.Run(apiserver.NewCommand(ctx)))
}

// dump writes the live objects. The file is renamed into place when it is complete.
func dump(path string) error {
	runtime.GC() // moves the content of pools to their victim caches
	runtime.GC() // and drops it
	f, err := os.Create(path + ".part")
	if err != nil {
		return err
	}
	defer f.Close()
	debug.WriteHeapDump(f.Fd())
	return os.Rename(f.Name(), path)
}
