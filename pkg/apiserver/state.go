// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"time"

	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/metrics"
)

var _ metrics.State = &Server{}

// WorkloadStates implements metrics.State.
func (s *Server) WorkloadStates() map[string]int { return s.dependencies.States() }

// IndexSize implements metrics.State.
func (s *Server) IndexSize() (workloads, sources int) { return s.index.Size() }

// LastProgress implements metrics.State.
func (s *Server) LastProgress() map[string]time.Time { return s.index.LastProgress() }

// Revisions implements metrics.State.
func (s *Server) Revisions() (lag uint64, oneCounter bool) {
	p := s.index.Progress()
	return p.Latest - p.Watermark, p.OneCounter
}

// Watches implements metrics.State.
func (s *Server) Watches() (open, events int) { return s.resources.watches() }

// CertificateExpiry implements metrics.State.
func (s *Server) CertificateExpiry() time.Time { return expiry(s.generic.SecureServingInfo.Cert) }

// Forbidden implements metrics.State.
func (s *Server) Forbidden() map[string]bool { return s.index.Forbidden() }

// MissingSecrets implements metrics.State.
func (s *Server) MissingSecrets() map[string]bool {
	missing := map[string]bool{ingest.KeySecret: s.config.key.Missing()}
	if name := s.config.certificates.secret(); name != "" {
		missing[name] = s.config.certificates.missing()
	}
	return missing
}
