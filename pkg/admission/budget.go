// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"sync"

	"golang.org/x/sync/semaphore"
)

// What requests may hold of memory at once, from all callers and whatever is in them. Others wait.
const (
	// maxBody bounds a request. It holds a workload twice, of which kube-apiserver takes none larger than 3 MB.
	maxBody = 6 << 20
	// bodies bounds the bytes of requests, which are in memory twice for a moment. A request counts for at least
	// leastBody, which also bounds their number.
	bodies    = 12 << 20
	leastBody = 64 << 10
	// bodiesOfHost is the part that one host may have, so that one that sends slowly leaves room for others.
	bodiesOfHost = maxBody
	// decoding bounds what is made of them, and decodingOfHost the part of one host. A request that takes more than that
	// is left to the controller.
	decoding       = 24 << 20
	decodingOfHost = decoding * 3 / 4
)

// What is made of JSON takes more than its bytes: an array of zeros or nulls, where containers should be, becomes one of
// containers. So what takes room is counted before: each comma and each bracket that opens.
const (
	// ofElement is what an element of a pod template takes at most: a container, in an array that has grown
	// (TestOfElement).
	ofElement = 1 << 10
	// ofAny is the same for an element of what is decoded without a type, and ofAnnotation of an annotation.
	ofAny        = 512
	ofAnnotation = 128
)

// elements returns how many values there are in JSON at most.
func elements(raw []byte) int64 {
	return 1 + int64(bytes.Count(raw, []byte(","))+bytes.Count(raw, []byte("{"))+bytes.Count(raw, []byte("[")))
}

// shares are a budget of which one host has a part at most.
type shares struct {
	all    *semaphore.Weighted
	ofHost int64

	mu    sync.Mutex
	hosts map[string]*share
}

type share struct {
	*semaphore.Weighted
	users int // requests that have something of it, or wait
}

func newShares(all, ofHost int64) *shares {
	return &shares{all: semaphore.NewWeighted(all), ofHost: ofHost, hosts: map[string]*share{}}
}

// acquire waits for a part of the budget, which release gives back.
func (s *shares) acquire(ctx context.Context, host string, n int64) (release func(), err error) {
	s.mu.Lock()
	own := s.hosts[host]
	if own == nil {
		own = &share{Weighted: semaphore.NewWeighted(s.ofHost)}
		s.hosts[host] = own
	}
	own.users++
	s.mu.Unlock()
	leave := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if own.users--; own.users == 0 {
			delete(s.hosts, host)
		}
	}
	if err := own.Acquire(ctx, n); err != nil {
		leave()
		return nil, err
	}
	if err := s.all.Acquire(ctx, n); err != nil {
		own.Release(n)
		leave()
		return nil, err
	}
	return func() {
		s.all.Release(n)
		own.Release(n)
		leave()
	}, nil
}

// hostOf returns from where a request comes.
func hostOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
