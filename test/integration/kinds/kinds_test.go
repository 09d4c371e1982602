// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/test/await"
)

func readsSecret(name string) content {
	return content{"spec": content{"containers": []any{content{
		"name": "app", "image": "app", "envFrom": []any{content{"secretRef": content{"name": name}}},
	}}}}
}

// readyz returns what the server says of its health.
func readyz(ctx context.Context) (string, error) {
	rest, err := kubernetesAt(server.Replicas[0].RESTConfig())
	if err != nil {
		return "", err
	}
	body, err := rest.Discovery().RESTClient().Get().AbsPath("/readyz").Param("verbose", "").DoRaw(ctx)
	return string(body), err
}

// A kind is read once its definition is there and the server may read it, and let go with its definition. What changed before is no
// change for the workloads that are found then, and what changes while the kind is not read is one.
func TestKind_ComesAndGoes(t *testing.T) {
	t.Parallel()
	p, d := newPlace(t), harborAgents
	p.secret("db", "password", "one")
	p.secret("other", "password", "one")
	d.define(t, "v1")
	p.secret("db", "password", "two")
	spec := content{"agent": content{"template": readsSecret("db")}, "others": []any{content{"template": readsSecret("other")}}}
	before := p.create(d, "v1", auto, spec)
	await.Until(t, "the server says that it may not read the kind", func(ctx context.Context) error {
		text, err := readyz(ctx)
		if err == nil && (!strings.Contains(text, "harboragents.goharbor.example.com") || !strings.Contains(text, "readyz check passed")) {
			err = fmt.Errorf("readyz: %s", text)
		}
		return err
	})
	p.gone(d)

	d.grant(t)
	shown := p.view(d, applied, state(v1alpha1.StateInSync, ""))
	if o := p.get(d, "v1"); o.GetGeneration() != before.GetGeneration() {
		t.Errorf("the workload was restarted when it was found: %v", o.Object)
	}
	if len(shown.Spec.Sources) != 2 || shown.Spec.WorkloadRef.APIVersion != "goharbor.example.com/v1" {
		t.Errorf("view = %+v", shown.Spec)
	}
	p.secret("other", "password", "two")
	shown = p.view(d, newer(shown), applied)
	restarts := func(o *unstructured.Unstructured) int64 { return o.GetGeneration() - before.GetGeneration() }
	o := p.get(d, "v1")
	hash, _, _ := unstructured.NestedString(o.Object, "spec", "agent", "template", "metadata", "annotations", policy.ConfigHashAnnotation)
	if restarts(o) != 1 || hash != shown.Status.ConfigHash {
		t.Errorf("restarts = %d, hash on the template = %q, want %q", restarts(o), hash, shown.Status.ConfigHash)
	}

	d.revoke(t)
	await.Until(t, "the server says that it may not read the kind any longer", func(ctx context.Context) error {
		text, err := readyz(ctx)
		if err == nil && !strings.Contains(text, "harboragents.goharbor.example.com") {
			err = fmt.Errorf("readyz: %s", text)
		}
		return err
	})
	p.secret("db", "password", "three")
	if err := client.RbacV1().ClusterRoles().Delete(t.Context(), "configdep-"+d.plural, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	d.grant(t)
	p.view(d, newer(shown), applied)
	if o := p.get(d, "v1"); restarts(o) != 2 {
		t.Errorf("restarts = %d, want 2", restarts(o))
	}
	d.remove(t)
	p.gone(d)
}

// The API version that a definition serves may change. A workload is restarted by a field, and its conditions tell of its progress.
func TestKind_ServedVersionIsFollowed(t *testing.T) {
	t.Parallel()
	p, d := newPlace(t), harborClusters
	d.grant(t)
	d.define(t, "v1")
	p.secret("db", "password", "one", "unused", "one")
	p.create(d, "v1", auto, content{"database": content{"passwordRef": "db"}, "extra": []any{content{"name": "settings"}, content{"name": "elsewhere", "namespace": "kube-system"}}})
	p.status(d, "v1", content{"observedGeneration": observed, "conditions": []any{content{"type": "Ready", "status": "True"}}})
	shown := p.view(d, applied, state(v1alpha1.StateInSync, ""))
	var sources []string
	for _, s := range shown.Spec.Sources {
		sources = append(sources, fmt.Sprintf("%s/%s %v %s %s", s.Kind, s.Name, s.Keys, s.Usages[0].Type, s.Usages[0].Path))
	}
	if want := "ConfigMap/settings [] Object .spec.extra[*].name, Secret/db [password] Object .spec.database.passwordRef"; strings.Join(sources, ", ") != want {
		t.Errorf("sources = %q, want %s", sources, want)
	}
	p.secret("db", "unused", "two") // which it does not read
	p.secret("db", "password", "two")
	shown = p.view(d, newer(shown), applied, state(v1alpha1.StateRollingOut, ""))
	restarted := func(version string) string {
		at, _, _ := unstructured.NestedString(p.get(d, version).Object, "spec", "restartedAt")
		return at
	}
	first := restarted("v1")
	if first == "" {
		t.Fatal("the field is not set")
	}
	p.status(d, "v1", content{"observedGeneration": observed, "conditions": []any{content{"type": "Ready", "status": "False"}}})
	p.view(d, state(v1alpha1.StateRollingOut, ""))
	p.status(d, "v1", content{"observedGeneration": observed, "conditions": []any{content{"type": "Ready", "status": "True"}}})
	p.view(d, state(v1alpha1.StateInSync, ""))

	d.define(t, "v1", "v2")
	await.Until(t, "the view names the new version", func(ctx context.Context) error {
		o, err := api.ConfigdepV1alpha1().ConfigDependencies(p.namespace).Get(ctx, "harborcluster.web", metav1.GetOptions{})
		if err == nil && o.Spec.WorkloadRef.APIVersion != "goharbor.example.com/v2" {
			err = errors.New("it names " + o.Spec.WorkloadRef.APIVersion)
		}
		return err
	})
	if err := await.NextSecond(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.secret("db", "password", "three")
	p.view(d, newer(shown), applied)
	if at := restarted("v2"); at <= first {
		t.Errorf("restarted at %s, and before at %s", at, first)
	}
	if p.get(d, "v2").GetGeneration() != 3 {
		t.Errorf("generation = %d, want 3", p.get(d, "v2").GetGeneration())
	}
}

// Of some kinds, changes are only reported, once for each change. A Reload is refused.
func TestKind_OnlyReported(t *testing.T) {
	t.Parallel()
	p, d := newPlace(t), harborReports
	d.grant(t)
	d.define(t, "v1")
	p.secret("db", "password", "one")
	p.create(d, "v1", auto, content{"secretName": "db"})
	shown := p.view(d, applied, state(v1alpha1.StateInSync, ""))
	p.secret("db", "password", "two")
	p.view(d, newer(shown), applied, state(v1alpha1.StateInSync, ""))
	if message := p.event(d, "ConfigChanged"); !strings.Contains(message, "Secret/db has changed") {
		t.Errorf("message = %s", message)
	}
	if o := p.get(d, "v1"); o.GetGeneration() != 1 {
		t.Errorf("the specification was written: %v", o.Object)
	}
	_, err := api.ConfigdepV1alpha1().ConfigDependencies(p.namespace).Reload(t.Context(), "harborreport.web", &v1alpha1.Reload{}, metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), "a HarborReport cannot be restarted") {
		t.Errorf("error = %v", err)
	}
}

// A Rollout of Argo is restarted by its pod template, or by its own field, as its annotations say.
func TestRollout(t *testing.T) {
	t.Parallel()
	rolloutsOnce(t)
	p, d := newPlace(t), rollouts
	p.secret("db", "password", "one")
	template := readsSecret("db")
	template["metadata"] = content{"labels": content{"app": "web"}}
	p.create(d, "v1alpha1", auto, content{"replicas": 2, "selector": content{"matchLabels": content{"app": "web"}}, "template": template})
	ready := content{"observedGeneration": observedText, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2, "phase": "Healthy"}
	p.status(d, "v1alpha1", clone(ready))
	shown := p.view(d, applied, state(v1alpha1.StateInSync, ""))
	p.secret("db", "password", "two")
	shown = p.view(d, newer(shown), applied, state(v1alpha1.StateRollingOut, "NotObserved"))
	updating := clone(ready)
	updating["updatedReplicas"] = 1
	p.status(d, "v1alpha1", updating)
	p.view(d, state(v1alpha1.StateRollingOut, "PodsUpdating"))
	p.status(d, "v1alpha1", clone(ready))
	p.view(d, state(v1alpha1.StateInSync, ""))
	hash, _, _ := unstructured.NestedString(p.get(d, "v1alpha1").Object, "spec", "template", "metadata", "annotations", policy.ConfigHashAnnotation)
	if hash != shown.Status.ConfigHash {
		t.Errorf("hash on the template = %s", hash)
	}

	p.patch(d, "v1alpha1", "kubectl-annotate", content{"metadata": content{"annotations": content{policy.StrategyAnnotation: "restart-at"}}})
	p.view(d, func(o *v1alpha1.ConfigDependency) error {
		if o.Spec.Reload.Strategy != "RestartAt" {
			return fmt.Errorf("strategy = %s", o.Spec.Reload.Strategy)
		}
		return nil
	})
	p.secret("db", "password", "three")
	p.view(d, newer(shown), applied)
	after := p.get(d, "v1alpha1")
	if at, _, _ := unstructured.NestedString(after.Object, "spec", "restartAt"); at == "" || after.GetGeneration() != 3 {
		t.Errorf("restartAt = %q, generation %d", at, after.GetGeneration())
	}
	done, err := api.ConfigdepV1alpha1().ConfigDependencies(p.namespace).Reload(t.Context(), "rollout.web", &v1alpha1.Reload{}, metav1.CreateOptions{})
	if err != nil || !done.Status.Triggered {
		t.Errorf("%+v, %v", done, err)
	}
}

func clone(c content) content {
	out := content{}
	for key, value := range c {
		out[key] = value
	}
	return out
}
