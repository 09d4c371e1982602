// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

// content is decoded JSON.
type content = map[string]any

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// definition is a custom resource.
type definition struct {
	group, kind, plural string
	// spec is the schema of its specification; nil: anything.
	spec content
	// shown is the kind in configdep, if it has another one there.
	shown string
}

// view is the name of the ConfigDependency of the object named web.
func (d definition) view() string { return strings.ToLower(cmp.Or(d.shown, d.kind)) + ".web" }

var (
	harborSites   = definition{group: "goharbor.example.com", kind: "HarborSite", plural: "harborsites"}
	harborStores  = definition{group: "goharbor.example.com", kind: "HarborStore", plural: "harborstores", spec: storeSpec}
	harborReports = definition{group: "goharbor.example.com", kind: "HarborReport", plural: "harborreports"}
	harborAgents  = definition{group: "goharbor.example.com", kind: "HarborAgent", plural: "harboragents"}
	harborFarms   = definition{group: "goharbor.example.com", kind: "HarborFarm", plural: "harborfarms"}
)

func (d definition) resource(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: d.group, Version: version, Resource: d.plural}
}

// define creates or replaces a definition that serves some versions, the first of which is stored, and waits until it is served.
func (d definition) define(t *testing.T, versions ...string) {
	t.Helper()
	anything := content{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	spec := d.spec
	if spec == nil {
		spec = anything
	}
	var all []any
	for i, version := range versions {
		all = append(all, content{
			"name": version, "served": true, "storage": i == 0, "subresources": content{"status": content{}},
			"schema": content{"openAPIV3Schema": content{"type": "object", "properties": content{"spec": spec, "status": anything}}},
		})
	}
	name := d.plural + "." + d.group
	o := &unstructured.Unstructured{Object: content{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": content{"name": name},
		"spec": content{
			"group": d.group, "scope": "Namespaced", "versions": all,
			"names": content{"kind": d.kind, "listKind": d.kind + "List", "plural": d.plural, "singular": strings.ToLower(d.kind)},
		},
	}}
	if before, err := objects.Resource(definitions).Get(t.Context(), name, metav1.GetOptions{}); err == nil {
		o.SetResourceVersion(before.GetResourceVersion())
		if _, err := objects.Resource(definitions).Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	} else if _, err := objects.Resource(definitions).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await.Until(t, name+" is served", func(ctx context.Context) (err error) {
		for _, version := range versions {
			_, listed := objects.Resource(d.resource(version)).List(ctx, metav1.ListOptions{Limit: 1})
			err = errors.Join(err, listed)
		}
		return err
	})
}

func (d definition) remove(t *testing.T) {
	t.Helper()
	if err := objects.Resource(definitions).Delete(t.Context(), d.plural+"."+d.group, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// grant gives the server the rights on a resource that it needs for a kind.
func (d definition) grant(t *testing.T) {
	t.Helper()
	name := "configdep-" + d.plural
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{d.group}, Resources: []string{d.plural}, Verbs: []string{"get", "list", "watch", "patch"},
	}}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: install.Namespace, Name: install.Name}},
	}
	_, err := client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})
	if err == nil {
		_, err = client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (d definition) revoke(t *testing.T) {
	t.Helper()
	if err := client.RbacV1().ClusterRoleBindings().Delete(t.Context(), "configdep-"+d.plural, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func configMap(name, key, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{key: value}}
}

// once makes a definition with its rights, for all tests that need it and do not change it.
func once(d definition, versions ...string) func(*testing.T) {
	var made sync.Once
	return func(t *testing.T) {
		t.Helper()
		made.Do(func() {
			d.grant(t)
			d.define(t, versions...)
		})
	}
}

var storesOnce = once(harborStores, "v1")

// place is a namespace.
type place struct {
	*testing.T

	namespace string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	made, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return &place{t, made.Name}
}

// secret creates or changes a Secret with pairs of keys and values.
func (p *place) secret(name string, pairs ...string) {
	p.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		s.StringData[pairs[i]] = pairs[i+1]
	}
	secrets := client.CoreV1().Secrets(p.namespace)
	_, err := secrets.Create(p.Context(), s, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = secrets.Patch(p.Context(), name, types.MergePatchType, p.json(content{"stringData": s.StringData}), metav1.PatchOptions{})
	}
	if err != nil {
		p.Fatal(err)
	}
}

// allow lets workloads have fields that are set from a Secret.
func (p *place) allow(name, list string) {
	p.Helper()
	patch := p.json(content{"metadata": content{"annotations": content{"configdep.io/allow-fields": list}}})
	if _, err := client.CoreV1().Secrets(p.namespace).Patch(p.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		p.Fatal(err)
	}
}

func (p *place) json(value any) []byte {
	p.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		p.Fatal(err)
	}
	return data
}

func (p *place) of(d definition, version string) dynamic.ResourceInterface {
	return objects.Resource(d.resource(version)).Namespace(p.namespace)
}

// create creates an object named web.
func (p *place) create(d definition, version string, annotations map[string]string, spec content) *unstructured.Unstructured {
	p.Helper()
	o := &unstructured.Unstructured{Object: content{"apiVersion": d.group + "/" + version, "kind": d.kind, "spec": spec}}
	o.SetName("web")
	o.SetAnnotations(annotations)
	made, err := p.of(d, version).Create(p.Context(), o, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		p.Fatal(err)
	}
	return made
}

func (p *place) get(d definition, version string) *unstructured.Unstructured {
	p.Helper()
	o, err := p.of(d, version).Get(p.Context(), "web", metav1.GetOptions{})
	if err != nil {
		p.Fatal(err)
	}
	return o
}

// patch changes the object named web as a client with a field manager does.
func (p *place) patch(d definition, version, manager string, change content, subresources ...string) {
	p.Helper()
	_, err := p.of(d, version).Patch(p.Context(), "web", types.MergePatchType, p.json(change), metav1.PatchOptions{FieldManager: manager, FieldValidation: metav1.FieldValidationStrict}, subresources...)
	if err != nil {
		p.Fatal(err)
	}
}

// status reports a status as the controller of the object does, with the generation that it has now.
func (p *place) status(d definition, version string, status content) {
	p.Helper()
	for key, value := range status {
		switch value {
		case observed:
			status[key] = p.get(d, version).GetGeneration()
		case observedText:
			status[key] = fmt.Sprint(p.get(d, version).GetGeneration())
		}
	}
	p.patch(d, version, "controller", content{"status": status}, "status")
}

// Values of a status that stand for the generation of the object.
const observed, observedText = "$(generation)", "$(generation as text)"

// view waits until the API shows the object named web as expected.
func (p *place) view(d definition, checks ...func(*v1alpha1.ConfigDependency) error) *v1alpha1.ConfigDependency {
	p.Helper()
	name := d.view()
	return await.Passes(p.T, name+" is shown as expected", func(ctx context.Context) (*v1alpha1.ConfigDependency, error) {
		return api.ConfigdepV1alpha1().ConfigDependencies(p.namespace).Get(ctx, name, metav1.GetOptions{})
	}, checks...)
}

// gone waits until the API shows nothing of the object named web.
func (p *place) gone(d definition) {
	p.Helper()
	name := d.view()
	await.Until(p.T, name+" is gone", func(ctx context.Context) error {
		_, err := api.ConfigdepV1alpha1().ConfigDependencies(p.namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil:
			return errors.New("it is shown")
		default:
			return err
		}
	})
}

func state(state v1alpha1.State, reason string) func(*v1alpha1.ConfigDependency) error {
	return func(o *v1alpha1.ConfigDependency) error {
		if o.Status.State != state || reason != "" && o.Status.Reason != reason {
			return fmt.Errorf("state = %s, %s: %s", o.Status.State, o.Status.Reason, o.Status.Message)
		}
		return nil
	}
}

// applied checks that the current content has been applied.
func applied(o *v1alpha1.ConfigDependency) error {
	if o.Status.AppliedHash == "" || o.Status.AppliedHash != o.Status.ConfigHash {
		return fmt.Errorf("appliedHash = %q, configHash = %q (%s, %s: %s)", o.Status.AppliedHash, o.Status.ConfigHash, o.Status.State, o.Status.Reason, o.Status.Message)
	}
	return nil
}

// newer checks that the content is another one than before.
func newer(before *v1alpha1.ConfigDependency) func(*v1alpha1.ConfigDependency) error {
	return func(o *v1alpha1.ConfigDependency) error {
		if o.Status.ConfigHash == before.Status.ConfigHash {
			return errors.New("the content is the same")
		}
		return nil
	}
}

// event waits for an event about the object named web, and returns its message.
func (p *place) event(d definition, reason string) (message string) {
	p.Helper()
	await.Until(p.T, "event "+reason, func(ctx context.Context) error {
		list, err := client.CoreV1().Events(p.namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=" + reason + ",involvedObject.kind=" + d.kind})
		if err != nil {
			return err
		}
		if len(list.Items) == 0 {
			return errors.New("there is none")
		}
		message = list.Items[0].Message
		return nil
	})
	return message
}

var auto = map[string]string{"configdep.io/reload": "auto"}

func kubernetesAt(config *rest.Config) (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(config)
}
