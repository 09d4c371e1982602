// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// newAuthority creates a CA that is valid only for the names of the profile: an attacker with its
// key can impersonate this server, as with the key of the serving certificate, but no other.
func (p *Profile) newAuthority(now time.Time) (authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return authority{}, fmt.Errorf("creating the key of a CA: %w", err)
	}
	template := &x509.Certificate{
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
		ExcludedIPRanges:            everyAddress(), // constraints on DNS names say nothing of addresses
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return authority{}, fmt.Errorf("signing a CA: %w", err)
	}
	// Parsed again for the key id that CreateCertificate has added.
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return authority{}, fmt.Errorf("parsing a CA: %w", err)
	}
	return authority{cert, key}, nil
}

// everyAddress returns all IP addresses.
func everyAddress() []*net.IPNet {
	return []*net.IPNet{
		{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 8*net.IPv4len)},
		{IP: net.IPv6zero, Mask: net.CIDRMask(0, 8*net.IPv6len)},
	}
}

// maySign reports whether the name constraints of a CA allow certificates for all given DNS names. A
// CA without constraints, from an earlier version, may sign anything.
func maySign(ca *x509.Certificate, names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool {
		in := func(domain string) bool { return within(name, domain) }
		return len(ca.PermittedDNSDomains) > 0 && !slices.ContainsFunc(ca.PermittedDNSDomains, in) ||
			slices.ContainsFunc(ca.ExcludedDNSDomains, in)
	})
}

// within reports whether a DNS name is in the subtree of a constraint, by RFC 5280, section 4.2.1.10.
// A domain with a leading period needs a further label, as for crypto/x509.
func within(name, domain string) bool {
	name, domain = strings.ToLower(name), strings.ToLower(domain)
	return domain == "" || name == domain || strings.HasSuffix(name, "."+strings.TrimPrefix(domain, "."))
}

// newLeaf issues a serving certificate, which never outlives its CA.
func (p *Profile) newLeaf(signer authority, now time.Time) (*leaf, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("creating the key of a serving certificate: %w", err)
	}
	template := &x509.Certificate{
		DNSNames:              p.Names,
		NotBefore:             now.Add(-p.skew()),
		NotAfter:              earlier(now.Add(p.Lifetime), signer.cert.NotAfter),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	// Clients check DNSNames; a common name is for people, and has room for 64 bytes.
	if len(p.Names[0]) <= 64 {
		template.Subject.CommonName = p.Names[0]
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.cert, key.Public(), signer.key)
	if err != nil {
		return nil, fmt.Errorf("signing a serving certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parsing a serving certificate: %w", err)
	}
	private, err := keyPEM(key)
	if err != nil {
		return nil, fmt.Errorf("encoding the key of a serving certificate: %w", err)
	}
	return &leaf{
		certPEM: certPEM(cert), keyPEM: private,
		chain: []*x509.Certificate{cert}, roots: []*x509.Certificate{signer.cert},
	}, nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
