// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// CertificateSecret is where the server keeps the certificate of its own making.
const CertificateSecret = "configdep-serving-cert"

// ownArgs returns the arguments of the manifest that hold here.
func (i *Installation) ownArgs(args []string) []string {
	return slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		return arg == "--manage-serving-certificate" && !i.options.ManagedCertificates
	})
}

// certificateArgs are the arguments of a replica that serves by certificates from files.
func (i *Installation) certificateArgs() []string {
	if i.options.ManagedCertificates {
		return nil
	}
	return []string{
		"--tls-cert-file=" + filepath.Join(i.dir, "tls.crt"),
		"--tls-private-key-file=" + filepath.Join(i.dir, "tls.key"),
	}
}

// caBundle is what makes kube-apiserver trust the server, in base64; empty when the server
// sees to that by itself.
func (i *Installation) caBundle() (string, error) {
	if i.options.ManagedCertificates {
		return "", nil
	}
	ca, err := os.ReadFile(filepath.Join(i.dir, "ca.crt"))
	return base64.StdEncoding.EncodeToString(ca), err
}

// trusted are the CAs by which the certificates of the server verify.
type trusted struct {
	mu   sync.Mutex
	last []byte // that were in the Secret when it held any
}

// bundle returns the CAs by which the certificates of replicas verify, PEM-encoded; none if
// the server has yet to make one. While the Secret holds none, those before are returned.
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

// trustBundle returns the configuration of a client that trusts the CAs that there are at the
// time of each connection.
func (i *Installation) trustBundle() *tls.Config {
	return &tls.Config{
		ServerName: serverName,
		// It is verified below, as a pool of CAs is fixed once it is in use.
		InsecureSkipVerify: true, //nolint:gosec // see above
		VerifyConnection: func(s tls.ConnectionState) error {
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(i.bundle())
			_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{DNSName: serverName, Roots: roots})
			return err
		},
	}
}
