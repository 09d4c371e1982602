// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/configdep/configdep/pkg/policy"
)

const revisionAnnotation = "deployment.kubernetes.io/revision"

// rolled gives the Deployment web a new ReplicaSet.
func (c *cluster) rolled(revision string) {
	c.t.Helper()
	c.set(replicaSet("set-"+revision, revision, "uid-web", time.Now()))
	edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Annotations[revisionAnnotation] = revision })
}

// currentSet returns the UID of the current ReplicaSet of the Deployment web.
func (c *cluster) currentSet() types.UID {
	c.t.Helper()
	return types.UID("uid-set-" + live(c, deployment("web", "db")).Annotations[revisionAnnotation])
}

// started starts a container in a pod of the Deployment web, and creates the pod if it does
// not exist.
func (c *cluster) started(name, container string) {
	c.t.Helper()
	p := pod(name, c.currentSet())
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: container, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
	}}
	c.set(p)
}

// excursion changes content and changes it back within 20 minutes, while a restart is held
// back. In between, something happens. It returns a function that ends the hold.
type excursion func(c *cluster, between func()) (release func())

var excursions = map[string]excursion{
	"by the minimum interval": func(c *cluster, between func()) func() {
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Annotations[policy.MinIntervalAnnotation] = "2h" })
		c.set(secret("db", "2"))
		c.advance(10 * time.Minute)
		c.expectOneRestart("before the interval")
		c.rolled("2")
		c.started("web-0", "app")
		c.advance(10 * time.Minute)
		c.set(secret("db", "3"))
		c.advance(10 * time.Minute)
		c.expectState("held up", policy.Pending, "MinInterval")
		between()
		c.advance(10 * time.Minute)
		c.expect("held up")
		c.set(secret("db", "2"))
		return func() {}
	},
	"by a missing source": func(c *cluster, between func()) func() {
		c.remove(live(c, configMap("late", "1")))
		c.advance(10 * time.Minute)
		c.set(secret("db", "2"))
		c.advance(10 * time.Minute)
		c.expectState("held up", policy.Blocked, policy.ReasonSourceMissing)
		between()
		c.advance(10 * time.Minute)
		c.set(secret("db", "1"))
		return func() { c.set(configMap("late", "1")) }
	},
	"by its owner": func(c *cluster, between func()) func() {
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Spec.Paused = true })
		c.set(secret("db", "2"))
		c.advance(10 * time.Minute)
		c.expectState("held up", policy.Blocked, "Paused")
		between()
		c.advance(10 * time.Minute)
		c.set(secret("db", "1"))
		c.advance(time.Minute)
		return func() { edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Spec.Paused = false }) }
	},
}

// withPod sets up an adopted Deployment whose pod was started long ago.
func withPod(c *cluster) {
	c.t.Helper()
	c.synced()
	c.set(secret("db", "1"))
	c.set(configMap("late", "1"))
	c.set(sidecar(deployment("web", "db"), "late"))
	c.rolled("1")
	c.started("web-0", "app")
	c.lead()
	c.advance(time.Hour)
	c.expect("adopted", "0s baseline web")
}

// TestReconcile_ContentThereAndBackWhileARestartIsHeldUp: containers that were started in between run
// with content that is no longer current.
func TestReconcile_ContentThereAndBackWhileARestartIsHeldUp(t *testing.T) {
	for held, excursion := range excursions {
		for name, tc := range map[string]struct {
			between func(*cluster)
			restart bool
		}{
			"nothing was started":                                   {func(*cluster) {}, false},
			"a pod was created":                                     {func(c *cluster) { c.started("web-1", "app") }, true},
			"a container was restarted":                             {func(c *cluster) { c.started("web-0", "app") }, true},
			"a container that does not read the source was started": {func(c *cluster) { c.started("web-1", "sidecar") }, false},
			"a waiting pod was created":                             {func(c *cluster) { c.set(pod("web-1", c.currentSet())) }, false},
			"a pod of another workload was created": {func(c *cluster) {
				c.started("other", "app")
				edit(c, pod("other", ""), func(p *corev1.Pod) { p.OwnerReferences[0].UID = "uid-other" })
			}, false},
		} {
			t.Run(held+", "+name, func(t *testing.T) {
				inCluster(t, func(c *cluster) {
					withPod(c)
					release := excursion(c, func() { tc.between(c) })
					release()
					at := time.Now().Add(-time.Minute) // content had changed back by then
					c.advance(time.Minute)
					if tc.restart {
						c.expectNotInSync()
					} else {
						c.expectState("the pods were looked up", policy.InSync, "ContentApplied")
						d := live(c, deployment("web", "db"))
						verified, err := time.Parse(time.RFC3339Nano, strings.Fields(d.Annotations[policy.VerifiedAnnotation] + " ")[0])
						if err != nil || verified.Before(at) || verified.After(time.Now()) {
							t.Errorf("time of the inspection = %v, error %v", d.Annotations[policy.VerifiedAnnotation], err)
						}
					}
					c.advance(3 * time.Hour)
					kinds := c.kinds()
					want := "verified"
					if tc.restart {
						want = "mixed rollout"
					}
					if kinds != want {
						t.Errorf("requests = %s, want %s", kinds, want)
					}
					c.expectState("at last", policy.InSync, "ContentApplied")
				})
			})
		}
	}
}

// expectNotInSync checks that the workload is not in sync. If a restart was due at once, it may already be done.
func (c *cluster) expectNotInSync() {
	c.t.Helper()
	if d := c.decision(); d.State == policy.InSync && !strings.Contains(fmt.Sprint(c.requests), "rollout") {
		c.t.Errorf("decision = %+v, want a state other than InSync: some containers run with other content", d)
	}
}

// kinds returns the kinds of the requests since the last call.
func (c *cluster) kinds() string {
	var kinds []string
	for _, r := range c.took() {
		kinds = append(kinds, strings.Fields(r)[1])
	}
	return strings.Join(kinds, " ")
}

// TestReconcile_LookAtPodsThatFailsIsTriedAgain, and until it succeeds nothing is restarted or recorded.
func TestReconcile_LookAtPodsThatFailsIsTriedAgain(t *testing.T) {
	inCluster(t, func(c *cluster) {
		withPod(c)
		failing, tries := true, 0
		c.intercept("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			tries++
			return failing, nil, apierrors.NewInternalError(errors.New("etcd"))
		})
		excursions["by a missing source"](c, func() {})()
		c.advance(time.Minute)
		c.expect("listing pods fails")
		c.expectState("listing pods fails", policy.Pending, policy.ReasonVerifying)
		if tries < 5 || tries > 16 {
			t.Errorf("got %d attempts in a minute", tries)
		}
		if log := c.log.String(); !strings.Contains(log, "listing the pods of Deployment shop/web: ") {
			t.Errorf("log lacks the failure:\n%s", log)
		}
		failed := "Warning ConfigReloadFailed Deployment/shop/web: Checking which content the pods were started with failed and will be retried: listing the pods of Deployment shop/web: "
		if events := c.told(); !slices.ContainsFunc(events, func(e string) bool { return strings.HasPrefix(e, failed) }) {
			t.Errorf("events = %v, want the failure", events)
		}
		c.mu.Lock()
		failing = false
		c.mu.Unlock()
		c.advance(5 * time.Minute)
		if kinds := c.kinds(); kinds != "verified" {
			t.Errorf("requests once pods can be listed = %s", kinds)
		}
	})
}
