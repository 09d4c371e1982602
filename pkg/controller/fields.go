// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/notify"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// applyFields sets the fields of a workload. It returns what to record about that with the restart; nil: the fields could not be set,
// and that has been recorded. The workload of the step is then the version after that.
func (c *Controller) applyFields(ctx context.Context, s *step) (*record.AppliedFields, error) {
	set, err := c.fields.Set(ctx, s.workload, s.policy.Fields, s.fields.Released)
	if err != nil {
		return nil, err
	}
	now := *s.workload
	now.ResourceVersion = set.Version
	s.workload = &now
	record := s.fields.Record(set.Values, set.Conflict, set.Problem, c.Clock.Now())
	if set.Problem == "" && !set.Conflict {
		return record, nil
	}
	s.Action = decide.ApplyFields // and no restart
	return nil, c.recordFields(ctx, s, record)
}

// setFields sets the fields of a workload although no content has changed.
func (c *Controller) setFields(ctx context.Context, s *step) error {
	applied, err := c.applyFields(ctx, s)
	if err != nil || applied == nil {
		return err
	}
	if err := c.recordFields(ctx, s, applied); err != nil {
		return err
	}
	c.notify(s.workload, notify.FieldsSet, "Set fields from ConfigMaps and Secrets, as "+policy.FieldsAnnotation+" says")
	return nil
}

// releaseFields gives up fields that no annotation sets any longer.
func (c *Controller) releaseFields(ctx context.Context, s *step) error {
	version, err := c.fields.Release(ctx, s.workload)
	if err != nil {
		return err
	}
	now := *s.workload
	now.ResourceVersion = version
	s.workload = &now
	return c.recordFields(ctx, s, nil)
}

func (c *Controller) recordFields(ctx context.Context, s *step, applied *record.AppliedFields) error {
	data, err := record.FieldsPatch(s.workload, applied)
	return c.patch(ctx, s, data, err)
}
