// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"bytes"
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The keys of the Secret, in addition to those of every TLS Secret: tls.crt and tls.key.
const (
	bundleEntry   = "ca.crt"       // the CAs to trust, oldest first
	caKeyEntry    = "ca.key"       // the keys of those that still sign
	previousEntry = "previous.crt" // certificates that were served and have not expired

	// publishedAnnotation says since when the newest CA has been trusted in the cluster:
	// the fingerprint of the CA, and a time.
	publishedAnnotation = "configdep.io/ca-published"
)

// Content is the content of the Secret, PEM-encoded. It may be invalid, because any client
// may have written it.
type Content struct {
	Bundle, CAKeys, Cert, Key, Previous []byte
	Published                           string
}

// ContentOf returns the content of a Secret.
func ContentOf(secret *corev1.Secret) Content {
	d := secret.Data
	return Content{
		Bundle: d[bundleEntry], CAKeys: d[caKeyEntry], Cert: d[corev1.TLSCertKey], Key: d[corev1.TLSPrivateKeyKey], Previous: d[previousEntry],
		Published: secret.Annotations[publishedAnnotation],
	}
}

// putInto replaces the content of a Secret, and leaves other keys alone.
func (c *Content) putInto(secret *corev1.Secret) {
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	maps.Copy(secret.Data, map[string][]byte{
		bundleEntry: c.Bundle, caKeyEntry: c.CAKeys, corev1.TLSCertKey: c.Cert, corev1.TLSPrivateKeyKey: c.Key, previousEntry: c.Previous,
	})
	if len(c.Previous) == 0 {
		delete(secret.Data, previousEntry)
	}
	if c.Published == "" {
		delete(secret.Annotations, publishedAnnotation)
		return
	}
	if secret.Annotations == nil {
		secret.Annotations = map[string]string{}
	}
	secret.Annotations[publishedAnnotation] = c.Published
}

func (c *Content) equal(other *Content) bool {
	return bytes.Equal(c.Bundle, other.Bundle) && bytes.Equal(c.CAKeys, other.CAKeys) && bytes.Equal(c.Cert, other.Cert) &&
		bytes.Equal(c.Key, other.Key) && bytes.Equal(c.Previous, other.Previous) && c.Published == other.Published
}

// Usable reports whether there is a certificate that can be served: it parses, its key
// belongs to it, it verifies by the bundle, and it has not expired. A certificate that is
// not valid yet is usable, because our clock may be wrong.
func (c *Content) Usable(now time.Time) bool { return parse(c, now).leaf != nil }

// authority is a CA in the bundle.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer // nil: it no longer signs, or never did here
}

// leaf is a certificate that can be served.
type leaf struct {
	certPEM, keyPEM []byte
	chain           []*x509.Certificate // the certificate itself first
	roots           []*x509.Certificate // the CAs in the bundle by which it verifies
}

func (l *leaf) cert() *x509.Certificate { return l.chain[0] }

// past is a certificate that was served.
type past struct {
	chain []*x509.Certificate // the certificate itself first
	roots []*x509.Certificate
}

// parsed is the valid part of a Content.
type parsed struct {
	authorities []authority // in the order of the bundle, none expired
	leaf        *leaf       // nil: none can be served
	previous    []past      // none expired

	published string    // the fingerprint of a CA
	since     time.Time // when it was published
}

func parse(c *Content, now time.Time) *parsed {
	p := &parsed{}
	keys := parseKeys(c.CAKeys)
	for _, cert := range parseCerts(c.Bundle) {
		if !now.Before(cert.NotAfter) || p.trusts(cert) {
			continue
		}
		a := authority{cert: cert}
		if i := slices.IndexFunc(keys, func(k crypto.Signer) bool { return signsFor(k, cert) }); i >= 0 {
			a.key = keys[i]
		}
		p.authorities = append(p.authorities, a)
	}
	p.leaf = p.parseLeaf(c.Cert, c.Key, now)
	for _, chain := range chains(parseCerts(c.Previous)) {
		p.remember(chain, now)
	}
	if fingerprint, at, ok := strings.Cut(c.Published, " "); ok {
		if since, err := time.Parse(time.RFC3339, at); err == nil {
			p.published, p.since = fingerprint, since
		}
	}
	return p
}

func (p *parsed) parseLeaf(certPEM, keyPEM []byte, now time.Time) *leaf {
	if _, err := tls.X509KeyPair(certPEM, keyPEM); err != nil {
		return nil
	}
	l := &leaf{certPEM: certPEM, keyPEM: keyPEM, chain: parseCerts(certPEM)}
	if len(l.chain) == 0 || !now.Before(l.cert().NotAfter) {
		return nil
	}
	if l.roots = p.roots(l.chain, now); len(l.roots) == 0 {
		return nil
	}
	return l
}

// roots returns the CAs in the bundle that verify a certificate as a server's.
func (p *parsed) roots(chain []*x509.Certificate, now time.Time) (roots []*x509.Certificate) {
	pool, intermediates := x509.NewCertPool(), x509.NewCertPool()
	for _, a := range p.authorities {
		pool.AddCert(a.cert)
	}
	for _, c := range chain[1:] {
		intermediates.AddCert(c)
	}
	at := now
	if chain[0].NotBefore.After(at) {
		at = chain[0].NotBefore
	}
	verified, err := chain[0].Verify(x509.VerifyOptions{
		Roots: pool, Intermediates: intermediates, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return nil
	}
	for _, v := range verified {
		roots = append(roots, v[len(v)-1])
	}
	return roots
}

// remember keeps a certificate that a replica may serve, until it expires.
func (p *parsed) remember(chain []*x509.Certificate, now time.Time) {
	if !now.Before(chain[0].NotAfter) || p.leaf != nil && p.leaf.cert().Equal(chain[0]) || p.remembers(chain[0]) {
		return
	}
	if roots := p.roots(chain, now); len(roots) > 0 {
		p.previous = append(p.previous, past{chain, roots})
	}
}

// remembers reports whether a certificate is among those that replicas may still serve.
func (p *parsed) remembers(cert *x509.Certificate) bool {
	return slices.ContainsFunc(p.previous, func(old past) bool { return old.chain[0].Equal(cert) })
}

func (p *parsed) trusts(ca *x509.Certificate) bool {
	return slices.ContainsFunc(p.authorities, func(a authority) bool { return a.cert.Equal(ca) })
}

// newest returns the index of the newest CA that can sign, or -1.
func (p *parsed) newest() int {
	for i, a := range slices.Backward(p.authorities) {
		if a.key != nil {
			return i
		}
	}
	return -1
}

// trim drops the CAs that can no longer sign and whose certificates no replica serves. It
// reports whether there were any.
func (p *parsed) trim() bool {
	var needed []*x509.Certificate
	if p.leaf != nil {
		needed = append(needed, p.leaf.roots...)
	}
	for _, old := range p.previous {
		needed = append(needed, old.roots...)
	}
	before := len(p.authorities)
	p.authorities = slices.DeleteFunc(p.authorities, func(a authority) bool {
		return a.key == nil && !slices.ContainsFunc(needed, a.cert.Equal)
	})
	return len(p.authorities) < before
}

// content is the reverse of parse, in a canonical form.
func (p *parsed) content() (Content, error) {
	var c Content
	for _, a := range p.authorities {
		c.Bundle = append(c.Bundle, certPEM(a.cert)...)
		if a.key == nil {
			continue
		}
		key, err := keyPEM(a.key)
		if err != nil {
			return Content{}, err
		}
		c.CAKeys = append(c.CAKeys, key...)
		if p.published == Fingerprint(a.cert) {
			c.Published = p.published + " " + p.since.UTC().Format(time.RFC3339)
		}
	}
	if p.leaf != nil {
		c.Cert, c.Key = p.leaf.certPEM, p.leaf.keyPEM
	}
	for _, old := range p.previous {
		for _, cert := range old.chain {
			c.Previous = append(c.Previous, certPEM(cert)...)
		}
	}
	return c, nil
}

// Fingerprint returns a short digest that identifies a certificate.
func Fingerprint(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return hex.EncodeToString(sum[:8])
}

// chains splits a list of certificates before each that is not a CA's.
func chains(certs []*x509.Certificate) (out [][]*x509.Certificate) {
	for _, c := range certs {
		if !c.IsCA || len(out) == 0 {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], c)
	}
	return out
}

// parseCerts returns the certificates that can be read.
func parseCerts(data []byte) (certs []*x509.Certificate) {
	for block := range blocks(data) {
		if block.Type != certBlock {
			continue
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			certs = append(certs, cert)
		}
	}
	return certs
}

// parseKeys returns the private keys that can be read.
func parseKeys(data []byte) (keys []crypto.Signer) {
	for block := range blocks(data) {
		var key any
		var err error
		switch block.Type {
		case keyBlock:
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		case "RSA PRIVATE KEY":
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		}
		if signer, ok := key.(crypto.Signer); ok && err == nil {
			keys = append(keys, signer)
		}
	}
	return keys
}

// signsFor reports whether a key belongs to a CA.
func signsFor(key crypto.Signer, ca *x509.Certificate) bool {
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	mayNot := ca.KeyUsage != 0 && ca.KeyUsage&x509.KeyUsageCertSign == 0
	return ok && ca.BasicConstraintsValid && ca.IsCA && !mayNot && public.Equal(ca.PublicKey)
}

const (
	certBlock = "CERTIFICATE"
	keyBlock  = "PRIVATE KEY"
)

func blocks(data []byte) func(func(*pem.Block) bool) {
	return func(yield func(*pem.Block) bool) {
		for {
			var block *pem.Block
			if block, data = pem.Decode(data); block == nil || !yield(block) {
				return
			}
		}
	}
}

func certPEM(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certBlock, Bytes: cert.Raw})
}

func keyPEM(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: der}), nil
}
