// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// BenchmarkDecide measures one decision on a workload, with globs that match all 10,000 Secrets of
// its namespace or a part of them, and after as many others were deleted. Decisions do not cache
// anything for the next one.
func BenchmarkDecide(b *testing.B) {
	const n = 10_000
	patterns := func(count int, format string) string {
		var all []string
		for i := range count {
			all = append(all, fmt.Sprintf(format, i))
		}
		return strings.Join(all, ",")
	}
	for _, tt := range []struct {
		name, sources string
		gone          int
	}{
		{"template alone", "", 0},
		{"1 glob over all", "secret/*", 0},
		{"1 glob over all, as many gone", "secret/*", n},
		{"32 globs over all", patterns(32, "secret/s*%d*"), 0},
		{"32 globs over a part each", patterns(32, "secret/s-%02d-*"), 0},
		{"32 globs over a part each, as many gone", patterns(32, "secret/s-%02d-*"), n},
		{"32 globs over none", patterns(32, "secret/*-x-%d"), 0},
		{"256 names", patterns(256, "secret/s-00-%d"), 0},
	} {
		b.Run(tt.name, func(b *testing.B) {
			digester := dependency.NewDigester(make([]byte, dependency.KeySize))
			g := dependency.NewGraph()
			g.SetDigester(digester)
			w := &dependency.Workload{
				WorkloadKey: dependency.WorkloadKey{Kind: kind.Deployment, Namespace: namespace, Name: "web"},
				UID:         "web", ResourceVersion: "1", Status: dependency.Status{Replicas: 1}, Traits: kind.Table(nil).Of(kind.Deployment).Traits,
				Annotations: map[string]string{policy.ReloadAnnotation: "auto", policy.SourcesAnnotation: tt.sources},
				References:  []dependency.Reference{{Kind: dependency.Secret, Name: "s-00-0", Uses: []dependency.Use{{Type: dependency.EnvFrom, Container: "app"}}}},
			}
			p := policy.Note(w, nil, policy.Defaults{})
			g.SetWorkload(w, p.Patterns())
			put := func(name string, version int) {
				meta := metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), ResourceVersion: fmt.Sprint(version)}
				s := dependency.NewSource(dependency.Secret, &meta, dependency.SourceMarks{}, []dependency.KeyDigest{{Key: "a"}, {Key: "b"}})
				s.Remember(g.Source(s.SourceKey), g, dependency.Arrival{Live: true, Seen: epoch})
				g.SetSource(s)
			}
			for i := range tt.gone {
				put(fmt.Sprintf("s-%02d-gone-%d", i%32, i), 2+i)
				g.DeleteSource(dependency.SourceKey{Kind: dependency.Secret, Namespace: namespace, Name: fmt.Sprintf("s-%02d-gone-%d", i%32, i)},
					dependency.Arrival{Live: true, Seen: epoch})
			}
			for i := range n {
				put(fmt.Sprintf("s-%02d-%d", i%32, i), 20_000+i)
			}
			present := decide.Evaluator{Graph: g, Defaults: policy.Defaults{}}.Evaluate(w).Present()
			recorded := *w
			recorded.Annotations = map[string]string{
				policy.ReloadAnnotation: "auto", policy.SourcesAnnotation: tt.sources, record.ConfigHashAnnotation: present.Hash, record.AppliedSourcesAnnotation: present.Text(),
			}
			g.SetWorkload(&recorded, p.Patterns())
			put("s-00-0", 40_000)
			put("s-01-1", 40_001)
			for b.Loop() {
				decide.Evaluator{Graph: g, Defaults: policy.Defaults{}}.Evaluate(&recorded).Decide(epoch.Add(time.Hour))
			}
		})
	}
}
