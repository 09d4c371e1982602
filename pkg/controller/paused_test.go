// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/configdep/configdep/pkg/policy"
)

// readsKey returns a template that reads one key of a Secret.
func readsKey(source, key string) corev1.PodTemplateSpec {
	t := template(source)
	t.Spec.Containers[0].EnvFrom = nil
	t.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: source}, Key: key,
	}}}}
	return t
}

// TestReconcile_PausedDeploymentIsEditedAndEditedBack: no pod was started meanwhile, so the template that
// reads other keys does not matter.
func TestReconcile_PausedDeploymentIsEditedAndEditedBack(t *testing.T) {
	for name, before := range map[string]func(*cluster){
		"pods that are older than the process": func(c *cluster) { newLeader(c) },
		"pods that are younger":                func(*cluster) {},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				db := secret("db", "1")
				db.Data["other"] = []byte("1")
				web := deployment("web", "db")
				web.Spec.Template = readsKey("db", "password")
				c.synced()
				c.set(db)
				c.set(web)
				stop := c.lead()
				c.advance(time.Minute)
				if name != "pods that are younger" {
					stop()
				}
				before(c)
				c.took()
				edit(c, web, func(d *appsv1.Deployment) { d.Spec.Paused = true })
				edit(c, db, func(s *corev1.Secret) { s.Data["password"] = []byte("2") })
				c.advance(time.Minute)
				c.expectState("paused", policy.Blocked, "Paused")
				edit(c, web, func(d *appsv1.Deployment) {
					d.Spec.Template = readsKey("db", "other")
					d.Status.UpdatedReplicas = 0
				})
				c.advance(time.Minute)
				edit(c, web, func(d *appsv1.Deployment) {
					d.Spec.Template = readsKey("db", "password")
					d.Status.UpdatedReplicas = 1
				})
				c.advance(time.Minute)
				c.expect("paused")
				edit(c, web, func(d *appsv1.Deployment) { d.Spec.Paused = false })
				c.advance(time.Hour)
				c.expectOneRestart("resumed")
			})
		})
	}
}

// TestReconcile_DeploymentFoundPausedWithAnotherTemplate: when it is resumed, all pods are new and read
// the content at that time. The controller checks that none is from an older rollout.
func TestReconcile_DeploymentFoundPausedWithAnotherTemplate(t *testing.T) {
	inCluster(t, func(c *cluster) {
		adopted(c)()
		c.hold()
		c.set(secret("db", "2"))
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) {
			d.Spec.Paused, d.Status.UpdatedReplicas = true, 0
			d.Spec.Template.Spec.Containers[0].Image = "app:2"
		})
		newLeader(c)
		c.expectState("found paused", policy.Blocked, "Paused")
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Spec.Paused = false })
		c.advance(time.Hour)
		c.expect("resumed", "2m0s verified web")
		c.set(secret("db", "3"))
		c.advance(time.Hour)
		c.expectOneRestart("after the next change")
	})
}
