// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/configdep/configdep/test/pki"
)

// credentials are the identities of a control plane. Credentials that components read by flags are in files, others
// only in memory.
type credentials struct {
	authority *pki.Authority // of servers and of clients
	admin     *pki.KeyPair

	caFile                          string
	servingCertFile, servingKeyFile string
	adminCertFile, adminKeyFile     string
	serviceAccountKeyFile           string

	// With this certificate, the aggregator proves to aggregated API servers that they can trust its X-Remote-User. It
	// has a separate authority, because otherwise any client certificate could be nearly sufficient for that.
	proxyCAFile                 string
	proxyCertFile, proxyKeyFile string
}

func newCredentials(dir string, servingIPs []net.IP) (*credentials, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create folder for credentials: %w", err)
	}
	c := &credentials{
		caFile:                filepath.Join(dir, "ca.crt"),
		serviceAccountKeyFile: filepath.Join(dir, "service-account.key"),
		proxyCAFile:           filepath.Join(dir, "front-proxy-ca.crt"),
	}
	var err error
	if c.authority, err = pki.NewAuthority("controlplane"); err != nil {
		return nil, err
	}
	proxyAuthority, err := pki.NewAuthority("controlplane-front-proxy")
	if err != nil {
		return nil, err
	}
	if c.admin, err = c.authority.ClientCert("admin", "system:masters"); err != nil {
		return nil, err
	}
	serving, err := c.authority.ServingCert(
		[]string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		append([]net.IP{net.IPv4(127, 0, 0, 1)}, servingIPs...))
	if err != nil {
		return nil, err
	}
	proxy, err := proxyAuthority.ClientCert("front-proxy-client")
	if err != nil {
		return nil, err
	}
	serviceAccountKey, err := pki.SigningKeyPEM()
	if err != nil {
		return nil, fmt.Errorf("generate key for ServiceAccount tokens: %w", err)
	}

	if c.servingCertFile, c.servingKeyFile, err = serving.WriteFiles(dir, "serving"); err != nil {
		return nil, err
	}
	if c.adminCertFile, c.adminKeyFile, err = c.admin.WriteFiles(dir, "admin"); err != nil {
		return nil, err
	}
	if c.proxyCertFile, c.proxyKeyFile, err = proxy.WriteFiles(dir, "front-proxy-client"); err != nil {
		return nil, err
	}
	for path, data := range map[string][]byte{
		c.caFile:                c.authority.BundlePEM(),
		c.proxyCAFile:           proxyAuthority.BundlePEM(),
		c.serviceAccountKeyFile: serviceAccountKey,
	} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return nil, fmt.Errorf("write credentials: %w", err)
		}
	}
	return c, nil
}
