// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/workload"
)

// restlessPause is how long to wait before pods are looked up again, however often content changes
// during that.
const restlessPause = 5 * time.Second

// inspect looks up whether a container of the current template was started while the content was
// different. It returns nil while the controller of the workload has yet to see the template: the
// status of the workload shows when it has.
func (c *Controller) inspect(ctx context.Context, s *step) (*policy.Inspection, error) {
	w := s.workload
	if w.Rollout.Reason == dependency.ReasonNotObserved {
		return nil, nil //nolint:nilnil // nothing can be found out yet
	}
	selected, err := workload.Select(ctx, c.Client, w, !c.NoRevisions)
	if err != nil {
		return nil, fmt.Errorf("looking for the pods of %s %s/%s: %w", w.Kind, w.Namespace, w.Name, err)
	}
	excursions := s.Excursions
	if w.RevisionIsNew() && !selected.Reused {
		// The ReplicaSet was created for the template, so all of its pods are newer.
		excursions = slices.DeleteFunc(slices.Clone(excursions), func(x policy.Excursion) bool { return x.OlderPods })
	}
	found, err := policy.InspectPods(excursions, func(look func(*corev1.Pod)) error {
		_, err := selected.Each(ctx, c.Client, workload.AllPods, func(p *corev1.Pod) {
			if selected.OfRevision(p) {
				look(p)
			}
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of %s %s/%s: %w", w.Kind, w.Namespace, w.Name, err)
	}
	found.Of, found.StartedBy = s.Excursions, w.StartedBy
	return found, nil
}
