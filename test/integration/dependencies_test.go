// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/test/await"
)

const (
	isConfigMap = v1alpha1.SourceConfigMap
	isSecret    = v1alpha1.SourceSecret
)

// A workload may exist before its sources.
func TestSourceThatAppears(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	core := kube.CoreV1()
	create(t, kube.AppsV1().Deployments(namespace).Create, asleep("web", envSecretKey("db", "password"), envFromConfigMap("settings")))

	absent := view(t, namespace, "deployment.web",
		present(isSecret, "db", false), present(isConfigMap, "settings", false),
		resolved(metav1.ConditionFalse, v1alpha1.ReasonSourceMissing))

	write(t, namespace, "ConfigMap/settings", "color", "red")
	view(t, namespace, "deployment.web", present(isConfigMap, "settings", true), resolved(metav1.ConditionFalse, v1alpha1.ReasonSourceMissing))

	made := write(t, namespace, "Secret/db", "user", "shop")
	lacking := view(t, namespace, "deployment.web", at(made), present(isSecret, "db", true),
		resolved(metav1.ConditionFalse, v1alpha1.ReasonKeyMissing))
	if _, status, _ := source(lacking, isSecret, "db"); !cmp.Equal(status.MissingKeys, []string{"password"}) {
		t.Errorf("missing keys = %v", status.MissingKeys)
	}

	made = edit(t, core.Secrets(namespace), "db", func(s *corev1.Secret) { s.StringData = map[string]string{"password": "x"} })
	complete := view(t, namespace, "deployment.web", at(made), resolved(metav1.ConditionTrue, v1alpha1.ReasonAllPresent))
	if _, status, _ := source(complete, isSecret, "db"); status.MissingKeys != nil {
		t.Errorf("missing keys = %v", status.MissingKeys)
	}
	if absent.Status.ConfigHash == complete.Status.ConfigHash || lacking.Status.ConfigHash == complete.Status.ConfigHash {
		t.Error("the hash is the same with and without the sources")
	}

	remove(t, core.Secrets(namespace).Delete, "db")
	gone := view(t, namespace, "deployment.web", present(isSecret, "db", false), resolved(metav1.ConditionFalse, v1alpha1.ReasonSourceMissing))
	if gone.Status.ConfigHash != lacking.Status.ConfigHash {
		t.Error("an absent Secret and one without the key have different hashes, although pods see no difference")
	}
	again := write(t, namespace, "Secret/db", "password", "x", "user", "another")
	if back := view(t, namespace, "deployment.web", at(again)); back.Status.ConfigHash != complete.Status.ConfigHash {
		t.Error("a Secret that was deleted and created again with equal content has another hash")
	}
}

// The hash depends only on the content that pods read.
func TestConfigHashFollowsContentAlone(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	secrets := kube.CoreV1().Secrets(namespace)
	made := write(t, namespace, "Secret/db", "password", "x", "user", "shop")
	create(t, kube.AppsV1().Deployments(namespace).Create, asleep("one", envSecretKey("db", "password")))
	create(t, kube.AppsV1().Deployments(namespace).Create, asleep("all", envFromSecret("db")))
	hashes := func() (one, all string) {
		t.Helper()
		return view(t, namespace, "deployment.one", at(made)).Status.ConfigHash,
			view(t, namespace, "deployment.all", at(made)).Status.ConfigHash
	}
	one, all := hashes()
	if one == all {
		t.Error("one key and all keys have the same hash")
	}
	after := func(what string, change func(*corev1.Secret), oneChanges, allChanges bool) {
		t.Helper()
		made = edit(t, secrets, "db", change)
		oneNow, allNow := hashes()
		if (oneNow != one) != oneChanges {
			t.Errorf("%s: the hash of the key changes = %t, want %t", what, !oneChanges, oneChanges)
		}
		if (allNow != all) != allChanges {
			t.Errorf("%s: the hash of all keys changes = %t, want %t", what, !allChanges, allChanges)
		}
		one, all = oneNow, allNow
	}
	after("an annotation", func(s *corev1.Secret) { s.Annotations = map[string]string{"a": "b"} }, false, false)
	after("a label", func(s *corev1.Secret) { s.Labels = map[string]string{"a": "b"} }, false, false)
	after("another key", func(s *corev1.Secret) { s.Data["user"] = []byte("another") }, false, true)
	after("an added key", func(s *corev1.Secret) { s.Data["host"] = []byte("db") }, false, true)
	after("the key", func(s *corev1.Secret) { s.Data["password"] = []byte("y") }, true, true)
	before := one
	after("the key is removed", func(s *corev1.Secret) { delete(s.Data, "password") }, true, true)
	after("the key is added again", func(s *corev1.Secret) { s.Data["password"] = []byte("y") }, true, true)
	if one != before {
		t.Error("equal content has another hash than before")
	}
	after("immutable", func(s *corev1.Secret) { s.Immutable = new(true) }, false, false)
}

// lastChangeTime is the time of the last write of the content, which users check when they look for the cause of an
// outage.
func TestLastChangedFollowsContent(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	maps := kube.CoreV1().ConfigMaps(namespace)
	made := create(t, maps.Create, configMap("settings", map[string]string{"color": "red"}))
	create(t, kube.AppsV1().Deployments(namespace).Create, asleep("web", envFromConfigMap("settings")))
	changed := func() time.Time {
		t.Helper()
		_, status, _ := source(view(t, namespace, "deployment.web", at(made)), isConfigMap, "settings")
		if status.LastChangeTime == nil {
			t.Fatal("lastChangeTime is not set")
		}
		return status.LastChangeTime.Time
	}
	first := changed()
	if !first.Equal(made.CreationTimestamp.Time) {
		t.Errorf("lastChangeTime = %v, want the creation at %v", first, made.CreationTimestamp)
	}
	// Times are in seconds: the next write must happen in another second.
	await.Until(t, "the next second", func(ctx context.Context) error {
		o, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "clock-"}}, metav1.CreateOptions{})
		if err == nil && !o.CreationTimestamp.After(first) {
			err = errors.New("still the same second")
		}
		return err
	})
	patch := func(manager, patch string) {
		t.Helper()
		var err error
		made, err = maps.Patch(t.Context(), "settings", types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: manager})
		if err != nil {
			t.Fatal(err)
		}
	}
	patch("labeller", `{"metadata":{"labels":{"team":"a"}}}`)
	if got := changed(); !got.Equal(first) {
		t.Errorf("a label changed lastChangeTime from %v to %v", first, got)
	}
	patch("editor", `{"data":{"color":"blue"}}`)
	if got := changed(); !got.After(first) {
		t.Errorf("new content did not change lastChangeTime, which is %v", got)
	}
}

// A change of the template changes the view, which has the labels of the workload.
func TestWorkloadThatIsEdited(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	deployments := kube.AppsV1().Deployments(namespace)
	create(t, deployments.Create, asleep("web", envFromSecret("db")))
	view(t, namespace, "deployment.web", present(isSecret, "db", false))

	edit(t, deployments, "web", func(o *appsv1.Deployment) {
		o.Spec.Template = podTemplate("web", envFromConfigMap("settings"))
		o.Labels["team"] = "a"
	})
	view(t, namespace, "deployment.web", present(isConfigMap, "settings", false), func(o *v1alpha1.ConfigDependency) error {
		if len(o.Spec.Sources) != 1 || o.Labels["team"] != "a" {
			return fmt.Errorf("got %d sources, labels = %v", len(o.Spec.Sources), o.Labels)
		}
		return nil
	})
	// The users of the source, because both directions must agree.
	for source, want := range map[string]int{"Secret/db": 0, "ConfigMap/settings": 1} {
		list, err := configdep.ConfigDependencies(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "source=" + source})
		if err != nil || len(list.Items) != want {
			t.Errorf("users %v of %s, want %d (%v)", list, source, want, err)
		}
	}
}

// Workloads of every kind are shown, but not the objects that they create.
func TestWhichWorkloadsAreShown(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	core, apps, batch := kube.CoreV1(), kube.AppsV1(), kube.BatchV1()
	create(t, apps.Deployments(namespace).Create, deployment("web"))
	create(t, apps.StatefulSets(namespace).Create, statefulSet("db"))
	create(t, apps.DaemonSets(namespace).Create, daemonSet("agent"))
	create(t, apps.ReplicaSets(namespace).Create, replicaSet("legacy"))
	create(t, batch.Jobs(namespace).Create, job("seed"))
	cron := create(t, batch.CronJobs(namespace).Create, cronJob("report"))
	// Like kubectl create job --from=cronjob/report, and the CronJob controller.
	run := job("report-1")
	run.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(cron, batchv1.SchemeGroupVersion.WithKind("CronJob"))}
	create(t, batch.Jobs(namespace).Create, run)
	for app, want := range map[string]int{"web": 2, "db": 2, "agent": 3, "legacy": 1} {
		runningPods(t, namespace, app, want, nil)
	}
	for _, name := range []string{"seed", "report-1"} {
		await.Until(t, "Job "+name+" is complete", func(ctx context.Context) error {
			o, err := batch.Jobs(namespace).Get(ctx, name, metav1.GetOptions{})
			if err == nil && o.Status.CompletionTime == nil {
				err = errors.New("not complete")
			}
			return err
		})
	}
	// When these are shown, earlier workloads of the same kinds have been read.
	create(t, apps.ReplicaSets(namespace).Create, replicaSet("last-set"))
	create(t, batch.Jobs(namespace).Create, job("last-job"))
	create(t, core.Pods(namespace).Create, pod("last-pod"))
	for _, name := range []string{"replicaset.last-set", "job.last-job", "pod.last-pod", "deployment.web", "statefulset.db", "daemonset.agent", "cronjob.report"} {
		view(t, namespace, name)
	}
	want := []string{
		"cronjob.report", "daemonset.agent", "deployment.web", "job.last-job", "job.seed", "pod.last-pod",
		"replicaset.last-set", "replicaset.legacy", "statefulset.db",
	}
	if diff := cmp.Diff(want, viewNames(t, namespace)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A pod that has ended reads nothing any longer, and an adopted one belongs to its owner.
func TestPodsThatAreShownNoLonger(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	pods := kube.CoreV1().Pods(namespace)
	for _, name := range []string{"succeeds", "fails", "adopted", "deleted"} {
		create(t, pods.Create, pod(name))
	}
	for _, name := range []string{"succeeds", "fails", "adopted", "deleted"} {
		view(t, namespace, "pod."+name)
		runningPods(t, namespace, name, 1, nil)
	}
	for name, phase := range map[string]corev1.PodPhase{"succeeds": corev1.PodSucceeded, "fails": corev1.PodFailed} {
		patch := fmt.Sprintf(`{"status":{"phase":%q}}`, phase)
		if _, err := pods.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		viewGone(t, namespace, "pod."+name)
	}
	// A ReplicaSet adopts the pod that its selector matches.
	adopter := create(t, kube.AppsV1().ReplicaSets(namespace).Create, replicaSet("adopted"))
	viewGone(t, namespace, "pod.adopted")
	if adopted, err := pods.Get(t.Context(), "adopted", metav1.GetOptions{}); err != nil || !metav1.IsControlledBy(adopted, adopter) {
		t.Errorf("the pod does not exist, or was not adopted: %v", err)
	}
	remove(t, pods.Delete, "deleted")
	viewGone(t, namespace, "pod.deleted")
}
