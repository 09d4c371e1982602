// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dialects

import (
	"errors"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/policy"
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

// A Deployment with a pause period is paused when it is restarted. Further changes are part of the same rollout.
func TestPause(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.source(db)
	s.create(deployment("web", pairs(auto, "true", pausePeriod, "20s"), podTemplate("web", db)))
	s.view("deployment.web", inSync)
	s.write(db, "new")
	s.until("web", "is paused", paused)
	s.view("deployment.web", state(v1alpha1.StatePending, policy.ReasonPausePeriod))
	version := s.write(db, "newer")
	s.until("web", "is resumed", resumed)
	s.view("deployment.web", inSync, at(db, version))
	s.until("web", "is observed", func(d *appsv1.Deployment) error {
		if d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas != 1 {
			return errors.New("not yet")
		}
		return nil
	})
	if n := s.rollouts("web"); n != 2 {
		t.Errorf("%d templates, want the first one and one for both changes", n)
	}
}

// A pause ends although the server is restarted meanwhile.
func TestPause_EndsAfterARestartOfTheServer(t *testing.T) {
	// This test does not run in parallel, because it restarts the server.
	s := newShop(t)
	s.source(db)
	s.create(deployment("web", pairs(auto, "true", pausePeriod, "20s"), podTemplate("web", db)))
	s.view("deployment.web", inSync)
	s.write(db, "new")
	s.until("web", "is paused", paused)
	replica := server.Replicas[0]
	replica.Kill()
	if err := paused(s.deployment("web")); err != nil {
		t.Fatalf("the server was killed too late: %v", err)
	}
	if err := errors.Join(replica.Start(), replica.AwaitReady(t.Context())); err != nil {
		t.Fatal(err)
	}
	s.until("web", "is resumed", resumed)
	s.view("deployment.web", inSync)
}

// A Deployment that a user has paused is not resumed, neither after a change nor by a server that starts. It is restarted
// when the user resumes it.
func TestPause_OfAUserIsTheUsers(t *testing.T) {
	s := newShop(t)
	s.source(db)
	s.create(deployment("web", pairs(auto, "true", pausePeriod, "1s"), podTemplate("web", db)))
	s.view("deployment.web", inSync)
	s.edit("web", func(d *appsv1.Deployment) { d.Spec.Paused = true })
	version := s.write(db, "new")
	stays := func() {
		t.Helper()
		s.view("deployment.web", state(v1alpha1.StateBlocked, policy.ReasonPaused), at(db, version))
		if d := s.deployment("web"); !d.Spec.Paused || d.Annotations[pausedAt] != "" {
			t.Fatalf("paused = %t, annotations = %v", d.Spec.Paused, d.Annotations)
		}
	}
	stays()
	replica := server.Replicas[0]
	replica.Kill()
	if err := errors.Join(replica.Start(), replica.AwaitReady(t.Context())); err != nil {
		t.Fatal(err)
	}
	stays()
	s.edit("web", func(d *appsv1.Deployment) { d.Spec.Paused = false })
	s.until("web", "is restarted and resumed", func(d *appsv1.Deployment) error {
		if d.Spec.Template.Annotations[lastReloadedFrom] == "" {
			return errors.New("not restarted yet")
		}
		return resumed(d)
	})
	s.view("deployment.web", inSync)
}
