// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/apiserver/options"
	"github.com/configdep/configdep/pkg/certificate"
)

// certificates keeps the serving certificate, and the APIService with the CAs that kube-apiserver
// trusts, up to date, as the options say.
type certificates struct {
	store      *certificate.Store   // nil: the certificate comes from files
	stored     string               // the name of its Secret
	bundles    *certificate.Bundles // nil: this server does not register itself
	bundleFile string               // where the bundle comes from, without a store
	events     record.EventRecorder
}

// apiService is the name of the APIService of the server.
var apiService = v1alpha1.SchemeGroupVersion.Version + "." + v1alpha1.SchemeGroupVersion.Group

// caConfigMap publishes the CAs for clients other than kube-apiserver, such as Prometheus. The server does not create it.
const caConfigMap = "configdep-serving-ca"

// newCertificates returns certificates for options, and makes the server use a managed
// certificate.
func newCertificates(o options.Completed, client kubernetes.Interface, dynamicClient dynamic.Interface, serving *genericapiserver.SecureServingInfo) *certificates {
	c := &certificates{bundleFile: o.Certificate.CABundleFile}
	if !o.Certificate.Manage && c.bundleFile == "" {
		return c
	}
	service := certificate.Service{Namespace: o.Namespace, Name: o.Certificate.Service, Port: o.Certificate.ServicePort}
	c.bundles = certificate.NewBundles(dynamicClient, certificate.Targets{
		APIService: certificate.Registration{
			Name: apiService, Group: v1alpha1.SchemeGroupVersion.Group, Version: v1alpha1.SchemeGroupVersion.Version, Service: service,
			Ready: func(ctx context.Context) error { return awaitEndpoint(ctx, client, service) },
			Owner: func(ctx context.Context) (metav1.OwnerReference, error) {
				return registrationRole(ctx, client, service)
			},
			Repaired: c.repaired,
		},
		Namespace: o.Namespace, ConfigMap: caConfigMap,
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

// repaired logs, and creates an Event, after another client's change of the APIService has been undone.
func (c *certificates) repaired(apiService *unstructured.Unstructured) {
	klog.Background().Info("Restored the APIService, which another client had changed", "apiService", apiService.GetName())
	c.events.Event(apiService, corev1.EventTypeWarning, "ConfigRegistrationRepaired",
		"Another client changed this APIService, and the leader of configdep restored it. If this repeats, exclude it from what that client manages.")
}

// registrationRole refers to the ClusterRole that allows the server to register itself. Every way of uninstalling the
// server deletes it, and the garbage collector then deletes the APIService.
func registrationRole(ctx context.Context, client kubernetes.Interface, service certificate.Service) (metav1.OwnerReference, error) {
	role, err := client.RbacV1().ClusterRoles().Get(ctx, service.Role(), metav1.GetOptions{})
	if err != nil {
		return metav1.OwnerReference{}, err
	}
	return metav1.OwnerReference{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole", Name: role.Name, UID: role.UID}, nil
}

// awaitEndpoint waits until a Service has a ready endpoint. Before that, kube-apiserver would not reach the server, and
// discovery would fail in part for every client of the cluster.
func awaitEndpoint(ctx context.Context, client kubernetes.Interface, service certificate.Service) error {
	ofService := metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service.Name}
	return wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		found, err := client.DiscoveryV1().EndpointSlices(service.Namespace).List(ctx, ofService)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Looking for a ready replica failed, will retry", "service", klog.KRef(service.Namespace, service.Name))
			return false, nil
		}
		return slices.ContainsFunc(found.Items, func(s discoveryv1.EndpointSlice) bool {
			return slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return ptr.Deref(e.Conditions.Ready, true) })
		}), nil
	})
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
