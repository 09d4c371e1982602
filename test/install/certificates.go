// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"path/filepath"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// CertificateSecret is the Secret in which the server keeps the certificate that it creates.
const CertificateSecret = "configdep-serving-cert"

// ownArgs returns the arguments of the manifest that apply here.
func (i *Installation) ownArgs(args []string) []string {
	return slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		return arg == "--manage-serving-certificate" && !i.options.ManagedCertificates
	})
}

// certificateArgs returns the arguments of a replica that serves with certificates from files.
func (i *Installation) certificateArgs() []string {
	if i.options.ManagedCertificates {
		return nil
	}
	return []string{
		"--tls-cert-file=" + filepath.Join(i.dir, "tls.crt"),
		"--tls-private-key-file=" + filepath.Join(i.dir, "tls.key"),
		"--ca-bundle-file=" + filepath.Join(i.dir, "ca.crt"),
	}
}

// trusted are the CAs that verify the certificates of the server.
type trusted struct {
	mu   sync.Mutex
	last []byte // the last ones in the Secret
}

// bundle returns the PEM-encoded CAs that verify the certificates of replicas; none if the server has not created
// one yet. While the Secret contains none, bundle returns the previous ones.
func (i *Installation) bundle() []byte {
	if !i.options.ManagedCertificates {
		return i.authority.BundlePEM()
	}
	i.trusted.mu.Lock()
	defer i.trusted.mu.Unlock()
	client, err := kubernetes.NewForConfig(i.cluster.RESTConfig())
	if err != nil {
		return i.trusted.last
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	secret, err := client.CoreV1().Secrets(Namespace).Get(ctx, CertificateSecret, metav1.GetOptions{})
	if err == nil && x509.NewCertPool().AppendCertsFromPEM(secret.Data["ca.crt"]) {
		i.trusted.last = secret.Data["ca.crt"]
	}
	return i.trusted.last
}

// trustBundle returns the configuration of a client that trusts the CAs that exist at the time of each connection.
func (i *Installation) trustBundle() *tls.Config {
	return &tls.Config{
		ServerName: i.serverName(),
		// The connection is verified below, because a pool of CAs cannot change once it is in use.
		InsecureSkipVerify: true, //nolint:gosec // see above
		VerifyConnection: func(s tls.ConnectionState) error {
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(i.bundle())
			_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{DNSName: i.serverName(), Roots: roots})
			return err
		},
	}
}
