// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"k8s.io/client-go/util/keyutil"
)

// Profile describes the certificates to issue.
type Profile struct {
	// Names are the DNS names of the serving certificate. The first is the one that kube-apiserver verifies.
	Names []string
	// Lifetime is the lifetime of the serving certificate.
	Lifetime time.Duration
	// CALifetime is the lifetime of the CA. Like the certificate, it is replaced when a third of it is left.
	CALifetime time.Duration
}

// MinLifetime is the minimum lifetime of a serving certificate. The times in a certificate have a resolution of a
// second, which must be short in comparison with the overlap.
const MinLifetime = 30 * time.Second

// Validate returns everything that is wrong with the lifetimes.
func (p *Profile) Validate() error {
	var errs []error
	if p.Lifetime < MinLifetime {
		errs = append(errs, fmt.Errorf("the lifetime of the serving certificate is %v, and must be at least %v", p.Lifetime, MinLifetime))
	}
	if p.CALifetime < 3*p.Lifetime { // so that no certificate outlives its CA
		errs = append(errs, fmt.Errorf("the lifetime of the CA is %v, and must be at least three times the lifetime of the serving certificate, which is %v", p.CALifetime, p.Lifetime))
	}
	return errors.Join(errs...)
}

// overlap is how long clients may take to learn of a CA, and replicas to serve another certificate.
func (p *Profile) overlap() time.Duration { return min(time.Hour, p.Lifetime/10) }

// skew is how far clocks may be behind or ahead: at most five minutes.
func (p *Profile) skew() time.Duration { return p.overlap() / 12 }

// issuedAt returns when a certificate was issued.
func (p *Profile) issuedAt(cert *x509.Certificate) time.Time { return cert.NotBefore.Add(p.skew()) }

// due reports whether a certificate has to be renewed.
func due(cert *x509.Certificate, now time.Time) bool {
	return !now.Before(cert.NotAfter.Add(-cert.NotAfter.Sub(cert.NotBefore) / 3))
}

// newCA creates a CA that is valid only for the names of the profile: an attacker with its key can impersonate this
// server, as with the key of the serving certificate, but no other.
func (p *Profile) newCA(now time.Time) (ca tls.Certificate, keyPEM string, err error) {
	return issue(nil, &x509.Certificate{
		// The time distinguishes a CA from the next in a bundle that holds both.
		Subject:               pkix.Name{CommonName: "configdep serving CA " + now.UTC().Format(time.RFC3339)},
		NotBefore:             now.Add(-p.skew()),
		NotAfter:              now.Add(p.CALifetime),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true, // it signs serving certificates and no other CA

		PermittedDNSDomainsCritical: true,
		PermittedDNSDomains:         p.Names,
		ExcludedIPRanges: []*net.IPNet{ // constraints on DNS names say nothing of addresses
			{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 8*net.IPv4len)},
			{IP: net.IPv6zero, Mask: net.CIDRMask(0, 8*net.IPv6len)},
		},
	})
}

// maySign reports whether a CA from the Secret may sign the next certificate. Anyone who can write the Secret may have
// put another CA there.
func (p *Profile) maySign(ca *x509.Certificate, now time.Time) bool {
	return ca.IsCA && slices.Equal(ca.PermittedDNSDomains, p.Names) && !due(ca, now) && !p.issuedAt(ca).After(now.Add(2*p.skew()))
}

// newLeaf issues a serving certificate.
func (p *Profile) newLeaf(ca *tls.Certificate, now time.Time) (leaf tls.Certificate, keyPEM string, err error) {
	template := &x509.Certificate{
		DNSNames:              p.Names,
		NotBefore:             now.Add(-p.skew()),
		NotAfter:              now.Add(p.Lifetime),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	// Clients check DNSNames; a common name is for people, and has room for 64 bytes.
	if len(p.Names[0]) <= 64 {
		template.Subject.CommonName = p.Names[0]
	}
	return issue(ca, template)
}

// issue issues a certificate with a new key. Without a CA, the certificate signs itself.
func issue(ca *tls.Certificate, template *x509.Certificate) (issued tls.Certificate, keyPEM string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, "", fmt.Errorf("creating a key: %w", err)
	}
	if ca == nil {
		ca = &tls.Certificate{Leaf: template, PrivateKey: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Leaf, key.Public(), ca.PrivateKey)
	if err != nil {
		return tls.Certificate{}, "", fmt.Errorf("signing a certificate: %w", err)
	}
	// Parsed again for the key id that CreateCertificate has added.
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, "", fmt.Errorf("parsing a certificate: %w", err)
	}
	encoded, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return tls.Certificate{}, "", fmt.Errorf("encoding a key: %w", err)
	}
	return tls.Certificate{Leaf: cert, PrivateKey: key}, string(encoded), nil
}
