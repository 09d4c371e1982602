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
	"math/big"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// handshake connects a client that trusts only a bundle, by a name or an address.
func handshake(t *testing.T, server tls.Certificate, bundle []byte, name string) error {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{server}})
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	defer serving.Wait()
	defer listener.Close()
	serving.Go(func() {
		if conn, err := listener.Accept(); err == nil {
			_ = conn.(*tls.Conn).Handshake() // the client reports errors
			conn.Close()
		}
	})
	conn, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{ServerName: name, RootCAs: roots})
	if err == nil {
		conn.Close()
	}
	return err
}

// forge signs a forged certificate with the key of a CA in the Secret, as an attacker with the key could.
func forge(t *testing.T, c Content, change func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "forged"}, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	change(template)
	der, err := x509.CreateCertificate(rand.Reader, template, parseCerts(c.Bundle)[0], key.Public(), parseKeys(c.CAKeys)[0])
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestClientsRefuseOtherNames: with the key of the server's CA, an attacker can impersonate only this
// server.
func TestClientsRefuseOtherNames(t *testing.T) {
	c := next(t, usual, Content{}, nowhere, time.Now()).Content
	ours, err := tls.X509KeyPair(c.Cert, c.Key)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range usual.Names {
		if err := handshake(t, ours, c.Bundle, name); err != nil {
			t.Errorf("handshake with the server's own certificate, by %s: error = %v", name, err)
		}
	}
	for name, tt := range map[string]struct {
		calls  string
		change func(*x509.Certificate)
	}{
		"another service":            {"kubernetes.default.svc", func(c *x509.Certificate) { c.DNSNames = []string{"kubernetes.default.svc"} }},
		"another of the namespace":   {"other.configdep-system.svc", func(c *x509.Certificate) { c.DNSNames = []string{"other.configdep-system.svc"} }},
		"all of the namespace":       {service, func(c *x509.Certificate) { c.DNSNames = []string{"*.configdep-system.svc"} }},
		"a name that ends like ours": {"x" + service, func(c *x509.Certificate) { c.DNSNames = []string{"x" + service} }},
		"a name beside ours":         {service, func(c *x509.Certificate) { c.DNSNames = []string{service, "example.com"} }},
		"an IP address":              {"10.96.0.1", func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(10, 96, 0, 1)} }},
		"an IP address of version 6": {"fd00::1", func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.ParseIP("fd00::1")} }},
		"an IP address beside a name": {service, func(c *x509.Certificate) {
			c.DNSNames, c.IPAddresses = []string{service}, []net.IP{net.IPv4(10, 96, 0, 1)}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			err := handshake(t, forge(t, c, tt.change), c.Bundle, tt.calls)
			if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); !ok || invalid.Reason != x509.CANotAuthorizedForThisName {
				t.Errorf("handshake error = %v", err)
			}
		})
	}
	// The certificate of an intermediate CA is also refused, whatever its names.
	intermediate := forge(t, c, func(c *x509.Certificate) {
		c.IsCA, c.KeyUsage, c.ExtKeyUsage, c.DNSNames = true, x509.KeyUsageCertSign, nil, []string{service}
	})
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	parent, err := x509.ParseCertificate(intermediate.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(8), DNSNames: []string{service}, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
	}, parent, key.Public(), intermediate.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	err = handshake(t, tls.Certificate{Certificate: [][]byte{der, intermediate.Certificate[0]}, PrivateKey: key}, c.Bundle, service)
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); !ok || invalid.Reason != x509.TooManyIntermediates {
		t.Errorf("certificate of an intermediate CA: handshake error = %v", err)
	}
}

// Clients that do not know name constraints must refuse the CA, and not ignore them.
func TestNameConstraintsAreCritical(t *testing.T) {
	ca := parseCerts(next(t, usual, Content{}, nowhere, start).Content.Bundle)[0]
	if !ca.PermittedDNSDomainsCritical || !ca.MaxPathLenZero || ca.MaxPathLen != 0 {
		t.Errorf("name constraints critical = %v, MaxPathLen = %d", ca.PermittedDNSDomainsCritical, ca.MaxPathLen)
	}
	if diff := cmp.Diff(usual.Names, ca.PermittedDNSDomains); diff != "" {
		t.Errorf("permitted (-want +got):\n%s", diff)
	}
}

// asBefore returns the content of an earlier version, whose CAs had no name constraints.
func asBefore(t *testing.T, p Profile, now time.Time) Content {
	t.Helper()
	a, err := p.newAuthority(now)
	if err != nil {
		t.Fatal(err)
	}
	template := *a.cert
	template.PermittedDNSDomainsCritical, template.PermittedDNSDomains, template.ExcludedIPRanges = false, nil, nil
	template.ExtraExtensions, template.SubjectKeyId, template.AuthorityKeyId = nil, nil, nil
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	if a.cert.PermittedDNSDomains != nil || a.cert.ExcludedIPRanges != nil {
		t.Fatal("the CA has constraints")
	}
	l, err := p.newLeaf(a, now)
	if err != nil {
		t.Fatal(err)
	}
	c, err := (&parsed{authorities: []authority{a}, leaf: l}).content()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A CA without constraints is used until it is due for replacement; only its successor has them.
func TestCAWithoutConstraints_StaysInUse(t *testing.T) {
	c := asBefore(t, usual, start)
	first, now := parseCerts(c.Bundle)[0], start
	renewed := 0
	for now.Before(start.Add(1400 * day)) {
		plan := next(t, usual, c, everywhere, now)
		if slices.Contains(plan.Did, "created a CA") {
			t.Fatalf("a CA was created after %d days", now.Sub(start)/day)
		}
		if slices.Contains(plan.Did, "issued a serving certificate") {
			renewed++
		}
		if err := serves(&plan.Content, certPEM(first), now); err != nil {
			t.Fatalf("after %d days: %v", now.Sub(start)/day, err)
		}
		c, now = plan.Content, plan.Look
	}
	for now.Before(start.Add(1700 * day)) {
		plan := next(t, usual, c, everywhere, now)
		c, now = plan.Content, plan.Look
	}
	last := parseCerts(c.Bundle)
	if renewed < 15 || len(last) != 1 || len(last[0].PermittedDNSDomains) != 2 {
		t.Errorf("renewed %d times; got %d CAs at the end, the last with the constraints %q", renewed, len(last), last[len(last)-1].PermittedDNSDomains)
	}
}

// If the Service gets another name, another CA is needed. Clients that use the new name do not accept
// the previous certificate, so waiting would not help.
func TestAnotherService(t *testing.T) {
	c := next(t, usual, Content{}, nowhere, start).Content
	c = next(t, usual, c, everywhere, start).Content
	p := Profile{Names: []string{"cfg.configdep-system.svc"}, Lifetime: usual.Lifetime, CALifetime: usual.CALifetime}
	at := start.Add(day)
	plan, err := p.Next(c, nowhere, at)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"created a CA", "issued a serving certificate"}, plan.Did); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if cert := certOf(t, plan.Content); cert.VerifyHostname(p.Names[0]) != nil || !plan.Content.Usable(at) {
		t.Errorf("names of the certificate = %q, usable = %v", cert.DNSNames, plan.Content.Usable(at))
	}
	// Replicas may still serve with the previous certificate.
	if err := serves(&c, plan.Content.Bundle, at); err != nil {
		t.Errorf("verifying the previous certificate: %v", err)
	}
	again, err := p.Next(plan.Content, nowhere, at)
	if err != nil || len(again.Did) > 0 {
		t.Errorf("a second plan at once did %q (error %v)", again.Did, err)
	}
}

func TestWhatACAMaySign(t *testing.T) {
	for _, tt := range []struct {
		permitted, excluded, names []string
		may                        bool
	}{
		{nil, nil, []string{"a.b"}, true},
		{[]string{"a.b"}, nil, []string{"a.b"}, true},
		{[]string{"a.b"}, nil, []string{"A.b"}, true},
		{[]string{"a.B"}, nil, []string{"x.a.b"}, true},
		{[]string{".a.b"}, nil, []string{"x.a.b"}, true},
		{[]string{".a.b"}, nil, []string{"a.b"}, false},
		{[]string{"a.b"}, nil, []string{"xa.b"}, false},
		{[]string{"a.b"}, nil, []string{"b"}, false},
		{[]string{"a.b"}, nil, []string{"a.b", "c"}, false},
		{[]string{"a.b", "c"}, nil, []string{"a.b", "c"}, true},
		{[]string{""}, nil, []string{"a.b"}, true},
		{nil, []string{"b"}, []string{"a.b"}, false},
		{nil, []string{"c"}, []string{"a.b"}, true},
		{[]string{"a.b"}, []string{"a.b"}, []string{"a.b"}, false},
	} {
		ca := &x509.Certificate{PermittedDNSDomains: tt.permitted, ExcludedDNSDomains: tt.excluded}
		if may := maySign(ca, tt.names); may != tt.may {
			t.Errorf("permitted %q, excluded %q: may sign %q = %v", tt.permitted, tt.excluded, tt.names, may)
		}
	}
}
