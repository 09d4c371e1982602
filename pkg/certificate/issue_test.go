// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestNext_Issues(t *testing.T) {
	c := next(t, usual, Content{}, start)
	ca, cert := parseCerts([]byte(c.Bundle))[0], parseCerts([]byte(c.Cert))[0]
	if diff := cmp.Diff(usual.Names, cert.DNSNames); diff != "" || cert.Subject.CommonName != service || cert.IsCA {
		t.Errorf("CA: %v, common name %q, names (-want +got):\n%s", cert.IsCA, cert.Subject.CommonName, diff)
	}
	if from, to := start.Sub(cert.NotBefore), cert.NotAfter.Sub(start); from != 5*time.Minute || to != 90*day {
		t.Errorf("the certificate is valid from %v before until %v after its issue", from, to)
	}
	if to := ca.NotAfter.Sub(start); to != 5*365*day {
		t.Errorf("the CA is valid for %v", to)
	}
	// Clients that do not know name constraints must refuse the CA, and not ignore them.
	if !ca.PermittedDNSDomainsCritical {
		t.Error("the name constraints are not critical")
	}
}

// With the key of the server's CA, an attacker can impersonate only this server.
func TestClientsRefuseOtherNames(t *testing.T) {
	ca, _, err := usual.newCA(start)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.Leaf)
	// forged signs a certificate, and returns the error of a client that calls a server with it by a name.
	forged := func(ca *tls.Certificate, name string, change func(*x509.Certificate)) error {
		template := &x509.Certificate{NotBefore: start, NotAfter: start.Add(time.Hour), DNSNames: []string{name}, BasicConstraintsValid: true}
		change(template)
		leaf, _, err := issue(ca, template)
		if err != nil {
			t.Fatal(err)
		}
		between := x509.NewCertPool()
		between.AddCert(ca.Leaf)
		_, err = leaf.Leaf.Verify(x509.VerifyOptions{
			DNSName: name, Roots: roots, Intermediates: between, CurrentTime: start, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
		})
		return err
	}
	same := func(*x509.Certificate) {}
	for _, name := range usual.Names {
		if err := forged(&ca, name, same); err != nil {
			t.Errorf("by %s: %v", name, err)
		}
	}
	for what, tt := range map[string]struct {
		name   string
		change func(*x509.Certificate)
	}{
		"another service":             {"kubernetes.default.svc", same},
		"another of the namespace":    {"other.configdep-system.svc", same},
		"all of the namespace":        {service, func(c *x509.Certificate) { c.DNSNames = []string{"*.configdep-system.svc"} }},
		"a name that ends like ours":  {"x" + service, same},
		"a name beside ours":          {service, func(c *x509.Certificate) { c.DNSNames = []string{service, "example.com"} }},
		"an IP address":               {"10.96.0.1", func(c *x509.Certificate) { c.DNSNames, c.IPAddresses = nil, []net.IP{net.IPv4(10, 96, 0, 1)} }},
		"an IP address of version 6":  {"fd00::1", func(c *x509.Certificate) { c.DNSNames, c.IPAddresses = nil, []net.IP{net.ParseIP("fd00::1")} }},
		"an IP address beside a name": {service, func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(10, 96, 0, 1)} }},
	} {
		err := forged(&ca, tt.name, tt.change)
		if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); !ok || invalid.Reason != x509.CANotAuthorizedForThisName {
			t.Errorf("%s: error = %v", what, err)
		}
	}
	between, _, err := issue(&ca, &x509.Certificate{
		NotBefore: start, NotAfter: start.Add(time.Hour), IsCA: true, KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	err = forged(&between, service, same)
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); !ok || invalid.Reason != x509.TooManyIntermediates {
		t.Errorf("by another CA between: error = %v", err)
	}
}
