// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
)

// TestReconcile_LosingTheOptInIsTold: kubectl rollout undo to a revision from before the opt-in restores the annotations of that time.
func TestReconcile_LosingTheOptInIsTold(t *testing.T) {
	inCluster(t, func(c *cluster) {
		other := deployment("other", "db")
		other.Annotations = nil
		adopted(c)
		c.set(other)
		c.advance(time.Minute)
		c.expectEvents("a workload that has never opted in")
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Annotations = nil })
		c.advance(time.Minute)
		c.expectEvents("undone", "Normal ConfigRestartsOff Deployment/shop/web: Automatic restarts are now off (set by the server's defaults). "+
			"Before, they were on (set by configdep.io/reload on the Deployment).")
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Status.ObservedGeneration++ })
		c.set(secret("db", "2"))
		c.advance(time.Hour)
		c.expectEvents("it is told once")
		c.expect("nothing is restarted")
	})
}

// The event names the object that turned automatic restarts off, and the annotation that declared the mode, whichever tool it belongs to.
func TestWhyOff_NamesTheObjectAndTheAnnotation(t *testing.T) {
	const key, onNamespace = "example.com/restart", policy.DeclaredByNamespace + "example.com/restart"
	w := &dependency.Workload{WorkloadKey: dependency.WorkloadKey{Kind: kind.StatefulSet, Namespace: "shop", Name: "db"}}
	for _, tc := range []struct{ before, now, want string }{
		{key, key, "Automatic restarts are now off (set by " + key + " on the StatefulSet)."},
		{key, policy.DeclaredByDefault, "Automatic restarts are now off (set by the server's defaults). Before, they were on (set by " + key + " on the StatefulSet)."},
		{onNamespace, key, "Automatic restarts are now off (set by " + key + " on the StatefulSet). Before, they were on (set by " + key + " on Namespace shop)."},
		{policy.DeclaredByDefault, onNamespace, "Automatic restarts are now off (set by " + key + " on Namespace shop). Before, they were on (set by the server's defaults)."},
		{key, policy.DeclaredBySelector, "Automatic restarts are now off (set by --namespace-selector). Before, they were on (set by " + key + " on the StatefulSet)."},
	} {
		if got := whyOff(w, tc.before, tc.now); got != tc.want {
			t.Errorf("from %q to %q: %s, want %s", tc.before, tc.now, got, tc.want)
		}
	}
}
