// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
)

// A source that a field names has the path of the field, and no mount.
func TestRenderSource_ByObject(t *testing.T) {
	references, _ := dependency.References([]dependency.Named{{Kind: dependency.Secret, Name: "db", Key: "password", Optional: true, Path: ".spec.db.secretRef"}})
	usages, keys := Budget(maxUsageBytes), Budget(maxKeyBytes)
	got := renderSource(&decide.Source{Reference: &references[0]}, &usages, &keys)
	want := []v1alpha1.Usage{{Type: v1alpha1.UsageObject, Path: ".spec.db.secretRef", Keys: []string{"password"}, Optional: true}}
	if diff := cmp.Diff(want, got.Usages); diff != "" {
		t.Errorf("usages (-want +got):\n%s", diff)
	}
}

// The limit is one of JSON, in which some characters take six bytes: responses take turns by their size.
func TestSizeOfUse(t *testing.T) {
	for _, text := range []string{"plain", "<>&", `"\`, "\x00\n\t", "é€"} {
		use := &dependency.Use{Type: dependency.Env, Env: text, Prefix: text, MountPath: text}
		raw, err := json.Marshal(v1alpha1.Usage{Type: v1alpha1.UsageType(use.Type), Env: text, Prefix: text, MountPath: text})
		if err != nil {
			t.Fatal(err)
		}
		if got := sizeOfUse(use); got < len(raw) {
			t.Errorf("size = %d of %s, which has %d bytes", got, raw, len(raw))
		}
	}
}

// What agents have applied is shown with what the pod template reads, in order.
func TestAddAgents(t *testing.T) {
	out := &v1alpha1.ConfigDependency{}
	for _, name := range []string{"b", "d"} {
		out.Spec.Sources = append(out.Spec.Sources, v1alpha1.Source{Kind: "ConfigMap", Name: name, TriggersReload: true, Usages: []v1alpha1.Usage{{Type: v1alpha1.UsageEnvFrom}}})
		out.Status.Sources = append(out.Status.Sources, v1alpha1.SourceStatus{Kind: "ConfigMap", Name: name})
	}
	read := &dependency.Source{ResourceVersion: "7"}
	addAgents(out, []decide.AgentSource{
		{Kind: dependency.ConfigMap, Name: "a", Resolution: dependency.Resolution{Source: read, Observed: true}},
		{Kind: dependency.ConfigMap, Name: "d", Resolution: dependency.Resolution{Observed: true}},
		{Kind: dependency.Secret, Name: "a", Resolution: dependency.Resolution{Observed: true}},
	})
	agent := v1alpha1.Usage{Type: v1alpha1.UsageAgent, Optional: true}
	want := []v1alpha1.Source{
		{Kind: "ConfigMap", Name: "a", Optional: true, Reason: "AppliedByAgent", Usages: []v1alpha1.Usage{agent}},
		{Kind: "ConfigMap", Name: "b", TriggersReload: true, Usages: []v1alpha1.Usage{{Type: v1alpha1.UsageEnvFrom}}},
		{Kind: "ConfigMap", Name: "d", TriggersReload: true, Usages: []v1alpha1.Usage{{Type: v1alpha1.UsageEnvFrom}, agent}},
		{Kind: "Secret", Name: "a", Optional: true, Reason: "AppliedByAgent", Usages: []v1alpha1.Usage{agent}},
	}
	if diff := cmp.Diff(want, out.Spec.Sources); diff != "" {
		t.Errorf("sources (-want +got):\n%s", diff)
	}
	wantStatus := []v1alpha1.SourceStatus{
		{Kind: "ConfigMap", Name: "a", Present: new(true), ResourceVersion: "7"}, {Kind: "ConfigMap", Name: "b"},
		{Kind: "ConfigMap", Name: "d"}, {Kind: "Secret", Name: "a", Present: new(false)},
	}
	if diff := cmp.Diff(wantStatus, out.Status.Sources); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}
