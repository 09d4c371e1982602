// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// withRestarter adds a restarter to a pod.
func withRestarter(spec *corev1.PodSpec) {
	spec.InitContainers = []corev1.Container{{
		Name: "restarter", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
		RestartPolicyRules: []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestartAllContainers}},
		VolumeMounts:       []corev1.VolumeMount{{Name: "restart", MountPath: "/etc/configdep"}},
	}}
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "restart", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
		Items: []corev1.DownwardAPIVolumeFile{{Path: "restart", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['configdep.io/restart']"}}},
	}}})
}

// inPlace gives a pod a restarter, which runs.
func inPlace(p *corev1.Pod) *corev1.Pod {
	withRestarter(&p.Spec)
	p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "restarter", State: runningSince(time.Now())}}
	return p
}

// podInPlace returns a pod of the Deployment web, old enough for the next change.
func podInPlace(name string) *corev1.Pod { return aged(inPlace(pod(name, "uid-web-a"))) }

// aboutToRestartInPlace is withPodsInPlace, and the content has just changed. It settles in a second.
func aboutToRestartInPlace(c *cluster) {
	c.t.Helper()
	withPodsInPlace(c, 3)
	c.set(secret("db", "2"))
}

// withPodsInPlace sets up a Deployment with ready pods, whose strategy is in-place.
func withPodsInPlace(c *cluster, pods int32) {
	c.t.Helper()
	adopted(c)
	c.ownPods()
	c.set(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "web-a", Labels: map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: "a"}, Annotations: map[string]string{kind.RevisionAnnotation: "1"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "uid-web", Controller: new(true)}},
	}})
	for i := range pods {
		c.set(podInPlace(fmt.Sprint("web-", i)))
	}
	edit(c, deployment("web", "db"), func(d *appsv1.Deployment) {
		withRestarter(&d.Spec.Template.Spec)
		d.Annotations[policy.StrategyAnnotation], d.Annotations[kind.RevisionAnnotation] = "in-place", "1"
		d.Spec.Replicas = new(pods)
		d.Status = appsv1.DeploymentStatus{Replicas: pods, UpdatedReplicas: pods, AvailableReplicas: pods}
	})
	c.advance(500 * time.Millisecond)
	c.took()
}

// restartingInPlace is aboutToRestartInPlace, followed by the first pod being told.
func restartingInPlace(c *cluster) {
	c.t.Helper()
	aboutToRestartInPlace(c)
	c.advance(time.Second)
	c.expect("it begins", "1m1.5s in place web", "1m1.5s tell web-0")
	c.expectEvents("it begins", restarted, told("web-0"))
}

// expectEnd checks that no restart of the Deployment is under way.
func (c *cluster) expectEnd(what string) {
	c.t.Helper()
	if got := live(c, deployment("web", "db")).Annotations[record.RecreatingAnnotation]; got != "" {
		c.t.Errorf("%s: a restart is under way: %s", what, got)
	}
}

func told(pod string) string {
	return "Normal ConfigRestartingInPlace Pod/shop/" + pod + ": Told to restart all containers in place, for the current content"
}

func back(pod string) string {
	return "Normal ConfigRestartedInPlace Pod/shop/" + pod + ": All containers have restarted in place, with the current content"
}

// restart does what the kubelet does when a restarter ends: it restarts all containers of a pod.
func (c *cluster) restart(name string, ready bool) {
	c.t.Helper()
	edit(c, pod(name, ""), func(p *corev1.Pod) {
		for _, s := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
			s[0].RestartCount++
			s[0].State = runningSince(time.Now())
		}
		p.Status.Conditions[0].Status = corev1.ConditionFalse
		if ready {
			p.Status.Conditions[0].Status, p.Status.Conditions[0].LastTransitionTime = corev1.ConditionTrue, metav1.NewTime(time.Now().Truncate(time.Second))
		}
	})
}

// crash ends the application of a pod, which is not started again yet.
func (c *cluster) crash(name string) {
	c.t.Helper()
	edit(c, pod(name, ""), func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	})
}

// TestInPlace_RestartsOnePodAfterTheOther, and does no step twice if the process ends after it.
func TestInPlace_RestartsOnePodAfterTheOther(t *testing.T) {
	for name, next := range map[string]func(*cluster){"one process": func(*cluster) {}, "a process for each step": (*cluster).nextLeader} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				restartingInPlace(c)
				next(c)
				c.advance(30 * time.Second)
				c.expect("it has not restarted yet")
				c.restart("web-0", false)
				next(c)
				c.advance(30 * time.Second)
				c.expect("it is not ready")
				if got, want := c.decision().Message, "0 of 3 pods have been restarted in place. The others follow one by one, as maxUnavailable and PodDisruptionBudgets allow. If that takes long, the event ConfigRestartWaiting says why."; got != want {
					t.Errorf("message = %q, want %q", got, want)
				}
				c.expectState("meanwhile", decide.RollingOut, record.ReasonRestartingInPlace)
				c.told()
				c.ready("web-0")
				next(c)
				c.advance(5 * time.Second)
				c.expect("the second", "2m1.5s progress web", "2m1.5s tell web-1")
				c.expectEvents("the second", back("web-0"), told("web-1"))
				if got := c.decision().Message; !strings.HasPrefix(got, "1 of 3 pods has been restarted in place. ") {
					t.Errorf("message = %q", got)
				}
				c.restart("web-1", true)
				next(c)
				c.advance(5 * time.Second)
				c.expect("the third", "2m6.5s progress web", "2m6.5s tell web-2")
				c.restart("web-2", true)
				next(c)
				c.advance(5 * time.Second)
				c.expect("the end", "2m11.5s recreated web", "2m11.5s baseline web")
				c.expectState("at the end", decide.InSync, decide.ReasonContentApplied)
				c.advance(time.Hour)
				c.expect("after that")
				if d := live(c, deployment("web", "db")); d.Annotations[record.RecreatingAnnotation] != "" || d.Spec.Template.Annotations != nil {
					t.Errorf("annotations = %v, of the template %v", d.Annotations, d.Spec.Template.Annotations)
				}
			})
		})
	}
}

// TestInPlace_ManyPodsAreNoFight: the progress after each pod is no repetition of what another client has reverted.
func TestInPlace_ManyPodsAreNoFight(t *testing.T) {
	inCluster(t, func(c *cluster) {
		withPodsInPlace(c, 9)
		c.set(secret("db", "2"))
		if n := len(c.restartTold()); n != 9 {
			t.Errorf("told %d pods, want 9", n)
		}
		if events := fmt.Sprint(c.told()); strings.Contains(events, "ConfigConflict") {
			t.Errorf("events = %s", events)
		}
	})
}

// TestInPlace_CountsOnlyRestartsOfAllContainers: that the application or the restarter alone has restarted says nothing.
func TestInPlace_CountsOnlyRestartsOfAllContainers(t *testing.T) {
	again := func(s *corev1.ContainerStatus, ago time.Duration) {
		s.RestartCount++
		s.State = runningSince(time.Now().Add(-ago))
	}
	for name, edits := range map[string]func(*corev1.PodStatus){
		"the application": func(s *corev1.PodStatus) { again(&s.ContainerStatuses[0], 0) },
		"the restarter":   func(s *corev1.PodStatus) { again(&s.InitContainerStatuses[0], 0) },
		"both, the application first": func(s *corev1.PodStatus) {
			again(&s.ContainerStatuses[0], time.Second)
			again(&s.InitContainerStatuses[0], 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				restartingInPlace(c)
				c.advance(10 * time.Second)
				edit(c, pod("web-0", ""), func(p *corev1.Pod) { edits(&p.Status) })
				c.advance(160 * time.Second)
				c.expect("it waits")
				c.advance(10 * time.Second)
				c.expect("the pod is told again", "4m1.5s tell web-0")
				if got := live(c, pod("web-0", "")).Annotations[record.RestartAnnotation]; !strings.HasSuffix(got, "-2") {
					t.Errorf("annotation = %q, want a new value", got)
				}
				c.restart("web-0", true)
				c.advance(5 * time.Second)
				c.expectDone("then", "progress web", "tell web-1")
			})
		})
	}
}

// TestInPlace_Halts when a pod does not come back, and goes on by itself. A pod that is starting is not told again: the restarter runs again, and
// would stop what takes long to start.
func TestInPlace_Halts(t *testing.T) {
	const unready, stays = "Pod web-0 has not become ready within 10m0s of its restart in place.", "The containers of pod web-0 have not restarted within 10m0s."
	restarts := func(c *cluster) { c.restart("web-0", false) }
	for name, tc := range map[string]struct {
		before  func(*cluster)
		message string
		repair  func(*cluster)
		want    []string
	}{
		"it becomes ready after all": {restarts, unready, func(c *cluster) { c.ready("web-0") }, []string{"progress web", "tell web-1"}},
		"it is deleted": {
			restarts, unready, func(c *cluster) { c.remove(pod("web-0", "")); c.set(podInPlace("new")) }, []string{"progress web", "tell web-1"},
		},
		"content changes again": {restarts, unready, func(c *cluster) { c.set(secret("db", "3")) }, []string{"in place web", "tell web-0"}},
		"it ends again and again": {
			func(c *cluster) { restarts(c); c.crash("web-0") }, unready, func(c *cluster) { c.restart("web-0", true) }, []string{"progress web", "tell web-1"},
		},
		"it has not restarted": {func(*cluster) {}, stays, func(c *cluster) { c.restart("web-0", true) }, []string{"progress web", "tell web-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				restartingInPlace(c)
				tc.before(c)
				c.advance(10*time.Minute - time.Second)
				c.expectState("just before", decide.RollingOut, record.ReasonRestartingInPlace)
				if got := c.took(); len(got) > 0 && tc.message == unready {
					t.Errorf("requests while it is starting = %v", got)
				}
				c.told()
				c.advance(6 * time.Second)
				c.expect("it halts", "11m1.5s progress web")
				c.expectEvents("it halts", "Warning ConfigRestartFailed Deployment/shop/web: "+tc.message)
				c.expectState("it halts", decide.Failed, decide.ReasonRestartFailed)
				if got, want := c.decision().Message, tc.message+" 0 of 3 pods have been restarted in place. The restart goes on when this pod is ready or has been deleted, or when content changes again."; !strings.HasPrefix(got, want) { // and what the pod waits for
					t.Errorf("message = %q, want %q", got, want)
				}
				c.advance(time.Hour)
				c.took()
				tc.repair(c)
				c.advance(5 * time.Second)
				c.expectDone("then", tc.want...)
				c.expectState("then", decide.RollingOut, record.ReasonRestartingInPlace)
			})
		})
	}
}

func TestInPlace_WithinTheDeadlineOfTheDeployment(t *testing.T) {
	inCluster(t, func(c *cluster) {
		restartingInPlace(c)
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Spec.ProgressDeadlineSeconds = ptr.To[int32](60) })
		c.restart("web-0", false)
		c.advance(65 * time.Second)
		c.expectState("after a minute", decide.Failed, decide.ReasonRestartFailed)
	})
}

// TestInPlace_OtherwiseByARollout: what cannot be restarted in place is restarted all the same.
func TestInPlace_OtherwiseByARollout(t *testing.T) {
	for because, before := range map[string]func(*cluster){
		"its pod template has no restarter": func(c *cluster) {
			edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Spec.Template.Spec = template("db").Spec })
		},
		"pod web-1 has no restarter": func(c *cluster) {
			edit(c, pod("web-1", ""), func(p *corev1.Pod) { p.Spec.InitContainers[0].RestartPolicyRules = nil })
		},
	} {
		t.Run(because, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				withPodsInPlace(c, 3)
				before(c)
				c.advance(time.Minute)
				c.took()
				c.set(secret("db", "2"))
				c.advance(time.Second)
				c.expectDone("it is a rollout", "rollout web")
				c.expectEvents("it is a rollout", restarted+": by a rollout and not in place, because "+because)
			})
		})
	}
}
