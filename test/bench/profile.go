// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/client-go/rest"
)

// profileCPU profiles the server while a benchmark runs, if profiles are enabled. The returned function waits for the
// profile and must be called.
func (e *environment) profileCPU(ctx context.Context, name string) (wait func(), err error) {
	if e.profile == "" || e.install == nil {
		return func() {}, nil
	}
	client, err := e.profiler()
	if err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := e.writeProfile(ctx, client, "/debug/pprof/profile?seconds=10", name+".cpu.pprof"); err != nil {
			say("no profile: %v", err)
		}
	})
	return wg.Wait, nil
}

// profileHeap writes a profile of the server's heap, if profiles are enabled.
func (e *environment) profileHeap(ctx context.Context, name string) error {
	if e.profile == "" || e.install == nil {
		return nil
	}
	client, err := e.profiler()
	if err != nil {
		return err
	}
	return e.writeProfile(ctx, client, "/debug/pprof/heap?gc=1", name+".heap.pprof")
}

// profiler returns a client of an administrator for requests to the server itself.
func (e *environment) profiler() (*http.Client, error) {
	probe, err := e.newProbe()
	if err != nil {
		return nil, err
	}
	admin, err := rest.TLSConfigFor(e.cluster.RESTConfig())
	if err != nil {
		return nil, err
	}
	transport := probe.Transport.(*http.Transport)
	transport.TLSClientConfig.Certificates, transport.TLSClientConfig.GetClientCertificate = admin.Certificates, admin.GetClientCertificate
	probe.Timeout = 0
	return probe, nil
}

func (e *environment) writeProfile(ctx context.Context, client *http.Client, path, name string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+e.server().Address()+path, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, response.Status)
	}
	f, err := os.Create(filepath.Join(e.profile, name))
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.Copy(f, response.Body); err != nil {
		return fmt.Errorf("writing a profile: %w", err)
	}
	return f.Close()
}
