// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package featuregates tests restarts in place where kube-apiserver lacks the features that they need.
package featuregates

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/generated/clientset/versioned"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
)

const (
	withoutRestartAll = "--feature-gates=RestartAllContainersOnContainerExits=false"
	withoutRules      = withoutRestartAll + ",ContainerRestartRules=false"
)

// These are of the cluster in which kube-apiserver has neither feature.
var (
	client kubernetes.Interface
	api    versioned.Interface
)

func TestMain(m *testing.M) {
	os.Exit(install.Run(m, controlplane.Options{Nodes: 1, APIServerArgs: []string{withoutRules}}, install.Options{
		Race: install.RaceDetector, Values: "in-place",
		Args: []string{"--settle=0s", "--release-settle=0s", "--min-interval=0s", "--shutdown-delay-duration=0s"},
	}, func(c *controlplane.ControlPlane, _ *install.Installation) {
		client, api = kubernetes.NewForConfigOrDie(c.RESTConfig()), versioned.NewForConfigOrDie(c.RESTConfig())
	}))
}

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

func deployment(t *testing.T, name string) *appsv1.Deployment {
	t.Helper()
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{policy.ReloadAnnotation: "auto", policy.StrategyAnnotation: "in-place"}},
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: template(t)},
	}
}

// If kube-apiserver drops the rules of the restarter, the workload is restarted by rollouts, and the view says why.
func TestRulesAreDropped(t *testing.T) {
	const ns = metav1.NamespaceDefault
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "config"}, Data: map[string]string{"key": "1"}}
	if _, err := client.CoreV1().ConfigMaps(ns).Create(t.Context(), config, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	made, err := client.AppsV1().Deployments(ns).Create(t.Context(), deployment(t, "web"), metav1.CreateOptions{})
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
		events, err := client.CoreV1().Events(ns).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=web,reason=ConfigReloaded"})
		if err == nil && (len(events.Items) != 1 || !strings.HasSuffix(events.Items[0].Message, "by a rollout and not in place, because its pod template has no restarter")) {
			err = fmt.Errorf("events %+v", events.Items)
		}
		return err
	})
}

// kube-apiserver refuses new workloads and pods with the rule, if it lacks only the feature of its action. It keeps those that have it, and
// lets them be changed, and their pods be told to restart.
func TestRulesAreRefused(t *testing.T) {
	const ns = metav1.NamespaceDefault
	cluster, err := controlplane.Start(t.Context(), controlplane.Options{APIServerOnly: true, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	}()
	client := kubernetes.NewForConfigOrDie(cluster.RESTConfig())
	deployments, pods := client.AppsV1().Deployments(ns), client.CoreV1().Pods(ns)
	create := func(name string) (ofDeployment, ofPod error) {
		_, ofDeployment = deployments.Create(t.Context(), deployment(t, name), metav1.CreateOptions{})
		_, ofPod = pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: template(t).Spec}, metav1.CreateOptions{})
		return ofDeployment, ofPod
	}
	if err := errors.Join(create("old")); err != nil {
		t.Fatal(err)
	}
	if err := cluster.RestartAPIServer(t.Context(), withoutRestartAll); err != nil {
		t.Fatal(err)
	}
	ofDeployment, ofPod := create("new")
	for prefix, err := range map[string]error{"spec.template.": ofDeployment, "": ofPod} {
		const why = "spec.initContainers[0].restartPolicyRules: Forbidden: restartPolicyRules are not allowed for init containers with restart policy Always"
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), prefix+why) {
			t.Errorf("creating it: %v, want %s", err, prefix+why)
		}
	}
	d, err := deployments.Patch(t.Context(), "old", types.MergePatchType, []byte(`{"spec":{"template":{"metadata":{"annotations":{"a":"b"}}}}}`), metav1.PatchOptions{})
	if err != nil || len(d.Spec.Template.Spec.InitContainers[0].RestartPolicyRules) != 1 {
		t.Errorf("changing the template of a Deployment with a rule: %v; it has %+v", err, d.Spec.Template.Spec.InitContainers)
	}
	p, err := pods.Patch(t.Context(), "old", types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+policy.RestartAnnotation+`":"1"}}}`), metav1.PatchOptions{})
	if err != nil || len(p.Spec.InitContainers[0].RestartPolicyRules) != 1 {
		t.Errorf("telling a pod with a rule to restart: %v; it has %+v", err, p.Spec.InitContainers)
	}
}
