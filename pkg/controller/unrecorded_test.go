// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/configdep/configdep/pkg/policy"
)

// TestReconcile_RefusedFirstRecordLosesNoChange: content changes while the record of pods that are older
// than the process cannot be written yet.
func TestReconcile_RefusedFirstRecordLosesNoChange(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.set(secret("db", "1"))
		web := deployment("web", "db")
		web.Annotations = nil
		c.set(web)
		newLeader(c)
		c.refusing(func(clienttesting.Action) error { return errRefused })
		edit(c, web, func(d *appsv1.Deployment) { d.Annotations = map[string]string{policy.ReloadAnnotation: "auto"} })
		c.advance(30 * time.Minute)
		if got := c.took(); len(got) == 0 || got[0] != "1m0s baseline web: Forbidden" {
			t.Errorf("requests = %v", got)
		}
		told := c.told()
		const want = "Warning ConfigRecordFailed Deployment/shop/web: Recording the content that the pods run with failed and will be retried: " +
			`deployments.apps "web" is forbidden: quota`
		if len(told) == 0 || told[0] != want {
			t.Errorf("events = %v", told)
		}
		c.expectState("nothing is recorded", policy.Pending, policy.ReasonNotRecorded)
		c.set(secret("db", "2"))
		c.advance(30 * time.Minute)
		if d := c.decision(); d.State == policy.InSync {
			t.Errorf("decision = %+v, want a state other than InSync: the pods run with other content", d)
		}
		c.refusing(nil)
		c.took()
		c.advance(time.Hour)
		c.expectOneRestart("the record can be written")
		c.expectState("restarted", policy.InSync, "ContentApplied")
	})
}

// TestReconcile_MissingSourceLosesNoChangeOfAnother: while a source is missing, nothing is recorded, but a
// container that does not need it has read another source.
func TestReconcile_MissingSourceLosesNoChangeOfAnother(t *testing.T) {
	optIn := func(d *appsv1.Deployment) { d.Annotations = map[string]string{policy.ReloadAnnotation: "auto"} }
	for name, before := range map[string]func(*cluster){
		"pods that are older than the process": func(c *cluster) {
			web := sidecar(deployment("web", "db"), "late")
			web.Annotations = nil
			c.set(web)
			newLeader(c)
			edit(c, web, optIn)
		},
		"pods that are younger, and of which a container waits": func(c *cluster) {
			newLeader(c)
			c.set(sidecar(deployment("web", "db"), "late"))
		},
		"pods that are younger, and of which a container waits, opted in later": func(c *cluster) {
			newLeader(c)
			web := sidecar(deployment("web", "db"), "late")
			web.Annotations = nil
			c.set(web)
			edit(c, web, optIn)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.set(secret("db", "1"))
				before(c)
				c.advance(time.Minute)
				c.expect("a source is missing")
				c.expectState("a source is missing", policy.Blocked, policy.ReasonSourceMissing)
				c.set(secret("db", "2"))
				c.advance(time.Minute)
				c.set(configMap("late", "1"))
				c.advance(time.Hour)
				c.expectOneRestart("both sources are there")
			})
		})
	}
}

// TestReconcile_ContentThatNewPodsReadAndThatThenGoesBack: the record has the content that the previous pods
// have read, which is the current content again.
func TestReconcile_ContentThatNewPodsReadAndThatThenGoesBack(t *testing.T) {
	inCluster(t, func(c *cluster) {
		adopted(c)
		c.refusing(func(clienttesting.Action) error { return errRefused })
		c.set(secret("db", "2"))
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
		c.advance(100 * time.Millisecond)
		c.set(secret("db", "1"))
		c.advance(time.Minute)
		c.refusing(nil)
		c.took()
		c.advance(time.Hour)
		c.expectOneRestart("the pods have read the content in between")
	})
}

// TestReconcile_RedundantAnnotationAdoptsNothing: the workload already had automatic restarts by
// default.
func TestReconcile_RedundantAnnotationAdoptsNothing(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.defaults.Mode = policy.Auto
		c.set(secret("db", "1"))
		web := deployment("web", "db")
		web.Annotations = nil
		c.set(web)
		c.refusing(func(clienttesting.Action) error { return errRefused })
		newLeader(c)
		c.set(secret("db", "2"))
		c.advance(100 * time.Millisecond)
		edit(c, web, func(d *appsv1.Deployment) { d.Annotations = map[string]string{policy.ReloadAnnotation: "auto"} })
		c.advance(time.Minute)
		c.refusing(nil)
		c.took()
		c.advance(time.Hour)
		c.expectOneRestart("the patch is no longer refused")
	})
}

// TestReconcile_RecordOfAWebhookThatLagsIsNoChange: a replica that had not yet read the last change has
// recorded the content before the change, in the write by which the workload opted in.
func TestReconcile_RecordOfAWebhookThatLagsIsNoChange(t *testing.T) {
	for name, before := range map[string]func(*cluster){
		"pods that are older than the process": newLeader,
		"pods that are younger":                func(c *cluster) { c.lead() },
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.synced()
				c.set(secret("db", "1"))
				web := deployment("web", "db")
				web.Annotations = nil
				c.set(web)
				before(c)
				old := c.present()
				c.set(secret("db", "2"))
				c.advance(time.Minute)
				edit(c, web, func(d *appsv1.Deployment) {
					raw, err := json.Marshal(old.Sources)
					if err != nil {
						t.Fatal(err)
					}
					d.Annotations = map[string]string{
						policy.ReloadAnnotation: "auto", policy.ConfigHashAnnotation: old.Hash, policy.AppliedSourcesAnnotation: string(raw),
					}
				})
				c.advance(time.Hour)
				if got := c.took(); len(got) != 1 || !strings.HasSuffix(got[0], "baseline web") {
					t.Errorf("requests just after opting in = %v", got)
				}
				c.set(secret("db", "3"))
				c.advance(time.Hour)
				c.expectOneRestart("after the next change")
			})
		})
	}
}
