// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/configdep/configdep/test/pki"
)

// A server and a client that trust only the same authority can connect, and the server gets the client's user and
// groups.
func TestMutualTLS(t *testing.T) {
	authority := newAuthority(t)
	serving, err := authority.ServingCert([]string{"web.team.svc"}, []net.IP{net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	client, err := authority.ClientCert("jane", "team-a", "team-b")
	if err != nil {
		t.Fatal(err)
	}

	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		subject := r.TLS.PeerCertificates[0].Subject
		_, _ = io.WriteString(w, subject.CommonName)
		for _, group := range subject.Organization {
			_, _ = io.WriteString(w, " "+group)
		}
	}))
	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{keyPair(t, serving)},
		ClientCAs:    authority.Pool(),
		ClientAuth:   tls.RequireAndVerifyClientCert,
	}
	server.StartTLS()
	t.Cleanup(server.Close)

	for _, name := range []string{"web.team.svc", "127.0.0.1"} {
		t.Run(name, func(t *testing.T) {
			transport := &http.Transport{TLSClientConfig: &tls.Config{
				RootCAs:      authority.Pool(),
				Certificates: []tls.Certificate{keyPair(t, client)},
				ServerName:   name,
			}}
			t.Cleanup(transport.CloseIdleConnections)
			response, err := (&http.Client{Transport: transport}).Get(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := string(body), "jane team-a team-b"; got != want {
				t.Errorf("the server saw %q, want %q", got, want)
			}
		})
	}
}

// A certificate is only valid for its own purpose, name and authority; otherwise a test that expects a refusal would
// pass or fail for the wrong reason.
func TestCertificatesAreNarrow(t *testing.T) {
	authority, stranger := newAuthority(t), newAuthority(t)
	serving, err := authority.ServingCert([]string{"web.team.svc"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair := keyPair(t, serving)
	if err := pair.Leaf.VerifyHostname("other.team.svc"); err == nil {
		t.Error("the certificate is valid for another name")
	}
	tests := map[string]struct {
		options x509.VerifyOptions
		valid   bool
	}{
		"its own authority":       {x509.VerifyOptions{Roots: authority.Pool()}, true},
		"another authority":       {x509.VerifyOptions{Roots: stranger.Pool()}, false},
		"as a client certificate": {x509.VerifyOptions{Roots: authority.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, false},
		"another name":            {x509.VerifyOptions{Roots: authority.Pool(), DNSName: "other.team.svc"}, false},
		"its own name":            {x509.VerifyOptions{Roots: authority.Pool(), DNSName: "web.team.svc"}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := pair.Leaf.Verify(tt.options); (err == nil) != tt.valid {
				t.Errorf("valid = %v, want %v (%v)", err == nil, tt.valid, err)
			}
		})
	}
}

func newAuthority(t *testing.T) *pki.Authority {
	t.Helper()
	authority, err := pki.NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

func keyPair(t *testing.T, p *pki.KeyPair) tls.Certificate {
	t.Helper()
	pair, err := p.TLS()
	if err != nil {
		t.Fatal(err)
	}
	return pair
}
