// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/test/await"
)

const auto = "reloader.stakater.com/auto"

// shop is a namespace with a ConfigMap config, and a Deployment that reads it. Once this is restarted, the server has seen a change
// of the ConfigMap.
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
	s := &shop{t, made.Name}
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "config"}, Data: map[string]string{"key": "1"}}
	if _, err := client.CoreV1().ConfigMaps(s.namespace).Create(t.Context(), config, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	template := podTemplate()
	template.Labels = map[string]string{"app": "canary"}
	template.Spec.RestartPolicy = ""
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "canary"},
		Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template},
	}
	if _, err := client.AppsV1().Deployments(s.namespace).Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.view("deployment.canary", inSync)
	return s
}

func podTemplate() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64(1)), AutomountServiceAccountToken: new(false),
		Containers: []corev1.Container{{Name: "app", Image: "app", EnvFrom: []corev1.EnvFromSource{{
			ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "config"}},
		}}}},
	}}
}

// write gives the ConfigMap another content, and returns its version.
func (s *shop) write(value string) string {
	s.Helper()
	data, err := json.Marshal(map[string]any{"data": map[string]string{"key": value}})
	if err != nil {
		s.Fatal(err)
	}
	made, err := client.CoreV1().ConfigMaps(s.namespace).Patch(s.Context(), "config", types.MergePatchType, data, metav1.PatchOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return made.ResourceVersion
}

// seen waits until the canary has been restarted with a version of the ConfigMap.
func (s *shop) seen(version string) {
	s.Helper()
	s.view("deployment.canary", inSync, at(version))
}

func (s *shop) cronJob(name string, annotations map[string]string, change func(*batchv1.CronJobSpec)) {
	s.Helper()
	o := &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec: batchv1.CronJobSpec{Schedule: "0 0 29 2 *", JobTemplate: batchv1.JobTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}, Annotations: map[string]string{"note": "x"}},
			Spec:       batchv1.JobSpec{Template: podTemplate()},
		}},
	}
	if change != nil {
		change(&o.Spec)
	}
	if _, err := client.BatchV1().CronJobs(s.namespace).Create(s.Context(), o, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
}

func (s *shop) job(name string, annotations map[string]string) *batchv1.Job {
	s.Helper()
	made, err := client.BatchV1().Jobs(s.namespace).Create(s.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Spec: batchv1.JobSpec{BackoffLimit: new(int32(3)), Template: podTemplate()},
	}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return made
}

// runs returns the names of the Jobs of a CronJob.
func (s *shop) runs(name string) (names []string) {
	s.Helper()
	list, err := client.BatchV1().Jobs(s.namespace).List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	for i := range list.Items {
		job := &list.Items[i]
		if owner := metav1.GetControllerOf(job); owner == nil || owner.Kind != "CronJob" || owner.Name != name {
			continue
		}
		names = append(names, job.Name)
		if job.Annotations["cronjob.kubernetes.io/instantiate"] != "manual" || job.Annotations["note"] != "x" || job.Labels["app"] != name {
			s.Errorf("Job %s: annotations = %v, labels = %v, want what kubectl create job --from creates", job.Name, job.Annotations, job.Labels)
		}
	}
	return names
}

func (s *shop) expectRuns(name string, want int) {
	s.Helper()
	if got := s.runs(name); len(got) != want {
		s.Errorf("CronJob %s has the Jobs %v, want %d", name, got, want)
	}
}

// view waits until the API shows a workload in a way that passes all checks.
func (s *shop) view(name string, checks ...func(*v1alpha1.ConfigDependency) error) {
	s.Helper()
	await.Passes(s.T, name+" is shown as expected", func(ctx context.Context) (*v1alpha1.ConfigDependency, error) {
		return api.ConfigdepV1alpha1().ConfigDependencies(s.namespace).Get(ctx, name, metav1.GetOptions{})
	}, checks...)
}

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

// at checks that the ConfigMap is shown at a version.
func at(version string) func(*v1alpha1.ConfigDependency) error {
	return func(o *v1alpha1.ConfigDependency) error {
		for i := range o.Status.Sources {
			if x := &o.Status.Sources[i]; x.Name == "config" && x.ResourceVersion == version {
				return nil
			}
		}
		return fmt.Errorf("sources = %+v, want ConfigMap config at %s", o.Status.Sources, version)
	}
}

func restarted(o *v1alpha1.ConfigDependency) error {
	if last := o.Status.LastReload; last == nil || last.Trigger != "ConfigMap/config" {
		return fmt.Errorf("lastReload = %+v, want the trigger ConfigMap/config", last)
	}
	return nil
}

// event waits until there is an event about a workload.
func (s *shop) event(kind, name, reason string) {
	s.Helper()
	await.Until(s.T, "there is an event "+reason+" about "+kind+" "+name, func(ctx context.Context) error {
		list, err := client.CoreV1().Events(s.namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=" + reason})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if o := list.Items[i].InvolvedObject; o.Kind == kind && o.Name == name {
				return nil
			}
		}
		return fmt.Errorf("%d other events", len(list.Items))
	})
}

// A CronJob that asks for it gets one Job for each change, also if the change comes while no server runs, or the leader dies. One
// that does not ask gets none, although the default of the server is to restart everything.
func TestCronJob_OneJobForEachChange(t *testing.T) {
	// This test does not run in parallel, because it stops the servers.
	s := newShop(t)
	s.cronJob("report", map[string]string{auto: "true"}, nil)
	s.cronJob("other", nil, nil)
	s.cronJob("off", map[string]string{auto: "false"}, nil)
	s.view("cronjob.report", inSync)

	version := s.write("2")
	s.seen(version)
	s.view("cronjob.report", inSync, at(version), restarted)
	s.event("CronJob", "report", "ConfigReloaded")
	s.expectRuns("report", 1)

	for _, r := range server.Replicas {
		r.Kill()
	}
	version = s.write("3")
	for _, r := range server.Replicas {
		if err := errors.Join(r.Start(), r.AwaitReady(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	s.seen(version)
	s.view("cronjob.report", inSync, at(version), restarted)
	s.expectRuns("report", 2)

	version = s.write("2") // which has been run before
	server.Replicas[0].Kill()
	s.seen(version)
	s.view("cronjob.report", inSync, at(version), restarted)
	if err := errors.Join(server.Replicas[0].Start(), server.Replicas[0].AwaitReady(t.Context())); err != nil {
		t.Fatal(err)
	}
	s.expectRuns("report", 3)
	s.expectRuns("other", 0)
	s.expectRuns("off", 0)
}

func TestCronJob_Suspended(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.cronJob("report", map[string]string{auto: "true"}, func(o *batchv1.CronJobSpec) { o.Suspend = new(true) })
	recorded := func(o *v1alpha1.ConfigDependency) error {
		if o.Status.AppliedHash != o.Status.ConfigHash {
			return errors.New("the content has not been recorded")
		}
		return state(v1alpha1.StateInSync, "Suspended")(o)
	}
	s.view("cronjob.report", recorded)
	version := s.write("2")
	s.seen(version)
	s.view("cronjob.report", recorded, at(version))
	if _, err := client.BatchV1().CronJobs(s.namespace).Patch(t.Context(), "report", types.MergePatchType, []byte(`{"spec":{"suspend":false}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.view("cronjob.report", state(v1alpha1.StateInSync, "ContentApplied"))
	s.expectRuns("report", 0)
	version = s.write("3")
	s.seen(version)
	s.view("cronjob.report", inSync, at(version), restarted)
	s.expectRuns("report", 1)
}

// A run of a CronJob that forbids two at once is waited for.
func TestCronJob_WaitsForTheActiveRun(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.cronJob("report", map[string]string{auto: "true"}, func(o *batchv1.CronJobSpec) {
		o.ConcurrencyPolicy = batchv1.ForbidConcurrent
		o.JobTemplate.Spec.Suspend = new(true) // so that its Jobs stay active
	})
	s.view("cronjob.report", inSync)
	version := s.write("2")
	s.view("cronjob.report", inSync, at(version), restarted)
	first := s.runs("report")
	version = s.write("3")
	s.seen(version)
	s.view("cronjob.report", state(v1alpha1.StatePending, "SourceChanged"), at(version))
	s.expectRuns("report", 1)
	if err := client.BatchV1().Jobs(s.namespace).Delete(t.Context(), first[0], metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}); err != nil {
		t.Fatal(err)
	}
	s.view("cronjob.report", inSync, at(version))
	if second := s.runs("report"); len(second) != 1 || slices.Equal(first, second) {
		t.Errorf("Jobs = %v, want another than %v", second, first)
	}
}

// replaced waits until a Job has been replaced, and returns the new one.
func (s *shop) replaced(before *batchv1.Job) *batchv1.Job {
	s.Helper()
	var job *batchv1.Job
	await.Until(s.T, "Job "+before.Name+" is replaced", func(ctx context.Context) (err error) {
		if job, err = client.BatchV1().Jobs(s.namespace).Get(ctx, before.Name, metav1.GetOptions{}); err != nil {
			return err
		}
		if job.UID == before.UID {
			return errors.New("it is the same")
		}
		list, err := client.BatchV1().Jobs(s.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if list.Items[i].Annotations["configdep.io/copy-of"] != "" {
				return errors.New("the copy exists")
			}
		}
		return nil
	})
	want, got := before.Spec.DeepCopy(), job.Spec.DeepCopy()
	for _, spec := range []*batchv1.JobSpec{want, got} {
		spec.Selector, spec.Template.Labels = nil, nil // of the API server, because they have others
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.Errorf("the specification of the new Job (-want +got):\n%s", diff)
	}
	return job
}

func TestJob_IsReplaced(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	seed, other := s.job("seed", map[string]string{auto: "true"}), s.job("other", nil)
	s.view("job.seed", inSync)
	for _, value := range []string{"2", "3", "2"} {
		version := s.write(value)
		s.seen(version)
		seed = s.replaced(seed)
		s.view("job.seed", inSync, at(version), restarted)
	}
	s.event("Job", "seed", "ConfigReloaded")
	now, err := client.BatchV1().Jobs(s.namespace).Get(t.Context(), "other", metav1.GetOptions{})
	if err != nil || now.UID != other.UID {
		t.Errorf("Job other has been replaced (%v)", err)
	}
	if now, err = client.BatchV1().Jobs(s.namespace).Get(t.Context(), "seed", metav1.GetOptions{}); err != nil || now.UID != seed.UID {
		t.Errorf("Job seed has been replaced again (%v)", err)
	}
}

// A quota that allows no other Job keeps the Job from being replaced, and does not cost it.
func TestJob_QuotaIsExceeded(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	seed := s.job("seed", map[string]string{auto: "true"})
	s.view("job.seed", inSync)
	const counted = corev1.ResourceName("count/jobs.batch")
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "jobs"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{counted: resource.MustParse("1")}}}
	if _, err := client.CoreV1().ResourceQuotas(s.namespace).Create(t.Context(), quota, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the quota counts the Job", func(ctx context.Context) error {
		o, err := client.CoreV1().ResourceQuotas(s.namespace).Get(ctx, "jobs", metav1.GetOptions{})
		if used := o.Status.Used[counted]; err != nil || used.Value() != 1 {
			return errors.Join(err, errors.New("not yet"))
		}
		return nil
	})
	version := s.write("2")
	s.seen(version)
	s.event("Job", "seed", "ConfigReloadFailed")
	s.view("job.seed", state(v1alpha1.StateRollingOut, "Replacing"))
	if now, err := client.BatchV1().Jobs(s.namespace).Get(t.Context(), "seed", metav1.GetOptions{}); err != nil || now.UID != seed.UID {
		t.Fatalf("Job seed has been replaced (%v)", err)
	}
	if _, err := client.CoreV1().ResourceQuotas(s.namespace).Patch(t.Context(), "jobs", types.MergePatchType, []byte(`{"spec":{"hard":{"count/jobs.batch":"2"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.replaced(seed)
	s.view("job.seed", inSync, at(version), restarted)
}

// The server may delete no Job that it is not replacing, and create none but those that replace one.
func TestJobs_OfOthersAreProtected(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.job("other", nil)
	config := *cluster.RESTConfig()
	config.Impersonate.UserName = "system:serviceaccount:configdep-system:configdep-apiserver"
	own, err := kubernetes.NewForConfig(&config)
	if err != nil {
		t.Fatal(err)
	}
	if err := own.BatchV1().Jobs(s.namespace).Delete(t.Context(), "other", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("deleting another Job: %v", err)
	}
	if _, err := own.BatchV1().Jobs(s.namespace).Create(t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: batchv1.JobSpec{Template: podTemplate()},
	}, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("creating another Job: %v", err)
	}
	if _, err := own.BatchV1().Jobs(s.namespace).Patch(t.Context(), "other", types.MergePatchType, []byte(`{"spec":{"parallelism":2}}`), metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("patching another Job: %v", err)
	}
	if _, err := client.BatchV1().Jobs(s.namespace).Get(t.Context(), "other", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}
