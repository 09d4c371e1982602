// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/workqueue"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/policy"
)

func TestReconcile_ChangedContentRestartsTheWorkloadOnce(t *testing.T) {
	inCluster(t, func(c *cluster) {
		adopted(c)
		c.set(secret("db", "2"))
		c.advance(999 * time.Millisecond)
		c.expect("before it has settled")
		c.advance(time.Hour)
		c.expect("after it has settled", "1m1s rollout web")
		c.expectEvents("of the restart", "Normal ConfigReloaded Deployment/shop/web: Restarted because Secret/db has changed")

		d := live(c, deployment("web", "db"))
		if d.Annotations[policy.ConfigHashAnnotation] != d.Spec.Template.Annotations[policy.ConfigHashAnnotation] {
			t.Errorf("the hash on the template differs: annotations of the Deployment %v, of its template %v", d.Annotations, d.Spec.Template.Annotations)
		}
		c.set(secret("db", "2"))
		edit(c, d, func(d *appsv1.Deployment) { d.Status.Replicas = 2 })
		c.advance(time.Hour)
		c.expect("without another change")
		c.expectEvents("without another change")
	})
}

func TestReconcile_OptingInRestartsNothing(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.synced()
		c.set(secret("db", "1"))
		for i := range 20 {
			d := deployment(fmt.Sprint("web-", i), "db")
			d.Annotations = nil
			c.set(d)
		}
		c.lead()
		c.advance(time.Minute)
		c.expect("before the workloads opt in")
		for i := range 20 {
			edit(c, deployment(fmt.Sprint("web-", i), "db"), func(d *appsv1.Deployment) {
				d.Annotations = map[string]string{policy.ReloadAnnotation: "auto"}
			})
		}
		c.advance(time.Minute)
		got := c.took()
		if len(got) != 20 || strings.Contains(fmt.Sprint(got), "rollout") {
			t.Errorf("requests when the workloads opt in = %v", got)
		}
		c.expectEvents("when the workloads opt in")
	})
}

// TestReconcile_WaitsForItsOwnWrite: until the index has received a patch, it has a workload that still
// has to be restarted, or adopted.
func TestReconcile_WaitsForItsOwnWrite(t *testing.T) {
	for name, tc := range map[string]struct {
		strategy, kind string
	}{
		"rollout": {"annotation", "rollout"}, "recreate": {"recreate", "recreate"},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				adopted(c)
				edit(c, deployment("web", "db"), func(d *appsv1.Deployment) {
					d.Annotations[policy.StrategyAnnotation] = tc.strategy
					d.Annotations[policy.MinIntervalAnnotation] = "0"
				})
				c.set(secret("db", "2"))
				c.advance(999 * time.Millisecond)
				c.hold()
				c.advance(time.Millisecond)
				c.expect("once", "1m1s "+tc.kind+" web")
				// Meanwhile, the controller reconciles the workload repeatedly.
				for i := range 5 {
					c.replaySource(t, secret("db", fmt.Sprint("other-", i)))
					c.advance(10 * time.Second)
				}
				c.expect("while the index has not heard of it")
				c.release()
				c.advance(time.Second)
				got := c.took()
				if len(got) == 0 || !strings.Contains(got[0], tc.kind) && !strings.Contains(got[0], "baseline") {
					t.Errorf("requests once the index has received the write = %v", got)
				}
			})
		})
	}
	t.Run("baseline", func(t *testing.T) {
		inCluster(t, func(c *cluster) {
			c.synced()
			c.set(secret("db", "1"))
			c.set(deployment("web", "db"))
			c.hold()
			c.lead()
			c.expect("once", "0s baseline web")
			c.replaySource(t, secret("db", "2"))
			c.advance(lostAfter - time.Millisecond)
			c.expect("while the index has not heard of it")
			c.advance(2*lostAfter + 100*time.Millisecond)
			c.expect("it may be lost", "5m0s baseline web: Conflict", "10m0s baseline web: Conflict", "15m0s baseline web: Conflict")
			c.release()
			c.advance(time.Minute)
			c.expectOneRestart("the index has heard of it")
		})
	})
}

// A restore of etcd can undo a write unnoticed, if the index had read nothing since the backup.
func TestReconcile_WriteThatARestoreTakesBack(t *testing.T) {
	inCluster(t, func(c *cluster) {
		adopted(c)
		c.set(secret("db", "2"))
		c.hold()
		backup := live(c, deployment("web", "db"))
		c.advance(time.Second)
		c.expect("the content has settled", "1m1s rollout web")
		c.mu.Lock()
		c.Forget()
		err := c.client.Tracker().Update(ingesttest.ResourceOf(backup), backup, namespace)
		c.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		c.release()
		c.advance(time.Hour)
		c.expect("the write has not come back", "6m1s rollout web")
	})
}

// replaySource delivers only a source to the index, while other events are held.
func (c *cluster) replaySource(t *testing.T, s ingesttest.Object) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Late(func() { c.store(s) })()
}

// TestReconcile_ConflictDecidesAgain: the workload has changed since the decision.
func TestReconcile_ConflictDecidesAgain(t *testing.T) {
	inCluster(t, func(c *cluster) {
		adopted(c)
		c.set(secret("db", "2"))
		c.advance(900 * time.Millisecond)
		c.hold()
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
		c.advance(100 * time.Millisecond)
		c.advance(40 * time.Millisecond)
		c.expect("while the index shows the old one, ever more slowly",
			"1m1s rollout web: Conflict", "1m1.005s rollout web: Conflict", "1m1.015s rollout web: Conflict", "1m1.035s rollout web: Conflict")
		c.release()
		c.advance(time.Hour)
		c.expect("the new pods have read the content", "1m1.04s baseline web")
		c.expectEvents("nothing has failed")
		if log := c.log.String(); strings.Contains(log, "will retry") {
			t.Errorf("log = %s, want no conflict", log)
		}
	})
}

// TestReconcile_RefusedPatchIsTriedAgainAndHoldsUpNoOtherWorkload, indefinitely and with a delay that doubles.
func TestReconcile_RefusedPatchIsTriedAgainAndHoldsUpNoOtherWorkload(t *testing.T) {
	inCluster(t, func(c *cluster) {
		adopted(c)
		for i := range 10 {
			c.set(deployment(fmt.Sprint("other-", i), "db"))
		}
		c.advance(time.Minute)
		c.took()
		c.refusing(func(a clienttesting.Action) error {
			if p, ok := a.(clienttesting.PatchAction); ok && p.GetName() == "web" {
				return apierrors.NewForbidden(appsv1.Resource("deployments"), "web", fmt.Errorf("quota"))
			}
			return nil
		})
		c.set(secret("db", "2"))
		c.advance(time.Second)
		var refused, others []string
		for _, r := range c.took() {
			if strings.Contains(r, "rollout web") {
				refused = append(refused, r)
			} else {
				others = append(others, r)
			}
		}
		if len(others) != 10 || strings.Contains(strings.Join(others, ""), ":") {
			t.Errorf("requests for the other workloads = %v", others)
		}
		if diff := cmp.Diff([]string{"2m1s rollout web: Forbidden"}, refused); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		c.advance(80 * time.Millisecond)
		c.expect("soon, and then later",
			"2m1.005s rollout web: Forbidden", "2m1.015s rollout web: Forbidden", "2m1.035s rollout web: Forbidden", "2m1.075s rollout web: Forbidden")
		c.advance(24 * time.Hour)
		tries := c.took()
		if n := len(tries); n < 288 || n > 310 { // every five minutes
			t.Errorf("got %d attempts in a day: %v …", n, tries[:3])
		}
		failed := "Warning ConfigReloadFailed Deployment/shop/web: A restart is due because Secret/db has changed, but it failed and will be retried: " +
			`deployments.apps "web" is forbidden: quota`
		for _, e := range c.told() {
			if !strings.HasPrefix(e, "Normal ConfigReloaded Deployment/shop/other-") && e != failed {
				t.Errorf("unexpected event %s", e)
			}
		}
		if log := c.log.String(); !strings.Contains(log, `"Handling a workload failed, will retry" err="deployments.apps \"web\" is forbidden: quota" kind="Deployment" workload="shop/web"`) {
			t.Errorf("log lacks the failure: %s", log)
		}

		c.refusing(nil)
		c.advance(5 * time.Minute)
		if got := c.took(); len(got) != 1 || !strings.HasSuffix(got[0], "rollout web") {
			t.Errorf("requests when the patch is no longer refused = %v", got)
		}
		c.expectEvents("at last", "Normal ConfigReloaded Deployment/shop/web: Restarted because Secret/db has changed")
	})
}

// TestReconcile_RefusedBaselineIsLogged: without a record, the next change may be missed.
func TestReconcile_RefusedBaselineIsLogged(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.synced()
		c.set(secret("db", "1"))
		c.set(deployment("web", "db"))
		c.refusing(func(clienttesting.Action) error {
			return apierrors.NewForbidden(appsv1.Resource("deployments"), "web", fmt.Errorf("RBAC"))
		})
		c.lead()
		c.expect("refused", "0s baseline web: Forbidden")
		if log := c.log.String(); !strings.Contains(log, "is forbidden: RBAC") {
			t.Errorf("log lacks the failure: %q", log)
		}
		c.refusing(nil)
		c.advance(time.Second)
		c.expect("and tried again", "5ms baseline web")
	})
}

func TestReconcile_DeletedWorkloadIsLetGo(t *testing.T) {
	inCluster(t, func(c *cluster) {
		adopted(c)
		c.set(secret("db", "2"))
		c.advance(900 * time.Millisecond)
		c.hold()
		c.remove(live(c, deployment("web", "db")))
		c.advance(time.Hour)
		c.expect("the patch comes too late", "1m1s rollout web: NotFound")
		c.expectEvents("which is no failure")
		c.release()
		c.advance(time.Hour)
		c.expect("gone")
		if n := len(c.controller.notes); n > 0 {
			t.Errorf("got %d notes, want none", n)
		}

		again := deployment("web", "db")
		again.UID = "another"
		c.set(again)
		c.advance(time.Minute)
		if got := c.took(); len(got) != 1 || !strings.HasSuffix(got[0], "baseline web") {
			t.Errorf("requests after the workload is created again = %v", got)
		}
	})
}

// TestReconcile_WhatHasNotOptedInCostsNothing: when a term begins, most workloads of a cluster are neither queued nor remembered.
func TestReconcile_WhatHasNotOptedInCostsNothing(t *testing.T) {
	inCluster(t, func(c *cluster) {
		stop := adopted(c)
		bystander := deployment("bystander", "db")
		delete(bystander.Annotations, policy.ReloadAnnotation)
		c.set(bystander)
		c.advance(time.Minute)
		if len(c.controller.notes) != 1 {
			t.Errorf("got %d notes, want one for the workload that has opted in", len(c.controller.notes))
		}
		stop()
		queue := workqueue.NewTypedDelayingQueue[dependency.WorkloadKey]()
		defer queue.ShutDown()
		c.controller.serve(queue)
		c.Index().Read(func(known policy.Evaluator) { c.controller.enqueueAll(known.Graph) })
		c.controller.serve(nil)
		if queue.Len() != 1 {
			t.Errorf("got %d queued workloads, want the one that has opted in", queue.Len())
		}

		// The workload opts in, and out again.
		c.lead()
		c.set(deployment("bystander", "db"))
		c.advance(time.Minute)
		if got := c.took(); len(got) != 1 || !strings.HasSuffix(got[0], "baseline bystander") {
			t.Errorf("requests after opting in = %v", got)
		}
		bystander = live(c, bystander).DeepCopy()
		delete(bystander.Annotations, policy.ReloadAnnotation)
		c.set(bystander)
		c.advance(time.Minute)
		c.expectEvents("opted out", "Normal ConfigReloadOff Deployment/shop/bystander: Automatic restarts are off: configdep.io/reload was removed from the Deployment. (kubectl rollout undo restores the annotations of the older revision.)")
	})
}

// TestReconcile_BlockedWorkloadIsToldOnceForEachCause, and again when the cause returns.
func TestReconcile_BlockedWorkloadIsToldOnceForEachCause(t *testing.T) {
	const (
		missing = "Warning ConfigSourceMissing Deployment/shop/web: Secret db is missing: new pods cannot start. Automatic restarts are on hold until this is fixed."
		invalid = `Warning InvalidAnnotation Deployment/shop/web: Invalid annotation configdep.io/settle="soon": ` +
			`must be a duration such as "0", "500ms", "30s" or "5m". Automatic restarts are on hold until this is fixed.`
		patterns = "Warning ConfigTooManyPatterns Deployment/shop/web: Too many patterns in the namespace: the different patterns in configdep.io/sources of all its workloads may count as 500 in total, " +
			"and each as 100 (one with * counts as 1, one with ? or [ ] as 1 plus its length, and each pattern in configdep.io/exclude adds its own count); " +
			"workloads that were created earlier leave no room for the patterns of this one. Automatic restarts are on hold until this is fixed."
		many = "Warning ConfigTooManySources Deployment/shop/web: The pod template names more than 500 ConfigMaps and Secrets, or names them in more than " +
			"5000 places (a place counts once for each key that it names). configdep does not know all of its sources. Automatic restarts are on hold until this is fixed."
	)
	inCluster(t, func(c *cluster) {
		adopted(c)
		touch := func() {
			edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Status.ObservedGeneration++ })
			c.advance(time.Minute)
		}
		annotate := func(key, value string) {
			edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Annotations[key] = value })
			c.advance(time.Minute)
		}
		c.remove(live(c, secret("db", "")))
		c.advance(time.Minute)
		c.expectEvents("a source is missing", missing)
		touch()
		touch()
		c.expectEvents("still")
		c.set(secret("db", "1"))
		c.advance(time.Minute)
		c.expectEvents("it is there again, with the same content")
		c.remove(live(c, secret("db", "")))
		c.advance(time.Minute)
		c.expectEvents("missing once more", missing)
		annotate(policy.SettleAnnotation, "soon")
		c.expectEvents("an annotation is invalid as well", invalid)
		touch()
		c.expectEvents("still")
		annotate(policy.SettleAnnotation, "1s")
		c.expectEvents("fixed, but the source is missing", missing)
		c.set(secret("db", "1"))
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Spec.Paused = true })
		c.set(secret("db", "2"))
		c.advance(time.Minute)
		c.expectEvents("paused by its owner, who knows")
		few := live(c, deployment("web", "db")).Spec.Template.Spec
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) {
			for i := range dependency.MaxSources {
				d.Spec.Template.Spec.ImagePullSecrets = append(d.Spec.Template.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: fmt.Sprint("s-", i)})
			}
		})
		c.advance(time.Minute)
		c.expectEvents("more sources than are looked at", many)
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Spec.Template.Spec = few })
		c.advance(time.Minute)
		c.expectEvents("fewer")
		annotate(policy.SourcesAnnotation, "configmap/"+strings.Repeat("?", dependency.MaxWorkOfGlob))
		c.expectEvents("a pattern that costs too much", patterns)
		annotate(policy.SourcesAnnotation, "configmap/other")
		c.expectEvents("one that costs nothing")
		c.expect("nothing was restarted")
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Spec.Paused = false })
		c.advance(time.Minute)
		c.expectEvents("resumed", "Normal ConfigReloaded Deployment/shop/web: Restarted because Secret/db has changed")
	})
}

// TestReconcile_StormOfChanges: content that never settles restarts the workload within ten times
// the settle time, then at growing intervals, and finally with the last content.
func TestReconcile_StormOfChanges(t *testing.T) {
	inCluster(t, func(c *cluster) {
		adopted(c)
		for i := range 300 {
			c.set(secret("db", fmt.Sprint("v", i)))
			c.advance(500 * time.Millisecond)
		}
		c.advance(time.Hour)
		var times []string
		for _, r := range c.took() {
			if !strings.HasSuffix(r, "rollout web") {
				t.Errorf("request = %s, want a restart", r)
			}
			times = append(times, strings.Fields(r)[0])
		}
		// The last restart waits for the interval, long after the storm.
		if diff := cmp.Diff([]string{"1m4s", "1m14s", "1m34s", "2m14s", "3m34s"}, times); diff != "" {
			t.Errorf("restarts at (-want +got):\n%s", diff)
		}
		d := live(c, deployment("web", "db"))
		hash := d.Annotations[policy.ConfigHashAnnotation]
		c.set(secret("db", "v299"))
		c.advance(time.Hour)
		c.expect("the content that is in force is the last one")
		if now := live(c, d).Annotations[policy.ConfigHashAnnotation]; now != hash {
			t.Errorf("hash = %s, want the same as before, %s", now, hash)
		}
	})
}

// TestReconcile_RollbackToTheHashOfTheTemplate: the owner has rolled back to a template with the hash of
// the next content, so setting the hash does not change the template.
func TestReconcile_RollbackToTheHashOfTheTemplate(t *testing.T) {
	inCluster(t, func(c *cluster) {
		adopted(c)
		restart := func(value string) {
			c.set(secret("db", value))
			c.advance(time.Minute)
			if got := c.took(); len(got) != 1 || !strings.HasSuffix(got[0], "rollout web") {
				t.Fatalf("content %q: requests = %v", value, got)
			}
		}
		restart("2")
		old := live(c, deployment("web", "db")).Spec.Template
		restart("3")
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Spec.Template = old })
		c.advance(time.Minute)
		c.expect("rolled back")
		restart("2")
		now := live(c, deployment("web", "db")).Spec.Template
		if cmp.Equal(old, now) {
			t.Error("the template has not changed, so the pods were not restarted")
		}
	})
}
