// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"net/http"

	"k8s.io/apiserver/pkg/server/healthz"

	"github.com/configdep/configdep/pkg/ingest"
)

// addHealthChecks adds configdep's own checks. It must be called before the server runs.
func (s *Server) addHealthChecks() error {
	// Until the index has synced, requests get 503, so a Service must not send any.
	synced := healthz.NamedCheck("dependency-index-synced", func(*http.Request) error {
		if !s.index.HasKey() {
			return errors.New("waiting for the key of the config hash in Secret " + ingest.KeySecret + "; the log says why")
		}
		if err := s.index.Synced(); err != nil {
			return err
		}
		return s.resources.ready()
	})
	// Everything needs the lock of the index. If it is never released, only a restart helps.
	responsive := healthz.NamedCheck("dependency-index-responsive", func(r *http.Request) error {
		done := make(chan struct{})
		go func() {
			s.index.Size()
			close(done)
		}()
		select {
		case <-done:
			return nil
		case <-r.Context().Done():
			return errors.New("the index is locked")
		}
	})
	if err := s.generic.AddReadyzChecks(synced); err != nil {
		return err
	}
	return s.generic.AddLivezChecks(0, responsive)
}
