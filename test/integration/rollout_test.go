// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

// optedIn opts a workload in and sets more annotations, given as pairs.
func optedIn(m metav1.Object, more ...string) {
	annotations := map[string]string{"configdep.io/reload": "auto", "configdep.io/settle": "0", "configdep.io/min-interval": "0"}
	for i := 0; i < len(more); i += 2 {
		annotations[more[i]] = more[i+1]
	}
	m.SetAnnotations(annotations)
}

// A change of content replaces all pods, once, and the view and an event say why. A change of a key that the pods
// do not read, or of metadata, does nothing.
func TestChangeOfContentReplacesAllPods(t *testing.T) {
	t.Parallel()
	for kind, pods := range map[string]int{"Deployment": 2, "StatefulSet": 2, "DaemonSet": 3} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			namespace := newNamespace(t)
			name := strings.ToLower(kind) + ".web"
			write(t, namespace, "Secret/db", "password", "x", "unread", "x")
			createWorkload(t, namespace, kind, pairs(policy.ReloadAnnotation, "auto"), envSecretKey("db", "password"))
			old := runningPods(t, namespace, "web", pods, nil)
			before := view(t, namespace, name, applied)
			generation := getRollout(t, namespace, kind, "web").Generation

			write(t, namespace, "Secret/db", "unread", "y")
			edit(t, kube.CoreV1().Secrets(namespace), "db", func(s *corev1.Secret) { s.Labels = map[string]string{"a": "b"} })
			write(t, namespace, "Secret/db", "password", "y")
			runningPods(t, namespace, "web", pods, old)
			after := view(t, namespace, name, applied, newer(before))
			if got := getRollout(t, namespace, kind, "web").Generation; got != generation+1 {
				t.Errorf("generation = %[2]d, was %[1]d", generation, got)
			}
			if last := after.Status.LastReload; last == nil || last.Trigger != "Secret/db" || last.RequestedBy != "" {
				t.Errorf("lastReload = %+v", last)
			}
			want := []string{"Restarted because Secret/db has changed"}
			await.Until(t, "an event reports the restart", func(context.Context) error {
				if got := shopIn(t, namespace).told(kind, "web", "ConfigRestarted"); !slices.Equal(got, want) {
					return fmt.Errorf("events = %q", got)
				}
				return nil
			})
		})
	}
}

// Opting in restarts nothing, however many workloads opt in at once.
func TestAdoptingManyWorkloadsRestartsNone(t *testing.T) {
	t.Parallel()
	const many = 60
	namespace := newNamespace(t)
	write(t, namespace, "Secret/db", "password", "x")
	deployments := kube.AppsV1().Deployments(namespace)
	inParallel(t, many, func(i int) error {
		_, err := deployments.Create(t.Context(), single(fmt.Sprint("web-", i), envFromSecret("db")), metav1.CreateOptions{})
		return err
	})
	edit(t, kube.CoreV1().Namespaces(), namespace, func(n *corev1.Namespace) {
		n.Annotations = map[string]string{"configdep.io/reload": "auto", "configdep.io/settle": "0", "configdep.io/min-interval": "0"}
	})
	await := func(what string, restarted bool) {
		t.Helper()
		await.Until(t, fmt.Sprintf("%d workloads %s", many, what), func(ctx context.Context) error {
			list, err := deployments.List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			recorded := 0
			for i := range list.Items {
				o := &list.Items[i]
				hash := o.Spec.Template.Annotations["configdep.io/config-hash"]
				if hash != "" && !restarted {
					t.Fatalf("%s was restarted", o.Name)
				}
				if o.Annotations["configdep.io/config-hash"] != "" && (hash != "") == restarted {
					recorded++
				}
			}
			if recorded != many {
				return fmt.Errorf("%d of %d are recorded", recorded, many)
			}
			return nil
		})
	}
	await("are adopted", false)
	awaitAvailable(t, namespace)
	write(t, namespace, "Secret/db", "password", "y")
	await("are restarted", true)
}

// awaitAvailable waits until the pods of all Deployments run, and until the next second.
func awaitAvailable(t *testing.T, namespace string) {
	t.Helper()
	await.Until(t, "all Deployments are available", func(ctx context.Context) error {
		list, err := kube.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if o := &list.Items[i]; o.Status.AvailableReplicas != *o.Spec.Replicas {
				return fmt.Errorf("%s has %d available pods", o.Name, o.Status.AvailableReplicas)
			}
		}
		return nil
	})
	if err := await.NextSecond(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// inParallel calls f for each number below n, several calls at a time.
func inParallel(t *testing.T, n int, f func(int) error) {
	t.Helper()
	var wg sync.WaitGroup
	numbers := make(chan int)
	for range 16 {
		wg.Go(func() {
			for i := range numbers {
				if err := f(i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range n {
		numbers <- i
	}
	close(numbers)
	wg.Wait()
}

// The strategy recreate evicts pods and does not change the template, also on request.
func TestRecreateEvictsPods(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	write(t, namespace, "Secret/db", "password", "x")
	o := deployment("web", envFromSecret("db"))
	optedIn(o, "configdep.io/strategy", "recreate")
	made := create(t, kube.AppsV1().Deployments(namespace).Create, o)
	pods := runningPods(t, namespace, "web", 2, nil)
	view(t, namespace, "deployment.web", applied)

	write(t, namespace, "Secret/db", "password", "y")
	pods = runningPods(t, namespace, "web", 2, pods)
	view(t, namespace, "deployment.web", applied)

	got := reloadAs(t, "jane", namespace, "deployment.web", v1alpha1.ReloadSpec{})
	if !got.Triggered || !strings.Contains(got.Message, "are being evicted") {
		t.Errorf("answer = %+v", got)
	}
	runningPods(t, namespace, "web", 2, pods)
	view(t, namespace, "deployment.web", applied)
	if diff := cmp.Diff(made.Spec.Template, getRollout(t, namespace, "Deployment", "web").template); diff != "" {
		t.Errorf("the template has changed:\n%s", diff)
	}
}

// A rollout that does not progress is shown as failed, with what the owner can do. A missing source and an invalid
// annotation are shown as blocked.
func TestStatesThatNeedAttention(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	deployments := kube.AppsV1().Deployments(namespace)
	write(t, namespace, "Secret/db", "password", "x")

	stuck := deployment("stuck", envFromSecret("db"))
	optedIn(stuck)
	stuck.Spec.ProgressDeadlineSeconds, stuck.Spec.MinReadySeconds = new(int32(2)), 1
	stuck.Spec.Template.Spec.NodeSelector = map[string]string{"no-node": "has-this"}
	create(t, deployments.Create, stuck)
	view(t, namespace, "deployment.stuck", is(v1alpha1.StateFailed, "ProgressDeadlineExceeded"))

	missing := single("missing", envFromSecret("db"), envFromSecret("later"))
	optedIn(missing)
	create(t, deployments.Create, missing)
	view(t, namespace, "deployment.missing", is(v1alpha1.StateBlocked, "SourceMissing"))
	shopIn(t, namespace).told("Deployment", "missing", "ConfigSourceMissing")
	write(t, namespace, "Secret/later", "a", "x")
	view(t, namespace, "deployment.missing", applied)

	invalid := single("invalid", envFromSecret("db"))
	optedIn(invalid, "configdep.io/settle", "soon")
	create(t, deployments.Create, invalid)
	o := view(t, namespace, "deployment.invalid", is(v1alpha1.StateBlocked, "InvalidAnnotation"))
	for _, want := range []string{"configdep.io/settle", `"soon"`} {
		if !strings.Contains(o.Status.Message, want) {
			t.Errorf("the message lacks %q: %s", want, o.Status.Message)
		}
	}
	shopIn(t, namespace).told("Deployment", "invalid", "ConfigInvalidAnnotation")
	edit(t, deployments, "invalid", func(o *appsv1.Deployment) { o.Annotations["configdep.io/settle"] = "1s" })
	view(t, namespace, "deployment.invalid", applied)
}

// Flags of the server set the defaults for annotations.
func TestDefaultsOfTheServer(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	write(t, namespace, "Secret/db", "password", "x")
	create(t, kube.AppsV1().Deployments(namespace).Create, single("web", envFromSecret("db")))
	own := asleep("own", envFromSecret("db"))
	optedIn(own)
	create(t, kube.AppsV1().Deployments(namespace).Create, own)
	r := replica(t, "defaults", install.ReplicaOptions{Args: []string{"--default-reload=matched", "--settle=7s", "--min-interval=8m"}})
	s := &shop{T: t, namespace: namespace, shownBy: []endpoint{endpointOf(r)}}
	for name, want := range map[string]string{"deployment.web": "Matched, by Default: 7s, 8m0s", "deployment.own": "Auto, by configdep.io/reload: 0s, 0s"} {
		p := s.view(name).Spec.Reload
		if got := fmt.Sprintf("%s, by %s: %v, %v", p.Mode, p.DeclaredBy, p.Settle.Duration, p.MinInterval.Duration); got != want {
			t.Errorf("%s: %q, not %q", name, got, want)
		}
	}
}

// The next run of a CronJob reads the current content without a restart, and a Job is only shown.
func TestCronJobsAndJobsAreNotRestarted(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	write(t, namespace, "Secret/db", "password", "x")
	report, seed := cronJob("report", envFromSecret("db")), job("seed", envFromSecret("db"))
	optedIn(report)
	optedIn(seed)
	before := create(t, kube.BatchV1().CronJobs(namespace).Create, report)
	create(t, kube.BatchV1().Jobs(namespace).Create, seed)
	write(t, namespace, "Secret/db", "password", "y")
	changed, err := kube.CoreV1().Secrets(namespace).Get(t.Context(), "db", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	view(t, namespace, "cronjob.report", at(changed), is(v1alpha1.StateInSync, "NextRunReadsContent"))
	view(t, namespace, "job.seed", at(changed), is(v1alpha1.StateInSync, ""))
	after, err := kube.BatchV1().CronJobs(namespace).Get(t.Context(), "report", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if after.ResourceVersion != before.ResourceVersion {
		t.Errorf("the server changed the CronJob: annotations = %v", after.Annotations)
	}
}

// If the key of the config hash is removed, it is restored. Hashes with another key cannot be compared: the
// current content is recorded again, and nothing is restarted.
func TestLostAndReplacedKeyOfTheHashes(t *testing.T) {
	namespace := newNamespace(t)
	secrets := kube.CoreV1().Secrets(install.Namespace)
	write(t, namespace, "Secret/db", "password", "x")
	o := asleep("web", envFromSecret("db"))
	optedIn(o)
	create(t, kube.AppsV1().Deployments(namespace).Create, o)
	before := view(t, namespace, "deployment.web", applied)
	template := getRollout(t, namespace, "Deployment", "web").template
	key, err := secrets.Get(t.Context(), "configdep-hmac-key", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	edit(t, secrets, key.Name, func(s *corev1.Secret) { s.Data = nil })
	await.Until(t, "the key is restored", func(ctx context.Context) error {
		back, err := secrets.Get(ctx, key.Name, metav1.GetOptions{})
		if err == nil && string(back.Data["key"]) != string(key.Data["key"]) {
			err = errors.New("the Secret has another key")
		}
		return err
	})
	edit(t, secrets, key.Name, func(s *corev1.Secret) { s.Data["key"] = []byte(strings.Repeat(rand.Text(), 2)[:len(s.Data["key"])]) })
	after := view(t, namespace, "deployment.web", applied, newer(before))
	now := getRollout(t, namespace, "Deployment", "web").template
	sameTemplate(t, "with another key", &template, &now)
	if after.Status.LastReload != nil {
		t.Errorf("lastReload = %+v", after.Status.LastReload)
	}

	// No replica was ready while they read everything again. kube-apiserver may have cached that for discovery,
	// which other tests use.
	await.Until(t, "the API is discovered", func(context.Context) error {
		_, resources, err := kube.Discovery().ServerGroupsAndResources()
		if err == nil && !slices.ContainsFunc(resources, func(l *metav1.APIResourceList) bool {
			return l.GroupVersion == "configdep.io/v1alpha1" && len(l.APIResources) > 0
		}) {
			err = errors.New("the API is not discovered")
		}
		return err
	})
}

// What operators read: metrics of the leader and of the other replica, and a log in JSON.
func TestMetricsAndLogs(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	write(t, namespace, "Secret/db", "password", "x")
	o := single("web", envFromSecret("db"))
	optedIn(o)
	create(t, kube.AppsV1().Deployments(namespace).Create, o)
	view(t, namespace, "deployment.web", applied)
	restarts := fmt.Sprintf("\nconfigdep_rollouts_total{kind=\"Deployment\",namespace=%q,result=\"success\",trigger=\"Secret\"} 1\n", namespace)
	view(t, namespace, "deployment.web", applied, at(write(t, namespace, "Secret/db", "password", "y")))
	await.Until(t, "one replica leads, and has counted the restart", func(ctx context.Context) error {
		leaders, counted := 0, 0
		for _, r := range server.Replicas {
			got, err := try(ctx, r.AdminConfig(), request{path: "/metrics"})
			if err != nil || got.code != http.StatusOK {
				return fmt.Errorf("%s: %d, %w", r.Name(), got.code, err)
			}
			text := string(got.body)
			for _, metric := range []string{"configdep_workloads{", "configdep_index_objects{", "configdep_ingest_last_progress_timestamp_seconds{", "configdep_rollout_patch_delay_seconds_bucket{"} {
				if !strings.Contains(text, "\n"+metric) {
					t.Fatalf("%s lacks the metric %s", r.Name(), metric)
				}
			}
			leaders += strings.Count(text, "\nconfigdep_leader 1\n")
			counted += strings.Count(text, restarts)
		}
		if leaders != 1 || counted != 1 {
			return fmt.Errorf("%d replicas lead, and %d have counted the restart", leaders, counted)
		}
		return nil
	})

	r := replica(t, "json", install.ReplicaOptions{Args: []string{"--logging-format=json"}})
	if err := r.Terminate(); err != nil {
		t.Error(err)
	}
	log, err := os.ReadFile(r.Log())
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	for _, line := range lines {
		if install.RaceDetector && strings.Contains(line, "Data race detection enabled") { // before the flags are parsed
			continue
		}
		var entry struct{ Msg *string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Msg == nil {
			t.Errorf("%v: %s", err, line)
		}
	}
	if len(lines) < 3 {
		t.Errorf("the log has only %d lines", len(lines))
	}
}
