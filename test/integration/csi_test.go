// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

// podStatusDefinition has what matters of the one that comes with the driver: there is no subresource for the status.
const podStatusDefinition = `
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

var podStatuses = schema.GroupVersionResource{Group: "secrets-store.csi.x-k8s.io", Version: "v1", Resource: "secretproviderclasspodstatuses"}

const providerClass = "keys"

// csiShop has a Deployment whose pods mount a SecretProviderClass.
type csiShop struct{ *shop }

func newCSIShop(t *testing.T, annotation string) csiShop {
	t.Helper()
	s := csiShop{newOwnShop(t)}
	s.serve(install.ReplicaOptions{Args: []string{"--read-secretproviderclasses"}})
	web := single("web", func(p *corev1.PodSpec) {
		p.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "store", MountPath: "/store"}}
		p.Volumes = []corev1.Volume{{Name: "store", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
			Driver: "secrets-store.csi.k8s.io", ReadOnly: new(true), VolumeAttributes: map[string]string{"secretProviderClass": providerClass},
		}}}}
	})
	web.Annotations = pairs(annotation, "true")
	s.create(web)
	return s
}

// mounted writes the status of a pod as the driver does, and returns its version and its generation.
func (s csiShop) mounted(pod, version string) (resourceVersion string, generation int64) {
	s.Helper()
	all := objects.Resource(podStatuses).Namespace(s.namespace)
	name := pod + "-" + s.namespace + "-" + providerClass
	status := map[string]any{
		"podName": pod, "secretProviderClassName": providerClass, "mounted": true, "targetPath": "/var/lib/kubelet/pods/x",
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

func (s csiShop) unmounted(pod string) {
	s.Helper()
	s.must(objects.Resource(podStatuses).Namespace(s.namespace).Delete(s.Context(), pod+"-"+s.namespace+"-"+providerClass, metav1.DeleteOptions{}))
}

// class waits until the API shows the workload and what it knows of the class in a way that passes a check.
func (s csiShop) class(check func(*v1alpha1.ConfigDependency, v1alpha1.SourceStatus) error) *v1alpha1.ConfigDependency {
	s.Helper()
	return s.view("deployment.web", func(found *v1alpha1.ConfigDependency) error {
		i := slices.IndexFunc(found.Status.Sources, func(s v1alpha1.SourceStatus) bool { return s.Kind == v1alpha1.SourceSecretProviderClass })
		if i < 0 {
			return errors.New("the class is not shown")
		}
		return check(found, found.Status.Sources[i])
	})
}

// synced waits until a write of a status is the last that says what the content is, and the pods run with that.
func (s csiShop) synced(version string) *v1alpha1.ConfigDependency {
	s.Helper()
	return s.class(func(o *v1alpha1.ConfigDependency, class v1alpha1.SourceStatus) error {
		if class.Present == nil || !*class.Present || class.ResourceVersion != version {
			return fmt.Errorf("class = %+v", class)
		}
		return applied(o)
	})
}

func (s csiShop) wantRestarts(want int, when string) {
	s.Helper()
	if got := s.templates("web") - 1; got != want {
		s.Errorf("%d restarts %s, want %d", got, when, want)
	}
}

// The definition comes with the driver, after the server has been started. Then one update that any pod reports restarts the
// workload, and no other report of the same rotation does.
func TestCSI_Rotations(t *testing.T) {
	t.Parallel()
	web := newCSIShop(t, "reloader.stakater.com/auto")
	before := web.class(func(_ *v1alpha1.ConfigDependency, class v1alpha1.SourceStatus) error {
		if class.Present != nil {
			return fmt.Errorf("class = %+v", class)
		}
		return nil
	})
	if s := before.Spec.Sources[0]; s.TriggersReload || s.Reason != policy.ReasonNotObserved || s.Usages[0].MountPath != "/store" {
		t.Errorf("the source is %+v", s)
	}

	var o unstructured.Unstructured
	web.must(yaml.Unmarshal([]byte(podStatusDefinition), &o.Object))
	_, err := objects.Resource(definitions).Create(t.Context(), &o, metav1.CreateOptions{})
	web.must(err)
	first, generation := web.mounted("web-a", "1")
	if generation != 1 {
		t.Fatalf("the first write has generation %d", generation)
	}
	web.mounted("web-b", "1")
	web.mounted("web-c", "1")
	shown := web.synced(first)
	if s := shown.Spec.Sources[0]; !s.TriggersReload || s.Reason != "" {
		t.Errorf("the source is %+v", s)
	}
	web.wantRestarts(0, "before a rotation")

	// A pod that starts with the next version is no evidence that others have to be restarted, and an update is.
	web.mounted("web-d", "2")
	version, generation := web.mounted("web-a", "2")
	if generation != 2 {
		t.Fatalf("the update has generation %d", generation)
	}
	reloaded := web.synced(version)
	web.wantRestarts(1, "after an update")
	if last := reloaded.Status.LastReload; last == nil || last.Trigger != "SecretProviderClass/"+providerClass {
		t.Errorf("last reload = %+v", last)
	}
	for _, pod := range []string{"web-b", "web-c"} {
		version, _ = web.mounted(pod, "2")
		web.synced(version)
	}
	web.unmounted("web-a")
	web.mounted("web-e", "2")
	web.wantRestarts(1, "after other reports of the same rotation")

	version, _ = web.mounted("web-b", "3")
	web.synced(version)
	web.wantRestarts(2, "after the second rotation")
}
