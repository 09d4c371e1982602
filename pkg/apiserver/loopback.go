// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/rest"
)

// loopback returns the configuration of the client with which the generic API server talks
// to itself, and makes the server present a certificate to it that is valid for the lifetime
// of the process. The generic API server's own function generates two RSA keys, which takes a
// quarter of the time that it takes to read a small cluster.
func loopback(serving *genericapiserver.SecureServingInfo) (*rest.Config, error) {
	cert, key, err := selfSigned(genericapiserver.LoopbackClientServerNameOverride)
	if err != nil {
		return nil, err
	}
	pair, err := dynamiccertificates.NewStaticSNICertKeyContent("self-signed loopback", cert, key, genericapiserver.LoopbackClientServerNameOverride)
	if err != nil {
		return nil, err
	}
	serving.SNICerts = append([]dynamiccertificates.SNICertKeyContentProvider{pair}, serving.SNICerts...)
	return serving.NewLoopbackClientConfig(string(uuid.NewUUID()), cert)
}

// selfSigned returns a self-signed certificate for a name, and its key, PEM-encoded.
func selfSigned(name string) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		DNSNames:              []string{name},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.AddDate(100, 0, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, fmt.Errorf("signing a certificate: %w", err)
	}
	private8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private8}), nil
}
