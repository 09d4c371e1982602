// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/test/install"
)

// stamped returns an error unless the workload and its template record that pods start with the content of a hash.
func stamped(m metav1.Object, template *corev1.PodTemplateSpec, hash string) error {
	onWorkload, onTemplate := m.GetAnnotations()[record.ConfigHashAnnotation], template.Annotations[record.ConfigHashAnnotation]
	if hash == "" || onWorkload != hash || onTemplate != hash || m.GetAnnotations()[record.AppliedSourcesAnnotation] == "" {
		return fmt.Errorf("want hash %q, got annotations %v, on the template %v", hash, m.GetAnnotations(), template.Annotations)
	}
	return nil
}

// A new workload is tracked from its first pod, whose pods are not replaced for that. Its sources may have been
// created a moment before.
func TestWebhookStampsNewWorkloads(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	apps := kube.AppsV1()
	const all = 12 // the index is sometimes ahead, and sometimes behind
	stamps := map[string]int{}
	for i := range all {
		name := fmt.Sprintf("web-%d", i)
		write(t, namespace, ref("Secret/"+name), "password", name)
		var made metav1.Object
		var template *corev1.PodTemplateSpec
		var view string
		switch i % 3 {
		case 0:
			o := asleep(name, envSecretKey(name, "password"))
			optedIn(o)
			o = create(t, apps.Deployments(namespace).Create, o)
			made, template, view = o, &o.Spec.Template, "deployment."+name
		case 1:
			o := statefulSet(name, envSecretKey(name, "password"))
			optedIn(o)
			o.Spec.Replicas = new(int32(0))
			o = create(t, apps.StatefulSets(namespace).Create, o)
			made, template, view = o, &o.Spec.Template, "statefulset."+name
		case 2:
			o := daemonSet(name, envSecretKey(name, "password"))
			optedIn(o)
			o.Spec.Template.Spec.NodeSelector = map[string]string{"no": "where"}
			o = create(t, apps.DaemonSets(namespace).Create, o)
			made, template, view = o, &o.Spec.Template, "daemonset."+name
		}
		if made.GetAnnotations()[record.ConfigHashAnnotation] == "" {
			continue
		}
		stamps[strings.SplitN(view, ".", 2)[0]]++
		shown := viewApplied(t, namespace, view)
		if err := stamped(made, template, shown.Status.ConfigHash); err != nil {
			t.Errorf("%s: %v", view, err)
		}
		if shown.Status.LastReload != nil {
			t.Errorf("%s was restarted: %+v", view, shown.Status.LastReload)
		}
	}
	// A create is not held up if the machine is too busy for the webhook, or for the index, to know the Secret in time.
	if sum := stamps["deployment"] + stamps["statefulset"] + stamps["daemonset"]; sum < all/2 || len(stamps) != 3 {
		t.Errorf("only %v of %d workloads have a hash", stamps, all)
	}
}

func viewApplied(t *testing.T, namespace, name string) *v1alpha1.ConfigDependency {
	t.Helper()
	return view(t, namespace, name, applied)
}

// The owner of a workload applies its manifest again and again, without the annotations of configdep.
func TestWebhookOutlastsTheOwner(t *testing.T) {
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

	// Other changes are kept, with and without configdep's annotations.
	manifest.Spec.Template.Spec.Containers[0].Image = "app:2"
	manifest.Annotations["owner.example.com/note"] = "still mine"
	after = rewrite()
	if image, note := after.Spec.Template.Spec.Containers[0].Image, after.Annotations["owner.example.com/note"]; image != "app:2" || note != "still mine" {
		t.Errorf("image = %s, note = %q", image, note)
	}
	if err := stamped(after, &after.Spec.Template, reloaded.Status.ConfigHash); err != nil {
		t.Error(err)
	}
	settled := viewApplied(t, namespace, "deployment.web")
	if n := templates(t, namespace); n != 3 { // the first, the one for the Secret, and the one for the image
		t.Errorf("got %d ReplicaSets, want 3", n)
	}
	if diff := cmp.Diff(reloaded.Status.LastReload, settled.Status.LastReload); diff != "" {
		t.Errorf("lastReload (-before +after):\n%s", diff)
	}
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

func withoutRevision(annotations map[string]string) map[string]string {
	out := maps.Clone(annotations)
	delete(out, "deployment.kubernetes.io/revision")
	return out
}

// Content changes, and before that change has settled the owner changes the template: the pods are replaced once.
func TestWebhookMakesOneRolloutOfTwo(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	deployments := kube.AppsV1().Deployments(namespace)
	write(t, namespace, "Secret/db", "password", "x")
	o := single("web", envSecretKey("db", "password"))
	optedIn(o, "configdep.io/settle", "1h")
	create(t, deployments.Create, o)
	old := viewApplied(t, namespace, "deployment.web")
	write(t, namespace, "Secret/db", "password", "y")
	settling := view(t, namespace, "deployment.web", is(v1alpha1.StateSettling, ""))
	after := edit(t, deployments, "web", func(o *appsv1.Deployment) { o.Spec.Template.Spec.Containers[0].Image = "app:2" })
	shown := viewApplied(t, namespace, "deployment.web")
	if shown.Status.ConfigHash == old.Status.ConfigHash || shown.Status.ConfigHash != settling.Status.ConfigHash {
		t.Errorf("hash = %[3]s, was %[1]s, then %[2]s", old.Status.ConfigHash, settling.Status.ConfigHash, shown.Status.ConfigHash)
	}
	if err := stamped(after, &after.Spec.Template, shown.Status.ConfigHash); err != nil {
		t.Error(err)
	}
	if n := templates(t, namespace); n != 2 {
		t.Errorf("got %d ReplicaSets", n)
	}
}

// Opting in records the current content in the same write, and replaces no pods; neither does opting out. A dry
// run shows the same, and changes nothing.
func TestWebhookNotesTheBaselineOnOptingIn(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	deployments := kube.AppsV1().Deployments(namespace)
	write(t, namespace, "Secret/db", "password", "x")
	before := create(t, deployments.Create, single("web", envSecretKey("db", "password")))
	if before.Annotations[record.ConfigHashAnnotation] != "" || before.Spec.Template.Annotations != nil {
		t.Errorf("without opting in: annotations = %v, on the template %v", before.Annotations, before.Spec.Template.Annotations)
	}
	view(t, namespace, "deployment.web")
	optIn := []byte(`{"metadata": {"annotations": {"configdep.io/reload": "auto", "configdep.io/settle": "0"}}}`)
	for _, dryRun := range [][]string{{metav1.DryRunAll}, nil} {
		after, err := deployments.Patch(t.Context(), "web", types.MergePatchType, optIn, metav1.PatchOptions{DryRun: dryRun})
		if err != nil {
			t.Fatal(err)
		}
		if after.Annotations[record.ConfigHashAnnotation] == "" || after.Spec.Template.Annotations != nil {
			t.Errorf("dry run = %v: annotations = %v, on the template %v", dryRun, after.Annotations, after.Spec.Template.Annotations)
		}
		stored, err := deployments.Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if found := stored.Annotations[record.ConfigHashAnnotation] != ""; found != (dryRun == nil) {
			t.Errorf("after dry run = %v: stored annotations = %v", dryRun, stored.Annotations)
		}
	}
	shown := viewApplied(t, namespace, "deployment.web")

	// A rollout, which stamps the template, and then opting out by applying the first manifest.
	write(t, namespace, "Secret/db", "password", "y")
	view(t, namespace, "deployment.web", applied, func(o *v1alpha1.ConfigDependency) error {
		if o.Status.ConfigHash == shown.Status.ConfigHash || o.Status.LastReload == nil {
			return fmt.Errorf("not restarted yet")
		}
		return nil
	})
	rolled := getRollout(t, namespace, "Deployment", "web")
	out := edit(t, deployments, "web", func(o *appsv1.Deployment) { o.Annotations, o.Spec.Template = nil, before.Spec.Template })
	sameTemplate(t, "after opting out", &rolled.template, &out.Spec.Template)
	if len(withoutRevision(out.Annotations)) != 0 {
		t.Errorf("annotations of the workload = %v", out.Annotations)
	}
	gone := edit(t, deployments, "web", func(o *appsv1.Deployment) {
		o.Spec.Template = *before.Spec.Template.DeepCopy()
		o.Spec.Template.Spec.Containers[0].Image = "app:2"
	})
	if len(gone.Spec.Template.Annotations) != 0 {
		t.Errorf("annotations of the template = %v", gone.Spec.Template.Annotations)
	}
}

// A namespace opts its workloads in with a label, which the webhook configuration selects, or with an annotation,
// in which case the webhook sees workloads once they are tracked.
func TestWebhookInNamespacesThatOptedIn(t *testing.T) {
	t.Parallel()
	for how, set := range map[string]func(*corev1.Namespace){
		"label":      func(n *corev1.Namespace) { n.Labels["configdep.io/reload"] = "auto" },
		"annotation": func(n *corev1.Namespace) { n.Annotations = map[string]string{"configdep.io/reload": "auto"} },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			namespace := newNamespace(t)
			edit(t, kube.CoreV1().Namespaces(), namespace, set)
			write(t, namespace, "Secret/db", "password", "x")
			deployments := kube.AppsV1().Deployments(namespace)
			// Shows that the index knows the namespace.
			create(t, deployments.Create, asleep("first", envSecretKey("db", "password")))
			viewApplied(t, namespace, "deployment.first")
			made := create(t, deployments.Create, asleep("web", envSecretKey("db", "password")))
			shown := viewApplied(t, namespace, "deployment.web")
			err := stamped(made, &made.Spec.Template, shown.Status.ConfigHash)
			if how == "label" && err != nil {
				t.Error(err)
			}
			if how == "annotation" && err == nil {
				t.Error("the webhook was called, which is allowed, but this test expects otherwise")
			}
			rewritten := edit(t, deployments, "web", func(o *appsv1.Deployment) {
				o.Annotations, o.Spec.Template = nil, asleep("web", envSecretKey("db", "password")).Spec.Template
			})
			sameTemplate(t, "after a rewrite", &made.Spec.Template, &rewritten.Spec.Template)
			if rewritten.Annotations[record.ConfigHashAnnotation] != shown.Status.AppliedHash {
				t.Errorf("annotations = %v", rewritten.Annotations)
			}
		})
	}
}

// The webhook is not called for system namespaces, workloads that have not opted in, changes of neither template
// nor annotations, and writes of configdep.
func TestWebhookIsNotAskedForNothing(t *testing.T) {
	// This test does not run in parallel, so that requests can be counted.
	namespace := newNamespace(t)
	deployments := kube.AppsV1().Deployments(namespace)
	write(t, namespace, "Secret/db", "password", "x")
	create(t, deployments.Create, asleep("out", envSecretKey("db", "password")))
	o := asleep("in", envSecretKey("db", "password"))
	optedIn(o)
	counted := webhookRequests(t)
	create(t, deployments.Create, o)
	viewApplied(t, namespace, "deployment.in")
	if got := webhookRequests(t); got != counted+1 {
		t.Fatalf("a workload that opts in makes %d requests", got-counted)
	}

	counted = webhookRequests(t)
	for _, name := range []string{"kube-system", install.Namespace} {
		o := asleep(namespace, envSecretKey("db", "password"))
		optedIn(o)
		made := create(t, kube.AppsV1().Deployments(name).Create, o)
		t.Cleanup(func() {
			_ = kube.AppsV1().Deployments(name).Delete(context.WithoutCancel(t.Context()), o.Name, metav1.DeleteOptions{})
		})
		if made.Spec.Template.Annotations != nil {
			t.Errorf("namespace %s: annotations of the template = %v", name, made.Spec.Template.Annotations)
		}
	}
	edit(t, deployments, "out", func(o *appsv1.Deployment) { o.Spec.Template.Spec.Containers[0].Image = "app:2" })
	edit(t, deployments, "in", func(o *appsv1.Deployment) { o.Labels["more"] = "label" })
	scale, err := deployments.GetScale(t.Context(), "in", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	scale.Spec.Replicas = 1
	if _, err := deployments.UpdateScale(t.Context(), "in", scale, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	runningPods(t, namespace, "in", 1, nil)
	write(t, namespace, "Secret/db", "password", "y")
	view(t, namespace, "deployment.in", func(o *v1alpha1.ConfigDependency) error {
		if o.Status.LastReload == nil {
			return fmt.Errorf("not restarted yet")
		}
		return nil
	})
	reload(t, namespace, "deployment.in", v1alpha1.ReloadSpec{})
	if got := webhookRequests(t); got != counted {
		t.Errorf("%d requests to the webhook", got-counted)
	}
}

// webhookRequests returns the number of webhook requests that all replicas have counted.
func webhookRequests(t *testing.T) (n int) {
	t.Helper()
	for _, replica := range server.Replicas {
		got, err := try(t.Context(), replica.AdminConfig(), request{path: "/metrics"})
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(got.body)) {
			if labels, number, found := strings.Cut(line, "} "); found && strings.HasPrefix(labels, "configdep_webhook_requests_total{") {
				var value int
				if _, err := fmt.Sscan(number, &value); err != nil {
					t.Fatal(err)
				}
				n += value
			}
		}
	}
	return n
}
