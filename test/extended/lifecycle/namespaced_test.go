// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
	"github.com/configdep/configdep/test/install"
)

// A server that may only see one namespace shows and restarts only the workloads in it.
func TestOneNamespace(t *testing.T) {
	makeNamespaces(t, "shop", "other")
	installed(t, install.Options{Values: "single-namespace"})
	w := newWeb(t, "shop", nil)
	w.change(t)
	w.awaitReload(t)

	elsewhere, err := client.AppsV1().Deployments("other").Create(t.Context(), workload("db"), metav1.CreateOptions{})
	if err != nil || elsewhere.Spec.Template.Annotations != nil {
		t.Errorf("the template in the other namespace has the annotations %v (%v), want none", elsewhere.Spec.Template.Annotations, err)
	}
	all, err := versioned.NewForConfigOrDie(cluster.RESTConfig()).ConfigdepV1alpha1().ConfigDependencies("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for i := range all.Items {
		shown = append(shown, all.Items[i].Namespace+"/"+all.Items[i].Name)
	}
	if diff := cmp.Diff([]string{"shop/deployment." + w.Name}, shown); diff != "" {
		t.Errorf("in all namespaces (-want +got):\n%s", diff)
	}

	// The permissions of the ServiceAccount.
	for _, tt := range []struct {
		namespace, verb, group, resource, name string
		allowed                                bool
	}{
		{"shop", "list", "", "secrets", "", true},
		{"shop", "patch", "apps", "deployments", "web", true},
		{"other", "list", "", "secrets", "", false},
		{"other", "get", "apps", "deployments", "web", false},
		{"other", "patch", "apps", "deployments", "web", false},
		{"other", "list", "", "pods", "", false},
		{"other", "create", "", "events", "", false},
		{"", "list", "", "secrets", "", false},
		{"", "watch", "", "configmaps", "", false},
		{install.Namespace, "list", "", "secrets", "", false},
		{install.Namespace, "get", "", "secrets", "configdep-hmac-key", true},
		{install.Namespace, "watch", "", "secrets", "configdep-hmac-key", true},
		{install.Namespace, "update", "", "secrets", "configdep-hmac-key", true},
		{install.Namespace, "create", "", "secrets", "", false},
		{install.Namespace, "update", "", "secrets", "other", false},
		{install.Namespace, "watch", "", "configmaps", "configdep-serving-ca", true},
		{install.Namespace, "patch", "", "configmaps", "configdep-serving-ca", true},
		{install.Namespace, "list", "", "configmaps", "", false},
	} {
		review, err := client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "system:serviceaccount:" + install.Namespace + ":" + install.Name,
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: tt.namespace, Verb: tt.verb, Group: tt.group, Resource: tt.resource, Name: tt.name,
				},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if review.Status.Allowed != tt.allowed {
			t.Errorf("%+v: allowed = %t", tt, review.Status.Allowed)
		}
	}
	undeploy(t)
	nothingLeft(t)
	kubectl(t, "delete", "namespace", "shop", "other", "--timeout=2m")
}
