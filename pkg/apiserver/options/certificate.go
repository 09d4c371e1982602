// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/configdep/configdep/pkg/certificate"
	"github.com/configdep/configdep/pkg/ingest"
)

// CertificateOptions are the options of a serving certificate that the server manages, and of the CA bundle that it
// keeps up to date.
type CertificateOptions struct {
	// Manage makes the server issue and renew its certificate.
	Manage bool
	// Secret, in the namespace of the server, contains the managed certificate.
	Secret string
	// Service is the Service whose DNS names the certificate is issued for. The Lease of the leader has the same name.
	Service string
	// ServicePort is the port of the Service, which the APIService names.
	ServicePort int
	// Lifetime is the lifetime of the certificate, and CALifetime the lifetime of its CA.
	Lifetime, CALifetime time.Duration
	// CABundleFile contains the CA bundle to publish, for a certificate from files.
	CABundleFile string
}

func newCertificateOptions() CertificateOptions {
	return CertificateOptions{
		Secret:      "configdep-serving-cert",
		Service:     "configdep-apiserver",
		ServicePort: 443,
		Lifetime:    90 * 24 * time.Hour,
		CALifetime:  5 * 365 * 24 * time.Hour,
	}
}

// addCertificateFlags adds the flags of the serving certificate.
func (o *Options) addCertificateFlags(fs *pflag.FlagSet) {
	c := &o.Certificate
	fs.BoolVar(&c.Manage, "manage-serving-certificate", c.Manage,
		"Create and renew the serving certificate and its CA, and register the API with them. Cannot be combined with --tls-cert-file.")
	fs.StringVar(&c.Secret, "serving-certificate-secret", c.Secret,
		"The Secret, in the namespace of the server, that holds the certificate of --manage-serving-certificate. It must exist; the server fills it.")
	fs.StringVar(&c.Service, "service-name", c.Service,
		"The Service of the server, for which the certificate is issued and to which the APIService leads. The Lease has the same name.")
	fs.IntVar(&c.ServicePort, "service-port", c.ServicePort, "The port of the Service.")
	fs.DurationVar(&c.Lifetime, "serving-certificate-lifetime", c.Lifetime,
		"The lifetime of the certificate of --manage-serving-certificate. It is renewed when a third of it is left.")
	fs.DurationVar(&c.CALifetime, "serving-ca-lifetime", c.CALifetime,
		"The lifetime of the CA of --manage-serving-certificate, at least three times the lifetime of the certificate. "+
			"It is replaced when a third of it is left.")
	fs.StringVar(&c.CABundleFile, "ca-bundle-file", c.CABundleFile,
		"With --tls-cert-file: a PEM file with the CAs that verify the certificate, with which the server registers the API. "+
			"It is read again when it changes.")
}

// CertificateProfile returns the profile of the managed certificate.
func (o *Options) CertificateProfile() certificate.Profile {
	name := o.Certificate.Service + "." + o.Namespace + ".svc"
	return certificate.Profile{
		Names:      []string{name, name + ".cluster.local"},
		Lifetime:   o.Certificate.Lifetime,
		CALifetime: o.Certificate.CALifetime,
	}
}

func (o *Options) validateCertificate() (errs []error) {
	c, files := &o.Certificate, o.SecureServing.ServerCert.CertKey
	if c.CABundleFile != "" {
		if c.Manage {
			errs = append(errs, errors.New("--ca-bundle-file is for a certificate from files, and excludes --manage-serving-certificate, which knows its CAs"))
		} else if files.CertFile == "" {
			errs = append(errs, errors.New("--ca-bundle-file needs --tls-cert-file"))
		}
	}
	for _, problem := range validation.IsDNS1035Label(c.Service) {
		errs = append(errs, fmt.Errorf("--service-name %q: %s", c.Service, problem))
	}
	for _, problem := range validation.IsValidPortNum(c.ServicePort) {
		errs = append(errs, fmt.Errorf("--service-port %d: %s", c.ServicePort, problem))
	}
	if !c.Manage {
		return errs
	}
	if files.CertFile != "" || files.KeyFile != "" {
		errs = append(errs, errors.New("--manage-serving-certificate excludes --tls-cert-file and --tls-private-key-file: the certificate is either issued by the server or read from files"))
	}
	for _, problem := range validation.IsDNS1123Subdomain(c.Secret) {
		errs = append(errs, fmt.Errorf("--serving-certificate-secret %q: %s", c.Secret, problem))
	}
	if c.Secret == ingest.KeySecret {
		errs = append(errs, fmt.Errorf("--serving-certificate-secret must not be %s, which holds the key of the config hash", c.Secret))
	}
	profile := o.CertificateProfile()
	if err := profile.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("--serving-certificate-lifetime, --serving-ca-lifetime: %w", err))
	}
	return errs
}
