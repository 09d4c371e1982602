// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/configdep/configdep/pkg/dependency"
)

// A request that is not an AdmissionReview gets an error that says what is wrong.
func TestGarbageIsRefused(t *testing.T) {
	review := func(rest string) string {
		return `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"` + rest + `}`
	}
	about := func(rest string) string {
		return review(`, "request": {"uid": "1", "kind": {"group": "apps", "version": "v1", "kind": "Deployment"}` + rest + `}`)
	}
	for name, tt := range map[string]struct {
		method, media string
		body          io.Reader
		code          int
		says          string
	}{
		"another method":         {http.MethodGet, "application/json", nil, http.StatusMethodNotAllowed, "must be sent by POST"},
		"another media type":     {"", "application/yaml", strings.NewReader(review("")), http.StatusUnsupportedMediaType, "content type application/json"},
		"no media type":          {"", "", strings.NewReader(review("")), http.StatusUnsupportedMediaType, "content type application/json"},
		"nothing":                {"", "application/json", strings.NewReader(""), http.StatusBadRequest, "unexpected end"},
		"no JSON":                {"", "application/json", strings.NewReader("\x00\xff"), http.StatusBadRequest, "reading the AdmissionReview"},
		"half of it":             {"", "application/json", strings.NewReader(review("")[:30]), http.StatusBadRequest, "unexpected end"},
		"an array":               {"", "application/json", strings.NewReader("[]"), http.StatusBadRequest, "reading the AdmissionReview"},
		"null":                   {"", "application/json", strings.NewReader("null"), http.StatusBadRequest, "expected an AdmissionReview"},
		"another kind":           {"", "application/json", strings.NewReader(`{"apiVersion": "v1", "kind": "Pod"}`), http.StatusBadRequest, "got /v1, Kind=Pod"},
		"an older version":       {"", "application/json", strings.NewReader(`{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "request": {"uid": "1"}}`), http.StatusBadRequest, "v1beta1"},
		"no request":             {"", "application/json", strings.NewReader(review("")), http.StatusBadRequest, "with a request"},
		"no uid":                 {"", "application/json", strings.NewReader(review(`, "request": {}`)), http.StatusBadRequest, "no uid"},
		"another kind of object": {"", "application/json", strings.NewReader(review(`, "request": {"uid": "1", "kind": {"group": "apps", "kind": "ReplicaSet"}}`)), http.StatusBadRequest, "a ReplicaSet is not"},
		"another group":          {"", "application/json", strings.NewReader(review(`, "request": {"uid": "1", "kind": {"group": "other", "kind": "Deployment"}}`)), http.StatusBadRequest, "a Deployment is not"},
		"too long a uid":         {"", "application/json", strings.NewReader(review(`, "request": {"uid": "` + strings.Repeat("1", maxUID+1) + `"}`)), http.StatusBadRequest, "more than 128 bytes"},
		"no namespace":           {"", "application/json", strings.NewReader(about(``)), http.StatusBadRequest, "not the name of a namespace"},
		"a path for a namespace": {"", "application/json", strings.NewReader(about(`, "namespace": "x/../kube-system"`)), http.StatusBadRequest, "not the name of a namespace"},
		"a path for a name":      {"", "application/json", strings.NewReader(about(`, "namespace": "shop", "name": "../web"`)), http.StatusBadRequest, "not the name of a workload"},
		"too many elements": {
			"", "application/json",
			strings.NewReader(about(`, "namespace": "shop", "operation": "CREATE", "object": {"spec": {"template": {"spec": {"containers": [` + strings.Repeat("0,", decoding/ofElement) + `0]}}}}`)),
			http.StatusRequestEntityTooLarge, "too large to evaluate here: the annotations have 0 bytes with 1 elements, the labels 0 bytes with 1 elements, the pod template 49181 bytes with 24580 elements",
		},
		"a long annotation": {
			"", "application/json",
			strings.NewReader(about(`, "namespace": "shop", "operation": "UPDATE", "object": {"metadata": {"annotations": {"a": "` + strings.Repeat(",", decoding/ofAnnotation) + `"}}, "spec": {"template": {}}}, "oldObject": {}`)),
			http.StatusRequestEntityTooLarge,
			"the annotations have 196617 bytes with 196610 elements, the labels 0 bytes with 1 elements, the pod template 2 bytes with 2 elements; before: the annotations have 0 bytes",
		},
		"too much":               {"", "application/json", io.MultiReader(strings.NewReader(review("")), bytes.NewReader(make([]byte, maxBody))), http.StatusRequestEntityTooLarge, "more than 6291456 bytes"},
		"a connection that ends": {"", "application/json; charset=utf-8", io.MultiReader(strings.NewReader("{"), iotest.ErrReader(io.ErrUnexpectedEOF)), http.StatusBadRequest, "reading the request"},
	} {
		if tt.method == "" {
			tt.method = http.MethodPost
		}
		made := httptest.NewRequest(tt.method, Path, tt.body)
		made.Header.Set("Content-Type", tt.media)
		recorder := httptest.NewRecorder()
		newCluster(t).handler().ServeHTTP(recorder, made)
		if recorder.Code != tt.code || !strings.Contains(recorder.Body.String(), tt.says) {
			t.Errorf("%s: response = %d: %s", name, recorder.Code, recorder.Body)
		}
	}
}

// slowFinder answers when the test tells it to.
type slowFinder struct {
	*cluster

	asked, answer chan struct{}
}

func (f *slowFinder) Find(ctx context.Context, _ *dependency.Digester, _ dependency.SourceKey) (*dependency.Source, error) {
	f.asked <- struct{}{}
	select {
	case <-f.answer:
		return nil, nil //nolint:nilnil // there is none
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Requests beyond the limit wait, and those that wait too long are refused before their body is
// read.
func TestRequestsWaitForTheirTurn(t *testing.T) {
	const turns = bodiesOfHost / leastBody
	finder := &slowFinder{newCluster(t), make(chan struct{}, turns), make(chan struct{})}
	handler := finder.handler()
	handler.Finder = finder
	send := func(ctx context.Context) *httptest.ResponseRecorder {
		body := encode(t, &admissionv1.AdmissionReview{Request: asked(t, parse(t, deployment("app:1", optedIn, "")), nil)})
		body = bytes.Replace(body, []byte("{"), []byte(`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",`), 1)
		made := httptest.NewRequestWithContext(ctx, http.MethodPost, Path, bytes.NewReader(body))
		made.Header.Set("Content-Type", "application/json")
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, made)
		return recorder
	}
	var wg sync.WaitGroup
	for range turns {
		wg.Go(func() {
			if got := send(t.Context()); got.Code != http.StatusOK {
				t.Errorf("a request within the limit got %d: %s", got.Code, got.Body)
			}
		})
	}
	for range turns {
		<-finder.asked
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if got := send(gone); got.Code != http.StatusServiceUnavailable {
		t.Errorf("a request beyond the limit got %d: %s", got.Code, got.Body)
	}
	close(finder.answer)
	wg.Wait()
	if got := send(t.Context()); got.Code != http.StatusOK {
		t.Errorf("a later request got %d: %s", got.Code, got.Body)
	}
}

// No request makes the handler panic, and every response with status 200 is a review that
// allows the request.
func FuzzHandler(f *testing.F) {
	c := newCluster(f, secret("db", "password", "x"))
	for _, r := range []*admissionv1.AdmissionRequest{
		asked(f, parse(f, deployment("app:1", optedIn, "")), nil),
		asked(f, parse(f, deployment("app:1", optedIn, "")), parse(f, deployment("app:2", "", `"configdep.io/config-hash": "x"`))),
	} {
		review := admissionv1.AdmissionReview{Request: r}
		review.APIVersion, review.Kind = "admission.k8s.io/v1", "AdmissionReview"
		f.Add(encode(f, &review))
	}
	f.Add([]byte(`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1", "operation": "CREATE", "kind": {"kind": "Deployment"}, "object": {"spec": {"template": {"metadata": null}}}}}`))
	handler := c.handler()
	f.Fuzz(func(t *testing.T, body []byte) {
		made := httptest.NewRequest(http.MethodPost, Path, bytes.NewReader(body))
		made.Header.Set("Content-Type", "application/json")
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, made)
		if recorder.Code >= 400 && recorder.Code < 500 {
			return
		}
		var review admissionv1.AdmissionReview
		if err := json.Unmarshal(recorder.Body.Bytes(), &review); err != nil || recorder.Code != http.StatusOK || review.Response == nil || !review.Response.Allowed {
			t.Errorf("error %v: response = %d: %s", err, recorder.Code, recorder.Body)
		}
	})
}
