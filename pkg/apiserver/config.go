// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"net"
	"net/http"
	"slices"

	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	policyv1alpha1 "github.com/configdep/configdep/pkg/apis/policy/v1alpha1"
	"github.com/configdep/configdep/pkg/apiserver/filters"
	"github.com/configdep/configdep/pkg/apiserver/options"
	"github.com/configdep/configdep/pkg/apiserver/plainhttp"
	"github.com/configdep/configdep/pkg/generated/openapi"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/registry/response"
	"github.com/configdep/configdep/pkg/sharedsecret"
	"github.com/configdep/configdep/pkg/version"
	"github.com/configdep/configdep/pkg/workload"
)

// Config configures a Server.
type Config struct {
	Generic *genericapiserver.RecommendedConfig
	Extra   ExtraConfig
}

// ExtraConfig is the configuration that the generic API server does not have.
type ExtraConfig struct {
	Client    kubernetes.Interface
	Workloads workload.Client
	Reader    *ingest.Reader

	// Namespace is the namespace of the server, with its Secrets and its Lease; empty for a standalone server.
	Namespace      string
	LeaderElection options.LeaderElectionOptions
	// Lease is the name of the Lease.
	Lease string
	// Reload has the defaults for what annotations do not set. Scope selects the objects that are read.
	Reload policy.Defaults
	Scope  ingest.Scope
	// ConcurrentReloads is how many workloads are patched at once.
	ConcurrentReloads int
	// MaxRolloutsInProgress is how many workloads are restarted at a time; negative: any number.
	MaxRolloutsInProgress int
	// HistoryBytes is the approximate memory limit for the watch history of one resource.
	HistoryBytes int
	// MaxWatchesPerUser is how many watches one user, or all ServiceAccounts of a namespace, may have open on this replica.
	MaxWatchesPerUser int

	plain         []plainhttp.Server
	key           *sharedsecret.Secret // of the hashes; nil: it is in memory only
	certificates  *certificates
	policies      dynamic.ResourceInterface
	notifications notifications
	standalone    *standalone // nil: the server belongs to an installation
}

// CompletedConfig is a Config that has been completed. The private pointer prevents other
// packages from creating one.
type CompletedConfig struct{ *completedConfig }

type completedConfig struct {
	*ExtraConfig

	generic genericapiserver.CompletedConfig
	drain   *filters.Drain
}

// NewConfig applies options that have been validated.
func NewConfig(o options.Completed) (*Config, error) {
	if !o.Certificate.Manage {
		if err := o.SecureServing.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
			return nil, fmt.Errorf("creating a self-signed certificate: %w", err)
		}
	}
	generic := genericapiserver.NewRecommendedConfig(codecs)
	namer := openapinamer.NewDefinitionNamer(scheme)
	generic.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(openapi.GetOpenAPIDefinitions, namer)
	generic.OpenAPIConfig.Info.Title, generic.OpenAPIConfig.Info.Version = "configdep", version.Version()
	generic.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, namer)
	generic.OpenAPIV3Config.Info.Title, generic.OpenAPIV3Config.Info.Version = "configdep", version.Version()

	if err := applyGeneric(o, generic); err != nil {
		return nil, err
	}
	extra, err := newExtraConfig(o, generic)
	if err != nil {
		return nil, err
	}
	return &Config{Generic: generic, Extra: *extra}, nil
}

// maxBody limits the body of a request to the API, in bytes. Those are Reloads and Approvals, which are far smaller; decoded, a
// body may be many times larger.
const maxBody = 64 << 10

// applyGeneric applies the options of the generic API server, in the order in which they
// depend on each other.
func applyGeneric(o options.Completed, c *genericapiserver.RecommendedConfig) error {
	if err := o.ServerRun.ApplyTo(&c.Config); err != nil {
		return err
	}
	c.MaxRequestBodyBytes = maxBody
	if err := o.SecureServing.WithLoopback().ApplyToConfig(&c.Config); err != nil {
		return err
	}
	if err := o.Authentication.ApplyTo(&c.Authentication, c.SecureServing, c.OpenAPIConfig); err != nil {
		return fmt.Errorf("delegated authentication: %w", err)
	}
	loadClientCA(c.SecureServing, &c.Authentication)
	if err := o.Authorization.ApplyTo(&c.Authorization); err != nil {
		return fmt.Errorf("delegated authorization: %w", err)
	}
	if o.Standalone() {
		onlyLoopback(&c.Config)
	}
	if err := o.Audit.ApplyTo(&c.Config); err != nil {
		return err
	}
	if err := o.CoreAPI.ApplyTo(c); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(c.ClientConfig)
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	c.SharedInformerFactory = newInformers(client)
	dynamicClient, err := dynamic.NewForConfig(c.ClientConfig)
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	if err := o.Features.ApplyTo(&c.Config, client, c.SharedInformerFactory); err != nil {
		return err
	}
	return o.Admission.ApplyTo(&c.Config, c.SharedInformerFactory, client, dynamicClient, utilfeature.DefaultFeatureGate, c.EffectiveVersion)
}

// newExtraConfig applies the options that are specific to configdep.
func newExtraConfig(o options.Completed, generic *genericapiserver.RecommendedConfig) (*ExtraConfig, error) {
	config := clientConfig(generic.ClientConfig)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	c := &ExtraConfig{
		Client:            client,
		Namespace:         o.Namespace,
		LeaderElection:    o.LeaderElection,
		Lease:             o.Certificate.Service,
		Reload:            o.Reload,
		Scope:             o.Scope(),
		ConcurrentReloads: o.ConcurrentReloads,
		policies:          dynamicClient.Resource(policyv1alpha1.SchemeGroupVersion.WithResource("reloadpolicies")),

		MaxRolloutsInProgress: int(o.MaxRolloutsInProgress),
		HistoryBytes:          int(o.HistoryBytes.Value()),
		MaxWatchesPerUser:     o.MaxWatchesPerUser,
		plain:                 plainServers(o),
	}
	if o.Standalone() {
		c.standalone = &standalone{client, c.Scope, generic.LoopbackClientConfig, o.WriteKubeconfig}
	} else {
		c.key = ingest.NewKeySecret(client, o.Namespace)
	}
	if c.Reader, err = ingest.NewReader(config, o.VersionLag); err != nil {
		return nil, err
	}
	if c.Workloads, err = workload.NewClient(config, client); err != nil {
		return nil, err
	}
	c.Workloads.Kinds = c.Scope.Kinds
	c.Workloads.WithoutJobs = slices.Contains(c.Scope.IgnoredWorkloads, kind.Job)
	c.certificates = newCertificates(o, client, dynamicClient, generic.SecureServing)
	c.notifications, err = newNotifications(o.Destinations())
	return c, err
}

// plainServers returns what is served without TLS.
func plainServers(o options.Completed) (all []plainhttp.Server) {
	if address := o.Reloader.MetricsBindAddress; address != "" {
		all = append(all, plainhttp.Metrics("--insecure-metrics-bind-address", address))
	}
	if o.Reloader.EnablePprof {
		all = append(all, plainhttp.Profiles("--pprof-addr", o.Reloader.PprofAddr))
	}
	return all
}

// clientConfig returns the configuration of the client for workloads and sources. It has no
// rate limit, which would only delay patches: kube-apiserver has priority and fairness.
func clientConfig(base *rest.Config) *rest.Config {
	c := rest.CopyConfig(base)
	c.UserAgent = "configdep/" + version.Version()
	c.QPS = -1
	// Within a cluster it costs more than it saves; the controllers of Kubernetes disable it too.
	c.DisableCompression = true
	c.ContentType = "application/vnd.kubernetes.protobuf"
	c.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return c
}

// Complete fills in the fields that the generic API server derives, and wraps its handler chain.
func (c *Config) Complete() CompletedConfig {
	drain := &filters.Drain{}
	c.Generic.BuildHandlerChainFunc = func(api http.Handler, generic *genericapiserver.Config) http.Handler {
		return drain.WithClosing(genericapiserver.DefaultBuildHandlerChain(filters.WithWatchLimit(response.WithLimit(api, codecs), c.Extra.MaxWatchesPerUser, codecs), generic))
	}
	return CompletedConfig{&completedConfig{ExtraConfig: &c.Extra, generic: c.Generic.Complete(), drain: drain}}
}
