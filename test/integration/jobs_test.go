// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

// jobsShop has a ConfigMap, and a canary that reads it.
type jobsShop struct{ *shop }

func newJobsShop(t *testing.T) jobsShop {
	t.Helper()
	s := jobsShop{newShop(t)}
	s.write(config, "key", "1")
	s.createCanary(config)
	return s
}

func (s jobsShop) cronJob(name string, annotations map[string]string, change func(*batchv1.CronJobSpec)) {
	s.Helper()
	o := cronJob(name, optional(config))
	o.Annotations = annotations
	o.Spec.JobTemplate.ObjectMeta = metav1.ObjectMeta{Labels: map[string]string{"app": name}, Annotations: map[string]string{"note": "x"}}
	if change != nil {
		change(&o.Spec)
	}
	create(s.T, kube.BatchV1().CronJobs(s.namespace).Create, o)
}

func (s jobsShop) job(name string, annotations map[string]string) *batchv1.Job {
	s.Helper()
	o := job(name, optional(config))
	o.Annotations, o.Spec.BackoffLimit = annotations, new(int32(3))
	return create(s.T, kube.BatchV1().Jobs(s.namespace).Create, o)
}

// runs returns the names of the Jobs of a CronJob.
func (s jobsShop) runs(name string) (names []string) {
	s.Helper()
	list, err := kube.BatchV1().Jobs(s.namespace).List(s.Context(), metav1.ListOptions{})
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

func (s jobsShop) expectRuns(name string, want int) {
	s.Helper()
	if got := s.runs(name); len(got) != want {
		s.Errorf("CronJob %s has the Jobs %v, want %d", name, got, want)
	}
}

// A CronJob that asks for it gets one Job for each change, also if the change comes while no server runs. One that does not ask gets
// none, although the default of the server is to restart everything.
func TestCronJob_OneJobForEachChange(t *testing.T) {
	t.Parallel()
	s := jobsShop{newOwnShop(t)}
	r := s.serve(install.ReplicaOptions{Args: []string{"--auto-reload-all"}})
	s.write(config, "key", "1")
	s.createCanary(config)
	s.cronJob("report", map[string]string{autoReload: "true"}, nil)
	s.cronJob("other", nil, nil)
	s.cronJob("off", map[string]string{autoReload: "false"}, nil)
	s.view("cronjob.report", applied)

	written := s.write(config, "key", "2")
	s.seen(written)
	s.view("cronjob.report", applied, at(written), restartedFor(string(config)))
	s.told("CronJob", "report", "ConfigRestarted")
	s.expectRuns("report", 1)

	r.Kill()
	written = s.write(config, "key", "3")
	restart(t, r)
	s.seen(written)
	s.view("cronjob.report", applied, at(written), restartedFor(string(config)))
	s.expectRuns("report", 2)

	written = s.write(config, "key", "2") // which has been run before
	s.seen(written)
	s.view("cronjob.report", applied, at(written), restartedFor(string(config)))
	s.expectRuns("report", 3)
	s.expectRuns("other", 0)
	s.expectRuns("off", 0)
}

// A run of a CronJob that forbids two at once is waited for.
func TestCronJob_WaitsForTheActiveRun(t *testing.T) {
	t.Parallel()
	s := newJobsShop(t)
	s.cronJob("report", map[string]string{autoReload: "true"}, func(o *batchv1.CronJobSpec) {
		o.ConcurrencyPolicy = batchv1.ForbidConcurrent
		o.JobTemplate.Spec.Suspend = new(true) // so that its Jobs stay active
	})
	s.view("cronjob.report", applied)
	written := s.write(config, "key", "2")
	s.view("cronjob.report", applied, at(written), restartedFor(string(config)))
	first := s.runs("report")
	written = s.write(config, "key", "3")
	s.seen(written)
	s.view("cronjob.report", is(v1alpha1.StatePending, "SourceChanged"), at(written))
	s.expectRuns("report", 1)
	if err := kube.BatchV1().Jobs(s.namespace).Delete(t.Context(), first[0], metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}); err != nil {
		t.Fatal(err)
	}
	s.view("cronjob.report", applied, at(written))
	if second := s.runs("report"); len(second) != 1 || slices.Equal(first, second) {
		t.Errorf("Jobs = %v, want another than %v", second, first)
	}
}

// replaced waits until a Job has been replaced, and returns the new one.
func (s jobsShop) replaced(before *batchv1.Job) *batchv1.Job {
	s.Helper()
	var job *batchv1.Job
	await.Until(s.T, "Job "+before.Name+" is replaced", func(ctx context.Context) (err error) {
		if job, err = kube.BatchV1().Jobs(s.namespace).Get(ctx, before.Name, metav1.GetOptions{}); err != nil {
			return err
		}
		if job.UID == before.UID {
			return errors.New("it is the same")
		}
		list, err := kube.BatchV1().Jobs(s.namespace).List(ctx, metav1.ListOptions{})
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
	s := newJobsShop(t)
	seed, other := s.job("seed", map[string]string{autoReload: "true"}), s.job("other", nil)
	s.view("job.seed", applied)
	for _, value := range []string{"2", "3", "2"} {
		written := s.write(config, "key", value)
		s.seen(written)
		seed = s.replaced(seed)
		s.view("job.seed", applied, at(written), restartedFor(string(config)))
	}
	s.told("Job", "seed", "ConfigRestarted")
	now, err := kube.BatchV1().Jobs(s.namespace).Get(t.Context(), "other", metav1.GetOptions{})
	if err != nil || now.UID != other.UID {
		t.Errorf("Job other has been replaced (%v)", err)
	}
	if now, err = kube.BatchV1().Jobs(s.namespace).Get(t.Context(), "seed", metav1.GetOptions{}); err != nil || now.UID != seed.UID {
		t.Errorf("Job seed has been replaced again (%v)", err)
	}
}

// A user who may only patch Jobs changes the copy, of which the API server allows more than of a Job that runs: the Job is not created
// from it.
func TestJob_CopyIsChanged(t *testing.T) {
	t.Parallel()
	s := newJobsShop(t)
	seed := s.job("seed", map[string]string{autoReload: "true"})
	s.view("job.seed", applied)
	jobs := kube.BatchV1().Jobs(s.namespace)
	patch := func(name, data string) {
		t.Helper()
		if _, err := jobs.Patch(t.Context(), name, types.MergePatchType, []byte(data), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	patch("seed", `{"metadata":{"finalizers":["example.com/hold"]}}`)
	s.write(config, "key", "2")
	await.Until(t, "the Job is being deleted", func(ctx context.Context) error {
		now, err := jobs.Get(ctx, "seed", metav1.GetOptions{})
		if err != nil || now.DeletionTimestamp == nil {
			return errors.Join(err, errors.New("it is not"))
		}
		return nil
	})
	name := record.CopyName("seed", seed.UID)
	patch(name, `{"spec":{"template":{"spec":{"tolerations":[{"operator":"Exists"}]}}}}`)
	patch("seed", `{"metadata":{"finalizers":null}}`)
	if message := s.told("Job", name, "ConfigRestartFailed")[0]; !strings.Contains(message, "another client has changed or resumed it") {
		t.Errorf("message = %s", message)
	}
	if _, err := jobs.Get(t.Context(), "seed", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Job seed has been created from the copy (%v)", err)
	}
}

// The server may delete no Job that it is not replacing, and create none but those that replace one.
func TestJobs_OfOthersAreProtected(t *testing.T) {
	t.Parallel()
	s := newJobsShop(t)
	s.job("other", nil)
	own, err := kubernetes.NewForConfig(impersonate(serverAccount))
	if err != nil {
		t.Fatal(err)
	}
	if err := own.BatchV1().Jobs(s.namespace).Delete(t.Context(), "other", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("deleting another Job: %v", err)
	}
	if _, err := own.BatchV1().Jobs(s.namespace).Create(t.Context(), job("mine"), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("creating another Job: %v", err)
	}
	if _, err := own.BatchV1().Jobs(s.namespace).Patch(t.Context(), "other", types.MergePatchType, []byte(`{"spec":{"parallelism":2}}`), metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("patching another Job: %v", err)
	}
	if _, err := kube.BatchV1().Jobs(s.namespace).Get(t.Context(), "other", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}
