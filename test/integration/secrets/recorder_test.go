// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// asked is a request of the server to kube-apiserver.
type asked struct {
	method, path, fields, accept string
	code                         int
}

func (a *asked) String() string {
	return fmt.Sprintf("%s %s by %q as %s: %d", a.method, a.path, a.fields, a.accept, a.code)
}

// ofSecrets reports whether it is about Secrets.
func (a *asked) ofSecrets() bool {
	return slices.Contains(strings.Split(a.path, "/"), "secrets")
}

// recorder stands between the server and kube-apiserver. It notes what is asked for, and which of some words pass.
type recorder struct {
	front *httptest.Server
	words []string

	mu     sync.Mutex
	asked  []asked
	passed map[string]bool
}

// record starts one that looks for words in all that kube-apiserver sends.
func record(t *testing.T, words ...string) *recorder {
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
		Rewrite: func(p *httputil.ProxyRequest) { // with the token, as it came
			p.SetURL(target)
			p.Out.Header.Set("Accept-Encoding", "identity") // so that words are found
		},
		Transport:     transport,
		FlushInterval: -1, // events of a watch pass at once
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

// kubeconfig leads through the recorder, with the token of another one. It is an option of the installation.
func (r *recorder) kubeconfig(replica, kubeconfig string) (string, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return "", err
	}
	through := &rest.Config{Host: r.front.URL, BearerToken: config.BearerToken}
	through.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.front.Certificate().Raw})
	return cluster.KubeconfigFor(fmt.Sprintf("recorded-%s-%p", replica, r), through)
}

func (r *recorder) note(answer *http.Response) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := answer.Request
	r.asked = append(r.asked, asked{q.Method, q.URL.Path, q.URL.Query().Get("fieldSelector"), q.Header.Get("Accept"), answer.StatusCode})
}

// all returns what has been asked for.
func (r *recorder) all() []asked {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.asked)
}

// hasPassed reports whether a word has been sent to the server.
func (r *recorder) hasPassed(word string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.passed[word]
}

// searched is an answer in which words are looked for while it passes.
type searched struct {
	io.ReadCloser
	recorder *recorder
	tail     []byte // in which a word may begin
}

// longestWord is how much of an answer is looked at again with what comes behind it.
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
