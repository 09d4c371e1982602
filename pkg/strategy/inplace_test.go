// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package strategy

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
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

// All budgets of the namespace are read, however many there are, and one without a selector selects nothing.
func TestProtected_ReadsAllPages(t *testing.T) {
	client := fake.NewClientset()
	var limits []int64
	client.PrependReactor("list", "poddisruptionbudgets", func(a clienttesting.Action) (bool, runtime.Object, error) {
		options := a.(clienttesting.ListActionImpl).ListOptions
		limits = append(limits, options.Limit)
		b := policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b" + options.Continue}}
		list := &policyv1.PodDisruptionBudgetList{}
		if options.Continue == "" {
			list.Continue = "2"
		} else {
			b.Spec.Selector = &metav1.LabelSelector{}
			b.Status = policyv1.PodDisruptionBudgetStatus{DesiredHealthy: 2, CurrentHealthy: 1}
		}
		list.Items = []policyv1.PodDisruptionBudget{b}
		return true, list, nil
	})
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0", Namespace: "shop"}}
	waits, why, err := protected(t.Context(), workloadtest.Client(client), p)
	if err != nil || waits != "PodDisruptionBudget b2 does not allow that pod web-0 becomes unavailable" || why != "it needs 2 healthy pods and has 1" {
		t.Errorf("waits = %q, %q (%v)", waits, why, err)
	}
	if fmt.Sprint(limits) != "[500 500]" {
		t.Errorf("limits = %v, want two pages", limits)
	}
}
