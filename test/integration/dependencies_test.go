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

// A workload may be there before what it needs.
func TestSourceThatAppears(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	core := kube(t).CoreV1()
	create(t, kube(t).AppsV1().Deployments(namespace).Create, asleep("web", envSecretKey("db", "password"), envFromConfigMap("settings")))

	absent := view(t, namespace, "deployment.web",
		present(isSecret, "db", false), present(isConfigMap, "settings", false),
		resolved(metav1.ConditionFalse, v1alpha1.ReasonSourceMissing))

	create(t, core.ConfigMaps(namespace).Create, configMap("settings", map[string]string{"color": "red"}))
	view(t, namespace, "deployment.web", present(isConfigMap, "settings", true), resolved(metav1.ConditionFalse, v1alpha1.ReasonSourceMissing))

	made := create(t, core.Secrets(namespace).Create, secret("db", map[string]string{"user": "shop"}))
	lacking := view(t, namespace, "deployment.web", at(isSecret, made), present(isSecret, "db", true),
		resolved(metav1.ConditionFalse, v1alpha1.ReasonKeyMissing))
	if _, status, _ := source(lacking, isSecret, "db"); !cmp.Equal(status.MissingKeys, []string{"password"}) {
		t.Errorf("the missing keys are %v", status.MissingKeys)
	}

	made = edit(t, core.Secrets(namespace), "db", func(s *corev1.Secret) { s.StringData = map[string]string{"password": "x"} })
	complete := view(t, namespace, "deployment.web", at(isSecret, made), resolved(metav1.ConditionTrue, v1alpha1.ReasonAllPresent))
	if _, status, _ := source(complete, isSecret, "db"); status.MissingKeys != nil {
		t.Errorf("the missing keys are %v", status.MissingKeys)
	}
	if absent.Status.ConfigHash == complete.Status.ConfigHash || lacking.Status.ConfigHash == complete.Status.ConfigHash {
		t.Error("the hash is the same with and without the sources")
	}

	remove(t, core.Secrets(namespace).Delete, "db")
	gone := view(t, namespace, "deployment.web", present(isSecret, "db", false), resolved(metav1.ConditionFalse, v1alpha1.ReasonSourceMissing))
	if gone.Status.ConfigHash != lacking.Status.ConfigHash {
		t.Error("the hash tells a Secret that is absent from one without the key: pods see no difference")
	}
	again := create(t, core.Secrets(namespace).Create, secret("db", map[string]string{"password": "x", "user": "another"}))
	if back := view(t, namespace, "deployment.web", at(isSecret, again)); back.Status.ConfigHash != complete.Status.ConfigHash {
		t.Error("a Secret that was deleted and created again with equal content has another hash")
	}
}

// The hash stands for the content that pods read, and for nothing else.
func TestConfigHashFollowsContentAlone(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	secrets := kube(t).CoreV1().Secrets(namespace)
	made := create(t, secrets.Create, secret("db", map[string]string{"password": "x", "user": "shop"}))
	create(t, kube(t).AppsV1().Deployments(namespace).Create, asleep("one", envSecretKey("db", "password")))
	create(t, kube(t).AppsV1().Deployments(namespace).Create, asleep("all", envFromSecret("db")))
	hashes := func() (one, all string) {
		t.Helper()
		return view(t, namespace, "deployment.one", at(isSecret, made)).Status.ConfigHash,
			view(t, namespace, "deployment.all", at(isSecret, made)).Status.ConfigHash
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
			t.Errorf("%s: the hash of the key changes: %t, want %t", what, !oneChanges, oneChanges)
		}
		if (allNow != all) != allChanges {
			t.Errorf("%s: the hash of all keys changes: %t, want %t", what, !allChanges, allChanges)
		}
		one, all = oneNow, allNow
	}
	after("an annotation", func(s *corev1.Secret) { s.Annotations = map[string]string{"a": "b"} }, false, false)
	after("a label", func(s *corev1.Secret) { s.Labels = map[string]string{"a": "b"} }, false, false)
	after("another key", func(s *corev1.Secret) { s.Data["user"] = []byte("another") }, false, true)
	after("one more key", func(s *corev1.Secret) { s.Data["host"] = []byte("db") }, false, true)
	after("the key", func(s *corev1.Secret) { s.Data["password"] = []byte("y") }, true, true)
	before := one
	after("no key", func(s *corev1.Secret) { delete(s.Data, "password") }, true, true)
	after("the key is back", func(s *corev1.Secret) { s.Data["password"] = []byte("y") }, true, true)
	if one != before {
		t.Error("equal content has another hash than before")
	}
	after("immutable", func(s *corev1.Secret) { s.Immutable = new(true) }, false, false)
}

// lastChanged says when the content was written, which users ask for when they look for
// the cause of an outage.
func TestLastChangedFollowsContent(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	maps := kube(t).CoreV1().ConfigMaps(namespace)
	made := create(t, maps.Create, configMap("settings", map[string]string{"color": "red"}))
	create(t, kube(t).AppsV1().Deployments(namespace).Create, asleep("web", envFromConfigMap("settings")))
	changed := func() time.Time {
		t.Helper()
		_, status, _ := source(view(t, namespace, "deployment.web", at(isConfigMap, made)), isConfigMap, "settings")
		if status.LastChanged == nil {
			t.Fatal("lastChanged is not set")
		}
		return status.LastChanged.Time
	}
	first := changed()
	if !first.Equal(made.CreationTimestamp.Time) {
		t.Errorf("lastChanged is %v, but it was created at %v", first, made.CreationTimestamp)
	}
	// Times are to the second: the next write must fall into another one.
	await.Until(t, "the clock has moved on", func(ctx context.Context) error {
		o, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "clock-"}}, metav1.CreateOptions{})
		if err == nil && !o.CreationTimestamp.After(first) {
			err = errors.New("it is the same second")
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
		t.Errorf("a label has moved lastChanged from %v to %v", first, got)
	}
	patch("editor", `{"data":{"color":"blue"}}`)
	if got := changed(); !got.After(first) {
		t.Errorf("new content has not moved lastChanged, which is %v", got)
	}
}

// A workload that is recreated is another object: a client must not mistake one for the
// other.
func TestWorkloadThatIsRecreated(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	deployments := kube(t).AppsV1().Deployments(namespace)
	first := create(t, deployments.Create, asleep("web"))
	old := view(t, namespace, "deployment.web")
	if old.Spec.WorkloadRef.UID != first.UID || old.UID == first.UID || old.UID == "" {
		t.Errorf("the UID is %q, the workload's is %q and shown as %q", old.UID, first.UID, old.Spec.WorkloadRef.UID)
	}
	remove(t, deployments.Delete, "web")
	viewGone(t, namespace, "deployment.web")
	second := create(t, deployments.Create, asleep("web"))
	now := view(t, namespace, "deployment.web")
	if now.Spec.WorkloadRef.UID != second.UID || now.UID == old.UID {
		t.Errorf("the UID is %q and was %q", now.UID, old.UID)
	}
	owners := []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: second.UID}}
	if diff := cmp.Diff(owners, now.OwnerReferences); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	if !now.CreationTimestamp.Equal(&second.CreationTimestamp) {
		t.Errorf("it is shown as created at %v, and was created at %v", now.CreationTimestamp, second.CreationTimestamp)
	}
}

// A change of the template changes what is shown, and labels are the workload's.
func TestWorkloadThatIsEdited(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	deployments := kube(t).AppsV1().Deployments(namespace)
	create(t, deployments.Create, asleep("web", envFromSecret("db")))
	view(t, namespace, "deployment.web", present(isSecret, "db", false))

	edit(t, deployments, "web", func(o *appsv1.Deployment) {
		o.Spec.Template = podTemplate("web", envFromConfigMap("settings"))
		o.Labels["team"] = "a"
	})
	view(t, namespace, "deployment.web", present(isConfigMap, "settings", false), func(o *v1alpha1.ConfigDependency) error {
		if len(o.Spec.Sources) != 1 || o.Labels["team"] != "a" {
			return fmt.Errorf("there are %d sources and the labels %v", len(o.Spec.Sources), o.Labels)
		}
		return nil
	})
	// Who uses it, as both directions must agree.
	for source, want := range map[string]int{"Secret/db": 0, "ConfigMap/settings": 1} {
		list, err := configdep(t).ConfigDependencies(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "source=" + source})
		if err != nil || len(list.Items) != want {
			t.Errorf("%v use %s, want %d (%v)", list, source, want, err)
		}
	}
}

// Every kind of workload is shown, and nothing that one of them has made.
func TestWhichWorkloadsAreShown(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	core, apps, batch := kube(t).CoreV1(), kube(t).AppsV1(), kube(t).BatchV1()
	create(t, apps.Deployments(namespace).Create, deployment("web"))
	create(t, apps.StatefulSets(namespace).Create, statefulSet("db"))
	create(t, apps.DaemonSets(namespace).Create, daemonSet("agent"))
	create(t, apps.ReplicaSets(namespace).Create, replicaSet("legacy"))
	create(t, batch.Jobs(namespace).Create, job("seed"))
	cron := create(t, batch.CronJobs(namespace).Create, cronJob("report"))
	// As kubectl create job --from=cronjob/report does it, and the controller of CronJobs.
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
				err = errors.New("it is not")
			}
			return err
		})
	}
	// When these are shown, all of their kinds that came before have been seen.
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

// A pod that has ended reads nothing any more, and an adopted one belongs to its owner.
func TestPodsThatAreShownNoLonger(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	pods := kube(t).CoreV1().Pods(namespace)
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
	adopter := create(t, kube(t).AppsV1().ReplicaSets(namespace).Create, replicaSet("adopted"))
	viewGone(t, namespace, "pod.adopted")
	if adopted, err := pods.Get(t.Context(), "adopted", metav1.GetOptions{}); err != nil || !metav1.IsControlledBy(adopted, adopter) {
		t.Errorf("the pod is gone, or has not been adopted: %v", err)
	}
	remove(t, pods.Delete, "deleted")
	viewGone(t, namespace, "pod.deleted")
}
