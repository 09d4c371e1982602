// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"fmt"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// watchLimit limits the watches that one user has open at a time. Priority and fairness counts a watch only until its
// initial events have been sent, but a watch uses memory for as long as it is open.
type watchLimit struct {
	most   int
	codecs runtime.NegotiatedSerializer // for the error

	mu    sync.Mutex
	users map[string]int // open watches, by the name of the user
}

// WithWatchLimit rejects the watches of a user beyond a limit with 429, and clients retry them later. It needs the authenticated user.
func WithWatchLimit(api http.Handler, maxPerUser int, codecs runtime.NegotiatedSerializer) http.Handler {
	return (&watchLimit{most: maxPerUser, codecs: codecs}).handler(api)
}

func (l *watchLimit) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, found := genericapirequest.UserFrom(r.Context())
		info, is := genericapirequest.RequestInfoFrom(r.Context())
		if !found || !is || !info.IsResourceRequest || info.Verb != "watch" {
			next.ServeHTTP(w, r)
			return
		}
		if !l.begin(user.GetName()) {
			err := apierrors.NewTooManyRequests(fmt.Sprintf("%q has %d watches open at this replica, the most that one user may have (--max-watches-per-user)", user.GetName(), l.most), 5)
			responsewriters.ErrorNegotiated(err, l.codecs, schema.GroupVersion{Version: "v1"}, w, r)
			return
		}
		defer l.end(user.GetName())
		next.ServeHTTP(w, r)
	})
}

func (l *watchLimit) begin(user string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users[user] >= l.most {
		return false
	}
	if l.users == nil {
		l.users = map[string]int{}
	}
	l.users[user]++
	return true
}

func (l *watchLimit) end(user string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users[user]--; l.users[user] == 0 {
		delete(l.users, user)
	}
}
