// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Command configdep-restarter lets a pod restart all its containers in place: see package restarter. It is a program of its own, because
// it needs half the memory of configdep-agent, which runs it as "configdep-agent restarter".
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime/debug"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/agent/restarter"
	"github.com/configdep/configdep/pkg/listener"
	"github.com/configdep/configdep/pkg/version"
)

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(20)
	}
	o := restarter.NewOptions()
	f := pflag.NewFlagSet("configdep-restarter", pflag.ContinueOnError)
	o.AddFlags(f)
	logging := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(logging)
	f.AddGoFlag(logging.Lookup("v"))
	showVersion := f.Bool("version", false, "print the version")
	err := f.Parse(os.Args[1:])
	switch {
	case errors.Is(err, pflag.ErrHelp):
		os.Exit(0)
	case err == nil && *showVersion:
		fmt.Println("configdep-restarter version", version.Version())
		os.Exit(0)
	case err == nil && f.NArg() != 0:
		err = fmt.Errorf("%q is no flag", f.Arg(0))
	}
	var config *restarter.Config
	if err == nil {
		config, err = o.Config()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "configdep-restarter:", err)
		os.Exit(2)
	}
	if err := run(o.Listen, config); err != nil {
		fmt.Fprintln(os.Stderr, "configdep-restarter:", err)
		os.Exit(1)
	} else if restart {
		os.Exit(restarter.ExitCode)
	}
}

// restart: all containers shall restart.
var restart bool

// run runs a restarter until the containers shall restart, or the pod ends.
func run(address string, c *restarter.Config) error {
	// One of these stops a container, as its image says: nginx's says SIGQUIT, and HAProxy's SIGUSR1.
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1)
	defer stop()
	r := restarter.New(*c)
	if address != "" {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			return err
		}
		go func() { _ = listener.ServeProbes(context.WithoutCancel(ctx), l, r.Handler()) }() // until the process ends
	}
	err := r.Run(ctx)
	if ctx.Err() != nil {
		return nil // the pod ends
	}
	restart = err == nil
	return err
}
