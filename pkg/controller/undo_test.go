package controller

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/configdep/configdep/pkg/policy"
)

// TestLosingTheOptInIsTold: kubectl rollout undo to a revision from before it restores the
// annotations of that time.
func TestLosingTheOptInIsTold(t *testing.T) {
	inCluster(t, func(c *cluster) {
		other := deployment("other", "db")
		other.Annotations = nil
		adopted(c)
		c.set(other)
		c.advance(time.Minute)
		c.expectEvents("a workload that has never opted in")
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Annotations = nil })
		c.advance(time.Minute)
		c.expectEvents("undone", "Normal ConfigReloadOff Deployment/shop/web: Automatic restarts are off: the annotation configdep.io/reload was removed or set to off. "+
			"(kubectl rollout undo restores the annotations of the older revision.)")
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Status.ObservedGeneration++ })
		c.set(secret("db", "2"))
		c.advance(time.Hour)
		c.expectEvents("it is told once")
		c.expect("nothing is restarted")
	})
}

// TestUndoThatBringsBackAnEviction: the ReplicaSet has kept the names of pods that have long
// gone, and the strategy is another now.
func TestUndoThatBringsBackAnEviction(t *testing.T) {
	inCluster(t, func(c *cluster) {
		adopted(c)
		c.set(replicaSet("web-a", "1", "uid-web", time.Now()))
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
