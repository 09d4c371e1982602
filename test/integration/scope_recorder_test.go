// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/configdep/configdep/test/install"
)

// asked is a request of the server to kube-apiserver.
type asked struct {
	method, path, labels, fields, accept string
	code                                 int
}

func (a *asked) String() string {
	return fmt.Sprintf("%s %s by %q and %q as %s: %d", a.method, a.path, a.labels, a.fields, a.accept, a.code)
}

// ofSecrets reports whether the request is about Secrets.
func (a *asked) ofSecrets() bool {
	return slices.Contains(strings.Split(a.path, "/"), "secrets")
}

// recorder is a proxy between the server and kube-apiserver, which records requests and searches answers for
// words.
type recorder struct {
	front *httptest.Server
	words []string

	mu     sync.Mutex
	asked  []asked
	passed map[string]bool
}

// startRecorder starts a recorder that searches for words in all answers of kube-apiserver.
func startRecorder(t *testing.T, words ...string) *recorder {
	t.Helper()
	behind := rest.AnonymousClientConfig(cluster.RESTConfig())
	target, err := url.Parse(behind.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(behind)
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{words: words, passed: map[string]bool{}}
	forward := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) { // with the original token
			p.SetURL(target)
			p.Out.Header.Set("Accept-Encoding", "identity") // so that words can be found
		},
		Transport:     transport,
		FlushInterval: -1, // events of a watch pass at once
		ErrorLog:      log.New(io.Discard, "", 0),
		ModifyResponse: func(answer *http.Response) error {
			r.note(answer)
			answer.Body = &searched{ReadCloser: answer.Body, recorder: r}
			return nil
		},
	}
	r.front = httptest.NewUnstartedServer(forward)
	r.front.EnableHTTP2 = true
	r.front.StartTLS()
	t.Cleanup(func() {
		r.front.CloseClientConnections()
		r.front.Close()
	})
	return r
}

// kubeconfig leads to the recorder, with the token of a ServiceAccount in the namespace of the server.
func (r *recorder) kubeconfig(t *testing.T, account string) string {
	t.Helper()
	through := &rest.Config{Host: r.front.URL, BearerToken: tokenOf(t, install.Namespace, account)}
	through.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.front.Certificate().Raw})
	path, err := cluster.KubeconfigFor(fmt.Sprintf("recorded-%p", r), through)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func (r *recorder) note(answer *http.Response) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := answer.Request
	r.asked = append(r.asked, asked{q.Method, q.URL.Path, q.URL.Query().Get("labelSelector"), q.URL.Query().Get("fieldSelector"), q.Header.Get("Accept"), answer.StatusCode})
}

// all returns the recorded requests.
func (r *recorder) all() []asked {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.asked)
}

// hasPassed reports whether a word was sent to the server.
func (r *recorder) hasPassed(word string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.passed[word]
}

// searched is an answer that is searched while it passes.
type searched struct {
	io.ReadCloser
	recorder *recorder
	tail     []byte // may contain the beginning of a word
}

// longestWord is how much of an answer is searched again with the bytes that follow.
const longestWord = 64

func (s *searched) Read(into []byte) (int, error) {
	n, err := s.ReadCloser.Read(into)
	s.tail = append(s.tail, into[:n]...)
	s.recorder.mu.Lock()
	for _, word := range s.recorder.words {
		if bytes.Contains(s.tail, []byte(word)) {
			s.recorder.passed[word] = true
		}
	}
	s.recorder.mu.Unlock()
	s.tail = slices.Clone(s.tail[max(0, len(s.tail)-longestWord):])
	return n, err
}
