// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/controlplane"
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
	// as is the kind in configdep, if it has another one there.
	as string
}

// view is the name of the ConfigDependency of the object named web.
func (d definition) view() string { return strings.ToLower(cmp.Or(d.as, d.kind)) + ".web" }

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

// manifest returns a definition that serves some versions, the first of which is stored.
func (d definition) manifest(versions ...string) *unstructured.Unstructured {
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
	return &unstructured.Unstructured{Object: content{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": content{"name": d.plural + "." + d.group},
		"spec": content{
			"group": d.group, "scope": "Namespaced", "versions": all,
			"names": content{"kind": d.kind, "listKind": d.kind + "List", "plural": d.plural, "singular": strings.ToLower(d.kind)},
		},
	}}
}

// defineKinds creates the definitions that stay, with the rights that the manifests of the server lack. While the server runs, a new one
// would keep replicas from comparing versions for some minutes.
func defineKinds(ctx context.Context, cluster *controlplane.ControlPlane) error {
	client, err := dynamic.NewForConfig(cluster.RESTConfig())
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join("testdata", "definitions", "*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("finding the definitions: %d found (%w)", len(files), err)
	}
	crds := []*unstructured.Unstructured{harborStores.manifest("v1"), harborReports.manifest("v1"), harborFarms.manifest("v1")}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &crd.Object); err != nil {
			return err
		}
		crds = append(crds, crd)
	}
	for _, crd := range crds {
		if _, err := client.Resource(definitions).Create(ctx, crd, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
			return err
		}
	}
	// What this kubectl has found would be in the cache of later ones: resources without those of the server, which is not there yet.
	cache, err := os.MkdirTemp("", "kubectl-cache-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(cache)
	if _, err := cluster.Kubectl(ctx, "apply", "-k", "../../artifacts/policies", "--cache-dir="+cache); err != nil {
		return err
	}
	for _, d := range []definition{harborStores, harborReports, harborFarms, projects["harborcluster"]} {
		if err := d.allow(ctx, cluster); err != nil {
			return err
		}
	}
	_, err = cluster.Kubectl(ctx, "wait", "--for=condition=Established", "customresourcedefinitions", "--all", "--timeout=2m")
	return err
}

// define creates or replaces a definition that serves some versions, and waits until it is served.
func (d definition) define(t *testing.T, versions ...string) {
	t.Helper()
	o := d.manifest(versions...)
	before, err := objects.Resource(definitions).Get(t.Context(), o.GetName(), metav1.GetOptions{})
	if err == nil {
		o.SetResourceVersion(before.GetResourceVersion())
		_, err = objects.Resource(definitions).Update(t.Context(), o, metav1.UpdateOptions{})
	} else {
		_, err = objects.Resource(definitions).Create(t.Context(), o, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	await.Until(t, o.GetName()+" is served", func(ctx context.Context) (err error) {
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

// allow gives the server the rights on a resource that it needs for a kind.
func (d definition) allow(ctx context.Context, cluster *controlplane.ControlPlane) error {
	client, err := kubernetes.NewForConfig(cluster.RESTConfig())
	if err != nil {
		return err
	}
	name := "configdep-" + d.plural
	_, err = client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{d.group}, Resources: []string{d.plural}, Verbs: []string{"get", "list", "watch", "patch"},
	}}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: install.Namespace, Name: install.Name}},
	}, metav1.CreateOptions{})
	return err
}

func (d definition) grant(t *testing.T) {
	t.Helper()
	if err := d.allow(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
}

func (d definition) revoke(t *testing.T) {
	t.Helper()
	if err := kube.RbacV1().ClusterRoleBindings().Delete(t.Context(), "configdep-"+d.plural, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// kindShop is a shop with custom resources, each named web.
type kindShop struct{ *shop }

func newKindShop(t *testing.T) *kindShop {
	t.Helper()
	return &kindShop{newShop(t)}
}

// newKindShopOf returns an own shop whose server reads one described kind more, which the test defines.
func newKindShopOf(t *testing.T, described string) (*kindShop, *install.Replica) {
	t.Helper()
	s := newOwnShop(t)
	file := filepath.Join(t.TempDir(), "kinds.yaml")
	s.must(os.WriteFile(file, []byte(describedKinds+described), 0o600))
	return &kindShop{s}, s.serve(install.ReplicaOptions{Args: []string{"--kinds-config=" + file}})
}

// allow lets workloads have fields that are set from a Secret.
func (p *kindShop) allow(name, list string) {
	p.Helper()
	p.annotate(ref("Secret/"+name), policy.AllowFieldsAnnotation, list)
}

func (p *kindShop) of(d definition, version string) dynamic.ResourceInterface {
	return objects.Resource(d.resource(version)).Namespace(p.namespace)
}

// createObject creates an object named web.
func (p *kindShop) createObject(d definition, version string, annotations map[string]string, spec content) *unstructured.Unstructured {
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

func (p *kindShop) get(d definition, version string) *unstructured.Unstructured {
	p.Helper()
	o, err := p.of(d, version).Get(p.Context(), "web", metav1.GetOptions{})
	if err != nil {
		p.Fatal(err)
	}
	return o
}

// patch changes the object named web as a client with a field manager does.
func (p *kindShop) patch(d definition, version, manager string, change content, subresources ...string) {
	p.Helper()
	_, err := p.of(d, version).Patch(p.Context(), "web", types.MergePatchType, asJSON(p.T, change), metav1.PatchOptions{FieldManager: manager, FieldValidation: metav1.FieldValidationStrict}, subresources...)
	if err != nil {
		p.Fatal(err)
	}
}

// status reports a status as the controller of the object does, with the generation that it has now.
func (p *kindShop) status(d definition, version string, status content) {
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

// shown waits until the API shows the object named web as expected.
func (p *kindShop) shown(d definition, checks ...func(*v1alpha1.ConfigDependency) error) *v1alpha1.ConfigDependency {
	p.Helper()
	return p.view(d.view(), checks...)
}

// gone waits until the API shows nothing of the object named web.
func (p *kindShop) gone(d definition) {
	p.Helper()
	await.Until(p.T, d.view()+" is gone", func(ctx context.Context) error {
		_, err := p.api().Get(ctx, d.view(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is shown"))
	})
}

// event waits for an event about the object named web, and returns its message.
func (p *kindShop) event(d definition, reason string) string {
	p.Helper()
	return p.told(d.kind, "web", reason)[0]
}

var auto = pairs(policy.ReloadAnnotation, "auto")
