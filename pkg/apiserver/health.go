// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"k8s.io/apiserver/pkg/server/healthz"

	"github.com/configdep/configdep/pkg/ingest"
)

// workloadKinds is a check that never fails, because the API serves the others without a kind that may not be read. Of a check that
// passes, /readyz?verbose shows only the name, so the name tells which these are.
type workloadKinds struct {
	forbidden func() map[string]bool
	checked   atomic.Bool // until then, the name is that of its path
}

var _ healthz.GroupedHealthChecker = &workloadKinds{}

const (
	workloadKindsCheck = "workload-kinds"
	maxShownKinds      = 20
)

// GroupName implements healthz.GroupedHealthChecker. By this name, which stays the same, the check can be excluded.
func (*workloadKinds) GroupName() string { return workloadKindsCheck }

// Name implements healthz.HealthChecker.
func (c *workloadKinds) Name() string {
	if !c.checked.Load() {
		return workloadKindsCheck
	}
	forbidden := c.forbidden()
	maps.DeleteFunc(forbidden, func(_ string, is bool) bool { return !is })
	names := slices.Sorted(maps.Keys(forbidden))
	if len(names) == 0 {
		return workloadKindsCheck
	}
	more := ""
	if n := len(names) - maxShownKinds; n > 0 {
		names, more = names[:maxShownKinds], fmt.Sprintf(" and %d more", n)
	}
	return workloadKindsCheck + " (not authorized to list and watch " + strings.Join(names, ", ") + more + ")"
}

// Check implements healthz.HealthChecker.
func (c *workloadKinds) Check(*http.Request) error {
	c.checked.Store(true)
	return nil
}

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
		return s.dependencies.Ready()
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
	if err := s.generic.AddReadyzChecks(synced, &workloadKinds{forbidden: s.index.Forbidden}); err != nil {
		return err
	}
	return s.generic.AddLivezChecks(0, responsive)
}
