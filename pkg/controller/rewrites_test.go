// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/configdep/configdep/pkg/policy"
)

// TestReconcile_TellsOfRewrites of a pod template that the admission policy would have prevented: once, as soon as a second one has restarted the pods
// for nothing.
func TestReconcile_TellsOfRewrites(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.synced()
		c.set(secret("db", "1"))
		c.owning(func() { // writes the pod template as it has it
			d := live(c, deployment("web", "db"))
			d.Spec.Template.Annotations = nil
			c.set(d)
		})
		c.lead()
		d := deployment("web", "db")
		d.Annotations = map[string]string{policy.ReloadAnnotation: "auto"}
		c.set(d)
		c.advance(time.Hour)
		told := 0
		for i, content := range []string{"2", "3", "4"} {
			c.set(secret("db", content))
			c.advance(time.Hour)
			for _, event := range c.told() {
				if strings.Contains(event, "ConfigConflict") {
					told++
					if want := "The MutatingAdmissionPolicy configdep-apiserver-annotations, which keeps it there, is not installed"; !strings.Contains(event, want) || i != 1 {
						t.Errorf("after %d restarts: %s", i+1, event)
					}
				}
			}
		}
		if told != 1 {
			t.Errorf("it was told %d times", told)
		}
	})
}
