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

// The memory that all requests may use at the same time, from all callers and whatever their
// content. Further requests wait.
const (
	// maxBody limits the body of a request. It contains a workload twice, and kube-apiserver accepts none
	// larger than 3 MB.
	maxBody = 6 << 20
	// bodies limits the total size of bodies, which are in memory twice for a moment. A request counts as at
	// least leastBody, which also limits their number.
	bodies    = 12 << 20
	leastBody = 64 << 10
	// bodiesOfHost is the share of one host, so that a host that sends slowly leaves room for others.
	bodiesOfHost = maxBody
	// decoding limits the size of decoded bodies, and decodingOfHost the share of one host. A request that needs more
	// is left to the controller.
	decoding       = 24 << 20
	decodingOfHost = decoding * 3 / 4
)

// Decoded JSON can be much larger than its bytes: an array of zeros or nulls, in the place of containers, becomes an
// array of containers. So the elements are counted before decoding: each comma and each opening bracket.
const (
	// ofElement is the maximum size of an element of a pod template: a container, in an array that has
	// grown (TestOfElement).
	ofElement = 1 << 10
	// ofAny is the same for an element that is decoded without a type, and ofAnnotation for an annotation.
	ofAny        = 512
	ofAnnotation = 128
)

// elements returns an upper bound on the number of values in JSON.
func elements(raw []byte) int64 {
	return 1 + int64(bytes.Count(raw, []byte(","))+bytes.Count(raw, []byte("{"))+bytes.Count(raw, []byte("[")))
}

// shares is a budget of which one host can have at most a share.
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

// acquire waits for a part of the budget, which release returns.
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

// hostOf returns the host from which a request comes.
func hostOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
