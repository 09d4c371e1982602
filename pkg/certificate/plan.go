// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	certutil "k8s.io/client-go/util/cert"
)

// The keys of the Secret, in addition to those of every TLS Secret: tls.crt and tls.key.
const (
	bundleEntry = "ca.crt" // the CAs to trust, newest first
	caKeyEntry  = "ca.key" // the key of the newest
)

// Content is the content of the Secret, PEM-encoded. It may be invalid, because any client may have written it.
type Content struct{ Bundle, CAKey, Cert, Key string }

// ContentOf returns the content of a Secret.
func ContentOf(secret *corev1.Secret) Content {
	d := secret.Data
	return Content{
		Bundle: string(d[bundleEntry]), CAKey: string(d[caKeyEntry]),
		Cert: string(d[corev1.TLSCertKey]), Key: string(d[corev1.TLSPrivateKeyKey]),
	}
}

// putInto replaces the content of a Secret, and leaves other keys alone.
func (c *Content) putInto(secret *corev1.Secret) {
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	maps.Copy(secret.Data, map[string][]byte{
		bundleEntry: []byte(c.Bundle), caKeyEntry: []byte(c.CAKey),
		corev1.TLSCertKey: []byte(c.Cert), corev1.TLSPrivateKeyKey: []byte(c.Key),
	})
}

// Next returns what the Secret should hold next. It returns the content unchanged if nothing is to be done.
func (p *Profile) Next(c Content, now time.Time) (Content, error) {
	cas := parseCerts([]byte(c.Bundle))
	leaf, issuer := p.serving(c, now)
	ca, err := tls.X509KeyPair([]byte(encode(cas...)), []byte(c.CAKey))
	if err != nil || !p.maySign(ca.Leaf, now) {
		if ca, c.CAKey, err = p.newCA(now); err != nil {
			return Content{}, err
		}
		cas = []*x509.Certificate{ca.Leaf}
	}
	passed := func(cert *x509.Certificate) bool { return !now.Before(p.issuedAt(cert).Add(p.overlap())) }
	if leaf == nil || passed(ca.Leaf) && (due(leaf, now) || !issuer.Equal(ca.Leaf)) {
		issued, key, err := p.newLeaf(&ca, now)
		if err != nil {
			return Content{}, err
		}
		leaf, issuer, c.Cert, c.Key = issued.Leaf, ca.Leaf, encode(issued.Leaf), key
	}
	switch {
	case !issuer.Equal(ca.Leaf):
		cas = []*x509.Certificate{ca.Leaf, issuer}
	case passed(leaf):
		cas = cas[:1]
	default:
		cas = cas[:min(len(cas), 2)] // a replica may still serve the certificate before this one
	}
	c.Bundle = encode(cas...)
	return c, nil
}

// usable reports whether there is a certificate that can be served.
func (p *Profile) usable(c Content, now time.Time) bool {
	leaf, _ := p.serving(c, now)
	return leaf != nil
}

// serving returns the certificate, and the CA in the bundle that has issued it; nil if it cannot be served. One that is
// not valid yet for a clock that is behind can be.
func (p *Profile) serving(c Content, now time.Time) (leaf, issuer *x509.Certificate) {
	pair, err := tls.X509KeyPair([]byte(c.Cert), []byte(c.Key))
	if err != nil {
		return nil, nil
	}
	roots := x509.NewCertPool()
	for _, ca := range parseCerts([]byte(c.Bundle)) {
		roots.AddCert(ca)
	}
	chains, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: p.Names[0], Roots: roots, CurrentTime: now.Add(2 * p.skew())})
	if err != nil {
		return nil, nil
	}
	return pair.Leaf, chains[0][len(chains[0])-1]
}

// parseCerts returns the certificates up to the first that cannot be read. Only these are published, and nothing else
// that may be there, such as a private key.
func parseCerts(data []byte) []*x509.Certificate {
	certs, _ := certutil.ParseCertsPEM(data)
	return certs
}

// encode returns certificates, PEM-encoded.
func encode(certs ...*x509.Certificate) string {
	var all []byte
	for _, cert := range certs {
		all = append(all, pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: cert.Raw})...)
	}
	return string(all)
}
