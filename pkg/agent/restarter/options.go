// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package restarter

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/configdep/configdep/pkg/agent/action"
)

// Options are the values of the flags.
type Options struct {
	File               string
	ExitCode           int
	Poll               time.Duration
	MinUptime, Unready time.Duration
	DrainURL           string
	DrainCommand       string
	DrainTimeout       time.Duration
	Listen             string
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{
		File: "/etc/configdep/restart", ExitCode: ExitCode, Poll: 10 * time.Second, MinUptime: 30 * time.Second, Unready: 5 * time.Second,
		DrainTimeout: 30 * time.Second, Listen: ":9534",
	}
}

// AddFlags adds the flags.
func (o *Options) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&o.File, "file", o.File, "file of a volume of the downward API with the value of the annotation configdep.io/restart of the pod")
	f.IntVar(&o.ExitCode, "exit-code", o.ExitCode, "exit code for which restartPolicyRules have the action RestartAllContainers")
	f.DurationVar(&o.Poll, "poll-interval", o.Poll, "how often the file is read if the kernel tells of no change")
	f.DurationVar(&o.MinUptime, "min-uptime", o.MinUptime, "minimum time from the start of this program to the restart of the containers")
	f.DurationVar(&o.Unready, "unready", o.Unready, "for how long /readyz fails before the restart, so that Services send no requests")
	f.StringVar(&o.DrainURL, "drain-url", o.DrainURL, "URL that is called with POST before the time of --unready, so that the application finishes what it does")
	f.StringVar(&o.DrainCommand, "drain-command", o.DrainCommand, "command that runs instead of the call of --drain-url: words, or a JSON array")
	f.DurationVar(&o.DrainTimeout, "drain-timeout", o.DrainTimeout, "how long the call or the command may take")
	f.StringVar(&o.Listen, "listen", o.Listen, "address of /startupz, /livez and /readyz; empty: none")
}

// Config returns the configuration of a restarter. The error names all flags that are wrong.
func (o *Options) Config() (*Config, error) {
	c := &Config{File: filepath.Clean(o.File), Poll: o.Poll, MinUptime: o.MinUptime, Unready: o.Unready}
	var errs []error
	fail := func(flag string, format string, args ...any) {
		errs = append(errs, fmt.Errorf("--%s: %w", flag, fmt.Errorf(format, args...)))
	}
	if o.File == "" {
		fail("file", "it is required")
	}
	if o.ExitCode < 1 || o.ExitCode > 125 {
		fail("exit-code", "%d must be from 1 to 125", o.ExitCode)
	}
	if o.Poll <= 0 {
		fail("poll-interval", "%v must be more than 0", o.Poll)
	}
	if o.MinUptime < 10*time.Second {
		fail("min-uptime", "%v must be 10s or more, since the kubelet does not wait between such restarts", o.MinUptime)
	}
	if o.Unready < 0 {
		fail("unready", "%v must not be negative", o.Unready)
	}
	if o.DrainTimeout <= 0 {
		fail("drain-timeout", "%v must be more than 0", o.DrainTimeout)
	}
	switch {
	case o.DrainURL != "" && o.DrainCommand != "":
		fail("drain-command", "it cannot be set together with --drain-url")
	case o.DrainURL != "":
		u, err := url.Parse(o.DrainURL)
		if err != nil || u.Scheme != "http" || u.Host == "" || u.User != nil {
			fail("drain-url", "it must begin with http:// and a host, without credentials")
		}
		c.Drain = &action.HTTP{Method: http.MethodPost, URL: u, Timeout: o.DrainTimeout}
	case o.DrainCommand != "":
		args, err := action.ParseCommand(o.DrainCommand)
		if err != nil {
			fail("drain-command", "%w", err)
		}
		c.Drain = &action.Command{Args: args, Timeout: o.DrainTimeout}
	}
	return c, errors.Join(errs...)
}
