// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package webhook serves the admission webhook: it has its port, its path, and the namespaces that are exempt. Package
// admission has the handler.
package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/apiserver/listener"
	"github.com/configdep/configdep/pkg/apiserver/options"
	"github.com/configdep/configdep/pkg/dependency"
)

// Webhook serves the admission webhook on its own listener: kube-apiserver does not
// authenticate to webhooks, and unauthenticated clients must not reach the API. Because of
// such clients, all resources that a connection can use are limited.
type Webhook struct {
	serving  *genericapiserver.SecureServingInfo // nil: there is no webhook
	clientCA dynamiccertificates.CAContentProvider
	names    []string // the allowed common names of clients; empty: any
	path     *path
}

// The limits of connections to the webhook. Only HTTP/1.1 is served: with HTTP/2, a connection could use the memory of
// many concurrent requests, and kube-apiserver does not need it.
const (
	maxWebhookHeader = 16 << 10
	webhookHeader    = 5 * time.Second // to arrive
	webhookIdle      = 90 * time.Second
	webhookRequest   = 5 * time.Second  // to arrive with its body, unless the handler sets a shorter limit
	webhookAnswer    = 15 * time.Second // from the arrival of the headers

	// The number of connections, in total and from one host. kube-apiserver opens one for each concurrent request, and keeps
	// at most 25 idle ones.
	maxConnections       = 512
	maxConnectionsOfHost = 128
)

// New listens on the port of the webhook, which uses the certificate of the API.
func New(o options.Completed, api *genericapiserver.SecureServingInfo, client kubernetes.Interface) (*Webhook, error) {
	configuration := o.Certificate.WebhookConfiguration
	if o.WebhookPort == 0 || !o.WebhookSecretPath {
		configuration = ""
	}
	w := &Webhook{names: o.WebhookClientNames, path: &path{client: client, configuration: configuration, clock: clock.RealClock{}}}
	if o.WebhookPort == 0 {
		return w, nil
	}
	serving := genericoptions.NewSecureServingOptions()
	serving.BindAddress, serving.BindPort, serving.BindNetwork = o.SecureServing.BindAddress, o.WebhookPort, o.SecureServing.BindNetwork
	serving.PermitPortSharing, serving.PermitAddressSharing = o.SecureServing.PermitPortSharing, o.SecureServing.PermitAddressSharing
	serving.MinTLSVersion, serving.CipherSuites, serving.CurvePreferences = o.SecureServing.MinTLSVersion, o.SecureServing.CipherSuites, o.SecureServing.CurvePreferences
	serving.ServerCert.CertDirectory = ""
	if err := serving.ApplyTo(&w.serving); err != nil {
		return nil, fmt.Errorf("the listener of the webhook: %w", err)
	}
	w.serving.Cert = api.Cert
	if o.WebhookClientCAFile != "" {
		ca, err := dynamiccertificates.NewDynamicCAContentFromFile("webhook-client-ca", o.WebhookClientCAFile)
		if err != nil {
			return nil, fmt.Errorf("--webhook-client-ca-file: %w", err)
		}
		w.clientCA = ca
	}
	return w, nil
}

// FollowKey switches to the path for a key of the config hash.
func (w *Webhook) FollowKey(d *dependency.Digester) { w.path.follow(d) }

// Lead keeps the path in the webhook configuration up to date until the context is done. Only the leader runs it.
func (w *Webhook) Lead(ctx context.Context) { w.path.lead(ctx) }

// Start serves until the context is done, and then still answers requests in flight. Wrap wraps the whole handler.
func (w *Webhook) Start(ctx context.Context, serving *sync.WaitGroup, handler http.Handler, wrap func(http.Handler) http.Handler) error {
	if w.serving == nil {
		return nil
	}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	server := &http.Server{
		Handler:           wrap(w.path.handler(w.authenticated(handler))),
		TLSConfig:         w.tlsConfig(ctx, serving),
		Protocols:         protocols,
		MaxHeaderBytes:    maxWebhookHeader,
		ReadHeaderTimeout: webhookHeader,
		ReadTimeout:       webhookRequest,
		WriteTimeout:      webhookAnswer,
		IdleTimeout:       webhookIdle,
		ErrorLog:          listener.ErrorLog(klog.FromContext(ctx), "webhook"), // such as failed handshakes
	}
	klog.FromContext(ctx).Info("Serving the webhook", "address", w.serving.Listener.Addr().String())
	stopped, _, err := genericapiserver.RunServer(server, listener.Limit(w.serving.Listener, maxConnections, maxConnectionsOfHost), 10*time.Second, ctx.Done())
	if err != nil {
		return fmt.Errorf("serving the webhook: %w", err)
	}
	serving.Go(func() { <-stopped })
	return nil
}

// tlsConfig returns a configuration that always uses the current certificate of the API.
func (w *Webhook) tlsConfig(ctx context.Context, serving *sync.WaitGroup) *tls.Config {
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		CipherSuites: w.serving.CipherSuites, CurvePreferences: w.serving.CurvePreferences,
	}
	if w.serving.MinTLSVersion > 0 {
		config.MinVersion = w.serving.MinTLSVersion
	}
	if w.clientCA != nil {
		config.ClientAuth = tls.RequestClientCert // verified for each request, with the current CA
		if controller, ok := w.clientCA.(dynamiccertificates.ControllerRunner); ok {
			serving.Go(func() { controller.Run(ctx, 1) })
		}
	}
	dynamic := dynamiccertificates.NewDynamicServingCertificateController(config, nil, w.serving.Cert, nil, nil)
	w.serving.Cert.AddListener(dynamic)
	if err := dynamic.RunOnce(); err != nil {
		klog.FromContext(ctx).Error(err, "Loading the certificate of the webhook failed, will retry")
	}
	serving.Go(func() { dynamic.Run(1, ctx.Done()) })
	config.GetConfigForClient = dynamic.GetConfigForClient
	return config
}

// authenticated refuses callers without a certificate from the CA, if a CA is set.
func (w *Webhook) authenticated(next http.Handler) http.Handler {
	if w.clientCA == nil {
		return next
	}
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if err := w.verify(r); err != nil {
			http.Error(rw, "a client certificate is needed: "+err.Error(), http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(rw, r)
	})
}

func (w *Webhook) verify(r *http.Request) error {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return errors.New("there is none")
	}
	options, ready := w.clientCA.VerifyOptions()
	if !ready {
		return errors.New("the CA has not been read")
	}
	options.KeyUsages = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	options.Intermediates = x509.NewCertPool()
	for _, intermediate := range r.TLS.PeerCertificates[1:] {
		options.Intermediates.AddCert(intermediate)
	}
	client := r.TLS.PeerCertificates[0]
	if _, err := client.Verify(options); err != nil {
		return err
	}
	if len(w.names) > 0 && !slices.Contains(w.names, client.Subject.CommonName) {
		return errors.New("its common name is not allowed")
	}
	return nil
}
