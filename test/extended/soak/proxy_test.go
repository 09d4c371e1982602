// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/configdep/configdep/test/controlplane"
)

// proxy is a proxy between a replica and kube-apiserver.
type proxy struct {
	front   *httptest.Server
	forward *httputil.ReverseProxy
	late    sync.WaitGroup // requests that are carried out after their answer

	mu       sync.Mutex
	random   *rand.Rand // nil: no request fails
	cut      bool
	requests map[int]context.CancelFunc
	next     int
	faults   map[string]int // the number of faults, by kind
}

func newProxy(cluster *controlplane.ControlPlane) (*proxy, error) {
	p := &proxy{requests: map[int]context.CancelFunc{}, faults: map[string]int{}}
	behind := rest.AnonymousClientConfig(cluster.RESTConfig())
	target, err := url.Parse(behind.Host)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(behind)
	if err != nil {
		return nil, err
	}
	p.forward = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) }, // with the original token
		Transport:     transport,
		FlushInterval: -1, // events of a watch pass at once
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
			panic(http.ErrAbortHandler) // breaks the connection, as it would without a proxy
		},
	}
	p.front = httptest.NewUnstartedServer(http.HandlerFunc(p.serve))
	p.front.EnableHTTP2 = true
	p.front.StartTLS()
	return p, nil
}

// kubeconfig writes a kubeconfig that leads through the proxy, with the permissions of another.
func (p *proxy) kubeconfig(original string) (string, error) {
	config, err := clientcmd.LoadFromFile(original)
	if err != nil {
		return "", err
	}
	for _, c := range config.Clusters {
		c.Server = p.front.URL
		c.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.front.Certificate().Raw})
	}
	path := original + "." + p.front.Listener.Addr().String()
	return path, clientcmd.WriteToFile(*config, path)
}

func (p *proxy) close() {
	p.heal()
	p.breakAll()
	p.front.CloseClientConnections()
	p.front.Close()
}

// noise makes single requests fail at random.
func (p *proxy) noise(seed uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.random = rand.New(rand.NewPCG(seed, 0))
}

// sever breaks all connections and refuses new requests until heal.
func (p *proxy) sever() {
	p.mu.Lock()
	p.cut = true
	p.mu.Unlock()
	p.breakAll()
}

// breakAll breaks all requests in flight, especially watches.
func (p *proxy) breakAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cancel := range p.requests {
		cancel()
	}
}

// rejoin ends sever.
func (p *proxy) rejoin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
}

// heal ends all faults, including those in progress.
func (p *proxy) heal() {
	p.mu.Lock()
	p.random = nil
	p.mu.Unlock()
	p.rejoin()
	p.late.Wait()
}

// tally returns the number of faults of each kind.
func (p *proxy) tally() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.faults)
}

// track notes a request, unless all are refused.
func (p *proxy) track(cancel context.CancelFunc) (untrack func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		panic(http.ErrAbortHandler)
	}
	id := p.next
	p.next++
	p.requests[id] = cancel
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.requests, id)
	}
}

func (p *proxy) serve(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer p.track(cancel)()
	r = r.WithContext(ctx)
	f, delay := p.draw(r)
	switch f {
	case conflict:
		refuse(w, http.StatusConflict, metav1.StatusReasonConflict)
	case tooMany:
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
	case broken:
		refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError)
	case lost:
		p.carryOut(r)
		refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError)
	case late:
		p.carryOutLater(r, delay)
		panic(http.ErrAbortHandler)
	default:
		p.forward.ServeHTTP(w, r)
	}
}

// carryOut carries out a request, whether or not a client waits for the answer.
func (p *proxy) carryOut(r *http.Request) {
	defer func() { _ = recover() }() // there is no answer, because the API server is down
	p.forward.ServeHTTP(httptest.NewRecorder(), r.Clone(context.WithoutCancel(r.Context())))
}

// carryOutLater does so after the client was told that the connection broke.
func (p *proxy) carryOutLater(r *http.Request, delay time.Duration) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r = r.Clone(context.WithoutCancel(r.Context()))
	r.Body = io.NopCloser(bytes.NewReader(body))
	p.late.Go(func() {
		pause(r.Context(), delay)
		p.carryOut(r)
	})
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, `{"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": %d, "reason": %q, "message": "injected"}`, code, reason)
}

// fault is a fault of one request.
type fault string

const (
	none     fault = ""
	conflict fault = "409"
	tooMany  fault = "429"
	broken   fault = "500"
	lost     fault = "answer lost" // carried out, and the answer is a 500
	late     fault = "done late"   // the connection breaks, and then the request is carried out
)

var (
	faultsOfWrites = []fault{conflict, conflict, tooMany, broken, broken, broken, lost, lost, late, late}
	faultsOfReads  = []fault{tooMany, broken}
)

// draw selects the fault of a request.
func (p *proxy) draw(r *http.Request) (fault, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.random == nil {
		return none, 0
	}
	percent, faults := 5, faultsOfReads
	switch {
	case r.Method == http.MethodPatch && strings.HasPrefix(r.URL.Path, "/apis/apps/"):
		percent, faults = 60, faultsOfWrites
	case r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/namespaces/"):
		percent, faults = 10, faultsOfWrites
	case r.Method != http.MethodGet: // reviews of callers
		percent = 0
	}
	if p.random.IntN(100) >= percent {
		return none, 0
	}
	f := faults[p.random.IntN(len(faults))]
	p.faults[string(f)]++
	return f, time.Duration(p.random.IntN(2500)) * time.Millisecond
}

// pause waits, and returns false if the context was done before.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
