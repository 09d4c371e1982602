// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// A server that only observes shows a restart that would be due until another tool has made it, and asks for no write.
func TestDecide_Observe(t *testing.T) {
	observed := outcome{policy.Pending, policy.ReasonObserved, policy.Observe, "Secret/db"}
	rollOutByOthers := func(x *world) {
		x.edit(func(d *appsv1.Deployment) { d.Spec.Template.Annotations = map[string]string{"other": x.now.String()} })
	}
	change := func(x *world) { x.set(secret("db", "password", "2")) }
	for name, tt := range map[string]struct {
		do   func(*world)
		want outcome
	}{
		"nothing has changed":                 {func(*world) {}, nothing},
		"content has changed":                 {change, observed},
		"another tool has restarted the pods": {both(change, rollOutByOthers), nothing},
		"content has changed back":            {both(change, func(x *world) { x.set(secret("db", "password", "1")) }), observed},
		"it was changed while no process ran": {func(x *world) { x.away(func() { change(x) }) }, nothing},
		"without replicas, content has changed": {
			both(func(x *world) {
				x.edit(func(d *appsv1.Deployment) { d.Spec.Replicas, d.Status = new(int32), appsv1.DeploymentStatus{} })
			}, change),
			outcome{policy.InSync, policy.ReasonNoPods, policy.None, ""},
		},
		"pods are being evicted": {
			func(x *world) {
				x.annotate(policy.RecreatingAnnotation, policy.NoPod, policy.StrategyAnnotation, "recreate")
			},
			outcome{policy.RollingOut, policy.ReasonRecreating, policy.None, ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
			x.defaults.Observe = true
			x.restart()
			tt.do(x)
			x.tick(time.Minute)
			if diff := cmp.Diff(tt.want, outcomeOf(x.decide())); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}
