// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/term"
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/apiserver/options"
	"github.com/configdep/configdep/pkg/logging"
	"github.com/configdep/configdep/pkg/version"
)

// NewCommand returns the command that runs a server until the context is done.
func NewCommand(ctx context.Context) *cobra.Command {
	o := options.NewOptions()
	cmd := &cobra.Command{
		Use:   "configdep-apiserver",
		Short: "Serve the dependencies of workloads on ConfigMaps and Secrets as a Kubernetes API",
		Long: `configdep-apiserver is a Kubernetes aggregated API server. It serves read-only
ConfigDependency objects, computed from live workloads: which ConfigMaps and Secrets
each workload consumes, and how. Creating the subresource "reload" of a
ConfigDependency restarts the workload's pods, and creating "approval" approves or
denies its content.`,
		Version:      version.Version(),
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(*cobra.Command, []string) error {
			return run(ctx, o)
		},
	}
	sets := o.Flags()
	sets.FlagSet("global").BoolP("help", "h", false, "Show this help.")
	sets.FlagSet("global").Bool("version", false, "Show the version.")
	for _, set := range sets.FlagSets {
		cmd.Flags().AddFlagSet(set)
	}
	columns, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(cmd, sets, columns)
	return cmd
}

func run(ctx context.Context, o *options.Options) error {
	if err := o.ServerRun.ComponentGlobalsRegistry.Set(); err != nil {
		return err
	}
	completed := o.Complete() // --log-level and --log-format say how to log
	if err := logging.Apply(o.Logs, utilfeature.DefaultFeatureGate); err != nil {
		return err
	}
	if err := completed.Validate(); err != nil {
		return err
	}
	logger := klog.FromContext(ctx)
	logger.Info("Starting", "version", version.Version())
	for _, notice := range completed.Notices() {
		logger.Info(notice)
	}
	forbidDumps(ctx)
	collect(gcPercentAtStart)
	followMemoryLimit(ctx)
	config, err := NewConfig(completed)
	if err != nil {
		return fmt.Errorf("configuring the server: %w", err)
	}
	server, err := config.Complete().New()
	if err != nil {
		return err
	}
	return server.Run(ctx)
}
