// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package restarter

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/configdep/configdep/pkg/agent/action"
)

// Options are the values of the flags.
type Options struct {
	File               string
	MinUptime, Unready time.Duration
	Drain              string
	DrainTimeout       time.Duration
	Listen             string
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{
		File: "/etc/configdep/restart", MinUptime: 30 * time.Second, Unready: 5 * time.Second, DrainTimeout: 30 * time.Second, Listen: ":9534",
	}
}

// AddFlags adds the flags.
func (o *Options) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&o.File, "file", o.File, "File of a downward API volume with the pod's annotation configdep.io/restart.")
	f.DurationVar(&o.MinUptime, "min-uptime", o.MinUptime, "Minimum time from the start of the restarter to the restart of the containers.")
	f.DurationVar(&o.Unready, "unready", o.Unready, "How long /readyz fails before the restart, so that Services stop sending requests.")
	f.StringVar(&o.Drain, "drain", o.Drain, "What to call before the wait of --unready, so that the application can finish its work: an http:// URL for a POST, or a command.")
	f.DurationVar(&o.DrainTimeout, "drain-timeout", o.DrainTimeout, "Time limit of --drain.")
	f.StringVar(&o.Listen, "listen", o.Listen, "Address of /startupz, /livez and /readyz. If empty, they are not served.")
}

// Config returns the configuration of a restarter. The error names all flags that are wrong.
func (o *Options) Config() (*Config, error) {
	c := &Config{File: filepath.Clean(o.File), Poll: 10 * time.Second, MinUptime: o.MinUptime, Unready: o.Unready}
	var errs []error
	fail := func(flag string, format string, args ...any) {
		errs = append(errs, fmt.Errorf("--%s: %w", flag, fmt.Errorf(format, args...)))
	}
	if o.File == "" {
		fail("file", "it is required")
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
	case strings.Contains(o.Drain, "://") && !strings.ContainsAny(o.Drain, " \""):
		u, err := url.Parse(o.Drain)
		if err != nil || u.Scheme != "http" || u.Host == "" || u.User != nil {
			fail("drain", "a URL must begin with http:// and a host, without credentials")
		}
		c.Drain = &action.HTTP{Method: http.MethodPost, URL: u, Timeout: o.DrainTimeout}
	case o.Drain != "":
		args, err := action.ParseCommand(o.Drain)
		if err != nil {
			fail("drain", "%w", err)
		}
		c.Drain = &action.Command{Args: args, Timeout: o.DrainTimeout}
	}
	return c, errors.Join(errs...)
}
