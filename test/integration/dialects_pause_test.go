// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/test/install"
)

const (
	pausePeriod = "deployment.reloader.stakater.com/pause-period"
	pausedAt    = "deployment.reloader.stakater.com/paused-at"
)

func paused(d *appsv1.Deployment) error {
	if _, err := time.Parse(time.RFC3339, d.Annotations[pausedAt]); err != nil || !d.Spec.Paused || d.Spec.Template.Annotations[lastReloadedFrom] == "" {
		return fmt.Errorf("paused = %t, annotations = %v, on the template %v", d.Spec.Paused, d.Annotations, d.Spec.Template.Annotations)
	}
	return nil
}

func resumed(d *appsv1.Deployment) error {
	if _, found := d.Annotations[pausedAt]; found || d.Spec.Paused {
		return fmt.Errorf("paused = %t, annotations = %v", d.Spec.Paused, d.Annotations)
	}
	return nil
}

// A Deployment with a pause period is paused when it is restarted. Further changes are part of the same rollout. That an owner removes the annotation
// which says so does not make the pause a user's.
func TestDialects_Pause(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.write(db, "key", "old")
	s.create(reading("web", pairs(autoReload, "true", pausePeriod, "20s"), nil, db))
	s.view("deployment.web", applied)
	s.write(db, "key", "new")
	s.until("web", "is paused", paused)
	s.view("deployment.web", is(v1alpha1.StatePending, decide.ReasonPausePeriod))
	older, err := cluster.Older("1.36") // and so no policy restores annotations
	if err != nil {
		t.Fatal(err)
	}
	if !older {
		s.edit("web", func(d *appsv1.Deployment) { delete(d.Annotations, pausedAt) })
	}
	written := s.write(db, "key", "newer")
	s.until("web", "is resumed", resumed)
	s.view("deployment.web", applied, at(written))
	s.until("web", "is observed", func(d *appsv1.Deployment) error {
		if d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas != 1 {
			return errors.New("not yet")
		}
		return nil
	})
	if n := s.templates("web"); n != 2 {
		t.Errorf("%d templates, want the first one and one for both changes", n)
	}
}

// A Deployment that a user has paused is not resumed, neither after a change nor by a server that starts. It is restarted
// when the user resumes it.
func TestDialects_PauseOfAUserIsTheUsers(t *testing.T) {
	t.Parallel()
	s := newOwnShop(t)
	r := s.serve(install.ReplicaOptions{})
	s.write(db, "key", "old")
	s.create(reading("web", pairs(autoReload, "true", pausePeriod, "1s"), nil, db))
	s.view("deployment.web", applied)
	s.edit("web", func(d *appsv1.Deployment) { d.Spec.Paused = true })
	written := s.write(db, "key", "new")
	stays := func() {
		t.Helper()
		s.view("deployment.web", is(v1alpha1.StateBlocked, decide.ReasonPaused), at(written))
		if d := s.deployment("web"); !d.Spec.Paused || d.Annotations[pausedAt] != "" {
			t.Fatalf("paused = %t, annotations = %v", d.Spec.Paused, d.Annotations)
		}
	}
	stays()
	r.Kill()
	restart(t, r)
	stays()
	s.edit("web", func(d *appsv1.Deployment) { d.Spec.Paused = false })
	s.until("web", "is restarted and resumed", func(d *appsv1.Deployment) error {
		if d.Spec.Template.Annotations[lastReloadedFrom] == "" {
			return errors.New("not restarted yet")
		}
		return resumed(d)
	})
	s.view("deployment.web", applied)
}
