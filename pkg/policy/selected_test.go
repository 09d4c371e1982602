// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// In a namespace that is not selected, no workload is restarted automatically, and no annotation changes that.
func TestNewPolicy_OfANamespaceThatIsNotSelected(t *testing.T) {
	withForeign(t)
	type m = map[string]string
	for name, tt := range map[string]struct{ workload, namespace m }{
		"no annotations":               {},
		"opted in by itself":           {workload: m{policy.ReloadAnnotation: "auto"}},
		"opted in by another tool's":   {workload: m{foreignRestart: "yes"}},
		"opted in by the namespace":    {namespace: m{policy.ReloadAnnotation: "auto"}},
		"an invalid annotation":        {workload: m{policy.ReloadAnnotation: "sometimes", policy.SettleAnnotation: "soon"}},
		"an invalid one, on namespace": {namespace: m{policy.ReloadAnnotation: "sometimes"}},
	} {
		t.Run(name, func(t *testing.T) {
			read := policy.Dialects(nil).ReadNamespace(tt.namespace, false)
			p := policy.NewPolicy(policy.Annotated{Workload: tt.workload, Namespace: read}, policy.Defaults{Mode: policy.Auto})
			want := policy.Policy{Mode: policy.Off, DeclaredBy: "--namespace-selector", Strategy: record.Annotate}
			if diff := cmp.Diff(want, p); diff != "" {
				t.Errorf("policy (-want +got):\n%s", diff)
			}
			if read = policy.Dialects(nil).ReadNamespace(tt.namespace, true); len(read) == 0 && len(tt.namespace) > 0 {
				t.Error("the annotations of a namespace that is selected are not kept")
			}
			if p = policy.NewPolicy(policy.Annotated{Workload: tt.workload, Namespace: read}, policy.Defaults{Mode: policy.Auto}); p.Mode == policy.Off {
				t.Errorf("policy in a namespace that is selected = %+v", p)
			}
		})
	}
	if len(validation.IsQualifiedName(policy.DeclaredBySelector)) == 0 {
		t.Errorf("an annotation can have the key %s", policy.DeclaredBySelector)
	}
}
