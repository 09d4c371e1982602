// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"time"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/metrics"
)

var _ metrics.State = &Server{}

// WorkloadStates implements metrics.State.
func (s *Server) WorkloadStates() map[string]int { return s.dependencies.States() }

// Waiting implements metrics.State.
func (s *Server) Waiting() map[string]int { return waiting(s.dependencies.Each) }

// waiting counts the ConfigDependencies that are Pending or Blocked, by reason.
func waiting(each func(func(*v1alpha1.ConfigDependency))) map[string]int {
	all := map[string]int{}
	each(func(o *v1alpha1.ConfigDependency) {
		if s := o.Status.State; s == v1alpha1.StatePending || s == v1alpha1.StateBlocked {
			all[o.Status.Reason]++
		}
	})
	return all
}

// StalePods implements metrics.State.
func (s *Server) StalePods() map[string]metrics.StalePods { return stalePods(s.dependencies.Each) }

// stalePods counts the stale pods of all ConfigDependencies, by namespace.
func stalePods(each func(func(*v1alpha1.ConfigDependency))) map[string]metrics.StalePods {
	all := map[string]metrics.StalePods{}
	each(func(o *v1alpha1.ConfigDependency) {
		n := int(o.Status.Pods.Stale)
		if n == 0 {
			return
		}
		stale := metrics.StalePods{Pods: n}
		if since := o.Status.StaleSince; since != nil {
			stale.Since = since.Time
		}
		all[o.Namespace] = all[o.Namespace].Add(stale)
	})
	return all
}

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
func (s *Server) Watches() (open, events int) { return s.dependencies.Watches() }

// CertificateExpiry implements metrics.State.
func (s *Server) CertificateExpiry() time.Time { return expiry(s.generic.SecureServingInfo.Cert) }

// Forbidden implements metrics.State.
func (s *Server) Forbidden() map[string]bool { return s.index.Forbidden() }

// MissingSecrets implements metrics.State.
func (s *Server) MissingSecrets() map[string]bool {
	missing := map[string]bool{}
	if s.config.key != nil {
		missing[ingest.KeySecret] = s.config.key.Missing()
	}
	if name := s.config.certificates.secret(); name != "" {
		missing[name] = s.config.certificates.missing()
	}
	return missing
}
