// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

func readsSecret(name string) content {
	return content{"spec": content{"containers": []any{content{
		"name": "app", "image": "app", "envFrom": []any{content{"secretRef": content{"name": name}}},
	}}}}
}

// readyz returns what a replica says of its health.
func readyz(ctx context.Context, r *install.Replica) (string, error) {
	got, err := try(ctx, r.RESTConfig(), request{path: "/readyz?verbose"})
	if err != nil {
		return "", err
	}
	return string(got.body), nil
}

// A kind is read once its definition is there and the server may read it, and let go with its definition. What changed before is no
// change for the workloads that are found then, and what changes while the kind is not read is one.
func TestKinds_ComesAndGoes(t *testing.T) {
	t.Parallel()
	p, r := newKindShopOf(t, describedAgent)
	d := harborAgents
	p.write("Secret/db", "password", "one")
	p.write("Secret/other", "password", "one")
	d.define(t, "v1")
	p.write("Secret/db", "password", "two")
	spec := content{"agent": content{"template": readsSecret("db")}, "others": []any{content{"template": readsSecret("other")}}}
	before := p.createObject(d, "v1", auto, spec)
	await.Until(t, "the server says that it may not read the kind", func(ctx context.Context) error {
		text, err := readyz(ctx, r)
		if err == nil && (!strings.Contains(text, "harboragents.goharbor.example.com") || !strings.Contains(text, "readyz check passed")) {
			err = fmt.Errorf("readyz: %s", text)
		}
		return err
	})
	p.gone(d)

	d.grant(t)
	shown := p.shown(d, recorded, is(v1alpha1.StateInSync, ""))
	if o := p.get(d, "v1"); o.GetGeneration() != before.GetGeneration() {
		t.Errorf("the workload was restarted when it was found: %v", o.Object)
	}
	if len(shown.Spec.Sources) != 2 || shown.Spec.WorkloadRef.APIVersion != "goharbor.example.com/v1" {
		t.Errorf("view = %+v", shown.Spec)
	}
	p.write("Secret/other", "password", "two")
	shown = p.shown(d, newer(shown), recorded)
	restarts := func(o *unstructured.Unstructured) int64 { return o.GetGeneration() - before.GetGeneration() }
	o := p.get(d, "v1")
	hash, _, _ := unstructured.NestedString(o.Object, "spec", "agent", "template", "metadata", "annotations", record.ConfigHashAnnotation)
	if restarts(o) != 1 || hash != shown.Status.ConfigHash {
		t.Errorf("restarts = %d, hash on the template = %q, want %q", restarts(o), hash, shown.Status.ConfigHash)
	}

	d.revoke(t)
	await.Until(t, "the server says that it may not read the kind any longer", func(ctx context.Context) error {
		text, err := readyz(ctx, r)
		if err == nil && !strings.Contains(text, "harboragents.goharbor.example.com") {
			err = fmt.Errorf("readyz: %s", text)
		}
		return err
	})
	p.write("Secret/db", "password", "three")
	if err := kube.RbacV1().ClusterRoles().Delete(t.Context(), "configdep-"+d.plural, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	d.grant(t)
	p.shown(d, newer(shown), recorded)
	if o := p.get(d, "v1"); restarts(o) != 2 {
		t.Errorf("restarts = %d, want 2", restarts(o))
	}
	d.remove(t)
	p.gone(d)
}

// The API version that a definition serves may change. A workload is restarted by a field, and its conditions tell of its progress.
func TestKinds_ServedVersionIsFollowed(t *testing.T) {
	t.Parallel()
	p, _ := newKindShopOf(t, describedSite)
	d := harborSites
	d.grant(t)
	d.define(t, "v1")
	p.write("Secret/db", "password", "one", "unused", "one")
	p.createObject(d, "v1", auto, content{"database": content{"passwordRef": "db"}, "extra": []any{content{"name": "settings"}, content{"name": "elsewhere", "namespace": "kube-system"}}})
	p.status(d, "v1", content{"observedGeneration": observed, "conditions": []any{content{"type": "Ready", "status": "True"}}})
	shown := p.shown(d, recorded, is(v1alpha1.StateInSync, ""))
	var sources []string
	for _, s := range shown.Spec.Sources {
		sources = append(sources, fmt.Sprintf("%s/%s %v %s %s", s.Kind, s.Name, s.Keys, s.Usages[0].Type, s.Usages[0].Path))
	}
	if want := "ConfigMap/settings [] Object .spec.extra[*].name, Secret/db [password] Object .spec.database.passwordRef"; strings.Join(sources, ", ") != want {
		t.Errorf("sources = %q, want %s", sources, want)
	}
	p.write("Secret/db", "unused", "two") // which it does not read
	p.write("Secret/db", "password", "two")
	shown = p.shown(d, newer(shown), recorded, is(v1alpha1.StateRollingOut, ""))
	restarted := func(version string) string {
		at, _, _ := unstructured.NestedString(p.get(d, version).Object, "spec", "restartedAt")
		return at
	}
	first := restarted("v1")
	if first == "" {
		t.Fatal("the field is not set")
	}
	p.status(d, "v1", content{"observedGeneration": observed, "conditions": []any{content{"type": "Ready", "status": "False"}}})
	p.shown(d, is(v1alpha1.StateRollingOut, ""))
	p.status(d, "v1", content{"observedGeneration": observed, "conditions": []any{content{"type": "Ready", "status": "True"}}})
	p.shown(d, is(v1alpha1.StateInSync, ""))

	d.define(t, "v1", "v2")
	p.shown(d, func(o *v1alpha1.ConfigDependency) error {
		if version := o.Spec.WorkloadRef.APIVersion; version != "goharbor.example.com/v2" {
			return errors.New("the view names " + version)
		}
		return nil
	})
	if err := await.NextSecond(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.write("Secret/db", "password", "three")
	p.shown(d, newer(shown), recorded)
	if at := restarted("v2"); at <= first {
		t.Errorf("restarted at %s, and before at %s", at, first)
	}
	if p.get(d, "v2").GetGeneration() != 3 {
		t.Errorf("generation = %d, want 3", p.get(d, "v2").GetGeneration())
	}
}

// Of some kinds, changes are only reported, once for each change. A Reload is refused.
func TestKinds_OnlyReported(t *testing.T) {
	t.Parallel()
	p, d := newKindShop(t), harborReports
	p.write("Secret/db", "password", "one")
	p.createObject(d, "v1", auto, content{"secretName": "db"})
	shown := p.shown(d, recorded, is(v1alpha1.StateInSync, ""))
	p.write("Secret/db", "password", "two")
	p.shown(d, newer(shown), recorded, is(v1alpha1.StateInSync, ""))
	if message := p.event(d, "ConfigChanged"); !strings.Contains(message, "Secret/db has changed") {
		t.Errorf("message = %s", message)
	}
	if o := p.get(d, "v1"); o.GetGeneration() != 1 {
		t.Errorf("the specification was written: %v", o.Object)
	}
	_, err := p.api().Reload(t.Context(), "harborreport.web", &v1alpha1.Reload{}, metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), "a HarborReport cannot be restarted") {
		t.Errorf("error = %v", err)
	}
}

func clone(c content) content {
	return maps.Clone(c)
}

// A Rollout with the template of a Deployment has the sources of that Deployment, and is restarted by its own field.
func TestKinds_RolloutTemplateOfADeployment(t *testing.T) {
	t.Parallel()
	p, d := newKindShop(t), project("argo-rollout")
	p.write("Secret/db", "password", "one")
	p.write("Secret/other", "password", "one")
	deployments := kube.AppsV1().Deployments(p.namespace)
	labels := map[string]string{"app": "web"}
	_, err := deployments.Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "app", Image: "app", EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "db"}}}},
			}}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.createObject(d, "v1alpha1", auto, content{"replicas": 1, "workloadRef": content{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}})
	ready := content{"observedGeneration": observedText, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1, "phase": "Healthy"}
	p.status(d, "v1alpha1", clone(ready))
	reads := func(name string) func(*v1alpha1.ConfigDependency) error {
		return func(o *v1alpha1.ConfigDependency) error {
			if len(o.Spec.Sources) != 1 || o.Spec.Sources[0].Name != name {
				return fmt.Errorf("sources = %+v", o.Spec.Sources)
			}
			return nil
		}
	}
	restartAt := func() string {
		at, _, _ := unstructured.NestedString(p.get(d, "v1alpha1").Object, "spec", "restartAt")
		return at
	}
	shown := p.shown(d, recorded, reads("db"), is(v1alpha1.StateInSync, ""))
	if restartAt() != "" || shown.Spec.Reload.Strategy != v1alpha1.StrategyField {
		t.Errorf("restarted at %q; strategy %s", restartAt(), shown.Spec.Reload.Strategy)
	}
	p.write("Secret/db", "password", "two")
	shown = p.shown(d, newer(shown), recorded)
	first := restartAt()
	if first == "" {
		t.Error("the Rollout was not restarted")
	}
	p.status(d, "v1alpha1", clone(ready))
	p.shown(d, is(v1alpha1.StateInSync, ""))

	// Its controller rolls another template out by itself.
	other := []byte(`[{"op": "replace", "path": "/spec/template/spec/containers/0/envFrom/0/secretRef/name", "value": "other"}]`)
	if _, err := deployments.Patch(t.Context(), "web", types.JSONPatchType, other, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	shown = p.shown(d, newer(shown), recorded, reads("other"))
	if restartAt() != first {
		t.Error("the Rollout was restarted because of another template")
	}
	if err := await.NextSecond(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.write("Secret/other", "password", "two")
	p.shown(d, newer(shown), recorded)
	if restartAt() == first {
		t.Error("the Rollout was not restarted")
	}
}

// A Deployment that belongs to a custom resource is left to it, as long as the custom resource is restarted itself.
func TestKinds_Owner(t *testing.T) {
	t.Parallel()
	p, d := newKindShop(t), harborStores
	p.write("Secret/db", "password", "one")
	owner := p.createObject(d, "v1", auto, content{"secretName": "db"})
	labels := map[string]string{"app": "web"}
	deployments := kube.AppsV1().Deployments(p.namespace)
	made, err := deployments.Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Annotations: auto,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID(), Controller: new(true)}},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "app", Image: "app", EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "db"}}}},
			}}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	deployment := definition{kind: "Deployment"}
	covered := func(want bool) func(*v1alpha1.ConfigDependency) error {
		return func(o *v1alpha1.ConfigDependency) error {
			if s := o.Spec.Sources[0]; s.TriggersReload == want || (s.Reason == decide.ReasonCoveredByOwner && s.DeclaredBy == "HarborStore web") != want {
				return fmt.Errorf("source = %+v", s)
			}
			return nil
		}
	}
	p.shown(deployment, covered(true))
	shown := p.shown(d, recorded)
	p.write("Secret/db", "password", "two")
	p.shown(d, newer(shown), recorded)
	if now, err := deployments.Get(t.Context(), "web", metav1.GetOptions{}); err != nil || !equality.Semantic.DeepEqual(now.Spec.Template, made.Spec.Template) {
		t.Errorf("the Deployment was restarted as well: %v, %v", now, err)
	}
	p.patch(d, "v1", "kubectl-annotate", content{"metadata": content{"annotations": content{policy.ReloadAnnotation: nil}}})
	uncovered := p.shown(deployment, covered(false), recorded)
	p.write("Secret/db", "password", "three")
	p.shown(deployment, newer(uncovered), recorded)
}
