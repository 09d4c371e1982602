// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// The program app is the application of tests on a real node. It needs nothing but itself, so that its image holds nothing else.
//
//	app done    ends at once, as an init container does
//	app pause   waits; the process that keeps the namespaces of a pod
//	app serve   tells on port 8080 what its container has:
//	            /env         its environment variables, one a line
//	            /file/PATH   the content of a file
//	            /signals     the signals that it got, one a line
//	            /ready       200, for probes
//	            /drain       with POST: answers once /drained was asked for
//	            /draining    how often /drain was called
//	            /exit        with POST: ends with an error
//	app unready the same, but for /ready, which is 503
package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "app:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch strings.Join(args, " ") {
	case "done":
		return nil
	case "pause":
		pause()
		return nil
	case "serve":
		return serve(http.StatusOK)
	case "unready":
		return serve(http.StatusServiceUnavailable)
	default:
		return errors.New("usage: app done|pause|serve|unready")
	}
}

// pause waits for its end, and for processes that were left to it: it is the first one of pods that share their processes.
func pause() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGTERM, syscall.SIGINT)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}

// serve serves until SIGTERM. Ready is the status code of /ready.
func serve(ready int) error {
	var (
		mu       sync.Mutex
		received []string
		drains   atomic.Int32
		drained  = make(chan struct{})
		end      = sync.OnceFunc(func() { close(drained) })
	)
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGTERM)
	server := &http.Server{Addr: ":8080", ReadHeaderTimeout: 10 * time.Second}
	go func() {
		for s := range signals {
			if s == syscall.SIGTERM {
				_ = server.Close()
				return
			}
			mu.Lock()
			received = append(received, s.String())
			mu.Unlock()
		}
	}()
	http.HandleFunc("/env", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, strings.Join(os.Environ(), "\n"))
	})
	http.HandleFunc("/file/{path...}", func(w http.ResponseWriter, r *http.Request) {
		content, err := os.ReadFile("/" + r.PathValue("path"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		_, _ = w.Write(content)
	})
	http.HandleFunc("/signals", func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = fmt.Fprint(w, strings.Join(received, "\n"))
	})
	http.HandleFunc("/ready", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(ready) })
	http.HandleFunc("POST /drain", func(_ http.ResponseWriter, r *http.Request) {
		drains.Add(1)
		select {
		case <-drained:
		case <-r.Context().Done():
		}
	})
	http.HandleFunc("/draining", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, drains.Load()) })
	var crashed atomic.Bool
	http.HandleFunc("POST /exit", func(http.ResponseWriter, *http.Request) {
		crashed.Store(true)
		_ = server.Close()
	})
	http.HandleFunc("/drained", func(http.ResponseWriter, *http.Request) { end() })
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	if crashed.Load() {
		return errors.New("it was asked to end")
	}
	return nil
}
