// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/test/await"
)

// definition has what matters of the one that comes with the driver: there is no subresource for the status.
const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: secretproviderclasspodstatuses.secrets-store.csi.x-k8s.io}
spec:
  group: secrets-store.csi.x-k8s.io
  scope: Namespaced
  names:
    kind: SecretProviderClassPodStatus
    listKind: SecretProviderClassPodStatusList
    plural: secretproviderclasspodstatuses
    singular: secretproviderclasspodstatus
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          status:
            type: object
            properties:
              mounted: {type: boolean}
              podName: {type: string}
              secretProviderClassName: {type: string}
              targetPath: {type: string}
              objects:
                type: array
                items:
                  type: object
                  properties:
                    id: {type: string}
                    version: {type: string}
`

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	podStatuses = schema.GroupVersionResource{Group: "secrets-store.csi.x-k8s.io", Version: "v1", Resource: "secretproviderclasspodstatuses"}
)

const class = "keys"

// scene is a namespace with a Deployment whose pods mount a SecretProviderClass.
type scene struct {
	*testing.T

	namespace string
}

func newScene(t *testing.T, annotation string) *scene {
	t.Helper()
	made, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{t, made.Name}
	labels := map[string]string{"app": "web"}
	_, err = client.AppsV1().Deployments(s.namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{annotation: "true"}},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: new(int64(1)), AutomountServiceAccountToken: new(false),
					Containers: []corev1.Container{{Name: "app", Image: "app", VolumeMounts: []corev1.VolumeMount{{Name: "store", MountPath: "/store"}}}},
					Volumes: []corev1.Volume{{Name: "store", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
						Driver: "secrets-store.csi.k8s.io", ReadOnly: new(true), VolumeAttributes: map[string]string{"secretProviderClass": class},
					}}}},
				},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// write writes the status of a pod as the driver does, and returns its version and its generation.
func (s *scene) write(pod, version string) (resourceVersion string, generation int64) {
	s.Helper()
	all := objects.Resource(podStatuses).Namespace(s.namespace)
	name := pod + "-" + s.namespace + "-" + class
	status := map[string]any{
		"podName": pod, "secretProviderClassName": class, "mounted": true, "targetPath": "/var/lib/kubelet/pods/x",
		"objects": []any{map[string]any{"id": "secret/password", "version": version}},
	}
	var made *unstructured.Unstructured
	await.Until(s.T, "the status of "+pod+" is written", func(ctx context.Context) error {
		o, err := all.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			o = &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": podStatuses.GroupVersion().String(), "kind": "SecretProviderClassPodStatus", "status": status,
				"metadata": map[string]any{"name": name},
			}}
			made, err = all.Create(ctx, o, metav1.CreateOptions{})
			return err
		}
		o.Object["status"] = status
		made, err = all.Update(ctx, o, metav1.UpdateOptions{})
		return err
	})
	return made.GetResourceVersion(), made.GetGeneration()
}

func (s *scene) remove(pod string) {
	s.Helper()
	if err := objects.Resource(podStatuses).Namespace(s.namespace).Delete(s.Context(), pod+"-"+s.namespace+"-"+class, metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
}

// view waits until the API shows the workload and what it knows of the class in a way that passes a check.
func (s *scene) view(what string, check func(*v1alpha1.ConfigDependency, v1alpha1.SourceStatus) error) *v1alpha1.ConfigDependency {
	s.Helper()
	var found *v1alpha1.ConfigDependency
	await.Until(s.T, what, func(ctx context.Context) (err error) {
		if found, err = api.ConfigdepV1alpha1().ConfigDependencies(s.namespace).Get(ctx, "deployment.web", metav1.GetOptions{}); err != nil {
			return err
		}
		i := slices.IndexFunc(found.Status.Sources, func(s v1alpha1.SourceStatus) bool { return s.Kind == v1alpha1.SourceSecretProviderClass })
		if i < 0 {
			return errors.New("the class is not shown")
		}
		return check(found, found.Status.Sources[i])
	})
	return found
}

// synced waits until a write of a status is the last that says what the content is, and the pods run with that.
func (s *scene) synced(version string) *v1alpha1.ConfigDependency {
	s.Helper()
	return s.view("version "+version+" is applied", func(o *v1alpha1.ConfigDependency, class v1alpha1.SourceStatus) error {
		if class.Present == nil || !*class.Present || class.ResourceVersion != version {
			return fmt.Errorf("class = %+v", class)
		}
		if o.Status.State != v1alpha1.StateInSync || o.Status.AppliedHash != o.Status.ConfigHash {
			return fmt.Errorf("state = %s, %s: %s", o.Status.State, o.Status.Reason, o.Status.Message)
		}
		return nil
	})
}

// restarts returns how often the pods have been replaced.
func (s *scene) restarts() int {
	s.Helper()
	all, err := client.AppsV1().ReplicaSets(s.namespace).List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return len(all.Items) - 1
}

func (s *scene) wantRestarts(want int, when string) {
	s.Helper()
	if got := s.restarts(); got != want {
		s.Errorf("%d restarts %s, want %d", got, when, want)
	}
}

// The definition comes with the driver, after the server has been started. Then one update that any pod reports restarts the
// workload, and no other report of the same rotation does.
func TestRotations(t *testing.T) {
	web := newScene(t, "reloader.stakater.com/auto")
	before := web.view("the class is shown", func(_ *v1alpha1.ConfigDependency, class v1alpha1.SourceStatus) error {
		if class.Present != nil {
			return fmt.Errorf("class = %+v", class)
		}
		return nil
	})
	if s := before.Spec.Sources[0]; s.TriggersReload || s.Reason != policy.ReasonNotObserved || s.Usages[0].MountPath != "/store" {
		t.Errorf("the source is %+v", s)
	}

	var o unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(definition), &o.Object); err != nil {
		t.Fatal(err)
	}
	if _, err := objects.Resource(definitions).Create(t.Context(), &o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	first, generation := web.write("web-a", "1")
	if generation != 1 {
		t.Fatalf("the first write has generation %d", generation)
	}
	web.write("web-b", "1")
	web.write("web-c", "1")
	shown := web.synced(first)
	if s := shown.Spec.Sources[0]; !s.TriggersReload || s.Reason != "" {
		t.Errorf("the source is %+v", s)
	}
	web.wantRestarts(0, "before a rotation")

	// A pod that starts with the next version is no evidence that others have to be restarted, and an update is.
	web.write("web-d", "2")
	version, generation := web.write("web-a", "2")
	if generation != 2 {
		t.Fatalf("the update has generation %d", generation)
	}
	reloaded := web.synced(version)
	web.wantRestarts(1, "after an update")
	if last := reloaded.Status.LastReload; last == nil || last.Trigger != "SecretProviderClass/"+class {
		t.Errorf("last reload = %+v", last)
	}
	for _, pod := range []string{"web-b", "web-c"} {
		version, _ = web.write(pod, "2")
		web.synced(version)
	}
	web.remove("web-a")
	web.write("web-e", "2")
	web.wantRestarts(1, "after other reports of the same rotation")

	version, _ = web.write("web-b", "3")
	web.synced(version)
	web.wantRestarts(2, "after the second rotation")
}
