// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package filters

import (
	"net/http"
	"sync"
)

// watchesPerConnection is how many watches may begin on a connection before its client is asked to
// open another one.
const watchesPerConnection = 50

// spread spreads watches over the replicas. Each kube-apiserver uses one connection, to one replica,
// for all of its requests. When that replica ends, all of its watches move to one other replica, and
// would stay there. So after a number of watches, the client of a connection is told to open another
// one, to any replica (by the header Connection: close, which HTTP/2 turns into a GOAWAY). Requests in
// flight continue on the old connection.
type spread struct {
	most int

	mu          sync.Mutex
	connections map[string]*connection // by the address of the client
}

// connection counts the watches of a connection.
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

// begin counts a watch, and reports whether it should be the last one on its connection.
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

// end counts the end of a watch. A connection without watches is forgotten.
func (s *spread) end(client string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.connections[client]; c.open > 1 {
		c.open--
	} else {
		delete(s.connections, client)
	}
}
