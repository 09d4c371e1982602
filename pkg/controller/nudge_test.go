// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clienttesting "k8s.io/client-go/testing"

	"github.com/configdep/configdep/pkg/policy"
)

// nudging sets up a Deployment that reads ConfigMap files from a volume, and asks for nudges, with a number of pods.
func nudging(c *cluster, pods int) {
	c.t.Helper()
	adopted(c)
	c.set(replicaSet("web-a", "1", "uid-web", time.Now()))
	c.set(configMap("files", "1"))
	edit(c, deployment("web", "db"), func(d *appsv1.Deployment) {
		spec := &d.Spec.Template.Spec
		spec.Volumes = []corev1.Volume{{Name: "files", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "files"}}}}}
		spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "files", MountPath: "/files"}}
		d.Annotations[policy.LiveVolumesAnnotation], d.Annotations[policy.NudgeAnnotation] = "true", "true"
	})
	for i := range pods {
		c.set(pod(fmt.Sprintf("web-%03d", i), "uid-web-a"))
	}
	c.advance(time.Minute)
	got := c.took()
	if n := len(got); n == 0 || !strings.HasSuffix(got[n-1], " nudged web") {
		c.t.Fatalf("requests = %v, want a record of what the files have", got)
	}
	for _, r := range got {
		if strings.Contains(r, "nudge web-") {
			c.t.Fatalf("requests = %v, want no pod to be nudged for what it has", got)
		}
	}
}

// podLists returns how often pods have been listed.
func (c *cluster) podLists() (n int) {
	for _, a := range c.client.Actions() {
		if a.Matches("list", "pods") {
			n++
		}
	}
	return n
}

func TestNudge_AnnotatesThePods(t *testing.T) {
	inCluster(t, func(c *cluster) {
		nudging(c, 2)
		c.set(configMap("files", "2"))
		c.advance(time.Millisecond)
		c.expect("at once", "2m0s nudge web-000", "2m0s nudge web-001", "2m0s nudged web")
		first := live(c, pod("web-000", "")).Annotations[policy.NudgedAnnotation]
		if other := live(c, pod("web-001", "")).Annotations[policy.NudgedAnnotation]; first == "" || first != other {
			t.Errorf("annotations = %q and %q, want the same", first, other)
		}
		c.set(configMap("files", "3"))
		c.advance(500 * time.Millisecond)
		c.expect("not twice within a second")
		c.advance(500 * time.Millisecond)
		c.expect("after that", "2m1s nudge web-000", "2m1s nudge web-001", "2m1s nudged web")
		c.set(configMap("files", "3"))
		c.advance(time.Hour)
		c.expect("the same content")
		c.set(secret("db", "2"))
		c.advance(time.Minute)
		c.expectOneRestart("content of the environment")
		c.expectEvents("nudges are no events", "Normal ConfigReloaded Deployment/shop/web: Restarted because Secret/db has changed")
	})
}

// Each nudge is for other content, so that many of them are no fight with another client.
func TestNudge_ManyAreNoFight(t *testing.T) {
	inCluster(t, func(c *cluster) {
		nudging(c, 1)
		for i := range 8 {
			c.set(configMap("files", fmt.Sprint("content ", i)))
			c.advance(2 * time.Second)
			if got := c.took(); len(got) != 2 || !strings.HasSuffix(got[1], " nudged web") {
				t.Errorf("change %d: %v", i, got)
			}
		}
		c.expectEvents("nudges are no events")
	})
}

// What changed while no leader ran is caught up on, and only that.
func TestNudge_GoesOnAfterTheProcessHasEnded(t *testing.T) {
	inCluster(t, func(c *cluster) {
		nudging(c, 2)
		c.refusing(func(a clienttesting.Action) error {
			if p, is := a.(clienttesting.PatchAction); is && p.GetName() == "web-001" {
				return errors.New("no")
			}
			return nil
		})
		c.set(configMap("files", "2"))
		c.advance(time.Millisecond)
		c.expect("one is refused", "2m0s nudge web-000", "2m0s nudge web-001")
		c.expectEvents("it is refused", "Warning ConfigReloadFailed Deployment/shop/web: Nudging the pods failed and will be retried: annotating pod shop/web-001: no")
		c.resign()
		c.refusing(nil)
		c.took()
		c.newProcess()
		c.synced()
		c.lead()
		c.advance(time.Minute)
		var got []string
		for _, r := range c.took() {
			got = append(got, strings.SplitN(r, " ", 2)[1])
		}
		if want := []string{"nudge web-001", "nudged web"}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the next leader: %v, want %v", got, want)
		}
	})
}

// All pods are nudged, but not too many at a time.
func TestNudge_IsBounded(t *testing.T) {
	inCluster(t, func(c *cluster) {
		const pods = 120
		nudging(c, pods)
		c.client.ClearActions()
		c.set(configMap("files", "2"))
		c.advance(time.Millisecond)
		if n := len(c.took()); n != nudgesAtOnce {
			t.Errorf("%d requests at once, want %d", n, nudgesAtOnce)
		}
		c.advance(2 * time.Second)
		if n := len(c.took()); n < nudgesPerSecond || n > 2*nudgesPerSecond+1 {
			t.Errorf("%d requests in two seconds, want about %d each", n, nudgesPerSecond)
		}
		c.advance(time.Minute)
		got := c.took()
		if n := len(got); n == 0 || !strings.HasSuffix(got[n-1], " nudged web") {
			t.Errorf("requests = %v, want the record at the end", got)
		}
		for i := range pods {
			if name := fmt.Sprintf("web-%03d", i); live(c, pod(name, "")).Annotations[policy.NudgedAnnotation] == "" {
				t.Errorf("pod %s was not nudged", name)
			}
		}
		if n := c.podLists(); n != 1 {
			t.Errorf("the pods were listed %d times, want once", n)
		}
	})
}

// While the limit for the whole server is reached, pods are not listed either: that would cost more than the nudges.
func TestNudge_ListsOnlyPodsThatItMayNudge(t *testing.T) {
	inCluster(t, func(c *cluster) {
		nudging(c, 1)
		for c.controller.nudges.TryAccept() { // others have used it up
		}
		c.client.ClearActions()
		c.set(configMap("files", "2"))
		c.advance(time.Millisecond)
		c.expect("at once")
		if n := c.podLists(); n > 0 {
			t.Errorf("pods were listed %d times", n)
		}
		c.advance(time.Second)
		c.expect("later", "2m1s nudge web-000", "2m1s nudged web")
		if n := c.podLists(); n != 1 {
			t.Errorf("pods were listed %d times, want once", n)
		}
	})
}

// Pods that are gone or terminating need no nudge.
func TestNudge_LeavesOthersAlone(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.synced()
		c.set(pod("a-job", "uid-job"))
		nudging(c, 2)
		c.refusing(func(a clienttesting.Action) error {
			if p, is := a.(clienttesting.PatchAction); is && p.GetName() == "web-000" {
				return apierrors.NewNotFound(corev1.Resource("pods"), "web-000")
			}
			return nil
		})
		c.set(configMap("files", "2"))
		c.advance(time.Millisecond)
		c.expect("the other one", "2m0s nudge web-000: NotFound", "2m0s nudge web-001", "2m0s nudged web")
	})
}

// A pod whose annotation is refused, as by an admission policy, keeps no other from being nudged.
func TestNudge_RefusedForOnePod(t *testing.T) {
	inCluster(t, func(c *cluster) {
		nudging(c, 2)
		c.refusing(func(a clienttesting.Action) error {
			if p, is := a.(clienttesting.PatchAction); is && p.GetName() == "web-000" {
				return apierrors.NewForbidden(corev1.Resource("pods"), "web-000", nil)
			}
			return nil
		})
		c.set(configMap("files", "2"))
		c.advance(time.Millisecond)
		c.expect("the other one", "2m0s nudge web-000: Forbidden", "2m0s nudge web-001")
		c.refusing(func(clienttesting.Action) error { return nil })
		c.advance(time.Minute)
		if got := c.took(); len(got) != 2 || !strings.HasSuffix(got[0], "nudge web-000") || !strings.HasSuffix(got[1], "nudged web") {
			t.Errorf("requests = %v, want the pod that is left, and then the record", got)
		}
	})
}
