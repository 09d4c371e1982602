// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/configdep/configdep/pkg/policy"
)

// status replaces the statuses of the containers of a pod; nil: there are none.
func (c *cluster) status(name string, ready bool, restarter, app *corev1.ContainerStatus) {
	c.t.Helper()
	edit(c, pod(name, ""), func(p *corev1.Pod) {
		p.Status.InitContainerStatuses, p.Status.ContainerStatuses = nil, nil
		if restarter != nil {
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{*restarter}
		}
		if app != nil {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{*app}
		}
		p.Status.Conditions[0].Status = corev1.ConditionFalse
		if ready {
			p.Status.Conditions[0].Status = corev1.ConditionTrue
		}
	})
}

// never is the status of a container that has never run, and first that of one that has just started for the first time.
func never(name string) *corev1.ContainerStatus {
	return &corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}}
}

func first(name string) *corev1.ContainerStatus {
	return &corev1.ContainerStatus{Name: name, State: runningSince(time.Now())}
}

// hasRunInit gives a pod an init container that started at a time, and has ended.
func (c *cluster) hasRunInit(name string, at time.Time) {
	c.t.Helper()
	edit(c, pod(name, ""), func(p *corev1.Pod) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: "init"})
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, corev1.ContainerStatus{Name: "init", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{StartedAt: runningSince(at).Running.StartedAt},
		}})
	})
}

// restartTold restarts the pods that are told, until no other is told for a while, and returns their names.
func (c *cluster) restartTold() (names []string) {
	c.t.Helper()
	for {
		c.advance(10 * time.Second)
		tells := c.tells()
		if len(tells) == 0 {
			slices.Sort(names)
			return names
		}
		for _, name := range tells {
			if len(live(c, pod(name, "")).Status.ContainerStatuses) == 0 {
				c.t.Fatalf("told %s, which has never run", name)
			}
			c.restart(name, true)
		}
		names = append(names, tells...)
	}
}

// A pod that cannot start reads the current content if it ever does. The others do not wait for it.
func TestInPlace_DoesNotWaitForAPodThatHasNeverRun(t *testing.T) {
	for name, set := range map[string]func(*cluster){
		"it is not scheduled":             func(c *cluster) { c.status("web-1", false, nil, nil) },
		"its sandbox cannot be created":   func(c *cluster) { c.status("web-1", false, never("restarter"), never("app")) },
		"the image of the app is missing": func(c *cluster) { c.status("web-1", false, first("restarter"), never("app")) },
		"the restarter has restarted, too": func(c *cluster) {
			r := first("restarter")
			r.RestartCount = 7
			c.status("web-1", false, r, never("app"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				withManyPods(c, 12, intstr.FromString("25%"))
				set(c)
				c.unavailable(1)
				c.advance(time.Minute)
				c.took()
				c.set(secret("db", "2"))
				if got := c.restartTold(); len(got) != 11 || slices.Contains(got, "web-1") {
					t.Errorf("told %v, want the 11 others", got)
				}
				c.told()
				c.advance(3 * time.Minute)
				if events := fmt.Sprint(c.told()); !strings.Contains(events, "The next pod will be restarted in place later: pod web-1 has not started yet.") {
					t.Errorf("events = %s", events)
				}
				c.advance(time.Hour)
				c.expectState("it waits", policy.RollingOut, policy.ReasonRestartingInPlace)
				if got := c.tells(); len(got) != 0 {
					t.Errorf("told %v", got)
				}
				c.status("web-1", false, first("restarter"), first("app"))
				c.unavailable(0)
				c.advance(time.Minute)
				c.expectState("it runs", policy.InSync, policy.ReasonContentApplied)
				c.took()
			})
		})
	}
}

// A pod that starts in the moment in which the restart begins is not restarted for nothing.
func TestInPlace_LeavesAPodAloneThatStartsMeanwhile(t *testing.T) {
	inCluster(t, func(c *cluster) {
		withPodsInPlace(c)
		c.status("web-1", false, never("restarter"), never("app"))
		c.unavailable(1)
		c.set(secret("db", "2"))
		c.advance(time.Second)
		c.expect("it begins", "1m1.5s in place web")
		c.advance(time.Second)
		c.status("web-1", false, first("restarter"), never("app"))
		c.advance(5 * time.Second)
		c.status("web-1", true, first("restarter"), first("app"))
		c.unavailable(0)
		if got := c.restartTold(); fmt.Sprint(got) != "[web-0 web-2]" {
			t.Errorf("told %v, want the others", got)
		}
		c.expectState("at the end", policy.InSync, policy.ReasonContentApplied)
	})
}

// A pod may have its volumes long before its containers run, while an image is pulled.
func TestInPlace_RestartsAPodWhoseVolumesWereThereBefore(t *testing.T) {
	inCluster(t, func(c *cluster) {
		withPodsInPlace(c)
		c.status("web-1", false, never("restarter"), never("app"))
		edit(c, pod("web-1", ""), func(p *corev1.Pod) {
			p.Spec.NodeName = "node-1"
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "db", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "db"}}})
		})
		c.unavailable(1)
		c.set(secret("db", "2"))
		c.advance(10 * time.Second)
		c.status("web-1", true, first("restarter"), first("app"))
		c.unavailable(0)
		if got := c.restartTold(); fmt.Sprint(got) != "[web-0 web-1 web-2]" {
			t.Errorf("told %v, want all", got)
		}
		c.expectState("at the end", policy.InSync, policy.ReasonContentApplied)
	})
}

// In doubt, a pod is restarted: one that started before its kubelet reported it, and one of which another leader knows that it had not started.
func TestInPlace_RestartsAPodThatMayHaveStartedBefore(t *testing.T) {
	begun := func(c *cluster) {
		withPodsInPlace(c)
		c.status("web-1", false, never("restarter"), never("app"))
		c.unavailable(1)
		c.set(secret("db", "2"))
		c.advance(time.Second)
		c.expect("it begins", "1m1.5s in place web")
	}
	for name, starts := range map[string]func(*cluster){
		"it was reported late": func(c *cluster) {
			early := first("app")
			early.State = runningSince(time.Now().Add(-3 * time.Second))
			c.status("web-1", true, first("restarter"), early)
		},
		"an init container ran before": func(c *cluster) {
			c.status("web-1", true, first("restarter"), first("app"))
			c.hasRunInit("web-1", time.Now().Add(-3*time.Second))
		},
		"it has crashed": func(c *cluster) {
			again := first("app")
			again.RestartCount = 1
			c.status("web-1", true, first("restarter"), again)
		},
		"another leader": func(c *cluster) {
			c.resign()
			c.status("web-1", true, first("restarter"), first("app"))
			c.newProcess()
			c.synced()
			c.lead()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				begun(c)
				c.advance(time.Second)
				starts(c)
				c.unavailable(0)
				if got := c.restartTold(); fmt.Sprint(got) != "[web-0 web-1 web-2]" {
					t.Errorf("told %v, want all", got)
				}
				c.expectState("at the end", policy.InSync, policy.ReasonContentApplied)
			})
		})
	}
}

// Of another leader it is known that the pod started long after the restart began.
func TestInPlace_LeavesAPodAloneThatStartsLate(t *testing.T) {
	inCluster(t, func(c *cluster) {
		withPodsInPlace(c)
		c.status("web-1", false, nil, nil)
		c.unavailable(1)
		c.set(secret("db", "2"))
		c.advance(3 * time.Minute)
		c.resign()
		c.status("web-1", true, first("restarter"), first("app"))
		c.unavailable(0)
		c.newProcess()
		c.synced()
		c.lead()
		if got := c.restartTold(); fmt.Sprint(got) != "[web-0 web-2]" {
			t.Errorf("told %v, want the others", got)
		}
		c.expectState("at the end", policy.InSync, policy.ReasonContentApplied)
	})
}

// An init container has read the old content, and the application has never run. The others do not wait for the pod, which is told once it runs.
func TestInPlace_DoesNotWaitForAnApplicationThatHasNeverRun(t *testing.T) {
	inCluster(t, func(c *cluster) {
		withManyPods(c, 4, intstr.FromInt32(2))
		c.status("web-1", false, first("restarter"), never("app"))
		c.hasRunInit("web-1", time.Now())
		c.unavailable(1)
		c.advance(time.Minute)
		c.took()
		c.set(secret("db", "2"))
		c.advance(2 * time.Second)
		for _, want := range []string{"[web-0]", "[web-2]", "[web-3]"} {
			if got := fmt.Sprint(c.tells()); got != want {
				t.Fatalf("told %v, want %v", got, want)
			}
			c.restart(strings.Trim(want, "[]"), true)
			c.advance(5 * time.Second)
		}
		c.advance(time.Hour)
		c.expectState("it waits", policy.RollingOut, policy.ReasonRestartingInPlace)
		if got := c.tells(); len(got) != 0 {
			t.Errorf("told %v", got)
		}
		c.status("web-1", true, first("restarter"), first("app"))
		c.unavailable(0)
		if got := c.restartTold(); fmt.Sprint(got) != "[web-1]" {
			t.Errorf("told %v once it runs", got)
		}
		c.expectEnd("it runs")
	})
}

// A sidecar runs with the old content, and the application starts for the first time after the pod was told.
func TestInPlace_AContainerThatHadNeverRunNeedNotRestart(t *testing.T) {
	inCluster(t, func(c *cluster) {
		withPodsInPlace(c)
		edit(c, pod("web-1", ""), func(p *corev1.Pod) {
			unready(p)
			p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: "proxy", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)})
			p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, *first("proxy"))
			p.Status.ContainerStatuses[0] = *never("app")
		})
		c.unavailable(1)
		c.set(secret("db", "2"))
		c.advance(time.Second)
		c.expect("it begins", "1m1.5s in place web", "1m1.5s tell web-1")
		c.advance(5 * time.Second)
		edit(c, pod("web-1", ""), func(p *corev1.Pod) {
			for i := range p.Status.InitContainerStatuses {
				p.Status.InitContainerStatuses[i].RestartCount, p.Status.InitContainerStatuses[i].State = 1, runningSince(time.Now())
			}
			p.Status.ContainerStatuses[0] = *first("app")
		})
		c.unavailable(0)
		c.ready("web-1")
		c.advance(5 * time.Second)
		c.expect("it is back", "1m6.5s progress web", "1m6.5s tell web-0")
	})
}
