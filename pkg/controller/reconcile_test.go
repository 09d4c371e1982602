// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/workqueue"

	"github.com/configdep/configdep/pkg/decide"
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
		c.expectEvents("of the restart", restarted)
		c.set(secret("db", "2"))
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Status.Replicas = 2 })
		c.advance(time.Hour)
		c.expect("without another change")
		c.expectEvents("without another change")
	})
}

// TestReconcile_WaitsForItsOwnWrite: until the index has received a patch, it has a workload that still has to be restarted.
func TestReconcile_WaitsForItsOwnWrite(t *testing.T) {
	inCluster(t, func(c *cluster) {
		adopted(c)
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Annotations[policy.MinIntervalAnnotation] = "0" })
		c.set(secret("db", "2"))
		c.advance(999 * time.Millisecond)
		c.hold()
		c.advance(time.Millisecond)
		c.expect("once", "1m1s rollout web")
		for i := range 5 { // the source alone comes through, so that the workload is reconciled again
			c.mu.Lock()
			c.Late(func() { c.store(secret("db", fmt.Sprint("other-", i))) })()
			c.mu.Unlock()
			c.advance(10 * time.Second)
		}
		c.expect("while the index has not heard of it")
		c.advance(10 * time.Minute)
		c.expect("it may be lost, or late", "6m1s rollout web: Conflict", "11m1s rollout web: Conflict")
		c.release()
		c.advance(time.Second)
		c.expectDone("the index has received it, and the content has changed since", "rollout web")
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

// TestReconcile_ConflictDecidesAgain: the workload has changed since the decision.
func TestReconcile_ConflictDecidesAgain(t *testing.T) {
	inCluster(t, func(c *cluster) {
		adopted(c)
		c.set(secret("db", "2"))
		c.advance(900 * time.Millisecond)
		c.hold()
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "app:2" })
		c.advance(140 * time.Millisecond)
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

// TestReconcile_RefusedPatchHoldsUpNoOtherWorkload, and is tried again every five minutes at last.
func TestReconcile_RefusedPatchHoldsUpNoOtherWorkload(t *testing.T) {
	inCluster(t, func(c *cluster) {
		adopted(c)
		c.set(deployment("other", "db"))
		c.advance(time.Minute)
		c.took()
		c.refusing(func(a clienttesting.Action) error {
			if p, ok := a.(clienttesting.PatchAction); ok && p.GetName() == "web" {
				return errRefused
			}
			return nil
		})
		c.set(secret("db", "2"))
		c.advance(24 * time.Hour)
		const failed = `Warning ConfigRestartFailed Deployment/shop/web: A restart is due because Secret/db has changed, but it failed and will be retried: deployments.apps "web" is forbidden: quota`
		requests, events := c.took(), c.told()
		if n := len(requests); n < 288 || n > 310 || !slices.Contains(requests, "2m1s rollout other") {
			t.Errorf("got %d attempts in a day: %v …", n, requests[:3])
		}
		if n := len(events); n != len(requests) || events[n-1] != failed {
			t.Errorf("got %d events: %v …", n, events[n-3:])
		}
		if log := c.log.String(); !strings.Contains(log, `"Handling a workload failed, will retry" err="deployments.apps \"web\" is forbidden: quota" kind="Deployment" workload="shop/web"`) {
			t.Errorf("log lacks the failure: %s", log)
		}
		c.refusing(nil)
		c.advance(5 * time.Minute)
		c.expectDone("it is no longer refused", "rollout web")
		c.expectEvents("at last", restarted)
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
		c.expectDone("it is created again", "baseline web")
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
		c.Index().Read(func(known decide.Evaluator) { c.controller.enqueueAll(known) })
		c.controller.serve(nil)
		if queue.Len() != 1 {
			t.Errorf("got %d queued workloads, want the one that has opted in", queue.Len())
		}
	})
}

// TestReconcile_BlockedWorkloadIsToldOnceForEachCause, and again when the cause returns.
func TestReconcile_BlockedWorkloadIsToldOnceForEachCause(t *testing.T) {
	const (
		missing = "Warning ConfigSourceMissing Deployment/shop/web: Secret db is missing: new pods cannot start. Automatic restarts are on hold until this is fixed."
		invalid = `Warning ConfigInvalidAnnotation Deployment/shop/web: Invalid annotation configdep.io/settle="soon": ` +
			`must be a duration such as "0", "500ms", "30s" or "5m". Automatic restarts are on hold until this is fixed.`
	)
	inCluster(t, func(c *cluster) {
		adopted(c)
		settle := func(value string) func() {
			return func() {
				edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Annotations[policy.SettleAnnotation] = value })
			}
		}
		for _, step := range []struct {
			what   string
			do     func()
			events []string
		}{
			{"a source is missing", func() { c.remove(live(c, secret("db", ""))) }, []string{missing}},
			{"still", func() {
				edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Status.ObservedGeneration++ })
			}, nil},
			{"an annotation is invalid as well", settle("soon"), []string{invalid}},
			{"fixed, but the source is missing", settle("1s"), []string{missing}},
			{"it is there again, with the same content", func() { c.set(secret("db", "1")) }, nil},
			{"missing once more", func() { c.remove(live(c, secret("db", ""))) }, []string{missing}},
			{"paused by its owner, who knows", func() {
				c.set(secret("db", "1"))
				edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Spec.Paused = true })
				c.set(secret("db", "2"))
			}, nil},
		} {
			step.do()
			c.advance(time.Minute)
			c.expectEvents(step.what, step.events...)
		}
		c.expect("nothing was restarted")
	})
}

// TestReconcile_RollbackToTheHashOfTheTemplate: the owner has rolled back to a template with the hash of the next content, so setting the hash
// does not change the template.
func TestReconcile_RollbackToTheHashOfTheTemplate(t *testing.T) {
	inCluster(t, func(c *cluster) {
		adopted(c)
		restart := func(value string) appsv1.Deployment {
			c.set(secret("db", value))
			c.advance(time.Minute)
			c.expectDone("content "+value, "rollout web")
			return *live(c, deployment("web", "db"))
		}
		old := restart("2")
		restart("3")
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Spec.Template = old.Spec.Template })
		c.advance(time.Minute)
		c.expect("rolled back")
		if now := restart("2"); cmp.Equal(old.Spec.Template, now.Spec.Template) {
			t.Error("the template has not changed, so the pods were not restarted")
		}
	})
}

// TestReconcile_FailuresCountUntilWhatFailedIsNotToBeDone: then the next request starts without failures.
func TestReconcile_FailuresCountUntilWhatFailedIsNotToBeDone(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*cluster)
		want   []string
	}{
		"postponed": {func(c *cluster) { c.set(secret("db", "3")) }, []string{"1m2.08s rollout web: Forbidden", "1m2.24s rollout web: Forbidden"}},
		"no longer needed": {func(c *cluster) {
			c.set(secret("db", "1"))
			c.advance(time.Millisecond)
			c.set(secret("db", "2"))
		}, []string{"1m2.081s rollout web: Forbidden", "1m2.086s rollout web: Forbidden"}},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				adopted(c)
				c.refusing(func(clienttesting.Action) error { return errRefused })
				c.set(secret("db", "2"))
				c.advance(time.Second + 80*time.Millisecond)
				if got := c.took(); len(got) != 5 {
					t.Fatalf("the request fails: %v", got)
				}
				tc.change(c)
				c.advance(1160 * time.Millisecond)
				if got := c.took(); len(got) < 2 || !slices.Equal(got[:2], tc.want) {
					t.Errorf("requests = %v, want %v", got, tc.want)
				}
			})
		})
	}
}

// TestReconcile_RefusedRecordIsTold: without a record, the next change may be missed.
func TestReconcile_RefusedRecordIsTold(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.synced()
		c.set(secret("db", "1"))
		c.set(deployment("web", "db"))
		c.refusing(func(clienttesting.Action) error {
			return apierrors.NewForbidden(appsv1.Resource("deployments"), "web", fmt.Errorf("RBAC"))
		})
		c.lead()
		c.expectEvents("refused", `Warning ConfigRecordFailed Deployment/shop/web: Recording the content that the pods run with failed and will be retried: deployments.apps "web" is forbidden: RBAC`)
		c.refusing(nil)
		c.took()
		c.advance(time.Second)
		c.expect("and tried again", "5ms baseline web")
	})
}
