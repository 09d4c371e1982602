// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package pki creates certificates for tests and the demo: an authority in memory, and serving and client certificates
// that it signs. All keys are ECDSA P-256, because a control plane needs half a dozen keys, and generating RSA keys would
// take longer than the rest of its preparation. It is not an example for production: nothing here is ever rotated.
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

// NewAuthority creates a self-signed authority.
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

// BundlePEM returns the certificate of the authority, for the caBundle of an APIService, or the
// certificate-authority-data of a kubeconfig.
func (a *Authority) BundlePEM() []byte { return certPEM(a.cert.Raw) }

// KeyPair is a certificate with its private key, both PEM-encoded.
type KeyPair struct {
	Cert []byte
	Key  []byte
}

// TLS returns the pair for crypto/tls.
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

// SigningKeyPEM creates a private key without a certificate, with which kube-apiserver and kube-controller-manager sign
// ServiceAccount tokens. It includes the public key: both accept the same file for verification.
func SigningKeyPEM() ([]byte, error) { return keyutil.MakeEllipticPrivateKeyPEM() }

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key: %w", err)
	}
	return key, nil
}
