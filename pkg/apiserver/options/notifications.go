// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/configdep/configdep/pkg/notify/destination"
	"github.com/configdep/configdep/pkg/notify/webhook"
)

// NotificationOptions are the options of events that are sent out of the cluster.
type NotificationOptions struct {
	// ConfigFile names the destinations; empty: none, besides that of the environment.
	ConfigFile string
	// ClusterName is the name of the cluster in events that are sent; it may be empty.
	ClusterName string
	// WebhookURL is called instead of restarting workloads; empty: they are restarted.
	WebhookURL string
}

func (o *Options) addNotificationFlags(fs *pflag.FlagSet) {
	n := &o.Notifications
	fs.StringVar(&n.ConfigFile, "notifications-config", n.ConfigFile,
		"A file with destinations outside of the cluster to which events are sent: a "+destination.Kind+" of "+destination.APIVersion+". "+
			"The variables ALERT_... of Stakater Reloader in the environment add a destination.")
	fs.StringVar(&n.ClusterName, "cluster-name", n.ClusterName,
		"The name of the cluster in events that are sent: at most 63 letters, digits, hyphens, underscores and dots.")
	fs.StringVar(&n.WebhookURL, destination.Instead, n.WebhookURL,
		"A URL to which a CloudEvent is sent instead of restarting a workload. It implies --observe. "+
			"If the URL is a credential, use --observe and --notifications-config instead.")
}

// destinations are where events are sent, or what is wrong with the options.
type destinations struct {
	configs []webhook.Config
	errs    []error
}

// Destinations returns where events are sent, if the options are valid.
func (o Completed) Destinations() []webhook.Config { return slices.Clone(o.destinations.configs) }

// read reads the file and the environment.
func (n *NotificationOptions) read() (d destinations) {
	if len(validation.IsValidLabelValue(n.ClusterName)) > 0 {
		return destinations{errs: []error{errors.New("--cluster-name must have at most 63 letters, digits, hyphens, underscores and dots, " +
			"and begin and end with a letter or a digit")}}
	}
	if n.ConfigFile != "" {
		configs, errs := destination.Read(n.ConfigFile, n.ClusterName)
		d.configs = configs
		for _, err := range errs {
			d.errs = append(d.errs, fmt.Errorf("--notifications-config: %w", err))
		}
	}
	if n.WebhookURL != "" {
		config, errs := destination.InsteadOfRestarts(n.WebhookURL, n.ClusterName)
		d.configs, d.errs = append(d.configs, config), append(d.errs, errs...)
	}
	configs, errs := destination.FromEnvironment(os.Getenv)
	d.configs, d.errs = append(d.configs, configs...), append(d.errs, errs...)
	return d
}
