// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package pki makes certificates for tests and the demo: an authority in memory, and
// serving and client certificates that it signs. Everything is ECDSA P-256, because a
// control plane needs half a dozen keys and RSA would cost more time than all the rest
// of its preparation. It is no example for production: nothing here is ever rotated.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Authority is a certificate authority whose key never leaves this process.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority that signs itself.
func NewAuthority(commonName string) (*Authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	ca, err := cert.NewSelfSignedCACert(cert.Config{CommonName: commonName}, key)
	if err != nil {
		return nil, fmt.Errorf("sign authority %q: %w", commonName, err)
	}
	return &Authority{cert: ca, key: key}, nil
}

// BundlePEM is what others need to trust this authority: the caBundle of an APIService
// or a webhook, the certificate-authority-data of a kubeconfig.
func (a *Authority) BundlePEM() []byte { return certPEM(a.cert.Raw) }

// Pool is the authority as crypto/tls wants it.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// KeyPair is a certificate with its private key, both PEM-encoded.
type KeyPair struct {
	Cert []byte
	Key  []byte
}

// TLS is the pair as crypto/tls wants it.
func (p *KeyPair) TLS() (tls.Certificate, error) { return tls.X509KeyPair(p.Cert, p.Key) }

// WriteFiles writes <name>.crt and <name>.key below dir, which must exist, and returns
// their paths. Only the owner can read the key.
func (p *KeyPair) WriteFiles(dir, name string) (certFile, keyFile string, err error) {
	certFile = filepath.Join(dir, name+".crt")
	keyFile = filepath.Join(dir, name+".key")
	if err := os.WriteFile(certFile, p.Cert, 0o644); err != nil {
		return "", "", fmt.Errorf("write certificate: %w", err)
	}
	if err := os.WriteFile(keyFile, p.Key, 0o600); err != nil {
		return "", "", fmt.Errorf("write private key: %w", err)
	}
	return certFile, keyFile, nil
}

// SigningKeyPEM makes a private key without a certificate, as kube-apiserver and
// kube-controller-manager need one to sign ServiceAccount tokens. The public key is
// part of it: both accept the same file for verification.
func SigningKeyPEM() ([]byte, error) { return keyutil.MakeEllipticPrivateKeyPEM() }

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key: %w", err)
	}
	return key, nil
}
