// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"net"

	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/configdep/configdep/pkg/generated/openapi"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/version"
	"github.com/configdep/configdep/pkg/workload"
)

// Config is what a Server is made from.
type Config struct {
	Generic *genericapiserver.RecommendedConfig
	Client  kubernetes.Interface
	Reader  *ingest.Reader
	Options *Options

	workloads      workload.Client
	certificates   *certificates
	webhook        *webhook
	unregistration *unregistration
}

// CompletedConfig is a Config that has been completed. The private pointer makes it
// impossible to make one elsewhere.
type CompletedConfig struct{ *completedConfig }

type completedConfig struct {
	generic        genericapiserver.CompletedConfig
	client         kubernetes.Interface
	workloads      workload.Client
	reader         *ingest.Reader
	options        *Options
	drain          *drain
	certificates   *certificates
	webhook        *webhook
	unregistration *unregistration
}

// Config applies the options.
func (o *Options) Config() (*Config, error) {
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

	if err := o.applyTo(generic); err != nil {
		return nil, err
	}
	config := clientConfig(generic.ClientConfig)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	reader, err := ingest.NewReader(config, o.scope(), o.VersionLag)
	if err != nil {
		return nil, err
	}
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	workloads, err := workload.NewClient(config, client)
	if err != nil {
		return nil, err
	}
	certificates := o.certificates(client, dynamicClient, generic.SecureServing)
	webhook, err := o.webhookListener(generic.SecureServing, client)
	if err != nil {
		return nil, err
	}
	return &Config{Generic: generic, Client: client, Reader: reader, Options: o, workloads: workloads, certificates: certificates, webhook: webhook, unregistration: &unregistration{client, dynamicClient, o.Namespace}}, nil
}

// applyTo applies the options of the generic API server, in the order in which they
// depend on each other.
func (o *Options) applyTo(c *genericapiserver.RecommendedConfig) error {
	if err := o.ServerRun.ApplyTo(&c.Config); err != nil {
		return err
	}
	if err := o.SecureServing.ApplyTo(&c.SecureServing); err != nil {
		return err
	}
	var err error
	if c.LoopbackClientConfig, err = loopback(c.SecureServing); err != nil {
		return fmt.Errorf("the connection to itself: %w", err)
	}
	if err := o.Authentication.ApplyTo(&c.Authentication, c.SecureServing, c.OpenAPIConfig); err != nil {
		return fmt.Errorf("delegated authentication: %w", err)
	}
	loadClientCA(c.SecureServing, &c.Authentication)
	if err := o.Authorization.ApplyTo(&c.Authorization); err != nil {
		return fmt.Errorf("delegated authorization: %w", err)
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

// clientConfig returns the configuration of the client for workloads and sources. The
// API server limits us by priority and fairness; a limit of the client on top would only
// delay patches.
func clientConfig(base *rest.Config) *rest.Config {
	c := rest.CopyConfig(base)
	c.UserAgent = "configdep/" + version.Version()
	c.QPS = -1
	// It costs more than it saves within a cluster, as for the controllers of Kubernetes.
	c.DisableCompression = true
	c.ContentType = "application/vnd.kubernetes.protobuf"
	c.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return c
}

// Complete fills in what the generic API server derives.
func (c *Config) Complete() CompletedConfig {
	drain := &drain{maxWatches: c.Options.MaxWatchesPerUser}
	c.Generic.BuildHandlerChainFunc = drain.buildHandlerChain
	return CompletedConfig{&completedConfig{
		generic: c.Generic.Complete(), client: c.Client, workloads: c.workloads, reader: c.Reader, options: c.Options,
		drain: drain, certificates: c.certificates, webhook: c.webhook, unregistration: c.unregistration,
	}}
}
