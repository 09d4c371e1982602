// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/workload"
)

// revisionIsNewer looks up whether all pods of the current template were created after the last write of the content:
// the revision of the template was created in a later second. It is needed if both changed while no replica watched. In
// doubt, it reports that they were not, also if ControllerRevisions are not looked up. It returns nil while the
// controller of the workload has yet to see the template: the status of the workload shows when it has.
func (c *Controller) revisionIsNewer(ctx context.Context, s *step) (*policy.Verification, error) {
	w := s.workload
	if w.Rollout.Reason == dependency.ReasonNotObserved {
		return nil, nil //nolint:nilnil // it is not known yet
	}
	selected, err := workload.Select(ctx, c.Client, w, !c.NoRevisions)
	if err != nil {
		return nil, fmt.Errorf("looking up the revision of %s %s/%s: %w", w.Kind, w.Namespace, w.Name, err)
	}
	return &policy.Verification{Newer: selected.RevisionCreated.After(s.WrittenAt), WrittenAt: s.WrittenAt, StartedBy: w.StartedBy}, nil
}
