// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package options defines the flags of the server, with their defaults and validation.
package options

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json

	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// Options are the values of the flags: the standard ones of the generic API server, except
// those for storage, and those specific to configdep.
type Options struct {
	ServerRun      *genericoptions.ServerRunOptions
	SecureServing  *genericoptions.SecureServingOptions
	Authentication *genericoptions.DelegatingAuthenticationOptions
	Authorization  *genericoptions.DelegatingAuthorizationOptions
	Audit          *genericoptions.AuditOptions
	Features       *genericoptions.FeatureOptions
	CoreAPI        *genericoptions.CoreAPIOptions
	Admission      *genericoptions.AdmissionOptions
	Logs           *logsapi.LoggingConfiguration

	// Namespace is the namespace of the server, with the Secret that contains the key of the
	// config hash and the Lease for leader election; empty for a standalone server.
	Namespace string
	// WriteKubeconfig is the file through which clients reach a standalone server.
	WriteKubeconfig string
	// VersionLag is how far versions may lag behind while nothing is written to one of the
	// resources.
	VersionLag time.Duration
	// HistoryBytes is the approximate memory limit for the events from which watches resume.
	HistoryBytes resource.QuantityValue
	// MaxWatchesPerUser is how many watches one user, or all ServiceAccounts of a namespace, may have open on this replica.
	MaxWatchesPerUser int
	// Reload has the defaults for what annotations do not set, and the strategies that they may ask for.
	Reload policy.Defaults
	// Dialects are which annotations of other tools are read.
	Dialects DialectOptions
	// ReloadJobs is whether CronJobs and Jobs are run again.
	ReloadJobs bool
	// ConcurrentReloads is how many workloads are patched at the same time.
	ConcurrentReloads int
	// MaxRolloutsInProgress is how many workloads are restarted at a time; negative: any number.
	MaxRolloutsInProgress Count
	LeaderElection        LeaderElectionOptions
	Certificate           CertificateOptions
	Notifications         NotificationOptions
	// Kinds are the kinds of workloads that are custom resources.
	Kinds KindOptions

	// Namespaces are the namespaces that are read; empty: all.
	Namespaces []string
	// ReadSecrets is whether to read any Secrets other than the server's own, and ReadConfigMaps whether to read any
	// ConfigMaps other than those.
	ReadSecrets, ReadConfigMaps bool
	// ReadSecretProviderClasses is whether to read what pods have mounted of SecretProviderClasses.
	ReadSecretProviderClasses bool
	// ExcludedSecretTypes are the types of Secrets of which only the metadata is read.
	ExcludedSecretTypes []string
	// Reloader has options by the names that they have in Stakater Reloader.
	Reloader ReloaderOptions

	flags cliflag.NamedFlagSets // that Flags returned
}

// NewOptions returns Options with their defaults.
func NewOptions() *Options {
	serving := genericoptions.NewSecureServingOptions()
	// The client is the aggregator, which sends the requests and watches of many users
	// through one connection. (The default, 0, means the 250 of net/http.)
	serving.HTTP2MaxStreamsPerConnection = 1000
	serving.BindPort = 6443 // unprivileged
	// If no certificate is given, keep the self-signed one in memory.
	serving.ServerCert.CertDirectory, serving.ServerCert.PairName = "", "configdep-apiserver"

	o := &Options{
		ServerRun:      genericoptions.NewServerRunOptions(),
		SecureServing:  serving,
		Authentication: genericoptions.NewDelegatingAuthenticationOptions(),
		Authorization:  genericoptions.NewDelegatingAuthorizationOptions(),
		Audit:          genericoptions.NewAuditOptions(),
		Features:       genericoptions.NewFeatureOptions(),
		CoreAPI:        genericoptions.NewCoreAPIOptions(),
		Admission:      genericoptions.NewAdmissionOptions(),
		Logs:           logs.NewOptions(),

		ReadSecrets:               true,
		ReadConfigMaps:            true,
		ReadSecretProviderClasses: true,
		ExcludedSecretTypes:       []string{string(corev1.SecretTypeServiceAccountToken), helmRelease},

		VersionLag:   20 * time.Second,
		HistoryBytes: resource.QuantityValue{Quantity: resource.MustParse("32Mi")},
		Reload: policy.Defaults{
			Mode: policy.Off, Settle: 5 * time.Second, ReleaseSettle: 30 * time.Second, MinInterval: 10 * time.Second,
			// Others need additional rights.
			Strategies: []record.Strategy{record.Annotate, record.EnvVar, record.Agent, record.Notify},
		},
		ConcurrentReloads: 8,

		MaxRolloutsInProgress: 100,

		MaxWatchesPerUser: 500,
		LeaderElection:    LeaderElectionOptions{LeaderElect: true, LeaseDuration: 15 * time.Second},
		Certificate:       newCertificateOptions(),
		Dialects:          newDialectOptions(),
		Kinds:             KindOptions{Presets: kind.PresetNames()},
		Reloader:          newReloaderOptions(),
	}
	o.Features.EnableProfiling = false
	// Validating policies and webhooks of the cluster may refuse a Reload. Mutating ones have
	// nothing to change in it, and need watches and rights.
	o.Admission.DisablePlugins = []string{"MutatingAdmissionPolicy", "MutatingAdmissionWebhook"}
	return o
}

// The limits of --watch-history-size. The minimum has room for some states of the largest objects.
var leastHistory, mostHistory = resource.MustParse("8Mi"), resource.MustParse("1Ti")

// Flags returns the flags by group.
func (o *Options) Flags() cliflag.NamedFlagSets {
	var sets cliflag.NamedFlagSets
	server := sets.FlagSet("server")
	o.CoreAPI.AddFlags(server)
	server.StringVar(&o.Namespace, "namespace", o.Namespace,
		"The namespace of the server's Secrets and of its Lease; the default is the namespace of the pod. "+
			"There is no default with --kubeconfig: such a server needs --observe, and writes nothing to the cluster.")
	server.StringVar(&o.WriteKubeconfig, "write-kubeconfig", o.WriteKubeconfig,
		"With --kubeconfig and without --namespace: the file to which to write the only kubeconfig that this server accepts. "+
			"It must not exist, and is removed when the server ends.")
	server.DurationVar(&o.VersionLag, "max-version-lag", o.VersionLag,
		"How far the versions of objects may lag behind while a resource is not written. "+
			"With a lower value, fewer clients relist when they switch replicas, but kube-apiserver gets more requests.")
	server.Var(&o.HistoryBytes, "watch-history-size", "Approximate memory for recent events, from which watches resume; at least "+leastHistory.String()+". "+
		"A client that resumes from an event that was dropped must relist.")
	server.IntVar(&o.MaxWatchesPerUser, "max-watches-per-user", o.MaxWatchesPerUser,
		"How many watches one user, or all ServiceAccounts of a namespace, may have open on a replica. Further watches get 429.")
	o.addScopeFlags(sets.FlagSet("scope"))
	o.addKindFlags(sets.FlagSet("kinds of workloads"))
	o.addReloadFlags(sets.FlagSet("restart"))
	o.addDialectFlags(sets.FlagSet("annotations of other tools"))
	o.addNotificationFlags(sets.FlagSet("notifications"))
	o.addLeaderElectionFlags(sets.FlagSet("leader election"))
	o.addCertificateFlags(sets.FlagSet("serving certificate"))
	o.SecureServing.AddFlags(sets.FlagSet("secure serving"))
	o.Authentication.AddFlags(sets.FlagSet("authentication"))
	o.Authorization.AddFlags(sets.FlagSet("authorization"))
	o.Admission.AddFlags(sets.FlagSet("admission"))
	o.Audit.AddFlags(sets.FlagSet("audit"))
	o.Features.AddFlags(sets.FlagSet("features"))
	o.ServerRun.AddUniversalFlags(sets.FlagSet("generic API server"))
	logsapi.AddFlags(o.Logs, sets.FlagSet("logs"))
	o.addReloaderFlags(sets.FlagSet("reloader"))
	o.flags = sets
	return sets
}

// set reports whether a flag was given.
func (o *Options) set(name string) bool {
	for _, set := range o.flags.FlagSets {
		if flag := set.Lookup(name); flag != nil {
			return flag.Changed
		}
	}
	return false
}

// Completed are Options that have been completed. The private pointer prevents other packages from
// creating them.
type Completed struct{ *completed }

type completed struct {
	*Options

	destinations destinations // of notifications
	kinds        kinds        // of workloads
}

// Complete derives options that were not set, and reads the destinations of notifications.
func (o *Options) Complete() Completed {
	kubeconfig := o.CoreAPI.CoreAPIKubeconfigPath
	if o.Namespace == "" && kubeconfig == "" {
		o.Namespace = podNamespace()
	}
	if o.Standalone() {
		o.completeStandalone()
	} else { // outside a cluster, servers usually use one kubeconfig for everything
		o.Authentication.RemoteKubeConfigFile = cmp.Or(o.Authentication.RemoteKubeConfigFile, kubeconfig)
		o.Authorization.RemoteKubeConfigFile = cmp.Or(o.Authorization.RemoteKubeConfigFile, kubeconfig)
	}
	o.completeDialects()
	o.completeReloader()
	o.Reload.Observe = o.Reload.Observe || o.Notifications.WebhookURL != ""
	return Completed{&completed{Options: o, destinations: o.Notifications.read(), kinds: o.Kinds.read()}}
}

// Validate returns all errors, joined.
func (o Completed) Validate() error {
	var errs []error
	errs = append(errs, o.ServerRun.Validate()...)
	errs = append(errs, o.SecureServing.Validate()...)
	errs = append(errs, o.Authentication.Validate()...)
	errs = append(errs, o.Authorization.Validate()...)
	errs = append(errs, o.Audit.Validate()...)
	errs = append(errs, o.Features.Validate()...)
	errs = append(errs, o.CoreAPI.Validate()...)
	errs = append(errs, o.Admission.Validate()...)
	for _, err := range logsapi.Validate(o.Logs, utilfeature.DefaultFeatureGate, nil) {
		errs = append(errs, err)
	}
	errs = append(errs, o.validateNamespace()...)
	if o.VersionLag < ingest.MinVersionLag || o.VersionLag%time.Second != 0 {
		errs = append(errs, fmt.Errorf("--max-version-lag must be whole seconds, at least %v", ingest.MinVersionLag))
	}
	if o.HistoryBytes.Cmp(leastHistory) < 0 || o.HistoryBytes.Cmp(mostHistory) > 0 {
		errs = append(errs, fmt.Errorf("--watch-history-size must be a number of bytes from %v to %v", &leastHistory, &mostHistory))
	}
	if o.MaxWatchesPerUser < 1 {
		errs = append(errs, errors.New("--max-watches-per-user must be at least 1"))
	}
	errs = append(errs, o.validateReload()...)
	errs = append(errs, o.validateDialects()...)
	errs = append(errs, o.validateScope()...)
	errs = append(errs, o.validateReloader()...)
	errs = append(errs, o.validateCertificate()...)
	errs = append(errs, o.destinations.errs...)
	errs = append(errs, o.kinds.errs...)
	return errors.Join(errs...)
}
