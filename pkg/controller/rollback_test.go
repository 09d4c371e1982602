// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

// revisionHistoryAnnotation is set on a ReplicaSet to which a Deployment was rolled back.
const revisionHistoryAnnotation = "deployment.kubernetes.io/revision-history"

// A template that comes back in the middle of a rollout may have earlier pods, which have not read
// changes in between. They are inspected unless the ReplicaSet was created for the template.
func TestReconcile_RollbackInTheMiddleOfARollout(t *testing.T) {
	for name, tt := range map[string]struct {
		history  string // of the ReplicaSet of the template that came back
		revision string // set by its controller
		want     string
	}{
		"to a ReplicaSet with pods from before":                              {"1", "3", "mixed rollout"},
		"to a ReplicaSet that was created for it":                            {"", "3", "verified"},
		"to a ReplicaSet that cannot be distinguished from the previous one": {"", "1", "mixed rollout"},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				withPod(c)
				c.took()
				edit(c, deployment("web", "db"), func(d *appsv1.Deployment) {
					d.Spec.Template.Spec.Containers[0].Image = "app:2"
					d.Status.UpdatedReplicas = 0
				})
				c.advance(time.Minute)
				c.set(secret("db", "2"))
				back := live(c, deployment("web", "db"))
				back.Spec.Template.Spec.Containers[0].Image = ""
				back.Status.UpdatedReplicas = 1
				back.Annotations[revisionAnnotation] = tt.revision
				set := live(c, replicaSet("set-1", "1", "uid-web", time.Now()))
				set.Annotations[revisionAnnotation] = tt.revision
				if tt.history != "" {
					set.Annotations[revisionHistoryAnnotation] = tt.history
				}
				c.set(set)
				c.set(back)
				c.advance(time.Hour)
				if got := c.kinds(); got != tt.want {
					t.Errorf("requests = %q, want %q", got, tt.want)
				}
			})
		})
	}
}

// An inspection that the API server refuses has no result.
func TestReconcile_LookForPodsThatFails(t *testing.T) {
	inCluster(t, func(c *cluster) {
		withPod(c)
		failing := true
		c.intercept("get", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			return failing, nil, apierrors.NewInternalError(errors.New("etcd"))
		})
		excursions["by a missing source"](c, func() {})()
		c.advance(time.Minute)
		c.expect("it fails")
		if log := c.log.String(); !strings.Contains(log, "looking for the pods of Deployment shop/web: ") {
			t.Errorf("log lacks the failure:\n%s", log)
		}
		c.mu.Lock()
		failing = false
		c.mu.Unlock()
		c.advance(5 * time.Minute)
		if kinds := c.kinds(); kinds != "verified" {
			t.Errorf("requests once pods can be listed = %q", kinds)
		}
	})
}
