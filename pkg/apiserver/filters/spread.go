// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"net/http"
	"sync"
)

// watchesPerConnection is how many watches may begin on a connection before its client is asked for
// another one.
const watchesPerConnection = 50

// spread spreads watches over the replicas. Each kube-apiserver keeps one connection for all of its
// requests, which leads to one replica. When that goes, all of its watches come to the next one, and
// would stay there. So after some watches a connection takes no more: its client is told so (a
// Connection: close, which HTTP/2 turns into a GOAWAY), and opens another one, to any replica. What is
// under way goes on.
type spread struct {
	most int

	mu          sync.Mutex
	connections map[string]*connection // by the address of the client
}

// connection is one on which there are watches.
type connection struct{ begun, open int }

// handler counts the watches of each connection.
func (s *spread) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 || !isWatch(r) {
			next.ServeHTTP(w, r)
			return
		}
		if s.begin(r.RemoteAddr) {
			w.Header().Set("Connection", "close")
		}
		defer s.end(r.RemoteAddr)
		next.ServeHTTP(w, r)
	})
}

// begin notes that a watch begins, and reports whether it is to be the last of its connection.
func (s *spread) begin(client string) (last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.connections[client]
	if c == nil {
		c = &connection{}
		if s.connections == nil {
			s.connections = map[string]*connection{}
		}
		s.connections[client] = c
	}
	c.begun++
	c.open++
	return c.begun == s.most
}

// end notes that a watch has ended. A connection without watches is forgotten: there is nothing to be
// spread.
func (s *spread) end(client string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.connections[client]; c.open > 1 {
		c.open--
	} else {
		delete(s.connections, client)
	}
}
