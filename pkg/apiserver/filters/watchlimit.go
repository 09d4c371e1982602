// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"fmt"
	"math"
	"net/http"
	"runtime/debug"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// watchLimit limits the watches that are open at a time, in total and of each owner: a user, or all ServiceAccounts of a namespace,
// because a tenant may create any number of them. Priority and fairness counts a watch only until its initial events have been sent,
// but a watch uses memory for as long as it is open.
type watchLimit struct {
	mostOfOwner int
	most        func() int                   // in total
	codecs      runtime.NegotiatedSerializer // for the error

	mu     sync.Mutex
	open   int
	owners map[string]int // open watches
}

// watchBytes is how much memory a watch needs, in bytes, if the objects of its namespace are many and large.
const watchBytes = 256 << 10

// mostWatches returns how many watches fit into half of the memory limit.
func mostWatches() int { return int(min(debug.SetMemoryLimit(-1)/2/watchBytes, math.MaxInt)) }

// WithWatchLimit rejects further watches with 429, and clients retry them later: those of a user, or of all ServiceAccounts of a namespace,
// beyond mostOfOwner, and all watches that do not fit into half of GOMEMLIMIT. It needs the authenticated user.
func WithWatchLimit(api http.Handler, mostOfOwner int, codecs runtime.NegotiatedSerializer) http.Handler {
	return (&watchLimit{mostOfOwner: mostOfOwner, most: mostWatches, codecs: codecs}).handler(api)
}

func (l *watchLimit) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, found := genericapirequest.UserFrom(r.Context())
		info, is := genericapirequest.RequestInfoFrom(r.Context())
		if !found || !is || !info.IsResourceRequest || info.Verb != "watch" {
			next.ServeHTTP(w, r)
			return
		}
		owner := fmt.Sprintf("user %q", user.GetName())
		if namespace, _, err := serviceaccount.SplitUsername(user.GetName()); err == nil {
			owner = fmt.Sprintf("all ServiceAccounts of namespace %q", namespace)
		}
		if problem := l.begin(owner); problem != "" {
			responsewriters.ErrorNegotiated(apierrors.NewTooManyRequests(problem, 5), l.codecs, schema.GroupVersion{Version: "v1"}, w, r)
			return
		}
		defer l.end(owner)
		next.ServeHTTP(w, r)
	})
}

// begin counts a watch, or returns why it must not begin.
func (l *watchLimit) begin(owner string) (problem string) {
	most := l.most()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owners[owner] >= l.mostOfOwner {
		return fmt.Sprintf("too many watches of %s are open at this replica: at most %d are allowed (--max-watches-per-user)", owner, l.mostOfOwner)
	}
	if l.open >= most {
		return fmt.Sprintf("too many watches are open at this replica: its memory limit allows %d", most)
	}
	if l.owners == nil {
		l.owners = map[string]int{}
	}
	l.open++
	l.owners[owner]++
	return ""
}

func (l *watchLimit) end(owner string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.owners[owner]--; l.owners[owner] == 0 {
		delete(l.owners, owner)
	}
}
