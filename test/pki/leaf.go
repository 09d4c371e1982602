// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Leaf certificates are valid longer than any demo that is forgotten in a terminal.
const leafLifetime = 365 * 24 * time.Hour

// ServingCert signs a certificate for a server with these names and addresses. The name of an aggregated API server is
// always <service>.<namespace>.svc, even if its Service is an ExternalName.
func (a *Authority) ServingCert(dnsNames []string, ips []net.IP) (*KeyPair, error) {
	name := "server"
	if len(dnsNames) > 0 {
		name = dnsNames[0]
	}
	return a.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		DNSNames:    dnsNames,
		IPAddresses: ips,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

// ClientCert signs a certificate that authenticates its holder to Kubernetes as this
// user (the common name) in these groups (the organizations).
func (a *Authority) ClientCert(user string, groups ...string) (*KeyPair, error) {
	return a.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (a *Authority) sign(template *x509.Certificate) (*KeyPair, error) {
	name := template.Subject.CommonName
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("pick serial number for %q: %w", name, err)
	}
	template.SerialNumber = serial
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.BasicConstraintsValid = true
	template.NotBefore = a.cert.NotBefore
	template.NotAfter = time.Now().Add(leafLifetime)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate for %q: %w", name, err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, fmt.Errorf("encode private key of %q: %w", name, err)
	}
	return &KeyPair{Cert: certPEM(der), Key: keyPEM}, nil
}

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der})
}
