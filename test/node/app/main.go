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
package main

import (
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) != 2 {
		fail("usage: app done|pause|serve")
	}
	switch os.Args[1] {
	case "done":
	case "pause":
		pause()
	case "serve":
		serve()
	default:
		fail("there is no mode " + os.Args[1])
	}
}

func fail(message string) {
	fmt.Fprintln(os.Stderr, "app:", message)
	os.Exit(1)
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

func serve() {
	var (
		mu       sync.Mutex
		received []string
	)
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGTERM)
	go func() {
		for s := range signals {
			if s == syscall.SIGTERM {
				os.Exit(0)
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
	http.HandleFunc("/ready", func(http.ResponseWriter, *http.Request) {})
	server := &http.Server{Addr: ":8080", ReadHeaderTimeout: 10 * time.Second}
	fail(server.ListenAndServe().Error())
}
