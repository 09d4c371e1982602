// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/record"
)

// stamped returns an error unless the workload and its template record that pods start with the content of a hash.
func stamped(m metav1.Object, template *corev1.PodTemplateSpec, hash string) error {
	onWorkload, onTemplate := m.GetAnnotations()[record.ConfigHashAnnotation], template.Annotations[record.ConfigHashAnnotation]
	if hash == "" || onWorkload != hash || onTemplate != hash || m.GetAnnotations()[record.AppliedSourcesAnnotation] == "" {
		return fmt.Errorf("want hash %q, got annotations %v, on the template %v", hash, m.GetAnnotations(), template.Annotations)
	}
	return nil
}

func viewApplied(t *testing.T, namespace, name string) *v1alpha1.ConfigDependency {
	t.Helper()
	return view(t, namespace, name, applied)
}

// sameTemplate checks that the template has not changed, so that pods are not replaced. (The generation is not
// enough: it also increases when the Deployment controller writes the revision into the metadata.)
func sameTemplate(t *testing.T, what string, before, after *corev1.PodTemplateSpec) {
	t.Helper()
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("%s: the template has changed (-before +after):\n%s", what, diff)
	}
}

// templates returns how many templates the Deployments of a namespace have had.
func templates(t *testing.T, namespace string) int {
	t.Helper()
	return shopIn(t, namespace).templates("")
}

// revision is the annotation with the number of rollouts of a Deployment.
const revision = "deployment.kubernetes.io/revision"

func withoutRevision(annotations map[string]string) map[string]string {
	out := maps.Clone(annotations)
	delete(out, revision)
	return out
}

// owned is the manifest that the owner of a workload applies again and again.
func owned(name string) *appsv1.Deployment {
	o := single(name, envFromSecret("db"))
	optedIn(o)
	return o
}

// The owner of a workload applies its manifest again and again, without the annotations of configdep.
func TestRewriteByTheOwner(t *testing.T) {
	cluster.Needs(t, "1.36", "MutatingAdmissionPolicies")
	t.Parallel()
	namespace := newNamespace(t)
	deployments := kube.AppsV1().Deployments(namespace)
	write(t, namespace, "Secret/db", "password", "x")
	manifest := deployment("web", envSecretKey("db", "password"))
	optedIn(manifest)
	manifest.Annotations["owner.example.com/note"] = "mine"
	create(t, deployments.Create, manifest.DeepCopy())
	runningPods(t, namespace, "web", 2, nil)
	viewApplied(t, namespace, "deployment.web")
	write(t, namespace, "Secret/db", "password", "y")
	reloaded := view(t, namespace, "deployment.web", applied, func(o *v1alpha1.ConfigDependency) error {
		if o.Status.LastReload == nil {
			return fmt.Errorf("not restarted yet")
		}
		return nil
	})
	before := getRollout(t, namespace, "Deployment", "web")
	if err := stamped(&before, &before.template, reloaded.Status.ConfigHash); err != nil {
		t.Fatal(err)
	}

	rewrite := func() *appsv1.Deployment {
		t.Helper()
		return edit(t, deployments, "web", func(o *appsv1.Deployment) {
			o.Annotations, o.Spec.Template = maps.Clone(manifest.Annotations), *manifest.Spec.Template.DeepCopy()
		})
	}
	after := rewrite()
	sameTemplate(t, "after the owner's rewrite", &before.template, &after.Spec.Template)
	if diff := cmp.Diff(withoutRevision(before.Annotations), withoutRevision(after.Annotations)); diff != "" {
		t.Errorf("annotations (-before +after):\n%s", diff)
	}

	// A manifest that was copied from the cluster earlier.
	after = edit(t, deployments, "web", func(o *appsv1.Deployment) {
		o.Annotations[record.ConfigHashAnnotation] = "v1.00000000.0"
		o.Spec.Template.Annotations[record.ConfigHashAnnotation] = "v1.00000000.0"
	})
	sameTemplate(t, "after a copy", &before.template, &after.Spec.Template)

	// Other changes are kept.
	manifest.Spec.Template.Spec.Containers[0].Image = "app:2"
	manifest.Annotations["owner.example.com/note"] = "still mine"
	after = rewrite()
	if image, note := after.Spec.Template.Spec.Containers[0].Image, after.Annotations["owner.example.com/note"]; image != "app:2" || note != "still mine" {
		t.Errorf("image = %s, note = %q", image, note)
	}
	viewApplied(t, namespace, "deployment.web")
	if n := templates(t, namespace); n != 3 { // the first, the one for the Secret, and the one for the image
		t.Errorf("got %d ReplicaSets, want 3", n)
	}
}
