// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package wave_test

import (
	"fmt"
	"testing"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/configdep/configdep/pkg/apis/policy/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/limit"
	"github.com/configdep/configdep/pkg/wave"
)

// A wave of so many workloads of one source, of which a hundred are restarted at a time: what each costs from when it is due until it is complete.
func BenchmarkPlanner(b *testing.B) {
	for _, n := range []int{1000, 2000, 4000, 50_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				wholeWave(b, n)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/workload")
		})
	}
}

func wholeWave(b *testing.B, n int) {
	b.Helper()
	p := limit.New(&v1alpha1.ReloadPolicy{Spec: v1alpha1.ReloadPolicySpec{FailureLimit: new(int32(1)), Budgets: []v1alpha1.Budget{
		budget(v1alpha1.ScopePolicy, "10%", ""), budget(v1alpha1.ScopeNamespace, "5", ""), budget(v1alpha1.ScopeSource, "", "300"),
	}}})
	var admitted []dependency.WorkloadKey
	told := 0
	planner := wave.New(100, testingclock.NewFakePassiveClock(monday), func(changed, may []dependency.WorkloadKey) {
		told += len(changed)
		admitted = append(admitted, may...)
	})
	planner.Lead(true)
	planner.Ready(planner.Unready())
	members := map[dependency.WorkloadKey]*wave.Member{}
	for i := range n {
		m := due(fmt.Sprint("ns", i%(n/25)), fmt.Sprint("w", i), by(p))
		members[m.WorkloadKey] = m
		planner.Note(m)
		admitted = append(admitted, m.WorkloadKey)
	}
	done := 0
	for len(admitted) > 0 {
		m := *members[admitted[0]]
		admitted = admitted[1:]
		if may, _ := planner.Begin(m.WorkloadKey); !may {
			continue
		}
		m.Due, m.InProgress, m.Began = false, true, m.For
		members[m.WorkloadKey] = &m
		planner.Note(&m)
		now := m
		now.InProgress, now.Unfinished = false, false
		planner.Note(&now)
		done++
	}
	if done != n || told > 2*n {
		b.Fatalf("%d of %d are done, %d answers have changed", done, n, told)
	}
}
