// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/configdep/configdep/pkg/metrics"
)

// proxy is an HTTP proxy that keeps the hosts to which clients connect, and asks for a user and a password.
type proxy struct {
	status int // of its answer, unless it lets the request through
	mu     sync.Mutex
	hosts  []string
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.hosts = append(p.hosts, r.Method+" "+r.Host)
	p.mu.Unlock()
	user, password, _ := (&http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}).BasicAuth()
	switch {
	case user != "s3cret-user" || password != "s3cret-password":
		w.WriteHeader(http.StatusProxyAuthRequired)
	case p.status != 0:
		w.WriteHeader(p.status)
	case r.Method == http.MethodConnect:
		p.tunnel(w, r.Host)
	default:
		w.WriteHeader(http.StatusAccepted) // as the destination
	}
}

// tunnel connects a client to a host.
func (p *proxy) tunnel(w http.ResponseWriter, host string) {
	server, err := net.Dial("tcp", host)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer server.Close()
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer client.Close()
	_, _ = io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n")
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(server, buffered)
		_ = server.(*net.TCPConn).CloseWrite()
	})
	both.Go(func() {
		_, _ = io.Copy(client, server)
		_ = client.(*net.TCPConn).CloseWrite()
	})
	both.Wait()
}

// through delivers an event to a URL through a proxy, and returns what became of it.
func through(t *testing.T, address, user, destination string, roots *x509.CertPool) (result, reason string) {
	t.Helper()
	ctx, _ := logs(t)
	u, err := url.Parse(destination)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = secretPath
	s := mustNew(t, Config{URL: u.String(), Proxy: strings.Replace(address, "://", "://"+user, 1)})
	t.Cleanup(s.closeIdle)
	s.backoff = wait.Backoff{}
	if own := s.transport.(*http.Transport); roots != nil {
		own.TLSClientConfig.RootCAs = roots
	}
	e := restarted("web")
	result, err = s.deliver(ctx, &e)
	if err != nil {
		reason = err.Error()
		noSecrets(t, reason)
	}
	return result, reason
}

const proxyUser = "s3cret-user:s3cret-password@"

// With a proxy, no connection goes anywhere else: the destination may not even have an address here.
func TestProxy_ReceivesRequests(t *testing.T) {
	p := &proxy{}
	result, reason := through(t, serve(t, p.ServeHTTP), proxyUser, "http://chat.example.invalid", nil)
	if want := "POST chat.example.invalid"; result != metrics.NotificationDelivered || len(p.hosts) != 1 || p.hosts[0] != want {
		t.Errorf("result = %s, %s; the proxy received %q, want %q", result, reason, p.hosts, want)
	}
}

// A proxy sees the host of an HTTPS destination, and nothing that is sent to it.
func TestProxy_ConnectsToHTTPS(t *testing.T) {
	var requests atomic.Int32
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.URL.Path != secretPath || r.Header.Get("Proxy-Authorization") != "" {
			t.Errorf("path = %s, Proxy-Authorization = %q", r.URL.Path, r.Header.Get("Proxy-Authorization"))
		}
	}))
	t.Cleanup(server.Close)
	p := &proxy{}
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	result, reason := through(t, serve(t, p.ServeHTTP), proxyUser, server.URL, roots)
	if want := "CONNECT " + server.Listener.Addr().String(); result != metrics.NotificationDelivered || requests.Load() != 1 || len(p.hosts) != 1 || p.hosts[0] != want {
		t.Errorf("result = %s, %s after %d requests; the proxy received %q, want %q", result, reason, requests.Load(), p.hosts, want)
	}
}

// An error says that it is the proxy's, because it is fixed in another place.
func TestProxy_Fails(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	refusing := "http://" + listener.Addr().String()
	for name, tt := range map[string]struct {
		proxy, user, destination string
		result, want             string
	}{
		"refuses connections":   {refusing, proxyUser, "https://chat.example.invalid", metrics.NotificationFailed, "proxyconnect tcp: "},
		"requires another user": {serve(t, (&proxy{}).ServeHTTP), "s3cret-user:wrong@", "https://chat.example.invalid", metrics.NotificationFailed, "the proxy answered 407 Proxy Authentication Required"},
		"forbids the host":      {serve(t, (&proxy{status: 403}).ServeHTTP), proxyUser, "https://chat.example.invalid", metrics.NotificationFailed, "the proxy answered 403 Forbidden"},
		"finds no host":         {serve(t, (&proxy{status: 502}).ServeHTTP), proxyUser, "https://chat.example.invalid", metrics.NotificationFailed, "the proxy answered 502 Bad Gateway"},
		"answers for HTTP":      {serve(t, (&proxy{status: 403}).ServeHTTP), proxyUser, "http://chat.example.invalid", metrics.NotificationRejected, "the destination answered 403 Forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			result, reason := through(t, tt.proxy, tt.user, tt.destination, nil)
			if result != tt.result || !strings.Contains(reason, tt.want) {
				t.Errorf("result = %s, %s, want %s, %q", result, reason, tt.result, tt.want)
			}
		})
	}
}

func TestNew_AcceptsProxies(t *testing.T) {
	for _, address := range []string{"http://proxy.example.com:3128", "https://proxy.example.com", "socks5://user:password@[::1]:1080", "HTTP://proxy.example.com"} {
		s := mustNew(t, Config{Proxy: address})
		got, err := s.transport.(*http.Transport).Proxy(&http.Request{URL: &url.URL{Scheme: "https", Host: "chat.example.com"}})
		if err != nil || !strings.EqualFold(got.String(), address) {
			t.Errorf("proxy = %v, %v, want %s", got, err, address)
		}
	}
}
