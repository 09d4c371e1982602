// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package response

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

var codecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return serializer.NewCodecFactory(scheme)
}()

// limited returns a handler of requests for resources.
func limited(f func(*http.Request)) func(*http.Request) *httptest.ResponseRecorder {
	handler := WithLimit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { f(r) }), codecs)
	return func(r *http.Request) *httptest.ResponseRecorder {
		recorder := httptest.NewRecorder()
		info := &genericapirequest.RequestInfo{IsResourceRequest: true, Verb: "list"}
		handler.ServeHTTP(recorder, r.WithContext(genericapirequest.WithRequestInfo(r.Context(), info)))
		return recorder
	}
}

const table = "application/json;as=Table;v=v1;g=meta.k8s.io"

// tables lets all types have tables, as those of the API do.
type tables struct {
	negotiation.EndpointRestrictions
}

func (tables) AllowsMediaTypeTransform(string, string, *schema.GroupVersionKind) bool { return true }

// YAML takes a hundred times its size, and indented JSON ten times. The generic API server encodes tables with a serializer of its own, so
// a client must not get them by way of that, either.
func TestWithLimit_Formats(t *testing.T) {
	for name, tt := range map[string]struct {
		accept, query, agent string
		format               Format
		refused              bool
	}{
		"none":                         {},
		"anything":                     {accept: "*/*"},
		"JSON":                         {accept: "application/json"},
		"JSON, indented":               {accept: "application/json;pretty=1"},
		"curl":                         {agent: "curl/8.0"},
		"indented":                     {query: "?pretty=true"},
		"YAML":                         {accept: "application/yaml", refused: true},
		"YAML in capitals":             {accept: "Application/YAML;q=0.5", refused: true},
		"YAML or JSON":                 {accept: "application/yaml,application/json;q=0.5"},
		"a table":                      {accept: table + ",application/json", format: Metadata},
		"a table in YAML":              {accept: "application/yaml;as=Table;v=v1;g=meta.k8s.io", refused: true},
		"a table in YAML or JSON":      {accept: "application/yaml;as=Table;v=v1;g=meta.k8s.io," + table, query: "?includeObject=None", format: Metadata},
		"a table for curl":             {accept: table, agent: "curl/8.0", query: "?includeObject=Metadata", format: Metadata},
		"a table with objects":         {accept: table, query: "?limit=5&includeObject=Object&pretty=1", format: Objects},
		"metadata in protobuf":         {accept: "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", refused: true},
		"metadata":                     {accept: "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", format: Metadata},
		"something else":               {accept: "text/html,application/xhtml+xml", refused: true},
		"nothing that is a media type": {accept: "/,;", refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			reached := false
			do := limited(func(r *http.Request) {
				reached = true
				if got := FormatOf(r.Context()); got != tt.format {
					t.Errorf("format = %v, want %v", got, tt.format)
				}
				_, info, err := negotiation.NegotiateOutputMediaType(r, codecs, tables{negotiation.DefaultEndpointRestrictions})
				if err != nil {
					return
				}
				var out strings.Builder
				if err := info.Serializer.Encode(&metav1.Status{Message: "x"}, &out); err != nil {
					t.Fatal(err)
				}
				if got := out.String(); info.MediaType != "application/json" || strings.Contains(got, "\n ") {
					t.Errorf("the answer is %s: %q", info.MediaType, got)
				}
			})
			r := httptest.NewRequest(http.MethodGet, "/"+tt.query, nil)
			r.Header.Set("User-Agent", tt.agent)
			if tt.accept != "" {
				r.Header.Set("Accept", tt.accept)
			}
			got := do(r)
			if refused := got.Code == http.StatusNotAcceptable; refused != tt.refused || reached == tt.refused {
				t.Errorf("%d: %s", got.Code, got.Body)
			}
			if tt.refused && !strings.Contains(got.Body.String(), "accept application/json") {
				t.Errorf("the answer does not say what is accepted: %s", got.Body)
			}
		})
	}
}

// Large responses take turns by their bytes, and small ones do not wait for them.
func TestTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		took := make(chan error)
		do := limited(func(r *http.Request) {
			size := map[string]int{"/half": allLarge / 2, "/small": maxSmall, "/large": maxSmall + 1, "/most": allLarge, "/more": allLarge + 1}[r.URL.Path]
			err := Take(r.Context(), size)
			took <- err
			if err == nil {
				<-done
			}
		})
		ask := func(path, accept string) {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.Header.Set("Accept", accept)
			go do(r)
		}
		want := func(what string, is func(error) bool) {
			t.Helper()
			if err := <-took; !is(err) {
				t.Errorf("%s: %v", what, err)
			}
		}
		ok := func(err error) bool { return err == nil }

		ask("/half", table)
		want("one", ok)
		ask("/half", table)
		want("another", ok)
		ask("/small", table)
		want("a small one besides", ok)
		began := time.Now()
		ask("/large", table)
		want("one too many", func(err error) bool {
			seconds, delay := apierrors.SuggestsClientDelay(err)
			return apierrors.IsTooManyRequests(err) && delay && seconds > 0 && time.Since(began) == maxWait
		})
		ask("/large", table)
		synctest.Wait()
		done <- struct{}{} // the first, or the small one
		done <- struct{}{}
		want("when others have ended", ok)
		done <- struct{}{}
		done <- struct{}{}
		ask("/more", table)
		want("one that is too large", func(err error) bool {
			return err != nil && apierrors.ReasonForError(err) == metav1.StatusReasonNotAcceptable && strings.Contains(err.Error(), "set a limit")
		})
		ask("/most", table)
		want("the largest", ok)
		ask("/more", "application/json")
		synctest.Wait()
		done <- struct{}{}
		want("one that is streamed, after it", ok)
		done <- struct{}{}
	})
	if err := Take(t.Context(), allLarge+1); err != nil {
		t.Errorf("without a request: %v", err)
	}
}

// Clients that do not read what they have asked for do not keep others waiting.
func TestTake_SlowClients(t *testing.T) {
	l := &limiter{semaphore.NewWeighted(allSmall), semaphore.NewWeighted(allLarge), 100 * time.Millisecond}
	began := make(chan struct{}, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info := &genericapirequest.RequestInfo{IsResourceRequest: true, Verb: "list"}
		l.handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := Take(r.Context(), allLarge); err != nil {
				t.Error(err)
				return
			}
			for err := error(nil); err == nil && r.URL.Path == "/without-end"; _, err = w.Write(make([]byte, 64<<10)) {
				select {
				case began <- struct{}{}:
				default:
				}
			}
		}), codecs).ServeHTTP(w, r.WithContext(genericapirequest.WithRequestInfo(r.Context(), info)))
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	get := func(path string) *http.Response {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	slow := get("/without-end")
	defer slow.Body.Close()
	<-began
	answer := get("/")
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("another request gets %d", answer.StatusCode)
	}
}

// What waits for its turn ends with the request.
func TestTake_EndsWithTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errs := make(chan string, 2)
		do := limited(func(r *http.Request) {
			if err := Take(r.Context(), allLarge); err != nil {
				errs <- string(apierrors.ReasonForError(err))
			}
			<-r.Context().Done()
		})
		for _, ends := range []time.Duration{maxWait, maxWait / 2} {
			ctx, cancel := context.WithTimeout(t.Context(), ends)
			defer cancel()
			go do(httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
			synctest.Wait()
		}
		<-time.After(2 * maxWait)
		synctest.Wait()
		close(errs)
		var got []string
		for reason := range errs {
			got = append(got, reason)
		}
		if diff := cmp.Diff([]string{"TooManyRequests"}, got); diff != "" {
			t.Errorf("errors (-want +got):\n%s", diff)
		}
	})
}
