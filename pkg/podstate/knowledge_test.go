// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"fmt"
	"slices"
	"testing"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
)

// Of the sources that match globs, the ones that changed last count for pods, sorted and without duplicates.
func TestKnow_Globs(t *testing.T) {
	g := dependency.NewGraph()
	g.SetDigester(dependency.NewDigester(make([]byte, dependency.KeySize)))
	for i := range maxMatched + 50 {
		g.SetSource(&dependency.Source{
			SourceKey: dependency.SourceKey{Kind: dependency.Secret, Namespace: "shop", Name: fmt.Sprintf("s-%03d", i)},
			Change:    dependency.Change{Version: uint64(i + 1), Order: uint64(i + 1)},
		})
	}
	w := &dependency.Workload{WorkloadKey: dependency.WorkloadKey{Kind: kind.Deployment, Namespace: "shop", Name: "web"}}
	w.Annotations = map[string]string{policy.ReloadAnnotation: "listed", policy.SourcesAnnotation: "secret/s-*,secret/s-1*,secret/s-149"}
	k := Know(g, policy.Evaluator{Graph: g, Defaults: policy.Defaults{Mode: policy.Off}}.Evaluate(w))
	var names []string
	for i := range k.sources {
		names = append(names, k.sources[i].Name)
	}
	if len(names) != maxMatched || !slices.IsSorted(names) || names[0] != "s-050" || names[maxMatched-1] != "s-149" {
		t.Errorf("%d: %q", len(names), names)
	}
}
