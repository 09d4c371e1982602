// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/test/await"
)

// Clients decide by discovery what they can do with the resource: the verb "delete" would make the namespace
// controller wait for objects that cannot be deleted.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	for _, where := range everywhere {
		t.Run("one group, "+where.name, func(t *testing.T) {
			t.Parallel()
			var got metav1.APIResourceList
			if err := json.Unmarshal(send(t, where.Config, request{path: apiPath}).body, &got); err != nil {
				t.Fatal(err)
			}
			want := metav1.APIResourceList{
				TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
				GroupVersion: "configdep.io/v1alpha1",
				APIResources: []metav1.APIResource{
					{
						Name: "configdependencies", SingularName: "configdependency", Namespaced: true, Kind: "ConfigDependency",
						Verbs: metav1.Verbs{"get", "list", "watch"}, ShortNames: []string{"cfgdep"}, Categories: []string{"configdep"},
					},
					{
						Name: "configdependencies/approval", Namespaced: true, Group: "configdep.io", Version: "v1alpha1", Kind: "Approval",
						Verbs: metav1.Verbs{"create"},
					},
					{
						Name: "configdependencies/plan", Namespaced: true, Group: "configdep.io", Version: "v1alpha1", Kind: "ConfigDependencyPlan",
						Verbs: metav1.Verbs{"get"},
					},
					{
						Name: "configdependencies/pods", Namespaced: true, Group: "configdep.io", Version: "v1alpha1", Kind: "ConfigDependencyPods",
						Verbs: metav1.Verbs{"get"},
					},
					{
						Name: "configdependencies/reload", Namespaced: true, Group: "configdep.io", Version: "v1alpha1", Kind: "Reload",
						Verbs: metav1.Verbs{"create"},
					},
				},
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
		t.Run("all groups, "+where.name, func(t *testing.T) {
			t.Parallel()
			// The aggregator polls servers for discovery.
			await.Until(t, "the group is in the aggregated discovery", func(context.Context) error {
				var list apidiscoveryv2.APIGroupDiscoveryList
				accept := header("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
				if err := json.Unmarshal(send(t, where.Config, request{path: "/apis", header: accept}).body, &list); err != nil {
					return err
				}
				i := slices.IndexFunc(list.Items, func(g apidiscoveryv2.APIGroupDiscovery) bool { return g.Name == "configdep.io" })
				if i < 0 {
					return fmt.Errorf("the group is not among the %d groups", len(list.Items))
				}
				got := list.Items[i].Versions
				for v := range got {
					got[v].Freshness = "" // set by the aggregator only
				}
				want := []apidiscoveryv2.APIVersionDiscovery{{
					Version: "v1alpha1",
					Resources: []apidiscoveryv2.APIResourceDiscovery{{
						Resource: "configdependencies", SingularResource: "configdependency", Scope: apidiscoveryv2.ScopeNamespace,
						ResponseKind: &metav1.GroupVersionKind{Kind: "ConfigDependency"},
						Verbs:        []string{"get", "list", "watch"}, ShortNames: []string{"cfgdep"}, Categories: []string{"configdep"},
						Subresources: []apidiscoveryv2.APISubresourceDiscovery{{
							Subresource:  "approval",
							ResponseKind: &metav1.GroupVersionKind{Group: "configdep.io", Version: "v1alpha1", Kind: "Approval"},
							Verbs:        []string{"create"},
						}, {
							Subresource:  "plan",
							ResponseKind: &metav1.GroupVersionKind{Group: "configdep.io", Version: "v1alpha1", Kind: "ConfigDependencyPlan"},
							Verbs:        []string{"get"},
						}, {
							Subresource:  "pods",
							ResponseKind: &metav1.GroupVersionKind{Group: "configdep.io", Version: "v1alpha1", Kind: "ConfigDependencyPods"},
							Verbs:        []string{"get"},
						}, {
							Subresource:  "reload",
							ResponseKind: &metav1.GroupVersionKind{Group: "configdep.io", Version: "v1alpha1", Kind: "Reload"},
							Verbs:        []string{"create"},
						}},
					}},
				}}
				if diff := cmp.Diff(want, got); diff != "" {
					return fmt.Errorf("(-want +got):\n%s", diff)
				}
				return nil
			})
		})
	}
}
