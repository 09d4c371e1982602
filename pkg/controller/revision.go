package controller

import (
	"context"
	"fmt"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/workload"
)

// revisionIsNewer looks up whether the pods of the current template were all made after
// the content was last written: its revision was created in a later second. It is asked
// after a time in which no replica looked, when both have changed. If in doubt, they were not.
// It returns nil while the controller of the workload has yet to see the template: its status
// tells of that.
func (c *Controller) revisionIsNewer(ctx context.Context, s *step) (*policy.Verification, error) {
	w := s.workload
	if w.Rollout.Reason == dependency.ReasonNotObserved {
		return nil, nil //nolint:nilnil // it is not known yet
	}
	created, err := workload.RevisionCreated(ctx, c.Client, w)
	if err != nil {
		return nil, fmt.Errorf("looking up the revision of %s %s/%s: %w", w.Kind, w.Namespace, w.Name, err)
	}
	return &policy.Verification{Newer: created.After(s.WrittenAt), WrittenAt: s.WrittenAt, StartedBy: w.StartedBy}, nil
}
