// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
)

// TestReconcile_ObserveReportsEachChangeOnce: beside another tool, a server that only observes reports each change for which
// that tool does not restart the pods, also if the content is the same as after an earlier one, and writes nothing.
func TestReconcile_ObserveReportsEachChangeOnce(t *testing.T) {
	const reported = "Normal ConfigRestartObserved Deployment/shop/web: Not restarted, because configdep only observes (--observe), although Secret/db has changed"
	inCluster(t, func(c *cluster) {
		c.defaults.Observe = true
		c.newProcess()
		c.synced()
		c.set(secret("db", "1"))
		c.set(deployment("web", "db"))
		c.lead()
		c.advance(time.Minute)
		c.expectEvents("nothing has changed")

		restart := func() {
			edit(c, deployment("web", "db"), func(d *appsv1.Deployment) {
				d.Spec.Template.Annotations = map[string]string{"restarted": time.Now().String()}
			})
		}
		for _, step := range []struct {
			what   string
			do     func()
			events []string
		}{
			{"the other tool does nothing", func() { c.set(secret("db", "2")) }, []string{reported}},
			{"nothing else happens", func() {}, nil},
			{"metadata changes", func() {
				s := secret("db", "2")
				s.Labels = map[string]string{"team": "a"}
				c.set(s)
			}, nil},
			{"the other tool restarts the pods late", restart, nil},
			{"the other tool restarts the pods at once", func() { c.set(secret("db", "3")); restart() }, nil},
			{"the other tool does nothing, and the content is that of the last report", func() { c.set(secret("db", "2")) }, []string{reported}},
		} {
			step.do()
			c.advance(time.Minute)
			c.expectEvents(step.what, step.events...)
		}
		c.expect("a server that only observes")
	})
}
