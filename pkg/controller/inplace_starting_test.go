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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/record"
)

// status replaces the statuses of the containers of a pod; nil: there are none. More changes the pod with them.
func (c *cluster) status(name string, ready bool, restarter, app *corev1.ContainerStatus, more ...func(*corev1.Pod)) {
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
		for _, change := range more {
			change(p)
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
func hasRunInit(at time.Time) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: "init"})
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, corev1.ContainerStatus{Name: "init", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{StartedAt: runningSince(at).Running.StartedAt},
		}})
	}
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

// The others do not wait for a pod that cannot start. If it ever does, it is restarted, because it may have had its volumes before.
func TestInPlace_DoesNotWaitForAPodThatHasNeverRun(t *testing.T) {
	for name, restarter := range map[string]*corev1.ContainerStatus{
		"it is not scheduled": nil, "its sandbox cannot be created": never("restarter"),
		"the restarter runs, and has restarted": {Name: "restarter", RestartCount: 7, State: runningSince(time.Now())},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				withPodsInPlace(c, 4)
				c.maxUnavailable(2)
				c.status("web-1", false, restarter, nil)
				if restarter != nil {
					c.status("web-1", false, restarter, never("app"))
				}
				c.unavailable(1)
				c.set(secret("db", "2"))
				if diff := cmp.Diff([]string{"web-0", "web-2", "web-3"}, c.restartTold()); diff != "" {
					t.Errorf("pods that are told (-want +got):\n%s", diff)
				}
				c.told()
				c.advance(3 * time.Minute)
				if events := fmt.Sprint(c.told()); !strings.Contains(events, "The next pod will be restarted in place later: pod web-1 has not started yet.") {
					t.Errorf("events = %s", events)
				}
				c.advance(time.Hour)
				c.expectState("it waits", decide.RollingOut, record.ReasonRestartingInPlace)
				c.expectTells("it waits")
				c.status("web-1", true, first("restarter"), first("app"))
				c.unavailable(0)
				if diff := cmp.Diff([]string{"web-1"}, c.restartTold()); diff != "" {
					t.Errorf("once it runs (-want +got):\n%s", diff)
				}
				c.expectState("it runs", decide.InSync, decide.ReasonContentApplied)
			})
		})
	}
}

// An init container has read the old content, and the application has never run. The others do not wait for the pod, which is told once it runs.
func TestInPlace_DoesNotWaitForAnApplicationThatHasNeverRun(t *testing.T) {
	inCluster(t, func(c *cluster) {
		withPodsInPlace(c, 4)
		c.maxUnavailable(2)
		c.status("web-1", false, first("restarter"), never("app"), hasRunInit(time.Now()))
		c.unavailable(1)
		c.advance(time.Minute)
		c.set(secret("db", "2"))
		if diff := cmp.Diff([]string{"web-0", "web-2", "web-3"}, c.restartTold()); diff != "" {
			t.Errorf("pods that are told (-want +got):\n%s", diff)
		}
		c.advance(time.Hour)
		c.expectState("it waits", decide.RollingOut, record.ReasonRestartingInPlace)
		c.expectTells("it waits")
		c.status("web-1", true, first("restarter"), first("app"))
		c.unavailable(0)
		if diff := cmp.Diff([]string{"web-1"}, c.restartTold()); diff != "" {
			t.Errorf("once it runs (-want +got):\n%s", diff)
		}
		c.expectEnd("it runs")
	})
}

// A sidecar runs with the old content, and the application starts for the first time after the pod was told.
func TestInPlace_AContainerThatHadNeverRunNeedNotRestart(t *testing.T) {
	inCluster(t, func(c *cluster) {
		withPodsInPlace(c, 3)
		edit(c, pod("web-1", ""), func(p *corev1.Pod) {
			unready(p)
			p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: "proxy", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)})
			p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, *first("proxy"))
			p.Status.ContainerStatuses[0] = *never("app")
		})
		c.unavailable(1)
		c.set(secret("db", "2"))
		c.advance(time.Second)
		c.expectDone("it begins", "in place web", "tell web-1")
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
		c.expectDone("it is back", "progress web", "tell web-0")
	})
}
