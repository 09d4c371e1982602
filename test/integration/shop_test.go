// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dialects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/test/await"
)

// lastReloadedFrom is the annotation of pod templates that says, in the format of Stakater Reloader, what has caused the last
// restart.
const lastReloadedFrom = "reloader.stakater.com/last-reloaded-from"

// shop is a namespace.
type shop struct {
	*testing.T

	namespace string
}

func newShop(t *testing.T) *shop {
	t.Helper()
	made, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return &shop{t, made.Name}
}

// A ref names a ConfigMap or a Secret, as in ConfigMap/config.
type ref string

func (r ref) split() (kind, name string) {
	kind, name, _ = strings.Cut(string(r), "/")
	return kind, name
}

// source creates a ConfigMap or a Secret, with pairs of annotations.
func (s *shop) source(r ref, annotations ...string) {
	s.Helper()
	kind, name := r.split()
	meta := metav1.ObjectMeta{Name: name, Annotations: pairs(annotations...)}
	var err error
	if kind == "Secret" {
		_, err = client.CoreV1().Secrets(s.namespace).Create(s.Context(), &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"key": "old"}}, metav1.CreateOptions{})
	} else {
		_, err = client.CoreV1().ConfigMaps(s.namespace).Create(s.Context(), &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"key": "old"}}, metav1.CreateOptions{})
	}
	if err != nil {
		s.Fatal(err)
	}
}

// write gives a source another content, and returns its version.
func (s *shop) write(r ref, value string) string {
	s.Helper()
	field := "data"
	if kind, _ := r.split(); kind == "Secret" {
		field = "stringData"
	}
	return s.patchSource(r, map[string]any{field: map[string]string{"key": value}})
}

// label gives a source a label, and returns its version.
func (s *shop) label(r ref, value string) string {
	s.Helper()
	return s.patchSource(r, map[string]any{"metadata": map[string]any{"labels": map[string]string{"team": value}}})
}

func (s *shop) patchSource(r ref, patch any) string {
	s.Helper()
	data, err := json.Marshal(patch)
	if err != nil {
		s.Fatal(err)
	}
	var made metav1.Object
	if kind, name := r.split(); kind == "Secret" {
		made, err = client.CoreV1().Secrets(s.namespace).Patch(s.Context(), name, types.MergePatchType, data, metav1.PatchOptions{})
	} else {
		made, err = client.CoreV1().ConfigMaps(s.namespace).Patch(s.Context(), name, types.MergePatchType, data, metav1.PatchOptions{})
	}
	if err != nil {
		s.Fatal(err)
	}
	return made.GetResourceVersion()
}

func pairs(keysAndValues ...string) map[string]string {
	out := map[string]string{}
	for i := 0; i < len(keysAndValues); i += 2 {
		out[keysAndValues[i]] = keysAndValues[i+1]
	}
	return out
}

// reads lets a container read a source that may be absent.
func reads(c *corev1.Container, r ref) {
	kind, name := r.split()
	of := corev1.LocalObjectReference{Name: name}
	from := corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: of, Optional: new(true)}}
	if kind == "Secret" {
		from = corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: of, Optional: new(true)}}
	}
	c.EnvFrom = append(c.EnvFrom, from)
}

// podTemplate returns a template with one container, which reads sources.
func podTemplate(name string, sources ...ref) corev1.PodTemplateSpec {
	app := corev1.Container{Name: "app", Image: "app"}
	for _, r := range sources {
		reads(&app, r)
	}
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{app}, TerminationGracePeriodSeconds: new(int64(1)), AutomountServiceAccountToken: new(false),
		},
	}
}

// deployment returns a Deployment with one pod.
func deployment(name string, annotations map[string]string, template corev1.PodTemplateSpec) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: template,
			RevisionHistoryLimit: new(int32(100)), // so that ReplicaSets count rollouts
		},
	}
}

func (s *shop) create(d *appsv1.Deployment) *appsv1.Deployment {
	s.Helper()
	made, err := client.AppsV1().Deployments(s.namespace).Create(s.Context(), d, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return made
}

func (s *shop) deployment(name string) *appsv1.Deployment {
	s.Helper()
	d, err := client.AppsV1().Deployments(s.namespace).Get(s.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return d
}

// edit changes a Deployment, even while other clients write it.
func (s *shop) edit(name string, change func(*appsv1.Deployment)) *appsv1.Deployment {
	s.Helper()
	var made *appsv1.Deployment
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		d, err := client.AppsV1().Deployments(s.namespace).Get(s.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(d)
		made, err = client.AppsV1().Deployments(s.namespace).Update(s.Context(), d, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	return made
}

// until waits until a Deployment passes a check, and returns it.
func (s *shop) until(name, what string, check func(*appsv1.Deployment) error) *appsv1.Deployment {
	s.Helper()
	var d *appsv1.Deployment
	await.Until(s.T, name+" "+what, func(ctx context.Context) (err error) {
		if d, err = client.AppsV1().Deployments(s.namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		return check(d)
	})
	return d
}

// view waits until the API shows a workload in a way that passes all checks.
func (s *shop) view(name string, checks ...func(*v1alpha1.ConfigDependency) error) *v1alpha1.ConfigDependency {
	s.Helper()
	return await.Passes(s.T, name+" is shown as expected", func(ctx context.Context) (*v1alpha1.ConfigDependency, error) {
		return api.ConfigdepV1alpha1().ConfigDependencies(s.namespace).Get(ctx, name, metav1.GetOptions{})
	}, checks...)
}

// inSync checks that the pods are known to run with the current content.
func inSync(o *v1alpha1.ConfigDependency) error {
	if o.Status.State != v1alpha1.StateInSync || o.Status.AppliedHash == "" || o.Status.AppliedHash != o.Status.ConfigHash {
		return fmt.Errorf("state = %s, %s: %s; appliedHash = %q, configHash = %q", o.Status.State, o.Status.Reason, o.Status.Message, o.Status.AppliedHash, o.Status.ConfigHash)
	}
	return nil
}

func state(state v1alpha1.State, reason string) func(*v1alpha1.ConfigDependency) error {
	return func(o *v1alpha1.ConfigDependency) error {
		if o.Status.State != state || o.Status.Reason != reason {
			return fmt.Errorf("state = %s, %s: %s", o.Status.State, o.Status.Reason, o.Status.Message)
		}
		return nil
	}
}

// at checks that a source is shown at a version.
func at(r ref, version string) func(*v1alpha1.ConfigDependency) error {
	return func(o *v1alpha1.ConfigDependency) error {
		kind, name := r.split()
		for i := range o.Status.Sources {
			if x := &o.Status.Sources[i]; string(x.Kind) == kind && x.Name == name {
				if x.ResourceVersion != version {
					return fmt.Errorf("version of %s = %q, want %q", r, x.ResourceVersion, version)
				}
				return nil
			}
		}
		return fmt.Errorf("%s is not shown", r)
	}
}

// rollouts returns how many templates a Deployment has had.
func (s *shop) rollouts(name string) int {
	s.Helper()
	list, err := client.AppsV1().ReplicaSets(s.namespace).List(s.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
	if err != nil {
		s.Fatal(err)
	}
	return len(list.Items)
}

// reloadedFrom are the fields of lastReloadedFrom.
type reloadedFrom struct {
	Type          string   `json:"type"`
	Name          string   `json:"name"`
	Namespace     string   `json:"namespace"`
	Hash          string   `json:"hash"`
	ContainerRefs []string `json:"containerRefs"`
	ObservedAt    int64    `json:"observedAt"`
}

// checkReloadedFrom checks the text that a restart because of a source leaves on a template.
func (s *shop) checkReloadedFrom(text string, by ref) {
	s.Helper()
	var got reloadedFrom
	var fields map[string]any
	if err := errors.Join(json.Unmarshal([]byte(text), &got), json.Unmarshal([]byte(text), &fields)); err != nil {
		s.Fatalf("%s = %q: %v", lastReloadedFrom, text, err)
	}
	kind, source := by.split()
	want := reloadedFrom{Type: strings.ToUpper(kind), Name: source, Namespace: s.namespace, ContainerRefs: []string{"app"}, Hash: got.Hash, ObservedAt: got.ObservedAt}
	if diff := cmp.Diff(want, got); diff != "" || got.Hash == "" || got.ObservedAt < 1_700_000_000 || len(fields) != 6 {
		s.Errorf("%s = %s, want the fields of Reloader, for %s (-want +got):\n%s", lastReloadedFrom, text, by, diff)
	}
}

// The canary is restarted by every change of the sources that it reads. Once it is, the server has seen the change.
const canary = "canary"

func (s *shop) createCanary(sources ...ref) {
	s.Helper()
	s.create(deployment(canary, pairs(policy.ReloadAnnotation, "auto"), podTemplate(canary, sources...)))
	s.view("deployment."+canary, inSync)
}

// seen waits until the canary is restarted because of the last change of a source.
func (s *shop) seen(r ref, version string) {
	s.Helper()
	s.view("deployment."+canary, inSync, at(r, version))
}
