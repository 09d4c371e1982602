// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package strategy

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/record"
)

func TestRestarted(t *testing.T) {
	start := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	// Each container has a name, how often it has restarted, and how many seconds after the pod was told it started; negative: it does not run.
	type c struct {
		name     string
		restarts int32
		started  int
	}
	pod := func(sidecar bool, all ...c) *dependency.Pod {
		p := &dependency.Pod{InPlace: &dependency.PodInPlace{Restarter: "restarter"}}
		for _, one := range all {
			made := dependency.PodContainer{Name: one.name, Restarts: one.restarts, Ran: true, Started: start.Add(time.Duration(one.started) * time.Second)}
			if one.started < 0 {
				made.Waiting, made.Started = "CrashLoopBackOff", time.Time{}
			}
			if sidecar && one.name != "app" {
				made.Role = dependency.SidecarContainer
			}
			p.Containers = append(p.Containers, made)
		}
		p.Containers = append(p.Containers, dependency.PodContainer{Name: "init", Role: dependency.InitContainer, Ended: true, Ran: true})
		return p
	}
	before := map[string]int32{"restarter": 1, "proxy": 0, "app": 4}
	for name, tc := range map[string]struct {
		pod    *dependency.Pod
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
			if got := restarted(tc.pod, &record.Told{Restarts: tc.before}); got != tc.want {
				t.Errorf("restarted = %v, want %v", got, tc.want)
			}
		})
	}
	lacks := pod(true, c{"restarter", 2, 5}, c{"app", 5, 6})
	lacks.Containers[1].Waiting, lacks.Containers[1].Ran = dependency.NotStarted, false
	if restarted(lacks, &record.Told{}) {
		t.Error("a container without a status counts as restarted")
	}
}

// A pod may restart once more whose kubelet has only reported the restart of which it was told before: others must not use its place in a budget.
func TestMayRestart_AfterAReportOfAnEarlierRestart(t *testing.T) {
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	told := record.Told{Since: now, Again: now, Restarts: map[string]int32{"app": 0}, Unfinished: true}
	raw, err := json.Marshal(told)
	if err != nil {
		t.Fatal(err)
	}
	p := &dependency.Pod{InPlace: &dependency.PodInPlace{
		Told: map[string]string{record.RestartAnnotation: "0123456789abcdef", record.RestartingAnnotation: string(raw)},
	}}
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
		p.Containers = []dependency.PodContainer{{Name: "app", Restarts: tc.restarts, Ran: true, Started: now.Add(tc.started)}}
		if got := mayRestart(p, now.Add(time.Minute)); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
