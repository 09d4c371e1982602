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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

// is checks the state and its reason.
func is(state v1alpha1.State, reason string) func(*v1alpha1.ConfigDependency) error {
	return func(o *v1alpha1.ConfigDependency) error {
		if o.Status.State != state || reason != "" && o.Status.Reason != reason {
			return fmt.Errorf("state = %s, %s: %s", o.Status.State, o.Status.Reason, o.Status.Message)
		}
		return nil
	}
}

// applied checks that the pods are known to run with the current content.
func applied(o *v1alpha1.ConfigDependency) error {
	if o.Status.AppliedHash == "" || o.Status.AppliedHash != o.Status.ConfigHash {
		return fmt.Errorf("appliedHash = %q, configHash = %q", o.Status.AppliedHash, o.Status.ConfigHash)
	}
	return is(v1alpha1.StateInSync, "")(o)
}

// optedIn opts a workload in and sets more annotations, given as pairs.
func optedIn(m metav1.Object, more ...string) {
	annotations := map[string]string{"configdep.io/reload": "auto", "configdep.io/settle": "0", "configdep.io/min-interval": "0"}
	for i := 0; i < len(more); i += 2 {
		annotations[more[i]] = more[i+1]
	}
	m.SetAnnotations(annotations)
}

// setSecret sets a key of a Secret, and keeps the others.
func setSecret(t *testing.T, namespace, name, key, value string) {
	t.Helper()
	edit(t, kube(t).CoreV1().Secrets(namespace), name, func(s *corev1.Secret) { s.Data[key] = []byte(value) })
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
			create(t, kube(t).CoreV1().Secrets(namespace).Create, secret("db", map[string]string{"password": "x", "unread": "x"}))
			switch apps := kube(t).AppsV1(); kind {
			case "Deployment":
				o := deployment("web", envSecretKey("db", "password"))
				optedIn(o)
				create(t, apps.Deployments(namespace).Create, o)
			case "StatefulSet":
				o := statefulSet("web", envSecretKey("db", "password"))
				optedIn(o)
				create(t, apps.StatefulSets(namespace).Create, o)
			case "DaemonSet":
				o := daemonSet("web", envSecretKey("db", "password"))
				optedIn(o)
				create(t, apps.DaemonSets(namespace).Create, o)
			}
			old := runningPods(t, namespace, "web", pods, nil)
			before := view(t, namespace, name, applied)
			generation := getRollout(t, namespace, kind, "web").Generation

			setSecret(t, namespace, "db", "unread", "y")
			edit(t, kube(t).CoreV1().Secrets(namespace), "db", func(s *corev1.Secret) { s.Labels = map[string]string{"a": "b"} })
			setSecret(t, namespace, "db", "password", "y")
			runningPods(t, namespace, "web", pods, old)
			after := view(t, namespace, name, applied, func(o *v1alpha1.ConfigDependency) error {
				if o.Status.AppliedHash == before.Status.AppliedHash {
					return errors.New("the hash has not changed")
				}
				return nil
			})
			if got := getRollout(t, namespace, kind, "web").Generation; got != generation+1 {
				t.Errorf("generation = %[2]d, was %[1]d", generation, got)
			}
			if last := after.Status.LastReload; last == nil || last.Trigger != "Secret/db" || last.RequestedBy != "" {
				t.Errorf("lastReload = %+v", last)
			}
			want := []string{"Restarted because Secret/db has changed"}
			await.Until(t, "an event reports the restart", func(context.Context) error {
				if got := reloadEvents(t, namespace, kind, "web", before.Spec.WorkloadRef.UID); !slices.Equal(got, want) {
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
	const many = 300
	namespace := newNamespace(t)
	create(t, kube(t).CoreV1().Secrets(namespace).Create, secret("db", map[string]string{"password": "x"}))
	deployments := kube(t).AppsV1().Deployments(namespace)
	inParallel(t, many, func(i int) error {
		_, err := deployments.Create(t.Context(), single(fmt.Sprint("web-", i), envFromSecret("db")), metav1.CreateOptions{})
		return err
	})
	edit(t, kube(t).CoreV1().Namespaces(), namespace, func(n *corev1.Namespace) {
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
	setSecret(t, namespace, "db", "password", "y")
	await("are restarted", true)
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
	create(t, kube(t).CoreV1().Secrets(namespace).Create, secret("db", map[string]string{"password": "x"}))
	o := deployment("web", envFromSecret("db"))
	optedIn(o, "configdep.io/strategy", "recreate")
	made := create(t, kube(t).AppsV1().Deployments(namespace).Create, o)
	pods := runningPods(t, namespace, "web", 2, nil)
	view(t, namespace, "deployment.web", applied)

	setSecret(t, namespace, "db", "password", "y")
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
	deployments := kube(t).AppsV1().Deployments(namespace)
	create(t, kube(t).CoreV1().Secrets(namespace).Create, secret("db", map[string]string{"password": "x"}))

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
	told(t, namespace, "missing", "ConfigSourceMissing")
	create(t, kube(t).CoreV1().Secrets(namespace).Create, secret("later", map[string]string{"a": "x"}))
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
	told(t, namespace, "invalid", "InvalidAnnotation")
	edit(t, deployments, "invalid", func(o *appsv1.Deployment) { o.Annotations["configdep.io/settle"] = "1s" })
	view(t, namespace, "deployment.invalid", applied)
}

// told waits until there is an event about an object for a reason. There may be one more, because other tests run
// replicas without leader election.
func told(t *testing.T, namespace, name, reason string) {
	t.Helper()
	await.Until(t, "an event exists: "+reason, func(ctx context.Context) error {
		events, err := kube(t).CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=" + reason + ",involvedObject.name=" + name})
		if err == nil && len(events.Items) == 0 {
			err = errors.New("no event")
		}
		return err
	})
}

// Flags of the server set the defaults for annotations.
func TestDefaultsOfTheServer(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	create(t, kube(t).CoreV1().Secrets(namespace).Create, secret("db", map[string]string{"password": "x"}))
	create(t, kube(t).AppsV1().Deployments(namespace).Create, single("web", envFromSecret("db")))
	own := asleep("own", envFromSecret("db"))
	optedIn(own)
	create(t, kube(t).AppsV1().Deployments(namespace).Create, own)
	replica, err := server.StartExtra("defaults", install.ReplicaOptions{
		Args: []string{"--default-reload=matched", "--settle=7s", "--min-interval=8m"}, // this replica does not lead
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := replica.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	client := clientset(t, replica.AdminConfig()).ConfigdepV1alpha1().ConfigDependencies(namespace)
	for name, want := range map[string]string{"deployment.web": "Matched, by Default: 7s, 8m0s", "deployment.own": "Auto, by configdep.io/reload: 0s, 0s"} {
		await.Until(t, "the replica shows "+name, func(ctx context.Context) error {
			o, err := client.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			p := o.Spec.Reload
			if got := fmt.Sprintf("%s, by %s: %v, %v", p.Mode, p.DeclaredBy, p.Settle.Duration, p.MinInterval.Duration); got != want {
				return fmt.Errorf("%q, not %q", got, want)
			}
			return nil
		})
	}
	if err := replica.Terminate(); err != nil {
		t.Error(err)
	}
}

// The next run of a CronJob reads the current content without a restart, and a Job is only shown.
func TestCronJobsAndJobsAreNotRestarted(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	create(t, kube(t).CoreV1().Secrets(namespace).Create, secret("db", map[string]string{"password": "x"}))
	report, seed := cronJob("report", envFromSecret("db")), job("seed", envFromSecret("db"))
	optedIn(report)
	optedIn(seed)
	before := create(t, kube(t).BatchV1().CronJobs(namespace).Create, report)
	create(t, kube(t).BatchV1().Jobs(namespace).Create, seed)
	setSecret(t, namespace, "db", "password", "y")
	changed, err := kube(t).CoreV1().Secrets(namespace).Get(t.Context(), "db", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	view(t, namespace, "cronjob.report", at(isSecret, changed), is(v1alpha1.StateInSync, "NextRunReadsContent"))
	view(t, namespace, "job.seed", at(isSecret, changed), is(v1alpha1.StateUnmanaged, "KindNotReloaded"))
	after, err := kube(t).BatchV1().CronJobs(namespace).Get(t.Context(), "report", metav1.GetOptions{})
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
	secrets := kube(t).CoreV1().Secrets(install.Namespace)
	create(t, kube(t).CoreV1().Secrets(namespace).Create, secret("db", map[string]string{"password": "x"}))
	o := asleep("web", envFromSecret("db"))
	optedIn(o)
	create(t, kube(t).AppsV1().Deployments(namespace).Create, o)
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
	after := view(t, namespace, "deployment.web", applied, func(o *v1alpha1.ConfigDependency) error {
		if o.Status.ConfigHash == before.Status.ConfigHash {
			return errors.New("the hash has not changed")
		}
		return nil
	})
	now := getRollout(t, namespace, "Deployment", "web").template
	sameTemplate(t, "with another key", &template, &now)
	if after.Status.LastReload != nil {
		t.Errorf("lastReload = %+v", after.Status.LastReload)
	}

	// No replica was ready while they read everything again. kube-apiserver may have cached that for discovery,
	// which other tests use.
	await.Until(t, "the API is discovered", func(context.Context) error {
		_, resources, err := kube(t).Discovery().ServerGroupsAndResources()
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
	create(t, kube(t).CoreV1().Secrets(namespace).Create, secret("db", map[string]string{"password": "x"}))
	o := single("web", envFromSecret("db"))
	optedIn(o)
	create(t, kube(t).AppsV1().Deployments(namespace).Create, o)
	view(t, namespace, "deployment.web", applied)
	// Some restarts may be those of another replica, which a test runs without leader election.
	restarts := regexp.MustCompile(fmt.Sprintf(`\nconfigdep_rollouts_total\{kind="Deployment",namespace=%q,result="success",trigger="Secret"\} (\d+)`, namespace))
	changes := 0
	await.Until(t, "one replica leads, and has counted restarts", func(ctx context.Context) error {
		changes++
		changed := edit(t, kube(t).CoreV1().Secrets(namespace), "db", func(s *corev1.Secret) { s.Data["password"] = fmt.Append(nil, changes) })
		view(t, namespace, "deployment.web", applied, at(isSecret, changed))
		leaders, counted := 0, 0
		for _, replica := range server.Replicas {
			got, err := try(ctx, replica.AdminConfig(), request{path: "/metrics"})
			if err != nil || got.code != http.StatusOK {
				return fmt.Errorf("%s: %d, %w", replica.Name(), got.code, err)
			}
			text := string(got.body)
			for _, metric := range []string{"configdep_workloads{", "configdep_index_objects{", "configdep_ingest_last_progress_timestamp_seconds{", "configdep_rollout_patch_delay_seconds_bucket{"} {
				if !strings.Contains(text, "\n"+metric) {
					t.Fatalf("%s lacks the metric %s", replica.Name(), metric)
				}
			}
			leaders += strings.Count(text, "\nconfigdep_leader 1\n")
			for _, found := range restarts.FindAllStringSubmatch(text, -1) {
				n, err := strconv.Atoi(found[1])
				if err != nil {
					t.Fatal(err)
				}
				counted += n
			}
		}
		if counted > changes {
			t.Fatalf("%d restarts are counted for %d changes", counted, changes)
		}
		if leaders != 1 || counted == 0 {
			return fmt.Errorf("%d replicas lead, and have counted %d of %d restarts", leaders, counted, changes)
		}
		return nil
	})

	replica, err := server.StartExtra("json", install.ReplicaOptions{Args: []string{"--logging-format=json"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := replica.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := replica.Terminate(); err != nil {
		t.Error(err)
	}
	log, err := os.ReadFile(replica.Log())
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
