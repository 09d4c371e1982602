// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

var codecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return serializer.NewCodecFactory(scheme)
}()

// asRequest gives a request to /watch the information that the API server has of watches, and any
// other that of a get.
func asRequest(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info := &genericapirequest.RequestInfo{IsResourceRequest: true, Verb: "get"}
		if r.URL.Path == "/watch" {
			info.Verb = "watch"
		}
		next.ServeHTTP(w, r.WithContext(genericapirequest.WithRequestInfo(r.Context(), info)))
	})
}

// A user has so many watches, and so have all ServiceAccounts of a namespace, and all together have so many; what is no watch does not
// count, and one that has ended makes room.
func TestWatchLimit(t *testing.T) {
	l := &watchLimit{mostOfOwner: 2, most: func() int { return 5 }, codecs: codecs}
	begun, end := make(chan string, 10), make(chan struct{})
	handler := asRequest(l.handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/watch" {
			return
		}
		begun <- r.URL.Path
		<-end
	})))
	ask := func(name, path string) *httptest.ResponseRecorder {
		recorder := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, path, nil)
		handler.ServeHTTP(recorder, r.WithContext(genericapirequest.WithUser(r.Context(), &user.DefaultInfo{Name: name})))
		return recorder
	}
	var watches sync.WaitGroup
	open := func(name string) {
		watches.Go(func() {
			if got := ask(name, "/watch"); got.Code != http.StatusOK {
				t.Errorf("a watch of %s gets %d", name, got.Code)
			}
		})
		<-begun
	}
	open("ann")
	open("ann")
	open("system:serviceaccount:shop:a")
	open("system:serviceaccount:shop:b")
	refuse := func(name, want string) {
		t.Helper()
		refused := ask(name, "/watch")
		var status metav1.Status
		if err := json.Unmarshal(refused.Body.Bytes(), &status); err != nil || status.Reason != metav1.StatusReasonTooManyRequests ||
			refused.Code != http.StatusTooManyRequests || refused.Header().Get("Retry-After") == "" || !strings.Contains(status.Message, want) {
			t.Errorf("one too many of %s gets %d, %s: %v", name, refused.Code, refused.Body, err)
		}
	}
	refuse("ann", `user "ann" are open at this replica: at most 2 are allowed (--max-watches-per-user)`)
	refuse("system:serviceaccount:shop:c", `all ServiceAccounts of namespace "shop" are open`)
	open("system:serviceaccount:other:a")
	refuse("bob", "its memory limit allows 5")
	if got := ask("ann", "/get"); got.Code != http.StatusOK {
		t.Errorf("a get gets %d", got.Code)
	}
	for range 5 {
		end <- struct{}{}
	}
	watches.Wait()
	if len(l.owners) != 0 || l.open != 0 {
		t.Errorf("what has ended is remembered: %d, %v", l.open, l.owners)
	}
	open("ann")
	close(end)
	watches.Wait()
}
