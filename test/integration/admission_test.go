// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

// admit creates a policy for one namespace: objects must satisfy an expression.
func admit(t *testing.T, namespace string, operation admissionv1.OperationType, group, version, resource, expression, message string) {
	t.Helper()
	client := kube.AdmissionregistrationV1()
	name := namespace // one policy per namespace
	rule := admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{operation},
		Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}},
	}}
	create(t, client.ValidatingAdmissionPolicies().Create, &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{rule}},
			Validations:      []admissionv1.Validation{{Expression: expression, Message: message}},
		},
	})
	create(t, client.ValidatingAdmissionPolicyBindings().Create, &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        name,
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}},
		},
	})
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context()) // the context of the test is done by now
		err := errors.Join(client.ValidatingAdmissionPolicyBindings().Delete(ctx, name, metav1.DeleteOptions{}),
			client.ValidatingAdmissionPolicies().Delete(ctx, name, metav1.DeleteOptions{}))
		if err != nil {
			t.Error(err)
		}
	})
}

// refusedEverywhere waits until each endpoint rejects a reload as a dry run, and then also a real one.
func refusedEverywhere(t *testing.T, namespace, name string, code int32, reason metav1.StatusReason, messages ...string) {
	t.Helper()
	for _, where := range everywhere {
		client := where.ConfigdepV1alpha1().ConfigDependencies(namespace)
		await.Until(t, where.name+" refuses a reload", func(ctx context.Context) error {
			_, err := client.Reload(ctx, name, &v1alpha1.Reload{}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil {
				return errors.New("the reload succeeded")
			}
			if apierrors.ReasonForError(err) != reason {
				return err
			}
			return nil
		})
		_, err := client.Reload(t.Context(), name, &v1alpha1.Reload{}, metav1.CreateOptions{})
		checkError(t, err, code, reason, messages...)
	}
}

// Policies of the cluster on workloads apply to reloads, in a dry run as well.
func TestReloadIsSubjectToPoliciesOnWorkloads(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	create(t, kube.AppsV1().Deployments(namespace).Create, asleep("web"))
	view(t, namespace, "deployment.web")
	admit(t, namespace, admissionv1.Update, "apps", "v1", "deployments",
		"!has(object.spec.template.metadata.annotations)", "nothing is rolled out on a Friday")
	before := getRollout(t, namespace, "Deployment", "web").Generation
	refusedEverywhere(t, namespace, "deployment.web", http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "nothing is rolled out on a Friday")
	if after := getRollout(t, namespace, "Deployment", "web").Generation; after != before {
		t.Errorf("generation = %[2]d, was %[1]d", before, after)
	}
}

// A policy may be about reloads. Reloads do not pass the admission of kube-apiserver, so the server evaluates the
// policy.
func TestReloadIsSubjectToPoliciesOnReloads(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	create(t, kube.AppsV1().Deployments(namespace).Create, asleep("web"))
	view(t, namespace, "deployment.web")
	admit(t, namespace, admissionv1.Create, "configdep.io", "v1alpha1", "configdependencies/reload",
		"has(object.spec.reason) && object.spec.reason.startsWith('CHG-') && object.spec.mode == 'Always' && object.metadata.name == 'deployment.web'",
		"say which change this belongs to")
	before := getRollout(t, namespace, "Deployment", "web").Generation
	refusedEverywhere(t, namespace, "deployment.web", http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "say which change this belongs to")
	if after := getRollout(t, namespace, "Deployment", "web").Generation; after != before {
		t.Errorf("generation = %[2]d, was %[1]d", before, after)
	}
	// The policy sees the request with its defaults and name.
	if got := reload(t, namespace, "deployment.web", v1alpha1.ReloadSpec{Reason: "CHG-17"}); !got.Triggered {
		t.Errorf("answer = %+v", got)
	}
}

// Nothing can be created in a namespace that is being deleted, and a reload is a create.
func TestReloadInANamespaceThatIsDeleted(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	deployments := kube.AppsV1().Deployments(namespace)
	held := asleep("web")
	held.Finalizers = []string{"configdep.test/hold"}
	create(t, deployments.Create, held)
	view(t, namespace, "deployment.web")
	remove(t, kube.CoreV1().Namespaces().Delete, namespace)
	refusedEverywhere(t, namespace, "deployment.web", http.StatusForbidden, metav1.StatusReasonForbidden,
		"unable to create new content in namespace "+namespace+" because it is being terminated")
	edit(t, deployments, "web", func(o *appsv1.Deployment) { o.Finalizers = nil })
	viewGone(t, namespace, "deployment.web")
}

// If the server lacks a permission, the error must not make users look for a missing permission of their own. This
// test removes the permission from all replicas, so it does not run in parallel.
func TestReloadWhenTheServerLacksTheRight(t *testing.T) {
	namespace := newNamespace(t)
	create(t, kube.AppsV1().Deployments(namespace).Create, asleep("web"))
	view(t, namespace, "deployment.web")
	roles := kube.RbacV1().ClusterRoles()
	original, err := roles.Get(t.Context(), install.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, lost := range []string{"patch", "get"} {
		t.Run(lost, func(t *testing.T) {
			withoutVerb := 0
			edit(t, roles, install.Name, func(role *rbacv1.ClusterRole) {
				for i := range role.Rules {
					if rule := &role.Rules[i]; rule.APIGroups[0] == "apps" && strings.Join(rule.Verbs, ",") == "get,patch" {
						rule.Verbs = []string{map[string]string{"patch": "get", "get": "patch"}[lost]}
						withoutVerb++
					}
				}
			})
			if withoutVerb != 1 {
				t.Errorf("removed the verb from %d rules, want 1", withoutVerb)
			}
			refusedEverywhere(t, namespace, "deployment.web", http.StatusInternalServerError, metav1.StatusReasonInternalError,
				"configdep's service account (not your user) is not authorized", "cannot "+lost+` resource "deployments" in API group "apps"`,
				"system:serviceaccount:configdep-system:configdep-apiserver")

			edit(t, roles, install.Name, func(role *rbacv1.ClusterRole) { role.Rules = original.Rules })
			for _, where := range everywhere {
				await.Until(t, where.name+" may reload again", func(ctx context.Context) error {
					_, err := where.ConfigdepV1alpha1().ConfigDependencies(namespace).
						Reload(ctx, "deployment.web", &v1alpha1.Reload{}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
					return err
				})
			}
		})
	}
}

// A 403 of kube-apiserver's admission is passed on, and not mistaken for a missing permission of the server.
func TestReloadForbiddenByAPolicyOnWorkloads(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	create(t, kube.AppsV1().Deployments(namespace).Create, asleep("web"))
	view(t, namespace, "deployment.web")
	admit(t, namespace, admissionv1.Update, "apps", "v1", "deployments", "!has(object.spec.template.metadata.annotations)", "not before noon")
	edit(t, kube.AdmissionregistrationV1().ValidatingAdmissionPolicies(), namespace, func(p *admissionv1.ValidatingAdmissionPolicy) {
		p.Spec.Validations[0].Reason = new(metav1.StatusReasonForbidden)
	})
	refusedEverywhere(t, namespace, "deployment.web", http.StatusForbidden, metav1.StatusReasonForbidden, "not before noon")
}
