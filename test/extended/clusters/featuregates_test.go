// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/test/await"
)

// withoutFeatures are flags of kube-apiserver without what restarts in place need.
const withoutFeatures = "--feature-gates=RestartAllContainersOnContainerExits=false,ContainerRestartRules=false"

// template returns that of a pod with the restarter of docs/agent.md, which reads the ConfigMap config.
func template(t *testing.T) corev1.PodTemplateSpec {
	t.Helper()
	document, err := os.ReadFile("../../../docs/agent.md")
	if err != nil {
		t.Fatal(err)
	}
	pod := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}}
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(document), -1) {
		if strings.Contains(block[1], "RestartAllContainers") {
			if err := yaml.UnmarshalStrict([]byte(block[1]), &pod.Spec); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(pod.Spec.InitContainers) != 1 || len(pod.Spec.InitContainers[0].RestartPolicyRules) != 1 {
		t.Fatalf("the manifest in docs/agent.md has the init containers %+v", pod.Spec.InitContainers)
	}
	pod.Spec.TerminationGracePeriodSeconds = new(int64(1))
	pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "app", EnvFrom: []corev1.EnvFromSource{{
		ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "config"}},
	}}}}
	return pod
}

// If kube-apiserver drops the rules of the restarter, the workload is restarted by rollouts, and the view says why.
func TestRulesAreDropped(t *testing.T) {
	const ns = metav1.NamespaceDefault
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "config"}, Data: map[string]string{"key": "1"}}
	if _, err := client.CoreV1().ConfigMaps(ns).Create(t.Context(), config, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	made, err := client.AppsV1().Deployments(ns).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{policy.ReloadAnnotation: "auto", policy.StrategyAnnotation: "in-place"}},
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: template(t)},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if found := made.Spec.Template.Spec.InitContainers; len(found) != 1 || found[0].RestartPolicyRules != nil {
		t.Errorf("the Deployment has the init containers %+v, want the restarter without rules", found)
	}
	// restarted waits until the Deployment is in sync with a version of the ConfigMap, by so many rollouts.
	restarted := func(version string, rollouts int) {
		t.Helper()
		await.Passes(t, "the Deployment is in sync", func(ctx context.Context) (*v1alpha1.ConfigDependency, error) {
			return api.ConfigdepV1alpha1().ConfigDependencies(ns).Get(ctx, "deployment.web", metav1.GetOptions{})
		}, func(o *v1alpha1.ConfigDependency) error {
			const why = "Restarts are rollouts and not in place, because its pod template has no restarter."
			switch s := o.Status; {
			case s.State != v1alpha1.StateInSync || s.Sources[0].ResourceVersion != version:
				return fmt.Errorf("it is %s (%s) with %+v", s.State, s.Message, s.Sources)
			case !strings.Contains(s.Message, why):
				t.Errorf("message %q, without %q", s.Message, why)
			}
			return nil
		})
		sets, err := client.AppsV1().ReplicaSets(ns).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(sets.Items) != 1+rollouts {
			t.Errorf("there are %d ReplicaSets, want %d (%v)", len(sets.Items), 1+rollouts, err)
		}
	}
	await.Until(t, "both pods are available", func(ctx context.Context) error {
		d, err := client.AppsV1().Deployments(ns).Get(ctx, "web", metav1.GetOptions{})
		if err == nil && d.Status.AvailableReplicas != 2 {
			err = fmt.Errorf("status = %+v", d.Status)
		}
		return err
	})
	config, err = client.CoreV1().ConfigMaps(ns).Get(t.Context(), "config", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	restarted(config.ResourceVersion, 0)
	config, err = client.CoreV1().ConfigMaps(ns).Patch(t.Context(), "config", types.MergePatchType, []byte(`{"data":{"key":"2"}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	restarted(config.ResourceVersion, 1)
	await.Until(t, "an event says why", func(ctx context.Context) error {
		events, err := client.CoreV1().Events(ns).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=web,reason=ConfigRestarted"})
		if err == nil && (len(events.Items) != 1 || !strings.HasSuffix(events.Items[0].Message, "by a rollout and not in place, because its pod template has no restarter")) {
			err = fmt.Errorf("events %+v", events.Items)
		}
		return err
	})
}
