// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
)

// TestReconcile_LosingTheOptInIsTold: kubectl rollout undo to a revision from before the opt-in restores
// the annotations of that time.
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
		c.expectEvents("undone", "Normal ConfigReloadOff Deployment/shop/web: Automatic restarts are off: configdep.io/reload was removed from the Deployment. "+
			"(kubectl rollout undo restores the annotations of the older revision.)")
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Status.ObservedGeneration++ })
		c.set(secret("db", "2"))
		c.advance(time.Hour)
		c.expectEvents("it is told once")
		c.expect("nothing is restarted")
	})
}

// TestReconcile_ConfigReloadOffNamesTheObject: the event names the object that turned automatic restarts off.
func TestReconcile_ConfigReloadOffNamesTheObject(t *testing.T) {
	const undo = " (kubectl rollout undo restores the annotations of the older revision.)"
	on, off := map[string]string{policy.ReloadAnnotation: "auto"}, map[string]string{policy.ReloadAnnotation: "off"}
	for name, tc := range map[string]struct {
		workload, namespace       map[string]string // before
		newWorkload, newNamespace map[string]string
		want                      string
	}{
		"removed from the workload":                         {on, nil, nil, nil, "configdep.io/reload was removed from the Deployment." + undo},
		"the namespace is off anyway":                       {on, off, nil, off, "configdep.io/reload was removed from the Deployment." + undo},
		"set to off on the workload":                        {on, nil, off, nil, "configdep.io/reload is set to off on the Deployment." + undo},
		"set to off on a workload of an opted-in namespace": {nil, on, off, on, "configdep.io/reload is set to off on the Deployment." + undo},
		"removed from the namespace":                        {nil, on, nil, nil, "configdep.io/reload was removed from Namespace shop."},
		"set to off on the namespace":                       {nil, on, nil, off, "configdep.io/reload is set to off on Namespace shop."},
		"still on, by the workload":                         {on, on, on, off, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.synced()
				c.lead()
				c.annotateNamespace(tc.namespace)
				c.set(secret("db", "1"))
				d := deployment("web", "db")
				d.Annotations = maps.Clone(tc.workload)
				c.set(d)
				c.advance(time.Minute)
				c.expectEvents("before")
				c.annotateNamespace(tc.newNamespace)
				edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Annotations = maps.Clone(tc.newWorkload) })
				c.advance(time.Minute)
				var want []string
				if tc.want != "" {
					want = []string{"Normal ConfigReloadOff Deployment/shop/web: Automatic restarts are off: " + tc.want}
				}
				c.expectEvents("after", want...)
			})
		})
	}
}

// TestReconcile_UndoThatBringsBackAnEviction: the ReplicaSet has kept the list of pods that were deleted
// long before, and the strategy has changed.
func TestReconcile_UndoThatBringsBackAnEviction(t *testing.T) {
	inCluster(t, func(c *cluster) {
		adopted(c)
		c.set(pod("web-0", "uid-web-a"))
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) {
			d.Annotations[policy.RecreatingAnnotation] = "01234567,89abcdef"
		})
		c.advance(time.Hour)
		c.expect("brought back", "1m0s recreated web")
		c.expectEvents("brought back")
		c.expectState("brought back", policy.InSync, "ContentApplied")
	})
}

// What is named is the annotation that declared the mode, whichever tool it belongs to.
func TestWhyOff_NamesTheAnnotationOfItsDialect(t *testing.T) {
	const key, onNamespace = "example.com/restart", policy.DeclaredByNamespace + "example.com/restart"
	w := &dependency.Workload{WorkloadKey: dependency.WorkloadKey{Kind: kind.StatefulSet, Namespace: "shop", Name: "db"}}
	for _, tc := range []struct{ before, now, want string }{
		{key, policy.DeclaredByDefault, key + " was removed from the StatefulSet."},
		{onNamespace, policy.DeclaredByDefault, key + " was removed from Namespace shop."},
		{policy.DeclaredByDefault, key, key + " is set to off on the StatefulSet."},
		{policy.DeclaredByDefault, onNamespace, key + " is set to off on Namespace shop."},
		{key, policy.DeclaredBySelector, "--namespace-selector does not select Namespace shop."},
		{policy.DeclaredByDefault, policy.DeclaredBySelector, "--namespace-selector does not select Namespace shop."},
	} {
		if got := whyOff(w, tc.before, tc.now); got != tc.want {
			t.Errorf("from %q to %q: %s, want %s", tc.before, tc.now, got, tc.want)
		}
	}
}
