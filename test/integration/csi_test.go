// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
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
	web := single("web")
	(&recipe{shop: s.shop, blocks: recipeBlocks(t, recipesPage)["Secrets Store CSI driver"]}).volumes(&web.Spec.Template.Spec)
	web.Annotations, web.Spec.Replicas = pairs(annotation, "true"), new(int32(2))
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

// pods returns the names of the pods once both run, with the current template.
func (s csiShop) pods() (names []string) {
	s.Helper()
	s.until("web", "has its pods", func(d *appsv1.Deployment) error {
		if st := &d.Status; st.ObservedGeneration < d.Generation || st.Replicas != 2 || st.UpdatedReplicas != 2 || st.AvailableReplicas != 2 {
			return fmt.Errorf("status = %+v", st)
		}
		return nil
	})
	list, err := kube.CoreV1().Pods(s.namespace).List(s.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	s.must(err)
	for i := range list.Items {
		if p := &list.Items[i]; p.DeletionTimestamp == nil {
			names = append(names, p.Name)
		}
	}
	if len(names) != 2 {
		s.Fatalf("the pods are %v", names)
	}
	return names
}

// restarted waits until there were so many restarts.
func (s csiShop) restarted(times int) {
	s.Helper()
	await.Until(s.T, fmt.Sprintf("web was restarted %d times", times), func(context.Context) error {
		if got := s.templates("web") - 1; got != times {
			return fmt.Errorf("%d restarts", got)
		}
		return nil
	})
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
	old := web.pods()
	first, generation := web.mounted(old[0], "1")
	if generation != 1 {
		t.Fatalf("the first write has generation %d", generation)
	}
	web.mounted(old[1], "1")
	shown := web.synced(first)
	if s := shown.Spec.Sources[0]; !s.TriggersReload || s.Reason != "" {
		t.Errorf("the source is %+v", s)
	}
	web.wantRestarts(0, "before a rotation")

	// A pod that starts with the next version is no evidence that others have to be restarted, and an update is.
	web.mounted("web-that-starts", "2")
	awaitAge(t, web.namespace, "web")
	if _, generation = web.mounted(old[0], "2"); generation != 2 {
		t.Fatalf("the update has generation %d", generation)
	}
	web.restarted(1)
	for _, pod := range old { // its node tells late
		web.mounted(pod, "3")
		web.unmounted(pod)
	}
	young := web.pods()
	web.mounted(young[1], "2")
	web.mounted(young[0], "2")
	web.view("deployment.web", applied, restartedFor("SecretProviderClass/"+providerClass))
	web.wantRestarts(1, "after an update")

	awaitAge(t, web.namespace, "web")
	web.mounted(young[1], "3")
	web.restarted(2)
}
