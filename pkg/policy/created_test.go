// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
)

// A source that counts only since the policy was changed restarts nothing, whichever client wrote the
// record when the workload was created.
func TestDecide_PolicyOfACreatedWorkloadIsChanged(t *testing.T) {
	for name, webhook := range map[string]bool{"recorded by the controller": false, "by the webhook": true} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(envFrom(dependency.Secret, "a"), envFrom(dependency.Secret, "b")), secret("a", "k", "1"), secret("b", "k", "1"))
			x.removeWorkload()
			x.edit(func(d *appsv1.Deployment) {
				d.UID, d.Annotations = "web-2", map[string]string{policy.ReloadAnnotation: "auto", policy.ExcludeAnnotation: "secret/b"}
				if !webhook {
					return
				}
				a := policy.Admission{Evaluation: x.known().Evaluate(workloadtest.Read(d.DeepCopy())), NewTemplate: true}
				marks := a.DesiredAnnotations()
				for key, value := range marks.Workload {
					d.Annotations[key] = *value
				}
				d.Spec.Template.Annotations = map[string]string{policy.ConfigHashAnnotation: *marks.Template[policy.ConfigHashAnnotation]}
			})
			if d := x.act(); (d.Action == policy.WriteBaseline) == webhook {
				t.Fatalf("once created: %+v", d)
			}
			x.tick(time.Minute)
			x.set(secret("b", "k", "2"))
			if got := outcomeOf(x.act()); got != nothing {
				t.Fatalf("a change of what is excluded: got %+v, want %+v", got, nothing)
			}
			x.tick(time.Minute)
			x.annotate(policy.ExcludeAnnotation, "")
			if got := outcomeOf(x.act()); got != baseline {
				t.Errorf("the source is no longer excluded: got %+v, want %+v", got, baseline)
			}
		})
	}
}

// TestDecide_CreatedWorkloadHasReadWhatWasThere simulates a rollback in the middle of a rollout: pods of
// the template may never have stopped. All pods have read what was written before the workload was
// created, however recently.
func TestDecide_CreatedWorkloadHasReadWhatWasThere(t *testing.T) {
	image := func(x *world, value string, updated int32) {
		x.edit(func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Image = value
			d.Status.UpdatedReplicas = updated
		})
	}
	for name, tc := range map[string]struct {
		during func(*world)
		want   policy.Action
	}{
		"nothing changes":        {func(*world) {}, policy.None},
		"the content changes":    {func(x *world) { x.set(secret("db", "k", "2")) }, policy.Inspect},
		"another source changes": {func(x *world) { x.set(secret("other", "k", "2")) }, policy.None},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(envFrom(dependency.Secret, "db")))
			x.removeWorkload()
			x.tick(time.Minute)
			x.set(secret("db", "k", "1"))
			x.edit(func(d *appsv1.Deployment) { d.UID = "web-2" })
			if d := x.act(); d.Action != policy.WriteBaseline {
				t.Fatalf("once created: decision = %+v, want action WriteBaseline", d)
			}
			before := x.deployment.Spec.Template.Spec.Containers[0].Image
			image(x, "app:2", 0)
			tc.during(x)
			image(x, before, 0)
			if d := x.decide(); d.Action != tc.want {
				t.Errorf("rolled back: decision = %+v, want action %s", d, tc.want)
			}
		})
	}
}
