// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package plainhttp serves metrics and profiles by HTTP without TLS, each at an address of its own that a flag sets: the API is on
// another port. Clients are not authenticated, so what they can use is limited. Nothing here shows content of ConfigMaps and
// Secrets. Of this project, it imports only package listener.
package plainhttp

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"
	"sync"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/listener"
)

// Server serves one thing.
type Server struct {
	// Flag sets the address; Serves says what is served.
	Flag, Serves string
	// Address is HOST:PORT, or :PORT for all addresses of the host.
	Address string

	handler                  http.Handler
	answer                   time.Duration // how long an answer may take, besides the time that a profile is asked for
	connections, connsOfHost int
}

// The limits of all of them. Only HTTP/1.1 is served, so that a connection is one request.
const (
	maxHeader = 16 << 10
	maxBody   = 64 << 10        // a list of addresses, for symbols
	request   = 5 * time.Second // to arrive
	idle      = 90 * time.Second
	// shutdown is how long answers may take once the server ends.
	shutdown = time.Second
)

// maxScrapes is how many metrics are collected at the same time; further requests get 503.
const maxScrapes = 4

// Metrics serves /metrics and nothing else.
func Metrics(flag, address string) Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics.HandlerFor(legacyregistry.DefaultGatherer, metrics.HandlerOpts{MaxRequestsInFlight: maxScrapes}))
	return Server{Flag: flag, Serves: "metrics", Address: address, handler: mux, answer: 30 * time.Second, connections: 64, connsOfHost: 16}
}

// maxSeconds is how long a profile over time may take.
const maxSeconds = 120

// Profiles serves the profiles of the process below /debug/pprof and nothing else.
func Profiles(flag, address string) Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index) // and every profile that it lists
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
	return Server{Flag: flag, Serves: "profiles", Address: address, handler: withinSeconds(mux), answer: 30 * time.Second, connections: 16, connsOfHost: 8}
}

// withinSeconds refuses requests for longer profiles: package pprof extends the time for an answer by what is asked for.
func withinSeconds(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if seconds, err := strconv.ParseFloat(r.URL.Query().Get("seconds"), 64); err == nil && !(seconds <= maxSeconds) { // it may be no number
			http.Error(w, fmt.Sprintf("seconds must be at most %d", maxSeconds), http.StatusBadRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Start serves until the context is done, and returns the address. Answers that take longer are cut off.
func (s Server) Start(ctx context.Context, serving *sync.WaitGroup) (net.Addr, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", s.Address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Flag, err)
	}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	logger := klog.FromContext(ctx)
	server := &http.Server{
		Handler:           http.MaxBytesHandler(s.handler, maxBody),
		Protocols:         protocols,
		MaxHeaderBytes:    maxHeader,
		ReadHeaderTimeout: request,
		ReadTimeout:       request,
		WriteTimeout:      s.answer,
		IdleTimeout:       idle,
		ErrorLog:          listener.ErrorLog(logger, s.Serves),
	}
	stopped, _, err := genericapiserver.RunServer(server, listener.Limit(l, s.connections, s.connsOfHost), shutdown, ctx.Done())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Flag, err)
	}
	logger.Info("Serving to every client, without TLS", "what", s.Serves, "address", l.Addr().String(), "flag", s.Flag)
	serving.Go(func() {
		<-stopped
		_ = server.Close()
	})
	return l.Addr(), nil
}
