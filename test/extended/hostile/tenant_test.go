// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/test/await"
)

func newNamespace(t *testing.T, name string) string {
	t.Helper()
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return name
}

// tenant attacks as a tenant who may edit one namespace and creates the objects that cost the server most.
func (a *arena) tenant(t *testing.T) {
	namespace := newNamespace(t, "hostile")
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"n": "0"}}
	if _, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), config, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	change := func(ctx context.Context, i int) {
		o := config.DeepCopy()
		o.Data["n"] = fmt.Sprint(i)
		_, _ = client.CoreV1().ConfigMaps(namespace).Update(ctx, o, metav1.UpdateOptions{})
	}
	t.Run("a workload of the largest size that etcd stores, with frequent changes", func(t *testing.T) {
		d := deployment("large", "none")
		d.Annotations[policy.ReloadAnnotation] = "off"
		d.Spec.Replicas = new(int32(0))
		from := d.Spec.Template.Spec.Containers[0].EnvFrom
		for range 14_000 {
			from = append(from, corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}, Optional: new(true)}})
		}
		d.Spec.Template.Spec.Containers[0].EnvFrom = from
		if _, err := client.AppsV1().Deployments(namespace).Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		n := 0
		a.takes(t, 96<<20, func() {
			a.during(t, func(ctx context.Context) {
				for range 100 {
					n++
					change(ctx, n)
				}
			})
		})
	})
	t.Run("long patterns and names", func(t *testing.T) {
		var patterns []string
		for i := range 32 {
			patterns = append(patterns, fmt.Sprintf("secret/*%s*%d*", strings.Repeat("a*b", 10), i))
		}
		for i := range 20 {
			d := deployment(fmt.Sprint("patterns-", i), "none")
			d.Spec.Replicas = new(int32(0))
			d.Annotations[policy.ExcludeAnnotation] = strings.Join(patterns, ",")
			d.Annotations[policy.SourcesAnnotation] = strings.Join(patterns[:16], ",")
			spec := &d.Spec.Template.Spec
			for j := range 100 {
				name := strings.Repeat("ab", 126)
				if j == 0 {
					name = strings.Repeat("ab", 25<<10) // kube-apiserver accepts it
				}
				spec.Volumes = append(spec.Volumes, corev1.Volume{Name: fmt.Sprint("v-", j), VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}})
			}
			if _, err := client.AppsV1().Deployments(namespace).Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		n := 0
		a.takes(t, 96<<20, func() {
			a.during(t, func(ctx context.Context) {
				for range 20 {
					n++
					name := fmt.Sprint("churn-", n%50)
					_, _ = client.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
					change(ctx, n)
					_ = client.CoreV1().Secrets(namespace).Delete(ctx, name, metav1.DeleteOptions{})
				}
			})
		})
		api := versioned.NewForConfigOrDie(cluster.RESTConfig())
		await.Until(t, "the status of a workload reports too many patterns", func(ctx context.Context) error {
			o, err := api.ConfigdepV1alpha1().ConfigDependencies(namespace).Get(ctx, "deployment.patterns-0", metav1.GetOptions{})
			if err == nil && (o.Status.State != v1alpha1.StateBlocked || o.Status.Message == "") {
				err = fmt.Errorf("status = %s: %s, want Blocked with a message", o.Status.State, o.Status.Message)
			}
			return err
		})
	})
}

// flood attacks as a user who floods the API with permitted requests.
func (a *arena) flood(t *testing.T) {
	namespace := newNamespace(t, "flooded")
	for _, role := range []string{"configdep-view", "configdep-reload", "configdep-pods"} {
		_, err := client.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "mallory"}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.AppsV1().Deployments(namespace).Create(t.Context(), deployment("web", "none"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	as := func(user string) *versioned.Clientset {
		config := rest.CopyConfig(cluster.RESTConfig())
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
		config.QPS = -1
		return versioned.NewForConfigOrDie(config)
	}
	mallory := as("mallory").ConfigdepV1alpha1()
	await.Until(t, "the user may list", func(ctx context.Context) error {
		_, err := mallory.ConfigDependencies(namespace).List(ctx, metav1.ListOptions{})
		return err
	})
	selector := "app in (" + strings.Repeat("x,", 1000) + "y)"

	t.Run("many watches", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		open, refused := 0, ""
		a.takes(t, 64<<20, func() {
			for range 250 {
				// Otherwise the client would ask again, when the answer says so.
				w, err := mallory.RESTClient().Get().Namespace(namespace).Resource("configdependencies").Param("watch", "true").MaxRetries(0).Watch(ctx)
				if err != nil {
					refused = err.Error()
					break
				}
				open++
				defer w.Stop()
			}
		})
		if open != 200 || !strings.Contains(refused, "--max-watches-per-user") {
			t.Errorf("%d watches are open, then error = %q, want 200 watches and an error that names --max-watches-per-user", open, refused)
		}
		w, err := as("ann").ConfigdepV1alpha1().ConfigDependencies(namespace).Watch(ctx, metav1.ListOptions{})
		if err == nil {
			w.Stop()
			t.Error("a watch of a user without permission succeeded")
		}
		admin, err := versioned.NewForConfigOrDie(cluster.RESTConfig()).ConfigdepV1alpha1().ConfigDependencies(namespace).Watch(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatalf("a watch of another user: %v", err)
		}
		admin.Stop()
	})
	t.Run("lists, Reloads and selectors", func(t *testing.T) {
		a.takes(t, 96<<20, func() {
			a.during(t, func(ctx context.Context) {
				var wg sync.WaitGroup
				for i := range 60 {
					wg.Go(func() {
						dependencies := mallory.ConfigDependencies(namespace)
						switch i % 4 {
						case 0:
							_, _ = dependencies.List(ctx, metav1.ListOptions{LabelSelector: selector})
						case 1:
							_, _ = dependencies.Reload(ctx, "deployment.web", &v1alpha1.Reload{}, metav1.CreateOptions{})
						case 2:
							_, _ = dependencies.GetPods(ctx, "deployment.web", metav1.GetOptions{})
						default:
							_, _ = dependencies.List(ctx, metav1.ListOptions{ResourceVersion: "0", Limit: 1})
						}
					})
				}
				wg.Wait()
			})
		})
		// Other users are still served after the attack.
		admin := versioned.NewForConfigOrDie(cluster.RESTConfig()).ConfigdepV1alpha1()
		if _, err := admin.ConfigDependencies(a.neighbour.namespace).Get(t.Context(), "deployment.web", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	})
}
