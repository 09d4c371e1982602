package apiserver

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"

	"github.com/configdep/configdep/pkg/admission"
)

// webhook serves the admission webhook, on a listener of its own: kube-apiserver calls
// webhooks without saying who it is, and no such client may reach the API.
type webhook struct {
	serving  *genericapiserver.SecureServingInfo // nil: there is none
	clientCA dynamiccertificates.CAContentProvider
}

// webhookListener makes the listener, which serves with the certificate of the API.
func (o *Options) webhookListener(api *genericapiserver.SecureServingInfo) (*webhook, error) {
	if o.WebhookPort == 0 {
		return &webhook{}, nil
	}
	options := genericoptions.NewSecureServingOptions()
	options.BindAddress, options.BindPort, options.BindNetwork = o.SecureServing.BindAddress, o.WebhookPort, o.SecureServing.BindNetwork
	options.PermitPortSharing, options.PermitAddressSharing = o.SecureServing.PermitPortSharing, o.SecureServing.PermitAddressSharing
	options.MinTLSVersion, options.CipherSuites, options.CurvePreferences = o.SecureServing.MinTLSVersion, o.SecureServing.CipherSuites, o.SecureServing.CurvePreferences
	options.ServerCert.CertDirectory = ""
	w := &webhook{}
	if err := options.ApplyTo(&w.serving); err != nil {
		return nil, fmt.Errorf("the listener of the webhook: %w", err)
	}
	w.serving.Cert = servedCert{api.Cert}
	if o.WebhookClientCAFile != "" {
		ca, err := dynamiccertificates.NewDynamicCAContentFromFile("webhook-client-ca", o.WebhookClientCAFile)
		if err != nil {
			return nil, fmt.Errorf("--webhook-client-ca-file: %w", err)
		}
		w.serving.ClientCA, w.clientCA = ca, ca
	}
	return w, nil
}

// servedCert is the certificate of the API, which the API keeps up to date.
type servedCert struct {
	dynamiccertificates.CertKeyContentProvider
}

// start serves until the context is done; then it answers what is under way.
func (w *webhook) start(ctx context.Context, serving *sync.WaitGroup, handler http.Handler, ends *farewell) error {
	if w.serving == nil {
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle(admission.Path, ends.closing(w.authenticated(handler)))
	stopped, _, err := w.serving.Serve(mux, 10*time.Second, ctx.Done())
	if err != nil {
		return fmt.Errorf("serving the webhook: %w", err)
	}
	serving.Go(func() { <-stopped })
	return nil
}

// authenticated refuses callers without a certificate of the CA, if there is one.
func (w *webhook) authenticated(next http.Handler) http.Handler {
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

func (w *webhook) verify(r *http.Request) error {
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
	_, err := r.TLS.PeerCertificates[0].Verify(options)
	return err
}
