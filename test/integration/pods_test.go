// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/judge"
	"github.com/configdep/configdep/test/await"
)

// awaitPods waits until each replica shows the wanted states of the pods of a workload, by name. Replicas see
// changes independently.
func awaitPods(t *testing.T, namespace, name string, want map[string]v1alpha1.ContentState) (got *v1alpha1.ConfigDependencyPods) {
	t.Helper()
	for _, where := range everywhere {
		await.Until(t, fmt.Sprintf("%s knows the pods of %s", where.name, name), func(ctx context.Context) error {
			var err error
			got, err = where.ConfigdepV1alpha1().ConfigDependencies(namespace).GetPods(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			states := map[string]v1alpha1.ContentState{}
			for i := range got.Pods {
				states[got.Pods[i].Name] = got.Pods[i].State
			}
			if diff := cmp.Diff(want, states); diff != "" {
				return fmt.Errorf("(-want +got):\n%s\n%+v", diff, got.Pods)
			}
			return nil
		})
	}
	return got
}

// awaitAge waits until all containers of the pods of an application have run for so long that a change can be told from
// their starts.
func awaitAge(t *testing.T, namespace, app string) {
	t.Helper()
	const age = judge.ClockMargin + 2*time.Second // and the precision of both times
	await.Until(t, fmt.Sprintf("the containers of %s have run for %v", app, age), func(ctx context.Context) error {
		list, err := kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
		if err != nil {
			return err
		}
		for i := range list.Items {
			p := &list.Items[i]
			for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
				started := p.CreationTimestamp.Time
				switch {
				case c.State.Running != nil:
					started = c.State.Running.StartedAt.Time
				case c.State.Terminated != nil:
					started = c.State.Terminated.StartedAt.Time
				}
				if ran := time.Since(started); ran < age {
					return fmt.Errorf("%s of %s has run for %v", c.Name, p.Name, ran)
				}
			}
		}
		return nil
	})
}

// A rollout that waits until pods are deleted leaves pods with old content, which are distinguished from the new
// ones.
func TestPodsThatWereNotReplacedAreStale(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	write(t, namespace, "Secret/db", "password", "x", "unread", "x")
	o := statefulSet("web", envSecretKey("db", "password"))
	o.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
	o.Spec.Template.Spec.Containers = append(o.Spec.Template.Spec.Containers, corev1.Container{Name: "side", Image: "side"})
	optedIn(o)
	create(t, kube.AppsV1().StatefulSets(namespace).Create, o)
	runningPods(t, namespace, "web", 2, nil)
	view(t, namespace, "statefulset.web", applied)
	current, stale := v1alpha1.ContentCurrent, v1alpha1.ContentStale
	before := awaitPods(t, namespace, "statefulset.web", map[string]v1alpha1.ContentState{"web-0": current, "web-1": current})

	awaitAge(t, namespace, "web")
	write(t, namespace, "Secret/db", "unread", "y")
	write(t, namespace, "Secret/db", "password", "y")
	view(t, namespace, "statefulset.web", is(v1alpha1.StateStale, "Held"))
	awaitPods(t, namespace, "statefulset.web", map[string]v1alpha1.ContentState{"web-0": stale, "web-1": stale})

	answer := reload(t, namespace, "statefulset.web", v1alpha1.ReloadSpec{Mode: v1alpha1.ReloadIfStale})
	if want := "but 2 of 2 pods have an older pod template; its update strategy is OnDelete"; answer.Triggered || !strings.Contains(answer.Message, want) {
		t.Errorf("answer = %+v, want %q", answer, want)
	}

	remove(t, kube.CoreV1().Pods(namespace).Delete, "web-1")
	got := awaitPods(t, namespace, "statefulset.web", map[string]v1alpha1.ContentState{"web-0": stale, "web-1": current})
	if want := (v1alpha1.PodSummary{Current: 1, Stale: 1}); got.Summary != want {
		t.Errorf("summary = %+v", got.Summary)
	}
	web0, web1 := &got.Pods[0], &got.Pods[1]
	if got.TemplateRevision == before.TemplateRevision || web1.TemplateRevision != got.TemplateRevision || web0.TemplateRevision != before.TemplateRevision {
		t.Errorf("revision = %[2]q, was %[1]q; the pods have %[3]q and %[4]q", before.TemplateRevision, got.TemplateRevision, web0.TemplateRevision, web1.TemplateRevision)
	}
	if !slices.Equal(web0.StaleSources, []string{"Secret/db"}) || web0.Reason != "StartedBefore" || web0.NodeName == "" || web0.UID == "" {
		t.Errorf("%+v", web0)
	}
	var states []string
	for _, c := range web0.Containers {
		states = append(states, fmt.Sprintf("%s %s %s", c.Name, c.State, c.Reason))
		if c.StartedAt.IsZero() || c.Type != v1alpha1.ContainerRegular {
			t.Errorf("%+v", c)
		}
	}
	if diff := cmp.Diff([]string{"app Stale StartedBefore", "side Current NothingRead"}, states); diff != "" {
		t.Errorf("containers of web-0 (-want +got):\n%s", diff)
	}
	if sources := web0.Containers[0].Sources; len(sources) != 1 || sources[0].Kind != "Secret" || sources[0].Name != "db" || sources[0].LastChangeTime.IsZero() {
		t.Errorf("sources of web-0 = %+v", sources)
	}

	t.Run("kubectl prints a table", func(t *testing.T) {
		lines := shown(namespace, kubectl(t, "-n", namespace, "get", "cfgdep", "statefulset.web", "--subresource=pods"))
		for i := range lines {
			lines[i] = strings.NewReplacer(before.TemplateRevision, "OLD", got.TemplateRevision, "NEW", web0.NodeName, "NODE", web1.NodeName, "NODE").Replace(lines[i])
		}
		want := []string{
			"NAME | STATE | NODE | REVISION | STARTED | AGE | STALE SOURCES",
			"web-0 | Stale | NODE | OLD (old) | 1s | 1s | Secret/db",
			"web-1 | Current | NODE | NEW | 1s | 1s | <none>",
		}
		if diff := cmp.Diff(want, lines); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		wide := kubectl(t, "-n", namespace, "get", "cfgdep", "statefulset.web", "--subresource=pods", "-o", "wide")
		for _, want := range []string{"CONTAINERS", "app=Stale(StartedBefore), side=Current(NothingRead)", "Secret db has changed since the container started."} {
			if !strings.Contains(wide, want) {
				t.Errorf("-o wide lacks %q:\n%s", want, wide)
			}
		}
	})
	t.Run("kubectl prints JSON", func(t *testing.T) {
		path := resourcePath(namespace) + "/statefulset.web/pods"
		for _, args := range [][]string{
			{"get", "--raw", path},
			{"-n", namespace, "get", "cfgdep", "statefulset.web", "--subresource=pods", "-o", "json"},
		} {
			var printed v1alpha1.ConfigDependencyPods
			if err := json.Unmarshal([]byte(kubectl(t, args...)), &printed); err != nil {
				t.Fatal(err)
			}
			if printed.Kind != "ConfigDependencyPods" || printed.Name != "statefulset.web" || len(printed.Pods) != 2 {
				t.Errorf("%q prints %+v", args, printed)
			}
		}
		names := kubectl(t, "-n", namespace, "get", "cfgdep", "statefulset.web", "--subresource=pods", "-o", `jsonpath={.pods[?(@.state=="Stale")].name}`)
		if names != "web-0" {
			t.Errorf("stale pods = %q", names)
		}
	})
}

// inEveryWay makes containers of every type read Secret db and ConfigMap settings in every way.
func inEveryWay(p *corev1.PodSpec) {
	db := corev1.LocalObjectReference{Name: "db"}
	p.Volumes = []corev1.Volume{
		{Name: "db", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: db.Name}}},
		{Name: "both", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{Secret: &corev1.SecretProjection{LocalObjectReference: db, Items: []corev1.KeyToPath{{Key: "password", Path: "p"}}}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}},
		}}}},
	}
	mounted := func(volume, subPath string) []corev1.VolumeMount {
		return []corev1.VolumeMount{{Name: volume, MountPath: "/v", SubPath: subPath}}
	}
	p.InitContainers = []corev1.Container{
		{Name: "init", Image: "init", VolumeMounts: mounted("db", "")},
		{Name: "sidecar", Image: "sidecar", RestartPolicy: new(corev1.ContainerRestartPolicyAlways), VolumeMounts: mounted("both", "")},
	}
	p.Containers[0].VolumeMounts = mounted("db", "password")
	p.Containers = append(p.Containers,
		corev1.Container{Name: "env", Image: "env", EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: db}}}},
		corev1.Container{Name: "idle", Image: "idle"},
	)
}

// A change of content makes the pods of every kind of workload stale if nothing restarts them. Of files, which the
// application may have read again, this is not known. When the change is reverted, the pods are current again.
func TestPodsWhoseContentComesBack(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	write(t, namespace, "Secret/db", "password", "x", "unread", "x")
	write(t, namespace, "ConfigMap/settings", "a", "1")
	create(t, kube.AppsV1().Deployments(namespace).Create, deployment("web", inEveryWay))
	create(t, kube.AppsV1().StatefulSets(namespace).Create, statefulSet("db", inEveryWay))
	create(t, kube.AppsV1().DaemonSets(namespace).Create, daemonSet("logs", inEveryWay))
	workloads := map[string]string{"web": "deployment.web", "db": "statefulset.db", "logs": "daemonset.logs"}
	for app, name := range workloads {
		runningPods(t, namespace, app, map[string]int{"web": 2, "db": 2, "logs": 3}[app], nil)
		view(t, namespace, name)
	}
	expect := func(want ...string) {
		t.Helper()
		for _, name := range workloads {
			for _, where := range everywhere {
				await.Until(t, fmt.Sprintf("%s knows the containers of %s", where.name, name), func(ctx context.Context) error {
					got, err := where.ConfigdepV1alpha1().ConfigDependencies(namespace).GetPods(ctx, name, metav1.GetOptions{})
					if err != nil {
						return err
					}
					for i := range got.Pods {
						var containers []string
						for _, c := range got.Pods[i].Containers {
							containers = append(containers, fmt.Sprintf("%s %s %s %s", c.Type, c.Name, c.State, c.Reason))
						}
						if diff := cmp.Diff(want, containers); diff != "" {
							return fmt.Errorf("%s (-want +got):\n%s", got.Pods[i].Name, diff)
						}
					}
					return nil
				})
			}
		}
	}
	const idle = "Regular idle Current NothingRead"
	expect("Init init Current StartedAfter", "Sidecar sidecar Current StartedAfter", "Regular app Current StartedAfter", "Regular env Current StartedAfter", idle)
	for app := range workloads {
		awaitAge(t, namespace, app)
	}
	write(t, namespace, "Secret/db", "password", "y")
	expect("Init init Unknown FilesChanged", "Sidecar sidecar Unknown FilesChanged", "Regular app Stale StartedBefore", "Regular env Stale StartedBefore", idle)
	write(t, namespace, "Secret/db", "unread", "y") // for those that read all keys
	expect("Init init Unknown FilesChanged", "Sidecar sidecar Unknown FilesChanged", "Regular app Stale StartedBefore", "Regular env Stale StartedBefore", idle)
	write(t, namespace, "Secret/db", "password", "x")
	expect("Init init Unknown FilesChanged", "Sidecar sidecar Current SameContent", "Regular app Current SameContent", "Regular env Stale StartedBefore", idle)
	write(t, namespace, "Secret/db", "unread", "x")
	expect("Init init Current SameContent", "Sidecar sidecar Current SameContent", "Regular app Current SameContent", "Regular env Current SameContent", idle)
}

// A partition keeps pods on the old template. A pod that is deleted is created again from the old template, and
// reads the current content. A Reload in mode IfStale says so, and restarts nothing.
func TestPodsBelowAPartition(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	write(t, namespace, "Secret/db", "password", "x")
	o := statefulSet("web", envSecretKey("db", "password"))
	o.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32(1))}
	optedIn(o)
	create(t, kube.AppsV1().StatefulSets(namespace).Create, o)
	before := runningPods(t, namespace, "web", 2, nil)
	view(t, namespace, "statefulset.web", applied)
	current, stale := v1alpha1.ContentCurrent, v1alpha1.ContentStale
	old := awaitPods(t, namespace, "statefulset.web", map[string]v1alpha1.ContentState{"web-0": current, "web-1": current}).TemplateRevision

	awaitAge(t, namespace, "web")
	write(t, namespace, "Secret/db", "password", "y")
	view(t, namespace, "statefulset.web", is(v1alpha1.StateStale, "Held"))
	awaitPods(t, namespace, "statefulset.web", map[string]v1alpha1.ContentState{"web-0": stale, "web-1": current})
	answer := reload(t, namespace, "statefulset.web", v1alpha1.ReloadSpec{Mode: v1alpha1.ReloadIfStale})
	if want := "the pod template of StatefulSet web has been changed already, but 1 of 2 pods has an older pod template; its partition is 1"; answer.Triggered || !strings.Contains(answer.Message, want) {
		t.Errorf("answer = %+v, want %q", answer, want)
	}

	if err := await.NextSecond(t.Context()); err != nil {
		t.Fatal(err)
	}
	remove(t, kube.CoreV1().Pods(namespace).Delete, "web-0")
	runningPods(t, namespace, "web", 2, before)
	got := awaitPods(t, namespace, "statefulset.web", map[string]v1alpha1.ContentState{"web-0": current, "web-1": current})
	if got.Pods[0].TemplateRevision != old || got.TemplateRevision == old {
		t.Errorf("web-0 has revision %s, want %s; the current one is %s", got.Pods[0].TemplateRevision, old, got.TemplateRevision)
	}
}

// The subresource answers for every kind of workload, also without pods.
func TestPodsOfEveryKind(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	create(t, kube.AppsV1().DaemonSets(namespace).Create, daemonSet("logs"))
	create(t, kube.AppsV1().ReplicaSets(namespace).Create, replicaSet("legacy"))
	create(t, kube.CoreV1().Pods(namespace).Create, pod("toolbox"))
	create(t, kube.BatchV1().Jobs(namespace).Create, job("seed"))
	create(t, kube.BatchV1().CronJobs(namespace).Create, cronJob("report"))
	create(t, kube.AppsV1().Deployments(namespace).Create, asleep("web"))
	for name, want := range map[string]struct {
		pods    int32
		message string
	}{
		"daemonset.logs":    {pods: 3},
		"replicaset.legacy": {pods: 1},
		"pod.toolbox":       {pods: 1},
		"job.seed":          {message: "No pod runs."}, // kwok completes them at once
		"cronjob.report":    {message: "No run is active. The next run reads the content that is present then."},
		"deployment.web":    {message: "No pod runs."},
	} {
		t.Run(name, func(t *testing.T) {
			view(t, namespace, name)
			await.Until(t, "the pods are shown", func(ctx context.Context) error {
				got, err := configdep.ConfigDependencies(namespace).GetPods(ctx, name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				if got.Summary != (v1alpha1.PodSummary{Current: want.pods}) || got.Message != want.message {
					return fmt.Errorf("%+v, %q", got.Summary, got.Message)
				}
				return nil
			})
		})
	}
	// The pods of a CronJob's run belong to the CronJob.
	template := cronJob("report").Spec.JobTemplate.Spec
	template.Suspend = new(true)
	owner, err := kube.BatchV1().CronJobs(namespace).Get(t.Context(), "report", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	run := create(t, kube.BatchV1().Jobs(namespace).Create, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "report-1", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, batchv1.SchemeGroupVersion.WithKind("CronJob"))}},
		Spec:       template,
	})
	p := pod("report-1-x")
	p.Labels = map[string]string{batchv1.ControllerUidLabel: string(run.UID)}
	p.Annotations = map[string]string{"controlplane.test/stuck": "true"}
	p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(run, batchv1.SchemeGroupVersion.WithKind("Job"))}
	p.Finalizers = []string{"controlplane.test/keep"} // the suspended Job would delete it
	create(t, kube.CoreV1().Pods(namespace).Create, p)
	awaitPods(t, namespace, "cronjob.report", map[string]v1alpha1.ContentState{p.Name: v1alpha1.ContentNotStarted})
	edit(t, kube.CoreV1().Pods(namespace), p.Name, func(p *corev1.Pod) { p.Finalizers = nil })
}

func TestPodsThatCannotBeShown(t *testing.T) {
	t.Parallel()
	namespace := workloadIn(t)
	path := resourcePath(namespace) + "/deployment.web/pods"
	for _, where := range everywhere {
		_, err := where.ConfigdepV1alpha1().ConfigDependencies(namespace).GetPods(t.Context(), "deployment.none", metav1.GetOptions{})
		checkError(t, err, http.StatusNotFound, metav1.StatusReasonNotFound, `configdependencies.configdep.io "deployment.none" not found`)
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
			checkRefused(t, send(t, where.Config, request{method, path, inJSON, "{}"}), notAllowed)
		}
	}
	if got := kubectl(t, "-n", namespace, "get", "cfgdep", "deployment.web", "--subresource=pods", "--no-headers"); strings.TrimSpace(got) != "" {
		t.Errorf("kubectl prints %q for a workload without pods", got)
	}
}
