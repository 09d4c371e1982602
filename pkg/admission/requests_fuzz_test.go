// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/dependency/dependencytest"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/policy"
)

// recorder is an API server without objects. It records the requests that it receives.
type recorder struct {
	mu    sync.Mutex
	asked []*http.Request
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, asked *http.Request) {
	r.mu.Lock()
	r.asked = append(r.asked, asked)
	r.mu.Unlock()
	status := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotFound)
	answer, err := json.Marshal(&status)
	if err != nil {
		panic(err) // impossible: the value is constant
	}
	_, _ = w.Write(answer)
}

// take returns the requests for a path and everything below it, and forgets all requests. A request that its client
// has canceled may arrive later, during another input.
func (r *recorder) take(below string) (asked []*http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.asked {
		if rest, found := strings.CutPrefix(a.URL.EscapedPath(), below); found {
			a.URL.Path, a.URL.RawPath = rest, ""
			asked = append(asked, a)
		}
	}
	r.asked = nil
	return asked
}

// synced gives access to a graph that is in sync with its cluster.
type synced struct{ *dependency.Graph }

func (s synced) Read(f func(decide.Evaluator)) bool {
	f(decide.Evaluator{Graph: s.Graph, Defaults: policy.Defaults{Mode: policy.Off}})
	return true
}

var (
	namespaceLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	path           = regexp.MustCompile(`^/api/v1/namespaces/([^/]+)/(secrets|configmaps)$`)
)

// Whatever the body of an admission request, the webhook only sends the API server a few reads of ConfigMaps and
// Secrets that the body names, by name, in the namespace of the request, and never a watch.
func FuzzWebhookRequests(f *testing.F) {
	api := &recorder{}
	server := httptest.NewServer(api)
	f.Cleanup(server.Close)
	inputs := 0
	digester := dependency.NewDigester(make([]byte, dependency.KeySize))
	graph := dependency.NewGraph()
	graph.SetDigester(digester)
	graph.SetSource(dependencytest.Source(digester, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}, Data: map[string][]byte{"a": []byte("x")}}, dependency.SourceMarks{}))

	for _, namespace := range []string{"shop", "x/../kube-system", "..", "../../../apis/anything.example.com/v1", "../watch", "shop?watch=1#", "%2e%2e", "SHOP", ""} {
		f.Add(namespace, "cache", "auto", "secret/extra, configmap/other", []byte(`{"containers": [{"envFrom": [{"secretRef": {"name": "cache"}}, {"configMapRef": {"name": "settings", "optional": true}}]}]}`))
	}
	for _, name := range []string{"..", "../db", "db,metadata.namespace=bank", "*", "db\x00", "a=b", "DB", strings.Repeat("a", 300)} {
		f.Add("shop", name, "auto", "secret/"+name, []byte(`{"volumes": [{"name": "v", "secret": {"secretName": "cache"}}], "imagePullSecrets": [{"name": "pull"}]}`))
	}
	f.Fuzz(func(t *testing.T, namespace, name, mode, sources string, pod []byte) {
		inputs++
		below := fmt.Sprint("/input-", inputs)
		reader, err := ingest.NewReader(&rest.Config{Host: server.URL + below}, ingest.Scope{}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		handler := NewHandler(Config{ // new for each input, so that rate limits do not carry over
			Index: synced{graph}, Finder: reader, Clock: clock.RealClock{},
		})
		text := func(s string) string {
			encoded, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			return string(encoded)
		}
		body := `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1", "operation": "CREATE",
			"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}, "namespace": ` + text(namespace) + `,
			"object": {"metadata": {"annotations": {"configdep.io/reload": ` + text(mode) + `, "configdep.io/sources": ` + text(sources) + `}},
				"spec": {"template": {"metadata": {"annotations": {}}, "spec": ` + strings.ReplaceAll(string(pod), "cache", strings.Trim(text(name), `"`)) + `}}}}}`
		made := httptest.NewRequest(http.MethodPost, Path, bytes.NewReader([]byte(body)))
		made.Header.Set("Content-Type", "application/json")
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, made.WithContext(klog.NewContext(t.Context(), klog.Logger{})))
		if answer.Code == http.StatusOK {
			var review admissionv1.AdmissionReview
			if err := json.Unmarshal(answer.Body.Bytes(), &review); err != nil || review.Response == nil || !review.Response.Allowed {
				t.Errorf("error = %v, answer = %s, want an AdmissionReview that allows the request", err, answer.Body)
			}
		}

		asked := api.take(below)
		if len(asked) > 16 {
			t.Errorf("the webhook sent %d requests, want at most 16", len(asked))
		}
		named := []string{body}
		var decoded any
		if json.Unmarshal([]byte(body), &decoded) == nil { // names may be escaped in the body
			if plain, err := json.Marshal(decoded); err == nil {
				named = append(named, string(plain))
			}
		}
		for _, r := range asked {
			in := path.FindStringSubmatch(r.URL.Path)
			query, err := url.ParseQuery(r.URL.RawQuery)
			only, found := strings.CutPrefix(query.Get("fieldSelector"), "metadata.name=")
			switch {
			case r.Method != http.MethodGet || r.ContentLength > 0:
				t.Errorf("the webhook sent %s %s, want only GET without a body", r.Method, r.URL)
			case len(in) != 3 || in[1] != namespace || !namespaceLabel.MatchString(in[1]):
				t.Errorf("for the namespace %q, the webhook requested %s", namespace, r.URL)
			case err != nil || len(query) != 1 || !found || strings.ContainsAny(only, ",=!\\"):
				t.Errorf("query = %q, want a field selector by name only", r.URL.RawQuery)
			case !strings.Contains(named[0], only) && !strings.Contains(named[len(named)-1], only):
				t.Errorf("the webhook requested %q, which the body does not name", only)
			}
		}
	})
}
