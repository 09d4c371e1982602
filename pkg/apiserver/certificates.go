// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/configdep/configdep/pkg/apiserver/options"
	"github.com/configdep/configdep/pkg/certificate"
)

// certificates keeps the serving certificate, and the CAs that kube-apiserver trusts, up to
// date, as the options say.
type certificates struct {
	store      *certificate.Store   // nil: the certificate comes from files
	stored     string               // the name of its Secret
	bundles    *certificate.Bundles // nil: this server does not fill in caBundle
	bundleFile string               // where the bundle comes from, without a store
}

// caConfigMap publishes the CAs for clients other than kube-apiserver, such as Prometheus. The server does not create it.
const caConfigMap = "configdep-serving-ca"

// newCertificates returns certificates for options, and makes the server use a managed
// certificate.
func newCertificates(o options.Completed, client kubernetes.Interface, dynamicClient dynamic.Interface, serving *genericapiserver.SecureServingInfo) *certificates {
	c := &certificates{bundleFile: o.Certificate.CABundleFile}
	if !o.Certificate.Manage && c.bundleFile == "" {
		return c
	}
	c.bundles = certificate.NewBundles(dynamicClient, certificate.Targets{
		APIService: apiService, Namespace: o.Namespace, ConfigMap: caConfigMap,
	})
	if o.Certificate.Manage {
		c.stored = o.Certificate.Secret
		c.store = certificate.NewStore(client, o.Namespace, o.Certificate.Secret, o.CertificateProfile())
		serving.Cert = &storedCertificate{c.store, o.Certificate.Secret}
	}
	return c
}

// load waits until there is a certificate to serve with.
func (c *certificates) load(ctx context.Context) error {
	if c.store == nil {
		return nil
	}
	return c.store.Load(ctx)
}

// watch runs on every replica.
func (c *certificates) watch(ctx context.Context) {
	if c.store != nil {
		c.store.Watch(ctx)
	}
}

// lead runs on the leader.
func (c *certificates) lead(ctx context.Context) {
	switch {
	case c.store != nil:
		c.store.Lead(ctx, c.bundles)
	case c.bundles != nil:
		certificate.Follow(ctx, c.bundleFile, c.bundles)
	}
}

// secret returns the name of the Secret that is needed; "": none.
func (c *certificates) secret() string { return c.stored }

// missing reports whether a Secret is needed and does not exist.
func (c *certificates) missing() bool { return c.store != nil && c.store.Missing() }

// storedCertificate provides the certificate of a Secret to the listeners of the server.
type storedCertificate struct {
	store *certificate.Store
	name  string
}

var _ dynamiccertificates.CertKeyContentProvider = &storedCertificate{}

// Name implements dynamiccertificates.CertKeyContentProvider.
func (c *storedCertificate) Name() string { return "Secret " + c.name }

// CurrentCertKeyContent implements dynamiccertificates.CertKeyContentProvider.
func (c *storedCertificate) CurrentCertKeyContent() (cert, key []byte) { return c.store.Current() }

// AddListener implements dynamiccertificates.Notifier.
func (c *storedCertificate) AddListener(l dynamiccertificates.Listener) { c.store.OnChange(l.Enqueue) }

// expiry returns when the certificate of a provider expires; zero if that is not known.
func expiry(provider dynamiccertificates.CertKeyContentProvider) time.Time {
	if provider == nil {
		return time.Time{}
	}
	content, _ := provider.CurrentCertKeyContent()
	block, _ := pem.Decode(content)
	if block == nil {
		return time.Time{}
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}
	}
	return cert.NotAfter
}
