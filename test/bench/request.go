// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

// requester sends requests and measures them. It does not decode answers: the work of the client is the same for both
// sides and would only blur the difference. Its connection is persistent.
type requester struct {
	host   string
	client *http.Client
}

func newRequester(config *rest.Config) (*requester, error) {
	// Otherwise the transport requests compression, and decompresses answers, by itself.
	config.DisableCompression = true
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	return &requester{host: config.Host, client: client}, nil
}

// request is a path and how to request it.
type request struct {
	path   string
	accept string // application/json by default
	gzip   bool   // accept compression, as kubectl and client-go do
}

// answer is the duration and the size of an answer.
type answer struct {
	took  time.Duration // until the last byte
	bytes int64         // of the body as received
}

// measure sends a request and discards the answer.
func (r *requester) measure(ctx context.Context, q request) (answer, error) {
	started := time.Now()
	body, _, err := r.open(ctx, q)
	if err != nil {
		return answer{}, err
	}
	defer body.Close()
	n, err := io.Copy(io.Discard, body)
	if err != nil {
		return answer{}, fmt.Errorf("reading %s: %w", q.path, err)
	}
	return answer{time.Since(started), n}, nil
}

// read sends a request and returns the answer, decompressed.
func (r *requester) read(ctx context.Context, q request) ([]byte, error) {
	body, header, err := r.open(ctx, q)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	plain := io.Reader(body)
	if header.Get("Content-Encoding") == "gzip" {
		if plain, err = gzip.NewReader(body); err != nil {
			return nil, fmt.Errorf("decompressing %s: %w", q.path, err)
		}
	}
	content, err := io.ReadAll(plain)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", q.path, err)
	}
	return content, nil
}

func (r *requester) open(ctx context.Context, q request) (io.ReadCloser, http.Header, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.host+q.path, nil)
	if err != nil {
		return nil, nil, err
	}
	request.Header.Set("Accept", "application/json")
	if q.accept != "" {
		request.Header.Set("Accept", q.accept)
	}
	if q.gzip {
		request.Header.Set("Accept-Encoding", "gzip")
	}
	response, err := r.client.Do(request)
	if err != nil {
		return nil, nil, err
	}
	if response.StatusCode != http.StatusOK {
		message, _ := io.ReadAll(io.LimitReader(response.Body, 500))
		_ = response.Body.Close()
		return nil, nil, fmt.Errorf("%s: %s: %s", q.path, response.Status, message)
	}
	return response.Body, response.Header, nil
}

// inTurns measures two requests n times each. The order alternates, because each may leave garbage to collect during
// the other.
func (r *requester) inTurns(ctx context.Context, n int, pair func(i int) [2]request) (took [2]samples, bytes [2]samples, err error) {
	for i := range n {
		requests := pair(i)
		for _, side := range [2]int{i % 2, 1 - i%2} {
			a, err := r.measure(ctx, requests[side])
			if err != nil {
				return took, bytes, err
			}
			took[side].addTime(a.took, time.Millisecond)
			bytes[side] = append(bytes[side], float64(a.bytes))
		}
	}
	return took, bytes, nil
}
