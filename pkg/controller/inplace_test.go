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
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
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

// podInPlace returns a ready pod with a restarter, all containers of which started a while ago.
func podInPlace(name string) *corev1.Pod {
	p := pod(name, "uid-web-a")
	p.Spec = template("db").Spec
	withRestarter(&p.Spec)
	p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "restarter", State: runningSince(time.Now())}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: runningSince(time.Now())}}
	return p
}

// aboutToRestartInPlace is withPodsInPlace, and the content has just changed. It settles in a second.
func aboutToRestartInPlace(c *cluster) {
	c.t.Helper()
	withPodsInPlace(c)
	c.set(secret("db", "2"))
}

// withPodsInPlace sets up a Deployment with three ready pods, whose strategy is in-place.
func withPodsInPlace(c *cluster) {
	c.t.Helper()
	adopted(c)
	c.ownPods()
	c.set(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "web-a", Labels: map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: "a"}, Annotations: map[string]string{kind.RevisionAnnotation: "1"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "uid-web", Controller: new(true)}},
	}})
	for i := range 3 {
		c.set(podInPlace(fmt.Sprint("web-", i)))
	}
	edit(c, deployment("web", "db"), func(d *appsv1.Deployment) {
		withRestarter(&d.Spec.Template.Spec)
		d.Annotations[policy.StrategyAnnotation], d.Annotations[kind.RevisionAnnotation] = "in-place", "1"
		d.Spec.Replicas = ptr.To[int32](3)
		d.Status = appsv1.DeploymentStatus{Replicas: 3, UpdatedReplicas: 3, AvailableReplicas: 3}
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
	c.expectEvents("it begins", "Normal ConfigReloaded Deployment/shop/web: Restarted because Secret/db has changed", told("web-0"))
}

// expectEnd checks that no restart of the Deployment is under way.
func (c *cluster) expectEnd(what string) {
	c.t.Helper()
	if got := live(c, deployment("web", "db")).Annotations[policy.RecreatingAnnotation]; got != "" {
		c.t.Errorf("%s: a restart is under way: %s", what, got)
	}
}

func told(pod string) string {
	return "Normal RestartingInPlace Pod/shop/" + pod + ": Told to restart all containers in place, for the current content"
}

func back(pod string) string {
	return "Normal RestartedInPlace Pod/shop/" + pod + ": All containers have restarted in place, with the current content"
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

func (c *cluster) ready(name string) {
	c.t.Helper()
	edit(c, pod(name, ""), func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionTrue })
}

func TestInPlace_RestartsOnePodAfterTheOther(t *testing.T) {
	inCluster(t, func(c *cluster) {
		restartingInPlace(c)
		before := live(c, deployment("web", "db")).Spec.Template
		c.advance(time.Minute)
		c.expect("it has not restarted yet")
		c.restart("web-0", false)
		c.advance(30 * time.Second)
		c.expect("it is not ready")
		if got, want := c.decision().Message, "0 of 3 pods have been restarted in place. The others follow one by one, as maxUnavailable and PodDisruptionBudgets allow. If that takes long, the event ConfigReloadWaiting says why."; got != want {
			t.Errorf("message = %q, want %q", got, want)
		}
		c.expectState("meanwhile", policy.RollingOut, policy.ReasonRestartingInPlace)
		c.told()
		c.ready("web-0")
		c.advance(5 * time.Second)
		c.expect("the second", "2m31.5s progress web", "2m31.5s tell web-1")
		c.expectEvents("the second", back("web-0"), told("web-1"))
		if got := c.decision().Message; !strings.HasPrefix(got, "1 of 3 pods has been restarted in place. ") {
			t.Errorf("message = %q", got)
		}
		c.restart("web-1", true)
		c.advance(5 * time.Second)
		c.expect("the third", "2m36.5s progress web", "2m36.5s tell web-2")
		c.restart("web-2", true)
		c.advance(5 * time.Second)
		c.expect("the end", "2m41.5s recreated web")
		c.expectState("at the end", policy.InSync, policy.ReasonContentApplied)
		c.advance(time.Hour)
		c.expect("after that")
		d := live(c, deployment("web", "db"))
		if d.Annotations[policy.RecreatingAnnotation] != "" || d.Spec.Template.Annotations != nil || before.Annotations != nil {
			t.Errorf("annotations = %v, of the template %v", d.Annotations, d.Spec.Template.Annotations)
		}
	})
}

// TestInPlace_ManyPodsAreNoFight: the progress after each pod is no repetition of what another client has reverted.
func TestInPlace_ManyPodsAreNoFight(t *testing.T) {
	inCluster(t, func(c *cluster) {
		aboutToRestartInPlace(c)
		const pods = 9
		for i := 3; i < pods; i++ {
			c.set(podInPlace(fmt.Sprint("web-", i)))
		}
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) {
			d.Spec.Replicas = ptr.To[int32](pods)
			d.Status = appsv1.DeploymentStatus{Replicas: pods, UpdatedReplicas: pods, AvailableReplicas: pods}
		})
		c.advance(10 * time.Second)
		var events []string
		for i := range pods {
			c.restart(fmt.Sprint("web-", i), true)
			c.advance(5 * time.Second)
			events = append(events, c.told()...)
		}
		c.expectState("at the end", policy.InSync, policy.ReasonContentApplied)
		for _, e := range events {
			if strings.Contains(e, "ConfigConflict") {
				t.Errorf("event %s", e)
			}
		}
	})
}

// TestInPlace_GoesOnAfterTheProcessHasEnded at every step, and does none of them twice.
func TestInPlace_GoesOnAfterTheProcessHasEnded(t *testing.T) {
	inCluster(t, func(c *cluster) {
		restartingInPlace(c)
		next := func() {
			c.resign()
			c.newProcess()
			c.synced()
			c.lead()
			c.advance(5 * time.Second)
		}
		next()
		c.expect("it has been told")
		c.restart("web-0", false)
		next()
		c.expect("it is not ready")
		c.ready("web-0")
		next()
		c.expect("the second", "1m11.5s progress web", "1m11.5s tell web-1")
		c.restart("web-1", true)
		next()
		c.expect("the third", "1m16.5s progress web", "1m16.5s tell web-2")
		c.restart("web-2", true)
		next()
		c.expect("the end", "1m21.5s recreated web")
	})
}

// TestInPlace_CountsOnlyRestartsOfAllContainers: that the application or the restarter alone has restarted says nothing.
func TestInPlace_CountsOnlyRestartsOfAllContainers(t *testing.T) {
	for name, edits := range map[string]func(*corev1.PodStatus){
		"the application": func(s *corev1.PodStatus) { s.ContainerStatuses[0].RestartCount++ },
		"the restarter": func(s *corev1.PodStatus) {
			s.InitContainerStatuses[0].RestartCount++
			s.InitContainerStatuses[0].State = runningSince(time.Now())
		},
		"both, the application first": func(s *corev1.PodStatus) {
			s.ContainerStatuses[0].RestartCount++
			s.ContainerStatuses[0].State = runningSince(time.Now().Add(-time.Second))
			s.InitContainerStatuses[0].RestartCount++
			s.InitContainerStatuses[0].State = runningSince(time.Now())
		},
		"none": func(*corev1.PodStatus) {},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				restartingInPlace(c)
				c.advance(10 * time.Second)
				edit(c, pod("web-0", ""), func(p *corev1.Pod) { edits(&p.Status) })
				c.advance(160 * time.Second)
				c.expect("it waits")
				c.told()
				c.advance(10 * time.Second)
				c.expect("the pod is told again", "4m1.5s tell web-0")
				if got := live(c, pod("web-0", "")).Annotations[policy.RestartAnnotation]; !strings.HasSuffix(got, "-2") {
					t.Errorf("annotation = %q, want a new value", got)
				}
				c.restart("web-0", true)
				c.advance(5 * time.Second)
				c.expect("then", "4m1.5s progress web", "4m1.5s tell web-1")
			})
		})
	}
}

// TestInPlace_TellsNoPodAgainThatIsStarting: the restarter runs again, and would stop what takes long to start.
func TestInPlace_TellsNoPodAgainThatIsStarting(t *testing.T) {
	for name, state := range map[string]corev1.ContainerState{
		"init containers take long":     {Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}},
		"the application keeps failing": {Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				restartingInPlace(c)
				c.advance(time.Second)
				c.restart("web-0", false)
				edit(c, pod("web-0", ""), func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State = state })
				c.advance(9 * time.Minute)
				c.expect("it is starting")
				edit(c, pod("web-0", ""), func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State = runningSince(time.Now()) })
				c.ready("web-0")
				c.advance(5 * time.Second)
				var got []string
				for _, r := range c.took() {
					got = append(got, strings.SplitN(r, " ", 2)[1])
				}
				if want := []string{"progress web", "tell web-1"}; fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("then: %v, want %v", got, want)
				}
			})
		})
	}
}

// TestInPlace_Halts when a pod does not come back, and goes on by itself.
func TestInPlace_Halts(t *testing.T) {
	for name, tc := range map[string]struct {
		before  func(*cluster)
		message string
		repair  func(*cluster)
		want    []string
	}{
		"it becomes ready after all": {
			func(c *cluster) { c.restart("web-0", false) }, "Pod web-0 has not become ready within 10m0s of its restart in place.",
			func(c *cluster) { c.ready("web-0") }, []string{"progress web", "tell web-1"},
		},
		"it is deleted": {
			func(c *cluster) { c.restart("web-0", false) }, "Pod web-0 has not become ready within 10m0s of its restart in place.",
			func(c *cluster) { c.remove(pod("web-0", "")); c.set(podInPlace("new")) }, []string{"progress web", "tell web-1"},
		},
		"content changes again": {
			func(c *cluster) { c.restart("web-0", false) }, "Pod web-0 has not become ready within 10m0s of its restart in place.",
			func(c *cluster) { c.set(secret("db", "3")) }, []string{"in place web", "tell web-0"},
		},
		"it ends again and again": {
			func(c *cluster) { c.restart("web-0", false); c.crash("web-0") }, "Pod web-0 has not become ready within 10m0s of its restart in place.",
			func(c *cluster) { c.restart("web-0", true) }, []string{"progress web", "tell web-1"},
		},
		"it has not restarted": {
			func(*cluster) {}, "The containers of pod web-0 have not restarted within 10m0s.",
			func(c *cluster) { c.restart("web-0", true) }, []string{"progress web", "tell web-1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				restartingInPlace(c)
				tc.before(c)
				c.advance(10*time.Minute - time.Second)
				c.expectState("just before", policy.RollingOut, policy.ReasonRestartingInPlace)
				c.took()
				c.told()
				c.advance(6 * time.Second)
				c.expect("it halts", "11m1.5s progress web")
				c.expectEvents("it halts", "Warning ConfigReloadFailed Deployment/shop/web: "+tc.message)
				c.expectState("it halts", policy.Failed, policy.ReasonRestartFailed)
				if got, want := c.decision().Message, tc.message+" 0 of 3 pods have been restarted in place. The restart goes on when this pod is ready or has been deleted, or when content changes again."; got != want {
					t.Errorf("message = %q, want %q", got, want)
				}
				c.advance(time.Hour)
				c.took()
				c.told()
				tc.repair(c)
				c.advance(5 * time.Second)
				var got []string
				for _, r := range c.took() {
					got = append(got, strings.SplitN(r, " ", 2)[1])
				}
				if fmt.Sprint(got) != fmt.Sprint(tc.want) {
					t.Errorf("then: %v, want %v", got, tc.want)
				}
				c.expectState("then", policy.RollingOut, policy.ReasonRestartingInPlace)
			})
		})
	}
}

// TestInPlace_WithinTheDeadlineOfTheDeployment.
func TestInPlace_WithinTheDeadlineOfTheDeployment(t *testing.T) {
	inCluster(t, func(c *cluster) {
		restartingInPlace(c)
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Spec.ProgressDeadlineSeconds = ptr.To[int32](60) })
		c.restart("web-0", false)
		c.advance(65 * time.Second)
		c.expectState("after a minute", policy.Failed, policy.ReasonRestartFailed)
	})
}

// TestInPlace_RestartsPodsFirstThatAreNotReady: they serve nothing, and may never be ready with old content.
func TestInPlace_RestartsPodsFirstThatAreNotReady(t *testing.T) {
	inCluster(t, func(c *cluster) {
		aboutToRestartInPlace(c)
		edit(c, pod("web-1", ""), func(p *corev1.Pod) { unready(p) })
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Status.AvailableReplicas = 2 })
		c.advance(time.Second)
		c.expect("that one", "1m1.5s in place web", "1m1.5s tell web-1")
		c.restart("web-1", true)
		c.advance(5 * time.Second)
		c.expect("the others wait for the status", "1m1.5s progress web")
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Status.AvailableReplicas = 3 })
		c.advance(5 * time.Second)
		c.expect("then", "1m6.5s tell web-0")
	})
}

// TestInPlace_RestartsReadyPodsOnlyWhileEnoughAre.
func TestInPlace_RestartsReadyPodsOnlyWhileEnoughAre(t *testing.T) {
	budget := func(name string, allowed int32) *policyv1.PodDisruptionBudget {
		return &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
			Status:     policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DisruptionsAllowed: allowed, DesiredHealthy: 3 - allowed, CurrentHealthy: 3},
		}
	}
	maxUnavailable := func(n int) func(c *cluster) {
		return func(c *cluster) {
			edit(c, deployment("web", "db"), func(d *appsv1.Deployment) {
				d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxUnavailable: new(intstr.FromInt(n))}
			})
		}
	}
	lost := func(c *cluster) { c.remove(pod("web-2", "")) }
	for name, tc := range map[string]struct {
		on    func(*cluster)
		waits string // empty: it does not wait
		off   func(*cluster)
	}{
		"all are ready":          {func(*cluster) {}, "", nil},
		"a pod is missing":       {lost, "2 of 3 pods are ready.", func(c *cluster) { c.set(podInPlace("new")) }},
		"two may be unavailable": {func(c *cluster) { maxUnavailable(2)(c); lost(c) }, "", nil},
		"one may be unavailable": {func(c *cluster) { maxUnavailable(1)(c); lost(c) }, "2 of 3 pods are ready.", maxUnavailable(2)},
		"the owner rolls out": {
			func(c *cluster) {
				edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Status.UpdatedReplicas = 1 })
			}, "1 of 3 pods is up to date.",
			func(c *cluster) {
				edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Status.UpdatedReplicas = 3 })
			},
		},
		"the owner rolls out, and two may be unavailable": {
			func(c *cluster) {
				maxUnavailable(2)(c)
				edit(c, deployment("web", "db"), func(d *appsv1.Deployment) {
					d.Annotations[kind.RevisionAnnotation], d.Status.UpdatedReplicas = "2", 1
				})
			}, "1 of 3 pods is up to date.",
			func(c *cluster) {
				edit(c, deployment("web", "db"), func(d *appsv1.Deployment) {
					d.Annotations[kind.RevisionAnnotation], d.Status.UpdatedReplicas, d.Status.AvailableReplicas = "1", 3, 2
				})
			},
		},
		"a budget allows it": {func(c *cluster) { c.setBudget(budget("web", 1)) }, "", nil},
		"a budget does not allow it": {
			func(c *cluster) { c.setBudget(budget("web", 0)) },
			"PodDisruptionBudget web does not allow that pod web-0 becomes unavailable (it needs 3 healthy pods and has 3).",
			func(c *cluster) { c.setBudget(budget("web", 1)) },
		},
		"a budget has changed": {
			func(c *cluster) {
				b := budget("web", 1)
				b.Generation = 2
				c.setBudget(b)
			},
			"PodDisruptionBudget web has changed, and its controller has not observed that yet.",
			func(c *cluster) { c.setBudget(budget("web", 1)) },
		},
		"a budget of other pods": {
			func(c *cluster) {
				b := budget("web", 0)
				b.Spec.Selector.MatchLabels["app"] = "other"
				c.setBudget(b)
			}, "", nil,
		},
		"several budgets": {
			func(c *cluster) { c.setBudget(budget("a", 1)); c.setBudget(budget("b", 1)) },
			"pod web-0 has more than one PodDisruptionBudget (a and b, for example).",
			func(c *cluster) {
				if err := c.client.Tracker().Delete(policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets"), namespace, "b"); err != nil {
					c.t.Error(err)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				aboutToRestartInPlace(c)
				tc.on(c)
				c.advance(time.Second)
				if tc.waits == "" {
					c.expect("it begins", "1m1.5s in place web", "1m1.5s tell web-0")
					return
				}
				c.advance(2 * time.Minute)
				c.expect("it begins, and waits", "1m1.5s in place web")
				c.expectEvents("it waits", "Normal ConfigReloaded Deployment/shop/web: Restarted because Secret/db has changed",
					"Normal ConfigReloadWaiting Deployment/shop/web: The next pod will be restarted in place later: "+tc.waits)
				tc.off(c)
				c.advance(5 * time.Second)
				if got := c.took(); len(got) != 1 || !strings.HasSuffix(got[0], "tell web-0") {
					t.Errorf("then: %v", got)
				}
			})
		})
	}
}

// TestInPlace_OtherwiseByARollout: what cannot be restarted in place is restarted all the same.
func TestInPlace_OtherwiseByARollout(t *testing.T) {
	for name, tc := range map[string]struct {
		before  func(*cluster)
		because string
	}{
		"the template has no restarter": {
			func(c *cluster) {
				edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Spec.Template.Spec = template("db").Spec })
			},
			"its pod template has no restarter",
		},
		"no pod may be unavailable": {
			func(c *cluster) {
				edit(c, deployment("web", "db"), func(d *appsv1.Deployment) {
					d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxUnavailable: new(intstr.FromString("0%"))}
				})
			},
			"its update strategy lets no pod be unavailable",
		},
		"a pod has no restarter": {
			func(c *cluster) {
				edit(c, pod("web-1", ""), func(p *corev1.Pod) { p.Spec.InitContainers[0].RestartPolicyRules = nil })
			},
			"pod web-1 has no restarter",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				withPodsInPlace(c)
				tc.before(c)
				c.advance(time.Minute)
				c.took()
				c.told()
				c.set(secret("db", "2"))
				c.advance(time.Second)
				if got := c.took(); len(got) != 1 || !strings.HasSuffix(got[0], " rollout web") {
					t.Errorf("requests = %v", got)
				}
				c.expectEvents("it is a rollout", "Normal ConfigReloaded Deployment/shop/web: Restarted because Secret/db has changed: by a rollout and not in place, because "+tc.because)
			})
		})
	}
}

// TestInPlace_BeginsAgain: another client has changed the annotation, so the remaining pods are not known.
func TestInPlace_BeginsAgain(t *testing.T) {
	for name, value := range map[string]string{
		"no JSON": "{", "empty": "{}", "an ID of another form": `{"restart":"a","pods":"","total":3}`,
		"a name":      `{"restart":"0123456789abcdef","pods":"web-0","total":3}`,
		"no order":    `{"restart":"0123456789abcdef","pods":"ffffffff,00000000","total":3}`,
		"too many":    `{"restart":"0123456789abcdef","pods":"01234567","total":0}`,
		"a long list": `{"restart":"0123456789abcdef","pods":"01234567","total":10001}`,
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				restartingInPlace(c)
				edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Annotations[policy.RecreatingAnnotation] = value })
				c.advance(time.Second)
				c.expect("it begins again", "1m1.5s in place web", "1m1.5s tell web-0")
			})
		})
	}
}

// TestInPlace_ThatIsNoLongerWanted: see TestRecreate_ThatIsNoLongerWanted.
func TestInPlace_ThatIsNoLongerWanted(t *testing.T) {
	midway := func(c *cluster, annotation, value string) {
		restartingInPlace(c)
		c.restart("web-0", true)
		c.advance(5 * time.Second)
		c.took()
		edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Annotations[annotation] = value })
		c.advance(time.Second)
	}
	t.Run("another strategy", func(t *testing.T) {
		inCluster(t, func(c *cluster) {
			midway(c, policy.StrategyAnnotation, "annotation")
			c.expect("the rest are replaced", "1m6.5s rollout web")
		})
	})
	t.Run("evictions", func(t *testing.T) {
		inCluster(t, func(c *cluster) {
			midway(c, policy.StrategyAnnotation, "recreate")
			c.expect("all are replaced", "1m6.5s recreate web", "1m6.5s evict web-0")
		})
	})
	t.Run("opted out", func(t *testing.T) {
		inCluster(t, func(c *cluster) {
			midway(c, policy.ReloadAnnotation, "off")
			c.expect("the rest run with other content", "1m6.5s forget web")
			edit(c, deployment("web", "db"), func(d *appsv1.Deployment) { d.Annotations[policy.ReloadAnnotation] = "auto" })
			c.advance(time.Minute)
			c.expect("opted in again, which adopts", "1m7.5s baseline web")
		})
	})
}

// TestInPlace_WithAnotherChangeOnTheWay: pods that were restarted in between have only the content of the first change.
func TestInPlace_WithAnotherChangeOnTheWay(t *testing.T) {
	inCluster(t, func(c *cluster) {
		restartingInPlace(c)
		c.restart("web-0", true)
		c.advance(time.Second)
		c.took()
		c.set(secret("db", "3"))
		c.advance(time.Minute)
		c.expect("it begins again, with all pods", "1m11.5s in place web", "1m11.5s tell web-1")
	})
}

// TestInPlace_TellsNoPodThatHasChanged: the patch is bound to the pod that was read.
func TestInPlace_TellsNoPodThatHasChanged(t *testing.T) {
	for name, refusal := range map[string]error{
		"it is gone":    apierrors.NewNotFound(corev1.Resource("pods"), "web-0"),
		"it is another": apierrors.NewConflict(corev1.Resource("pods"), "web-0", errors.New("uid")),
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				aboutToRestartInPlace(c)
				c.refusing(func(a clienttesting.Action) error {
					if a.GetResource().Resource == "pods" {
						return refusal
					}
					return nil
				})
				c.advance(time.Second)
				if got := c.took(); len(got) != 2 || !strings.HasPrefix(got[1], "1m1.5s tell web-0: ") {
					t.Fatalf("requests = %v", got)
				}
				c.refusing(nil)
				c.advance(time.Second)
				c.expect("again", "1m2.5s tell web-0")
				if log := c.log.String(); strings.Contains(log, "will retry") {
					t.Errorf("log = %s, want no error", log)
				}
			})
		})
	}
}

func TestInPlace_OfKindsThatOwnTheirPods(t *testing.T) {
	for _, workload := range []ingesttest.Object{statefulSet("web", "db"), daemonSet("web", "db")} {
		t.Run(fmt.Sprintf("%T", workload), func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.ownPods()
				c.synced()
				c.set(secret("db", "1"))
				workload.GetAnnotations()[policy.StrategyAnnotation] = "in-place"
				switch w := workload.(type) {
				case *appsv1.StatefulSet:
					withRestarter(&w.Spec.Template.Spec)
				case *appsv1.DaemonSet:
					withRestarter(&w.Spec.Template.Spec)
				}
				c.set(workload)
				p := podInPlace("web-0")
				c.set(of(workload, p))
				c.lead()
				c.advance(time.Minute)
				c.set(secret("db", "2"))
				c.advance(5 * time.Second)
				c.restart("web-0", true)
				c.advance(5 * time.Second)
				c.expect("all", "0s baseline web", "1m1s in place web", "1m1s tell web-0", "1m5s recreated web")
			})
		})
	}
}

// TestInPlace_GetsPastADeadNode: the pod of a StatefulSet is not replaced. The others stay until it is certainly dead.
func TestInPlace_GetsPastADeadNode(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.ownPods()
		c.synced()
		c.set(secret("db", "1"))
		s := statefulSet("web", "db")
		s.Annotations[policy.StrategyAnnotation] = "in-place"
		withRestarter(&s.Spec.Template.Spec)
		s.Spec.Replicas = ptr.To[int32](2)
		s.Status = appsv1.StatefulSetStatus{Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 1}
		c.set(s)
		for i := range 2 {
			p := podInPlace(fmt.Sprint("web-", i))
			of(s, p)
			if i == 1 {
				p.DeletionTimestamp, p.Finalizers = new(metav1.Now()), []string{"test"}
				unready(p)
			}
			c.set(p)
		}
		c.lead()
		c.advance(time.Minute)
		c.took()
		c.set(secret("db", "2"))
		c.advance(115 * time.Second)
		c.expect("it may be ending yet", "1m1s in place web")
		c.advance(10 * time.Second)
		c.expect("it is dead", "3m1.000000001s tell web-0")
		c.restart("web-0", true)
		c.advance(5 * time.Second)
		c.expect("the end", "3m5s recreated web")
	})
}

// setBudget creates or replaces a PodDisruptionBudget.
func (c *cluster) setBudget(b *policyv1.PodDisruptionBudget) {
	c.t.Helper()
	b.Namespace = namespace
	resource := policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")
	err := c.client.Tracker().Create(resource, b, namespace)
	if apierrors.IsAlreadyExists(err) {
		err = c.client.Tracker().Update(resource, b, namespace)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}
