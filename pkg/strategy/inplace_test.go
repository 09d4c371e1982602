// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package strategy

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/policy"
)

func TestRestarted(t *testing.T) {
	start := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	// Each container has a name, how often it has restarted, and how many seconds after the pod was told it started; negative: it does not run.
	type c struct {
		name     string
		restarts int32
		started  int
	}
	pod := func(sidecar bool, all ...c) *corev1.Pod {
		p := &corev1.Pod{}
		for i, one := range all {
			s := corev1.ContainerStatus{Name: one.name, RestartCount: one.restarts}
			if one.started >= 0 {
				s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(start.Add(time.Duration(one.started) * time.Second))}
			}
			made := corev1.Container{Name: one.name}
			if i == 0 {
				made.RestartPolicyRules = []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestartAllContainers}}
				made.VolumeMounts = []corev1.VolumeMount{{Name: "restart"}}
			}
			if sidecar && one.name != "app" {
				made.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
				p.Spec.InitContainers = append(p.Spec.InitContainers, made)
				p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, s)
				continue
			}
			p.Spec.Containers = append(p.Spec.Containers, made)
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, s)
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: "init"}) // which ends
		p.Spec.Volumes = []corev1.Volume{{Name: "restart", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items: []corev1.DownwardAPIVolumeFile{{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['configdep.io/restart']"}}},
		}}}}
		return p
	}
	before := map[string]int32{"restarter": 1, "proxy": 0, "app": 4}
	for name, tc := range map[string]struct {
		pod    *corev1.Pod
		before map[string]int32
		want   bool
	}{
		"all, in order":                          {pod(true, c{"restarter", 2, 5}, c{"proxy", 1, 5}, c{"app", 5, 6}), before, true},
		"all, within a second":                   {pod(true, c{"restarter", 2, 5}, c{"proxy", 1, 5}, c{"app", 5, 5}), before, true},
		"another sidecar before the restarter":   {pod(true, c{"restarter", 2, 5}, c{"proxy", 1, 3}, c{"app", 5, 6}), before, true},
		"the application before the restarter":   {pod(true, c{"restarter", 2, 5}, c{"proxy", 1, 5}, c{"app", 5, 4}), before, false},
		"several times":                          {pod(true, c{"restarter", 9, 5}, c{"proxy", 7, 5}, c{"app", 8, 6}), before, true},
		"the restarter has not":                  {pod(true, c{"restarter", 1, 5}, c{"proxy", 1, 5}, c{"app", 5, 6}), before, false},
		"the other sidecar has not":              {pod(true, c{"restarter", 2, 5}, c{"proxy", 0, 0}, c{"app", 5, 6}), before, false},
		"the application has not":                {pod(true, c{"restarter", 2, 5}, c{"proxy", 1, 5}, c{"app", 4, 6}), before, false},
		"the application does not run":           {pod(true, c{"restarter", 2, 5}, c{"proxy", 1, 5}, c{"app", 5, -1}), before, false},
		"a regular container restarts":           {pod(false, c{"restarter", 2, 5}, c{"app", 5, 4}), before, true},
		"a regular container alone":              {pod(false, c{"restarter", 2, 5}, c{"app", 4, 4}), before, false},
		"none had started when the pod was told": {pod(true, c{"restarter", 0, 5}, c{"app", 0, 6}), nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := restarted(tc.pod, &policy.Told{Restarts: tc.before}); got != tc.want {
				t.Errorf("restarted = %v, want %v", got, tc.want)
			}
		})
	}
	lacks := pod(true, c{"restarter", 2, 5}, c{"app", 5, 6})
	lacks.Status.ContainerStatuses = nil
	if restarted(lacks, &policy.Told{}) {
		t.Error("a container without a status counts as restarted")
	}
}

// A pod may restart once more whose kubelet has only reported the restart of which it was told before: others must not use its place in a budget.
func TestMayRestart_AfterAReportOfAnEarlierRestart(t *testing.T) {
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	told := policy.Told{Since: now, Again: now, Restarts: map[string]int32{"app": 0}, Unfinished: true}
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}}
	p.Annotations = map[string]string{policy.RestartAnnotation: "0123456789abcdef"}
	raw, err := json.Marshal(told)
	if err != nil {
		t.Fatal(err)
	}
	p.Annotations[policy.RestartingAnnotation] = string(raw)
	for name, tc := range map[string]struct {
		restarts int32
		started  time.Duration
		want     bool
	}{
		"none is reported":      {0, -time.Hour, true},
		"the one before":        {1, -time.Second, true},
		"one that began later":  {1, time.Second, false},
		"both, by a slow clock": {2, -time.Second, false},
	} {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", RestartCount: tc.restarts, State: corev1.ContainerState{
			Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(tc.started))},
		}}}
		if got := mayRestart(p, now.Add(time.Minute)); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
