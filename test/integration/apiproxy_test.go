// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/configdep/configdep/test/install"
)

// apiProxy is a proxy between a replica and kube-apiserver, which can delay or fail requests.
type apiProxy struct {
	// kubeconfig leads to the proxy, with the permissions of the server.
	kubeconfig string

	interfere func(*http.Request) interference
	released  chan struct{}
	release   func()
}

// interference is what the proxy does with a request before release.
type interference int

const (
	pass interference = iota
	hold
	fail
)

// newAPIProxy starts a proxy that interferes with requests until it is released.
func newAPIProxy(t *testing.T, interfere func(*http.Request) interference) *apiProxy {
	t.Helper()
	p := &apiProxy{interfere: interfere, released: make(chan struct{})}
	p.release = sync.OnceFunc(func() { close(p.released) })

	behind := rest.AnonymousClientConfig(cluster.RESTConfig())
	target, err := url.Parse(behind.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(behind)
	if err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) }, // with the original token
		Transport:     transport,
		FlushInterval: -1, // events of a watch pass at once
		ErrorLog:      log.New(io.Discard, "", 0),
	}
	front := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch p.now(r) {
		case hold:
			select {
			case <-p.released:
			case <-r.Context().Done():
				return
			}
		case fail:
			http.Error(w, "not now", http.StatusInternalServerError)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	front.EnableHTTP2 = true
	front.StartTLS()
	t.Cleanup(func() {
		p.release()
		front.CloseClientConnections()
		front.Close()
	})

	config := &rest.Config{Host: front.URL, BearerToken: tokenOf(t, install.Namespace, install.Name)}
	config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw})
	if p.kubeconfig, err = cluster.KubeconfigFor("proxy-"+newNamespace(t), config); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *apiProxy) now(r *http.Request) interference {
	select {
	case <-p.released:
		return pass
	default:
		return p.interfere(r)
	}
}
