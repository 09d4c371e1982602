// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// TestNewPolicy_PrecedenceHoldsForEachAnnotationAlone: each setting comes separately from the workload,
// its namespace or the server.
func TestNewPolicy_PrecedenceHoldsForEachAnnotationAlone(t *testing.T) {
	defaults := policy.Defaults{Mode: policy.Listed, Settle: time.Second, MinInterval: 10 * time.Second}
	workload := map[string]string{
		policy.ReloadAnnotation: "auto", policy.SourcesAnnotation: "secret/w", policy.ExcludeAnnotation: "secret/x", policy.KindsAnnotation: "secret",
		policy.LiveVolumesAnnotation: "false", policy.SettleAnnotation: "2s", policy.MinIntervalAnnotation: "20s", policy.StrategyAnnotation: "annotation",
	}
	inherited := map[string]string{
		policy.ReloadAnnotation: "matched", policy.SourcesAnnotation: "configmap/w", policy.ExcludeAnnotation: "configmap/x", policy.KindsAnnotation: "configmap",
		policy.LiveVolumesAnnotation: "true", policy.SettleAnnotation: "3s", policy.MinIntervalAnnotation: "30s", policy.StrategyAnnotation: "recreate",
	}
	fromWorkload := policy.Policy{
		Mode: policy.Auto, DeclaredBy: "configdep.io/reload", Strategy: record.Annotate,
		Sources: []dependency.Pattern{{Kind: dependency.Secret, Name: "w"}},
		Exclude: []dependency.Pattern{{Kind: dependency.Secret, Name: "x"}},
		Kinds:   []dependency.SourceKind{dependency.Secret},
		Settle:  2 * time.Second, MinInterval: 20 * time.Second,
	}
	fromNamespace := policy.Policy{
		Mode: policy.Matched, DeclaredBy: "Namespace configdep.io/reload", Strategy: record.Recreate,
		Sources: []dependency.Pattern{{Kind: dependency.ConfigMap, Name: "w"}},
		Exclude: []dependency.Pattern{{Kind: dependency.ConfigMap, Name: "x"}},
		Kinds:   []dependency.SourceKind{dependency.ConfigMap}, LiveVolumes: true,
		Settle: 3 * time.Second, MinInterval: 30 * time.Second,
	}
	fromServer := policy.Policy{Mode: policy.Listed, DeclaredBy: "Default", Strategy: record.Annotate, Settle: time.Second, MinInterval: 10 * time.Second}
	// take copies the field for an annotation from one policy to another.
	take := map[string]func(to, from *policy.Policy){
		policy.ReloadAnnotation:      func(to, from *policy.Policy) { to.Mode, to.DeclaredBy = from.Mode, from.DeclaredBy },
		policy.SourcesAnnotation:     func(to, from *policy.Policy) { to.Sources = from.Sources },
		policy.ExcludeAnnotation:     func(to, from *policy.Policy) { to.Exclude = from.Exclude },
		policy.KindsAnnotation:       func(to, from *policy.Policy) { to.Kinds = from.Kinds },
		policy.LiveVolumesAnnotation: func(to, from *policy.Policy) { to.LiveVolumes = from.LiveVolumes },
		policy.SettleAnnotation:      func(to, from *policy.Policy) { to.Settle = from.Settle },
		policy.MinIntervalAnnotation: func(to, from *policy.Policy) { to.MinInterval = from.MinInterval },
		policy.StrategyAnnotation:    func(to, from *policy.Policy) { to.Strategy = from.Strategy },
	}
	without := func(m map[string]string, key string) map[string]string {
		m = maps.Clone(m)
		delete(m, key)
		return m
	}
	check := func(t *testing.T, want policy.Policy, workload, namespace map[string]string) {
		t.Helper()
		if diff := cmp.Diff(want, policy.NewPolicy(policy.Annotated{Workload: workload, Namespace: namespace}, defaults)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	t.Run("all on the workload", func(t *testing.T) { check(t, fromWorkload, workload, inherited) })
	t.Run("all on the namespace", func(t *testing.T) { check(t, fromNamespace, nil, inherited) })
	t.Run("none", func(t *testing.T) { check(t, fromServer, nil, nil) })
	for _, key := range policy.EveryAnnotation {
		t.Run(key+" alone on the namespace", func(t *testing.T) {
			want := fromWorkload
			take[key](&want, &fromNamespace)
			check(t, want, without(workload, key), inherited)
		})
		t.Run(key+" alone on the workload", func(t *testing.T) {
			want := fromNamespace
			take[key](&want, &fromWorkload)
			check(t, want, map[string]string{key: workload[key]}, inherited)
		})
		t.Run(key+" alone by the server", func(t *testing.T) {
			want := fromWorkload
			take[key](&want, &fromServer)
			check(t, want, without(workload, key), nil)
		})
	}
}

func TestNewPolicy_AnnotationOfTheWorkloadHidesAnInvalidOneOfTheNamespace(t *testing.T) {
	p := policy.NewPolicy(policy.Annotated{Workload: map[string]string{policy.SettleAnnotation: "2s"}, Namespace: map[string]string{policy.SettleAnnotation: "soon"}}, policy.Defaults{Mode: policy.Auto})
	if p.Settle != 2*time.Second || len(p.Problems) > 0 {
		t.Errorf("policy = %+v, want the settle time of the workload and no problems", p)
	}
	p = policy.NewPolicy(policy.Annotated{Workload: map[string]string{policy.SettleAnnotation: "soon"}, Namespace: map[string]string{policy.SettleAnnotation: "2s"}}, policy.Defaults{Mode: policy.Auto})
	if len(p.Problems) != 1 {
		t.Errorf("policy = %+v, want a problem instead of the annotation of the namespace", p)
	}
}
