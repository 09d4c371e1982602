// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/configdep/configdep/test/await"
)

const apiPath = "/apis/configdep.io/v1alpha1"

// resourcePath is the path of the ConfigDependencies of a namespace.
func resourcePath(namespace string) string {
	return apiPath + "/namespaces/" + namespace + "/configdependencies"
}

// A request is sent exactly as given, which no Kubernetes client would do.
type request struct {
	method string // GET by default
	path   string // may have a query
	header http.Header
	body   string
}

// header returns a header from alternating names and values.
func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

// inJSON sets the content type to JSON.
var inJSON = header("Content-Type", "application/json")

type answer struct {
	code   int
	header http.Header
	body   []byte
}

// status returns the Status in an answer, in any format, or nil.
func (a *answer) status() *metav1.Status {
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(a.body, nil, nil)
	if status, ok := decoded.(*metav1.Status); ok && err == nil {
		return status
	}
	return nil
}

// reason returns the reason in an answer that is a Status.
func (a *answer) reason() metav1.StatusReason {
	if s := a.status(); s != nil {
		return s.Reason
	}
	return ""
}

// send sends a request with the credentials of a configuration, and without retries.
func send(t *testing.T, config *rest.Config, r request) *answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	defer cancel()
	got, err := try(ctx, config, r)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// try is send for requests that may get no answer.
func try(ctx context.Context, config *rest.Config, r request) (*answer, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	if r.method == "" {
		r.method = http.MethodGet
	}
	made, err := http.NewRequestWithContext(ctx, r.method, config.Host+r.path, strings.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	if r.header != nil {
		made.Header = r.header.Clone()
	}
	response, err := client.Do(made)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return &answer{response.StatusCode, response.Header, body}, err
}
