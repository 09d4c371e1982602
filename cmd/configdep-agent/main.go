// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Command configdep-agent keeps the files of an application equal to ConfigMaps, Secrets and volumes, and has it read them again. It runs
// beside the application, or is its parent process.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/agent"
	"github.com/configdep/configdep/pkg/agent/endpoints"
	"github.com/configdep/configdep/pkg/agent/options"
	"github.com/configdep/configdep/pkg/agent/process"
	"github.com/configdep/configdep/pkg/agent/report"
	"github.com/configdep/configdep/pkg/listener"
	"github.com/configdep/configdep/pkg/version"
)

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(30) // memory is scarcer in a sidecar than the little CPU that this takes
	}
	o := options.New()
	code := 0
	c := &cobra.Command{
		Use:   "configdep-agent --dir DIRECTORY SOURCES... [flags] [-- COMMAND ARGUMENTS...]",
		Short: "Keeps the files of an application equal to ConfigMaps, Secrets and volumes",
		Long: `configdep-agent keeps the files of an application equal to ConfigMaps, Secrets and
volumes, and makes it read new files: by a request, a signal, a command or a restart.
It runs beside the application, or as its parent process with the command after --.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 0 && cmd.ArgsLenAtDash() != 0 {
				code = 2
				return fmt.Errorf("%q is no flag: a command comes after --", args[0])
			}
			return nil
		},
		Version:      version.Version(),
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(_ *cobra.Command, args []string) (err error) {
			code, err = run(o, args)
			return err
		},
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		code = 2
		return err
	})
	c.AddCommand(restarter())
	c.CompletionOptions.DisableDefaultCmd = true
	o.AddFlags(c.Flags())
	logging := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(logging)
	c.Flags().AddGoFlag(logging.Lookup("v"))
	if err := c.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "configdep-agent:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// restarter returns the command that becomes the program configdep-restarter, which is beside this one and takes less memory.
func restarter() *cobra.Command {
	return &cobra.Command{
		Use:                "restarter [flags]",
		Short:              "Makes the kubelet restart all containers of the pod when an annotation changes",
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			name := strings.Replace(filepath.Base(self), "configdep-agent", "configdep-restarter", 1)
			program := filepath.Join(filepath.Dir(self), name)
			return fmt.Errorf("%s: %w", program, unix.Exec(program, append([]string{name}, args...), os.Environ()))
		},
	}
}

// stops are the signals with which the kubelet stops a container, as its image says: nginx's says SIGQUIT, and HAProxy's SIGUSR1.
var stops = []os.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1}

// run runs an agent, and returns the exit code.
func run(o *options.Options, command []string) (code int, err error) {
	config, err := o.Config(command)
	if err != nil {
		return 2, err
	}
	if err := o.Connect(config); err != nil {
		return 1, err
	}
	var reporter *report.Reporter
	var a *agent.Agent
	if a, err = agent.New(*config, func() {
		if reporter != nil {
			reporter.Notify()
		}
	}); err != nil {
		return 1, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	if config.Application == nil {
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, stops...)
		defer stop()
	}
	if os.Getpid() == 1 { // then orphans of commands are its children too
		running.Go(func() { process.Reap(ctx) })
	}
	if child := config.Application; child != nil {
		child.Environment = func() []string { return append(os.Environ(), a.Environment()...) }
		// The application decides what SIGTERM means, once there is one. Until then it ends the agent.
		running.Go(child.Forward(ctx, cancel))
	}
	if o.Listen != "" && !o.Once {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen)
		if err != nil {
			return 1, err
		}
		running.Go(func() {
			if err := listener.ServeProbes(ctx, l, endpoints.Handler(a, o.ExposeNames, time.Now)); err != nil {
				klog.FromContext(ctx).Error(err, "Probes and metrics are not served")
			}
		})
	}
	if len(o.Report) != 0 {
		reporter = report.New(config.Client, o.Pod, o.Reports(), a.Status)
		running.Go(func() { reporter.Run(ctx) })
	}
	exit, err := a.Run(ctx)
	if exit != nil && err != nil {
		klog.FromContext(ctx).Error(err, "The application has ended, but the agent could not clean up")
	}
	return exitCode(exit, err)
}

// exitCode returns the exit code of an agent that has run: that of the application, if it has ended, whatever went wrong afterwards.
// Otherwise it tells what the error is about, as in a shell, and the error is returned too.
func exitCode(exit *process.Exit, err error) (int, error) {
	_, notStarted := errors.AsType[*process.StartError](err)
	switch {
	case exit != nil:
		return exit.Status(), nil
	case errors.Is(err, agent.ErrInterrupted):
		return 128 + int(unix.SIGTERM), err
	case notStarted && (errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist)):
		return 127, err
	case notStarted:
		return 126, err
	case err != nil:
		return 1, err
	}
	return 0, nil
}
