// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// addReloadFlags adds the flags for restarts.
func (o *Options) addReloadFlags(fs *pflag.FlagSet) {
	fs.Var((*modeValue)(&o.Reload.Mode), "default-reload",
		"The mode of workloads, if neither they nor their namespace have the annotation "+policy.ReloadAnnotation+": off, auto, matched or listed.")
	fs.BoolVar(&o.Reload.Observe, "observe", o.Reload.Observe,
		"Write nothing to workloads. Those that would be restarted have the state Stale with the reason Observed, "+
			"and Reloads are refused, except dry runs.")
	fs.DurationVar(&o.Reload.Settle, "settle", o.Reload.Settle,
		"How long content must stay unchanged before a restart. The annotation "+policy.SettleAnnotation+" overrides it.")
	fs.DurationVar(&o.Reload.ReleaseSettle, "release-settle", o.Reload.ReleaseSettle,
		"The settle time if the client that changed the content also deploys the workload and changes other objects in the namespace at about this time, "+
			"or if a source was deleted. "+
			"Ignored if it is less than --settle. The annotation "+policy.SettleAnnotation+" overrides it.")
	fs.DurationVar(&o.Reload.MinInterval, "min-interval", o.Reload.MinInterval,
		"The minimum time between two automatic restarts of a workload; 0: no limit. It doubles, up to an hour, while restarts follow closely. "+
			"The annotation "+policy.MinIntervalAnnotation+" overrides it.")
	fs.Var((*strategiesValue)(&o.Reload.Strategies), "strategies",
		"The strategies that workloads may ask for with the annotation "+policy.StrategyAnnotation+", separated by commas: "+
			"annotation, env-var, agent and notify, and recreate and in-place, which need additional rights.")
	fs.BoolVar(&o.ReloadJobs, "reload-jobs", o.ReloadJobs,
		"Run CronJobs and Jobs again when their content changes, if their own annotations of Stakater Reloader ask for it. "+
			"This needs the rights to create and delete Jobs.")
	fs.IntVar(&o.ConcurrentReloads, "concurrent-reloads", o.ConcurrentReloads,
		"How many workloads are patched at the same time.")
	fs.Var(&o.MaxRolloutsInProgress, "max-rollouts-in-progress",
		"How many workloads are being restarted automatically at a time, in all namespaces: a number, or unlimited. "+
			"Others wait. Reloads on request do not wait, but count.")
}

// Count is a flag with a number, or with unlimited, which is negative.
type Count int

const unlimited = "unlimited"

// String implements pflag.Value.
func (c *Count) String() string {
	if *c < 0 {
		return unlimited
	}
	return strconv.Itoa(int(*c))
}

// Type implements pflag.Value.
func (*Count) Type() string { return "count" }

// Set implements pflag.Value.
func (c *Count) Set(value string) error {
	n, err := strconv.Atoi(value)
	switch {
	case value == unlimited:
		n = -1
	case err != nil || n < 0:
		return fmt.Errorf("must be a number, or %s", unlimited)
	}
	*c = Count(n)
	return nil
}

// LeaderElectionOptions say whether one replica leads, by a Lease with the name of the Service.
type LeaderElectionOptions struct {
	LeaderElect   bool
	LeaseDuration time.Duration
}

func (o *Options) addLeaderElectionFlags(fs *pflag.FlagSet) {
	l := &o.LeaderElection
	fs.BoolVar(&l.LeaderElect, "leader-elect", l.LeaderElect,
		"Let only one replica at a time restart workloads. All replicas serve.")
	fs.DurationVar(&l.LeaseDuration, "leader-elect-lease-duration", l.LeaseDuration,
		"How long other replicas wait after the leader last renewed its Lease before one of them takes over.")
}

func (o *Options) validateReload() (errs []error) {
	if o.Reload.Settle < 0 {
		errs = append(errs, errors.New("--settle must not be negative"))
	}
	if o.Reload.ReleaseSettle < 0 {
		errs = append(errs, errors.New("--release-settle must not be negative"))
	}
	if o.Reload.MinInterval < 0 {
		errs = append(errs, errors.New("--min-interval must not be negative"))
	}
	if !slices.Contains(o.Reload.Strategies, record.Annotate) {
		errs = append(errs, fmt.Errorf("--strategies must contain %s, which is the strategy of workloads that have not opted in", record.Annotate.Name()))
	}
	if o.ReloadJobs && !slices.Contains(o.Dialects.Names, "reloader") {
		errs = append(errs, errors.New("--reload-jobs has no effect without reloader in --dialects, whose annotations ask for it: set one of them"))
	}
	if ignored := o.Reloader.IgnoredWorkloadTypes; o.ReloadJobs && slices.Contains(ignored, "jobs") && slices.Contains(ignored, "cronjobs") {
		errs = append(errs, errors.New("--reload-jobs has no effect with --ignored-workload-types=jobs,cronjobs, which leaves out both kinds: set one of them"))
	}
	if o.ConcurrentReloads < 1 {
		errs = append(errs, errors.New("--concurrent-reloads must be at least 1"))
	}
	if o.LeaderElection.LeaseDuration < time.Second { // a Lease has whole seconds
		errs = append(errs, errors.New("--leader-elect-lease-duration must be at least 1s"))
	}
	return errs
}

// modeValue is a flag with a mode.
type modeValue policy.Mode

func (m *modeValue) String() string { return string(*m) }
func (m *modeValue) Type() string   { return "mode" }

func (m *modeValue) Set(value string) error {
	mode, err := policy.ParseMode(strings.TrimSpace(value))
	if err == nil {
		*m = modeValue(mode)
	}
	return err
}

// strategiesValue is a flag with a comma-separated list of strategies.
type strategiesValue []record.Strategy

func (s *strategiesValue) Type() string { return "strategies" }

func (s *strategiesValue) String() string {
	names := make([]string, len(*s))
	for i, strategy := range *s {
		names[i] = strategy.Name()
	}
	return strings.Join(names, ",")
}

func (s *strategiesValue) Set(value string) error {
	var all strategiesValue
	for name := range strings.SplitSeq(value, ",") {
		strategy, err := record.ParseStrategy(strings.TrimSpace(name))
		if err != nil {
			return err
		}
		all = append(all, strategy)
	}
	*s = all
	return nil
}
