// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package standin

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/configdep/configdep/test/await"
)

// A change restarts the workloads that it concerns, of each kind, by one patch of the template. The same data, or the same again,
// restarts none.
func TestReloader(t *testing.T) {
	for name, tt := range map[string]struct {
		strategy Strategy
		check    func(t *testing.T, template *corev1.PodTemplateSpec)
		known    int // restarts when the Deployment has the variable already
	}{
		"with variables": {EnvVars, func(t *testing.T, template *corev1.PodTemplateSpec) {
			t.Helper()
			want := []corev1.EnvVar{{Name: "STAKATER_DB_SECRET", Value: "e29a1d9de4782dbc5587ef6dac4c3375b5b11c07"}, {Name: "A", Value: "a"}}
			if diff := cmp.Diff(want, template.Spec.Containers[0].Env); diff != "" {
				t.Errorf("variables (-want +got):\n%s", diff)
			}
		}, 2},
		"with annotations": {Annotations, func(t *testing.T, template *corev1.PodTemplateSpec) {
			t.Helper()
			const want = `{"type":"SECRET","name":"db","namespace":"shop","hash":"e29a1d9de4782dbc5587ef6dac4c3375b5b11c07","containerRefs":["app"],"observedAt":`
			if got := template.Annotations[lastReloadedFrom]; !strings.HasPrefix(got, want) {
				t.Errorf("%s = %s, want %s…", lastReloadedFrom, got, want)
			}
		}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", ResourceVersion: "1"}, Data: map[string][]byte{"key": []byte("old")}}
			meta := metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: map[string]string{auto: "true"}}
			template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "app", Env: []corev1.EnvVar{{Name: "A", Value: "a"}},
				EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "db"}}}},
			}}}}
			elsewhere := *meta.DeepCopy()
			elsewhere.Namespace = "bank"
			client := fake.NewClientset(secret,
				&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Template: template}},
				&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Template: template}},
				&appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Template: template}},
				&appsv1.Deployment{ObjectMeta: elsewhere, Spec: appsv1.DeploymentSpec{Template: template}},
			)
			r, err := Start(t.Context(), Options{Client: client, Strategy: tt.strategy})
			if err != nil {
				t.Fatal(err)
			}
			write := func(version, value, label string) {
				t.Helper()
				secret := secret.DeepCopy()
				secret.ResourceVersion, secret.Data, secret.Labels = version, map[string][]byte{"key": []byte(value)}, map[string]string{"team": label}
				if _, err := client.CoreV1().Secrets("shop").Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				await.Until(t, "version "+version+" is handled", func(context.Context) error {
					if handled := r.Handled(secret); handled != version {
						return fmt.Errorf("version %s is", handled)
					}
					return nil
				})
			}
			write("2", "old", "a")
			write("3", "new", "a")
			write("4", "new", "b")
			want := []Restart{{"Deployment", "shop", "web"}, {"DaemonSet", "shop", "web"}, {"StatefulSet", "shop", "web"}}
			if diff := cmp.Diff(want, r.Restarts()); diff != "" {
				t.Errorf("restarts (-want +got):\n%s", diff)
			}
			statefulSet, err := client.AppsV1().StatefulSets("shop").Get(t.Context(), "web", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			tt.check(t, &statefulSet.Spec.Template)
			events, err := client.CoreV1().Events("shop").List(t.Context(), metav1.ListOptions{})
			if err != nil || len(events.Items) == 0 {
				t.Fatalf("%d events, %v", len(events.Items), err)
			}
			if e := events.Items[0]; e.Reason != "Reloaded" || !strings.HasPrefix(e.Message, "Changes detected in 'db' of type 'SECRET' in namespace 'shop', Updated 'web'") {
				t.Errorf("event = %+v", e)
			}

			knows, err := client.AppsV1().Deployments("shop").Get(t.Context(), "web", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			knows.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "STAKATER_DB_SECRET", Value: "1b9a01a1531de5a42e149e251fe87f4db845937f"}}
			if _, err := client.AppsV1().Deployments("shop").Update(t.Context(), knows, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			write("5", "newer", "b")
			if got := len(r.Restarts()) - len(want); got != tt.known {
				t.Errorf("%d restarts where the Deployment has the variable already, want %d", got, tt.known)
			}
			if err := r.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
}
