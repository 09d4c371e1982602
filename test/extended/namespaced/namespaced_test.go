// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package namespaced tests a server that may only see one namespace.
package namespaced

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
)

var cluster *controlplane.ControlPlane

func TestMain(m *testing.M) {
	os.Exit(controlplane.Run(m, controlplane.Options{Nodes: 1}, func(c *controlplane.ControlPlane) { cluster = c }))
}

func TestOneNamespace(t *testing.T) {
	client := kubernetes.NewForConfigOrDie(cluster.RESTConfig())
	api := versioned.NewForConfigOrDie(cluster.RESTConfig()).ConfigdepV1alpha1()
	for _, name := range []string{"shop", "other"} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	server, err := install.Install(t.Context(), cluster, install.Options{
		Values: "single-namespace", Replicas: 2, Race: install.RaceDetector, Args: []string{"--shutdown-delay-duration=1s"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		server.Stop()
		if err := server.CheckLogs(); err != nil {
			t.Error(err)
		}
	}()

	made := map[string]*appsv1.Deployment{}
	for _, name := range []string{"other", "shop"} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "db"}, StringData: map[string]string{"password": "x"}}
		if _, err := client.CoreV1().Secrets(name).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if made[name], err = client.AppsV1().Deployments(name).Create(t.Context(), web(), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if made["shop"].Spec.Template.Annotations[policy.ConfigHashAnnotation] == "" || made["other"].Spec.Template.Annotations != nil {
		t.Errorf("annotations of the templates = %v, in the other namespace %v", made["shop"].Spec.Template.Annotations, made["other"].Spec.Template.Annotations)
	}
	inSync(t, api.ConfigDependencies("shop").Get, false)
	for _, name := range []string{"other", "shop"} {
		_, err := client.CoreV1().Secrets(name).Patch(t.Context(), "db", "application/merge-patch+json", []byte(`{"stringData": {"password": "y"}}`), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	inSync(t, api.ConfigDependencies("shop").Get, true)

	all, err := api.ConfigDependencies("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for i := range all.Items {
		shown = append(shown, all.Items[i].Namespace+"/"+all.Items[i].Name)
	}
	if diff := cmp.Diff([]string{"shop/deployment.web"}, shown); diff != "" {
		t.Errorf("in all namespaces (-want +got):\n%s", diff)
	}
	if _, err := api.ConfigDependencies("other").Get(t.Context(), "deployment.web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("elsewhere: %v", err)
	}
	if now, err := client.AppsV1().Deployments("other").Get(t.Context(), "web", metav1.GetOptions{}); err != nil || now.Annotations[policy.ConfigHashAnnotation] != "" {
		t.Errorf("a workload in the other namespace was changed: %v, %v", now.Annotations, err)
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
}

func web() *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{policy.ReloadAnnotation: "auto", policy.SettleAnnotation: "0"}},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "app", Image: "app",
				EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "db"}}}},
			}}}},
		},
	}
}

func inSync(t *testing.T, get func(context.Context, string, metav1.GetOptions) (*v1alpha1.ConfigDependency, error), restarted bool) {
	t.Helper()
	await.Until(t, fmt.Sprintf("deployment.web is in sync, restarted %t", restarted), func(ctx context.Context) error {
		found, err := get(ctx, "deployment.web", metav1.GetOptions{})
		if err == nil && (found.Status.State != v1alpha1.StateInSync || (found.Status.LastReload != nil) != restarted) {
			err = fmt.Errorf("status = %+v", found.Status)
		}
		return err
	})
}
