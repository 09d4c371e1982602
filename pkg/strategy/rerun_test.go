// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package strategy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/pkg/workload"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
)

const shop = "shop"

// jobsAPI is an API server that has Jobs, with UIDs and preconditions.
type jobsAPI struct {
	workload.Client

	t      *testing.T
	fake   *fake.Clientset
	writes []string // what was asked for, and not refused
	// refuse returns why a write is refused; nil: it is not.
	refuse func(write string) error
	// lose returns whether the server dies after a write, before it gets the answer.
	lose func(write string) bool
	made int
}

var errLost = errors.New("the server died")

func newJobsAPI(t *testing.T, objects ...runtime.Object) *jobsAPI {
	t.Helper()
	a := &jobsAPI{t: t, fake: fake.NewClientset(objects...), refuse: func(string) error { return nil }, lose: func(string) bool { return false }}
	a.Client = workloadtest.Client(a.fake)
	a.Kinds = kind.Table(nil).WithReruns()
	a.fake.PrependReactor("*", "jobs", func(action clienttesting.Action) (bool, runtime.Object, error) {
		var name string
		switch w := action.(type) {
		case clienttesting.CreateActionImpl:
			job := w.GetObject().(*batchv1.Job)
			if a.made++; job.UID == "" {
				job.UID = types.UID(fmt.Sprint("new-", a.made))
			}
			name = job.Name
		case clienttesting.DeleteActionImpl:
			name = w.GetName()
			if p := w.GetDeleteOptions().Preconditions; a.job(name) != nil {
				if job := a.job(name); p == nil || *p.UID != job.UID || p.ResourceVersion != nil && *p.ResourceVersion != job.ResourceVersion {
					return true, nil, apierrors.NewConflict(batchv1.Resource("jobs"), name, errors.New("the precondition failed"))
				}
			}
			if policy := w.GetDeleteOptions().PropagationPolicy; policy == nil || *policy != metav1.DeletePropagationBackground {
				t.Errorf("Job %s is deleted with propagation %v", name, policy)
			}
		case clienttesting.PatchActionImpl:
			name = w.GetName()
		default:
			return false, nil, nil
		}
		write := action.GetVerb() + " " + name
		if err := a.refuse(write); err != nil {
			return true, nil, err
		}
		a.writes = append(a.writes, write)
		if !a.lose(write) {
			return false, nil, nil
		}
		_, o, err := clienttesting.ObjectReaction(a.fake.Tracker())(action)
		if err != nil {
			return true, o, err
		}
		return true, nil, errLost
	})
	return a
}

// job returns a Job, or nil.
func (a *jobsAPI) job(name string) *batchv1.Job {
	a.t.Helper()
	o, err := a.fake.Tracker().Get(batchv1.SchemeGroupVersion.WithResource("jobs"), shop, name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return o.(*batchv1.Job)
}

func (a *jobsAPI) update(job *batchv1.Job) {
	a.t.Helper()
	if err := a.fake.Tracker().Update(batchv1.SchemeGroupVersion.WithResource("jobs"), job, shop); err != nil {
		a.t.Fatal(err)
	}
}

func (a *jobsAPI) names() (names []string) {
	a.t.Helper()
	list, err := a.fake.BatchV1().Jobs(shop).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return names
}

// took returns the writes since it was called last.
func (a *jobsAPI) took() []string {
	taken := a.writes
	a.writes = nil
	return taken
}

// read reads a workload as the index does.
func (a *jobsAPI) read(o kind.Object) *dependency.Workload {
	a.t.Helper()
	read, err := a.Kinds.OfObject(o).Read(o)
	if err != nil {
		a.t.Fatal(err)
	}
	return policy.Dialects(nil).ReadWorkload(read)
}

// next lets the controller continue with a Job, as it does when it has read it.
func (a *jobsAPI) next(name string) (Next, error) {
	a.t.Helper()
	w := a.read(a.job(name))
	if record.UnderWay(w) != record.Rerun {
		a.t.Fatalf("Job %s: nothing is under way", name)
	}
	return Of(record.Rerun).Continue(a.t.Context(), a.Client, &Restart{Workload: w, Memory: &Memory{}, Digester: digester})
}

// finish lets controllers continue with all Jobs until nothing is under way.
func (a *jobsAPI) finish() {
	a.t.Helper()
	for range 10 {
		done := true
		for _, name := range a.names() {
			if job := a.job(name); job != nil && record.UnderWay(a.read(job)) != nil {
				done = false
				if next, err := a.next(name); err != nil || next.Failed != "" {
					a.t.Fatal(next.Failed, err)
				}
			}
		}
		if done {
			return
		}
	}
	a.t.Fatalf("the Jobs %v are still being replaced", a.names())
}

// digester is that of all replicas.
var digester = dependency.NewDigester(make([]byte, dependency.KeySize))

// sealed returns the annotation of the copy that has the UID uid-copy.
func sealed(of record.Copy) string {
	return of.Sealed(digester, shop, "uid-copy").Text()
}

var copyName = record.CopyName("seed", "uid-seed")

// seed is a Job as the API server returns it, after the patch that begins its replacement.
func seed() *batchv1.Job {
	labels := map[string]string{
		"app": "seed", "controller-uid": "uid-seed", "batch.kubernetes.io/controller-uid": "uid-seed",
		"job-name": "seed", "batch.kubernetes.io/job-name": "seed",
	}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: shop, Name: "seed", UID: "uid-seed", ResourceVersion: "7", Generation: 3, CreationTimestamp: metav1.Now(),
			Finalizers: []string{"example.com/x"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
			Labels: map[string]string{"app": "seed", "job-name": "seed", "batch.kubernetes.io/controller-uid": "uid-seed"},
			Annotations: map[string]string{
				"reloader.stakater.com/auto": "true", "note": "x", record.ConfigHashAnnotation: "v1.k.b", record.AppliedSourcesAnnotation: "{}",
				record.LastReloadAnnotation: `{"time":"2026-03-01T12:00:00.000000Z"}`,
				record.RecreatingAnnotation: copyName, record.ReplacesAnnotation: "uid-before",
			},
		},
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32(4)), Suspend: new(false), TTLSecondsAfterFinished: new(int32(60)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"batch.kubernetes.io/controller-uid": "uid-seed"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}},
			},
		},
		Status: batchv1.JobStatus{Active: 1},
	}
}

// replaced is the Job that replaces it.
func replaced() *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: shop, Name: "seed", Labels: map[string]string{"app": "seed"},
			Annotations: map[string]string{
				"reloader.stakater.com/auto": "true", "note": "x", record.ConfigHashAnnotation: "v1.k.b", record.AppliedSourcesAnnotation: "{}",
				record.LastReloadAnnotation: `{"time":"2026-03-01T12:00:00.000000Z"}`, record.ReplacesAnnotation: "uid-seed",
			},
		},
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32(4)), Suspend: new(false), TTLSecondsAfterFinished: new(int32(60)),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "seed"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}},
			},
		},
	}
}

// fromServer ignores what the API server sets.
var fromServer = cmp.Options{cmpopts.IgnoreFields(metav1.ObjectMeta{}, "UID", "ResourceVersion", "ManagedFields"), cmpopts.IgnoreTypes(metav1.TypeMeta{})}

func (a *jobsAPI) checkReplaced() {
	a.t.Helper()
	if got := a.names(); !slices.Equal(got, []string{"seed"}) {
		a.t.Fatalf("Jobs = %v, want only seed", got)
	}
	if diff := cmp.Diff(replaced(), a.job("seed"), fromServer); diff != "" || a.job("seed").UID == "uid-seed" {
		a.t.Errorf("the new Job, with UID %s (-want +got):\n%s", a.job("seed").UID, diff)
	}
}

var allSteps = []string{"create " + copyName, "patch " + copyName, "delete seed", "patch " + copyName, "create seed", "delete " + copyName}

func TestRerun_ReplacesAJob(t *testing.T) {
	a := newJobsAPI(t, seed())
	var duplicate *batchv1.Job
	a.refuse = func(write string) error {
		if write == "delete seed" {
			duplicate = a.job(copyName)
		}
		return nil
	}
	if next, err := a.next("seed"); next != (Next{}) || err != nil {
		t.Fatalf("next = %+v, %v", next, err)
	}
	if diff := cmp.Diff(allSteps, a.took()); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	a.checkReplaced()
	of, is := record.ParseCopy(copyName, duplicate.Annotations[record.CopyAnnotation])
	want := record.Copy{Name: "seed", UID: "uid-seed", Generation: 3, Suspend: new(false), Deleting: true}.Sealed(digester, shop, duplicate.UID)
	if !is || !cmp.Equal(of, want) || !*duplicate.Spec.Suspend {
		t.Errorf("before the Job was deleted, its copy was suspended: %v, and said %+v, want %+v", *duplicate.Spec.Suspend, of, want)
	}
}

// The server dies after a step, or a step is refused. The next leader does each step once, and the Job is never lost.
func TestRerun_ContinuesAfterEachStep(t *testing.T) {
	for i, step := range allSteps {
		t.Run("the server dies after "+step, func(t *testing.T) {
			a := newJobsAPI(t, seed())
			a.lose = func(write string) bool { return write == step }
			if _, err := a.next("seed"); !errors.Is(err, errLost) {
				t.Fatalf("err = %v, want %v", err, errLost)
			}
			a.lose = func(string) bool { return false }
			a.finish()
			if diff := cmp.Diff(allSteps, a.took()); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			a.checkReplaced()
		})
		t.Run(step+" is refused", func(t *testing.T) {
			a := newJobsAPI(t, seed())
			quota := apierrors.NewForbidden(batchv1.Resource("jobs"), "", errors.New("exceeded quota"))
			a.refuse = func(write string) error {
				if write == step {
					return quota
				}
				return nil
			}
			for _, name := range []string{"seed", "seed", copyName} {
				if job := a.job(name); job == nil || record.UnderWay(a.read(job)) == nil {
					continue
				}
				if next, err := a.next(name); !apierrors.IsForbidden(err) && next.After == 0 {
					t.Errorf("Job %s: next = %+v, err = %v, want the refusal", name, next, err)
				}
				if a.job("seed") == nil && a.job(copyName) == nil {
					t.Fatal("the Job and its copy are gone")
				}
			}
			if i == 0 && a.job("seed").UID != "uid-seed" {
				t.Error("the Job was replaced without a copy")
			}
			a.refuse = func(string) error { return nil }
			a.finish()
			if diff := cmp.Diff(allSteps, slices.Compact(a.took())); diff != "" { // the copy says each time that it has not been created

				t.Errorf("steps (-want +got):\n%s", diff)
			}
			a.checkReplaced()
		})
	}
}

// A short Job is gone before the next leader looks, as its ttlSecondsAfterFinished is 0. It is not run twice for one change, but reported.
func TestRerun_IsCreatedOnce(t *testing.T) {
	const gone = "Job seed is gone, although it was created again from this copy, or was about to be. It is not created once more, because it may have run. If it has not, and is needed, create it again, then delete this copy."
	for name, tt := range map[string]struct {
		dies    string // the step after which the server dies
		nth     int
		refused string
	}{
		"the server dies after it was created": {dies: "create seed"},
		"the server dies before it is created": {dies: "patch " + copyName, nth: 1},
		"its copy cannot be deleted":           {refused: "delete " + copyName},
	} {
		t.Run(name, func(t *testing.T) {
			a := newJobsAPI(t, seed())
			n := 0
			a.lose = func(write string) bool {
				if write != tt.dies {
					return false
				}
				n++
				return n == tt.nth+1
			}
			a.refuse = func(write string) error {
				if write == tt.refused {
					return apierrors.NewForbidden(batchv1.Resource("jobs"), copyName, errors.New("denied"))
				}
				return nil
			}
			if _, err := a.next("seed"); err == nil {
				t.Fatal("no error")
			}
			if a.job("seed") != nil {
				if err := a.fake.Tracker().Delete(batchv1.SchemeGroupVersion.WithResource("jobs"), shop, "seed"); err != nil {
					t.Fatal(err)
				}
			}
			a.took()
			for range 2 {
				if next, err := a.next(copyName); next != (Next{Failed: gone}) || err != nil {
					t.Errorf("next = %+v, %v", next, err)
				}
			}
			if got := a.took(); len(got) > 0 || a.job(copyName) == nil {
				t.Errorf("steps = %q, want none, and the copy", got)
			}
		})
	}
}

// What others do while a Job is being replaced, after the copy has all that is needed.
func TestRerun_OthersInterfere(t *testing.T) {
	change := func(f func(*batchv1.Job)) func(*jobsAPI) {
		return func(a *jobsAPI) {
			job := a.job("seed").DeepCopy()
			f(job)
			a.update(job)
		}
	}
	remove := func(a *jobsAPI) {
		if err := a.fake.Tracker().Delete(batchv1.SchemeGroupVersion.WithResource("jobs"), shop, "seed"); err != nil {
			a.t.Fatal(err)
		}
	}
	another := func(a *jobsAPI) {
		if err := a.fake.Tracker().Add(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "seed", UID: "uid-other"}}); err != nil {
			a.t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		before string // the step that they come before
		do     func(*jobsAPI)
		from   string // the Job with which the controller continues
		steps  []string
		jobs   []string
		next   Next
	}{
		"the Job is deleted before its copy says so": {
			"patch " + copyName, remove, copyName, []string{"delete " + copyName}, nil, Next{},
		},
		"the Job is replaced by another client's": {
			"delete seed", func(a *jobsAPI) { remove(a); another(a) }, copyName,
			[]string{"delete " + copyName}, []string{"seed"},
			Next{Failed: "Job seed was not created again, because another client has created a Job with this name. Its copy is being deleted."},
		},
		"another client creates a Job of the name first": {
			"create seed", another, copyName, []string{"delete " + copyName}, []string{"seed"},
			Next{Failed: "Job seed was not created again, because another client has created a Job with this name. Its copy is being deleted."},
		},
		"the Job opts out": {
			"delete seed", change(func(j *batchv1.Job) { delete(j.Annotations, record.RecreatingAnnotation) }), copyName,
			[]string{"delete " + copyName}, []string{"seed"}, Next{},
		},
		"the Job waits for its finalizers": {
			"delete seed", change(func(j *batchv1.Job) { j.DeletionTimestamp = new(metav1.Now()) }), copyName,
			nil, []string{"seed", copyName}, Next{After: pause, Waits: "Job seed is being deleted"},
		},
		"the same, from the Job": {
			"delete seed", change(func(j *batchv1.Job) { j.DeletionTimestamp = new(metav1.Now()) }), "seed",
			nil, []string{"seed", copyName}, Next{After: pause, Waits: "Job seed is being deleted"},
		},
		"the copy leaves the Job to itself": {"delete seed", func(*jobsAPI) {}, copyName, nil, []string{"seed", copyName}, Next{After: pause}},
		"the Job is suspended": {
			"delete seed", change(func(j *batchv1.Job) { j.Spec.Suspend = new(true) }), "seed", nil, []string{"seed", copyName}, Next{After: soon},
		},
		"the Job gets an owner": {
			"delete seed", change(func(j *batchv1.Job) { j.OwnerReferences = []metav1.OwnerReference{{Name: "w"}} }), "seed",
			nil, []string{"seed", copyName}, Next{After: soon},
		},
		"the specification of the Job changes": {
			"delete seed", change(func(j *batchv1.Job) { j.Generation++ }), "seed", []string{"delete " + copyName}, []string{"seed"}, Next{After: soon},
		},
		"the copy is resumed": {
			"delete seed", func(a *jobsAPI) {
				duplicate := a.job(copyName).DeepCopy()
				duplicate.Spec.Suspend = new(false)
				a.update(duplicate)
			}, "seed", []string{"delete " + copyName}, []string{"seed"}, Next{After: soon},
		},
		"the specification of the copy changes": {
			"delete seed", func(a *jobsAPI) {
				duplicate := a.job(copyName).DeepCopy()
				duplicate.Spec.Template.Spec.Tolerations, duplicate.Generation = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, 2
				a.update(duplicate)
			}, "seed", []string{"delete " + copyName}, []string{"seed"}, Next{After: soon},
		},
		"the record of the Job changes": {
			"delete seed", change(func(j *batchv1.Job) { j.Annotations[record.ConfigHashAnnotation] = "v1.k.c" }), "seed",
			[]string{"patch " + copyName, "delete seed", "patch " + copyName, "create seed", "delete " + copyName}, []string{"seed"}, Next{},
		},
		"the copy is deleted": {
			"delete seed", func(a *jobsAPI) {
				if err := a.fake.Tracker().Delete(batchv1.SchemeGroupVersion.WithResource("jobs"), shop, copyName); err != nil {
					a.t.Fatal(err)
				}
			}, "seed", allSteps, []string{"seed"}, Next{},
		},
		"the copy is being deleted": {
			"delete seed", func(a *jobsAPI) {
				duplicate := a.job(copyName).DeepCopy()
				duplicate.DeletionTimestamp = new(metav1.Now())
				a.update(duplicate)
			}, "seed", nil, []string{"seed", copyName}, Next{After: soon},
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newJobsAPI(t, seed())
			stop := errors.New("stop")
			a.refuse = func(write string) error {
				if write == tt.before {
					return stop
				}
				return nil
			}
			if _, err := a.next("seed"); !errors.Is(err, stop) {
				t.Fatalf("err = %v, want %v", err, stop)
			}
			a.refuse = func(string) error { return nil }
			a.took()
			tt.do(a)
			next, err := a.next(tt.from)
			if err != nil || next != tt.next {
				t.Errorf("next = %+v, %v, want %+v", next, err, tt.next)
			}
			if diff := cmp.Diff(tt.steps, a.took(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			slices.Sort(tt.jobs)
			if diff := cmp.Diff(tt.jobs, a.names(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("Jobs (-want +got):\n%s", diff)
			}
		})
	}
}

// The Job changes between the read and the deletion: then it is not deleted.
func TestRerun_DeletesOnlyWhatWasCopied(t *testing.T) {
	a := newJobsAPI(t, seed())
	a.refuse = func(write string) error {
		if write == "patch "+copyName {
			job := a.job("seed").DeepCopy()
			job.ResourceVersion = "8"
			a.update(job)
		}
		return nil
	}
	if _, err := a.next("seed"); !apierrors.IsConflict(err) || a.job("seed").UID != "uid-seed" {
		t.Errorf("err = %v, want a conflict", err)
	}
}

// A Job whose name the copy should have is left alone, and so is the Job that would be replaced.
func TestRerun_NameOfTheCopyIsTaken(t *testing.T) {
	for name, taken := range map[string]map[string]string{
		"by a Job that is no copy": nil,
		"by an invalid copy":       {record.CopyAnnotation: record.Copy{Name: "seed", UID: "other"}.Text()},
	} {
		a := newJobsAPI(t, seed(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: copyName, UID: "uid-other", Annotations: taken}})
		if _, err := a.next("seed"); err == nil || !strings.Contains(err.Error(), "exists, and is no copy of Job seed") || len(a.took()) > 0 {
			t.Errorf("%s: err = %v", name, err)
		}
	}
}

// forgeries are what a user who may only create Jobs can create instead of the copy, with its name and annotation.
func forgeries() map[string]*batchv1.Job {
	out := map[string]*batchv1.Job{}
	for what, change := range map[string]func(*batchv1.Job, *record.Copy){
		"another image":           func(j *batchv1.Job, _ *record.Copy) { j.Spec.Template.Spec.Containers[0].Image = "other" },
		"another service account": func(j *batchv1.Job, _ *record.Copy) { j.Spec.Template.Spec.ServiceAccountName = "admin" },
		"other pod labels":        func(j *batchv1.Job, _ *record.Copy) { j.Spec.Template.Labels["app"] = "x" },
		"another field of a Job":  func(j *batchv1.Job, _ *record.Copy) { j.Spec.TTLSecondsAfterFinished = new(int32(1)) },
		"other labels":            func(j *batchv1.Job, _ *record.Copy) { j.Labels["app"] = "x" },
		"other labels to create":  func(j *batchv1.Job, _ *record.Copy) { j.Annotations[record.CopyLabelsAnnotation] = `{"app":"x"}` },
		"another annotation":      func(j *batchv1.Job, _ *record.Copy) { j.Annotations["reloader.stakater.com/auto"] = "false" },
		"an owner":                func(j *batchv1.Job, _ *record.Copy) { j.OwnerReferences = []metav1.OwnerReference{{Name: "x"}} },
		"a finalizer":             func(j *batchv1.Job, _ *record.Copy) { j.Finalizers = []string{"example.com/x"} },
		"a suspended Job":         func(_ *batchv1.Job, of *record.Copy) { of.Suspend = new(true) },
		"a seal of another copy": func(j *batchv1.Job, of *record.Copy) {
			j.Spec.Template.Spec.Containers[0].Image = "other"
			*of = of.Sealed(digester, shop, "uid-before")
		},
		"a deletion": func(j *batchv1.Job, of *record.Copy) {
			j.Spec.Template.Spec.Containers[0].Image = "other"
			of.Deleting = true
		},
	} {
		job := copyOf(seed())
		job.UID = "uid-forged"
		of := record.Copy{Name: "seed", UID: "uid-seed", Generation: 3, Suspend: new(false)}
		change(job, &of)
		job.Annotations[record.CopyAnnotation] = of.Text()
		out[what] = job
	}
	return out
}

// A Job that says that it is the copy, and is not, replaces nothing.
func TestRerun_ForgedCopy(t *testing.T) {
	for what, forged := range forgeries() {
		a := newJobsAPI(t, seed(), forged)
		if _, err := a.next("seed"); err == nil || !strings.Contains(err.Error(), "says that it is a copy of Job seed, but its content differs") || len(a.took()) > 0 {
			t.Errorf("%s: err = %v", what, err)
		}
		if job := a.job("seed"); job.UID != "uid-seed" || a.job(copyName).UID != "uid-forged" {
			t.Errorf("%s: the Job was replaced", what)
		}
	}
}

// The copy is resumed, or deleted, when it is being sealed: then the Job is not deleted.
func TestRerun_CopyChangesWhenItIsSealed(t *testing.T) {
	for what, change := range map[string]func(*batchv1.Job){
		"it is resumed": func(j *batchv1.Job) { j.Spec.Suspend = new(false) },
		"it is changed": func(j *batchv1.Job) { j.Generation = 2 },
		"it is deleted": func(j *batchv1.Job) { j.DeletionTimestamp = new(metav1.Now()) },
	} {
		a := newJobsAPI(t, seed())
		a.refuse = func(write string) error {
			if write == "patch "+copyName {
				duplicate := a.job(copyName).DeepCopy()
				change(duplicate)
				a.update(duplicate)
			}
			return nil
		}
		if next, err := a.next("seed"); err != nil || next != (Next{After: soon}) || !slices.Equal(a.took(), allSteps[:2]) || a.job("seed") == nil {
			t.Errorf("%s: next = %+v, %v, Jobs = %v", what, next, err, a.names())
		}
	}
}

// Once the Job is gone, it is created only from a copy with a seal, of that copy.
func TestRerun_CopyWithoutASeal(t *testing.T) {
	of := record.Copy{Name: "seed", UID: "uid-seed", Generation: 3, Deleting: true}
	other := dependency.NewDigester(slices.Repeat([]byte{1}, dependency.KeySize))
	later := of.Sealed(digester, shop, "uid-copy")
	later.Suspend = new(true)
	for what, value := range map[string]record.Copy{
		"none": of, "of another copy": of.Sealed(digester, shop, "uid-other"), "in another namespace": of.Sealed(digester, "other", "uid-copy"),
		"with another key": of.Sealed(other, shop, "uid-copy"), "of another text": later,
	} {
		duplicate := copyOf(seed())
		duplicate.UID = "uid-copy"
		duplicate.Annotations[record.CopyAnnotation] = value.Text()
		a := newJobsAPI(t, duplicate)
		next, err := a.next(copyName)
		if err != nil || !strings.Contains(next.Failed, "has not verified it") || len(a.took()) > 0 {
			t.Errorf("%s: next = %+v, %v", what, next, err)
		}
	}
}

// A controller that selects Jobs by labels does not see the copy. If another client resumes or changes the copy after the Job was deleted,
// the Job is not created from it: it would run twice, or where the user who may patch Jobs wants.
func TestRerun_CopyIsChanged(t *testing.T) {
	const queue = "kueue.x-k8s.io/queue-name"
	job := seed()
	job.Labels[queue] = "q"
	a := newJobsAPI(t, job)
	stop := apierrors.NewForbidden(batchv1.Resource("jobs"), "seed", errors.New("stop"))
	a.refuse = func(write string) error {
		if write == "create seed" {
			return stop
		}
		return nil
	}
	if _, err := a.next("seed"); !errors.Is(err, stop) {
		t.Fatalf("err = %v, want %v", err, stop)
	}
	a.refuse = func(string) error { return nil }
	a.took()
	duplicate := a.job(copyName).DeepCopy()
	if diff := cmp.Diff(map[string]string{"app.kubernetes.io/managed-by": "configdep"}, duplicate.Labels); diff != "" {
		t.Errorf("labels of the copy (-want +got):\n%s", diff)
	}
	resumed := duplicate.DeepCopy()
	resumed.Spec.Suspend = new(false)
	changed := duplicate.DeepCopy()
	changed.Spec.Template.Spec.NodeSelector, changed.Generation = map[string]string{"node-role.kubernetes.io/control-plane": ""}, 2
	for _, other := range []*batchv1.Job{resumed, changed} {
		a.update(other)
		if next, err := a.next(copyName); err != nil || !strings.Contains(next.Failed, "another client has changed or resumed it") || len(a.took()) > 0 {
			t.Errorf("next = %+v, %v", next, err)
		}
	}
	a.update(duplicate)
	a.finish()
	if created := a.job("seed"); created == nil || created.Labels[queue] != "q" || created.Labels["app"] != "seed" || created.Annotations[record.CopyLabelsAnnotation] != "" {
		t.Errorf("Job = %+v, want one with the labels of the first", created)
	}
}

func TestRerun_KeepsManualSelectors(t *testing.T) {
	job := seed()
	job.Spec.ManualSelector = new(true)
	out := copyOf(job)
	if diff := cmp.Diff(job.Spec.Selector, out.Spec.Selector); diff != "" || !strings.Contains(out.Annotations[record.CopyLabelsAnnotation], `"batch.kubernetes.io/controller-uid":"uid-seed"`) || !cmp.Equal(job.Spec.Template, out.Spec.Template) {
		t.Errorf("selector (-want +got):\n%s\nlabels = %v, template = %+v", diff, out.Labels, out.Spec.Template)
	}
	if bare := copyOf(&batchv1.Job{}); bare.Annotations[record.CopyAnnotation] == "" {
		t.Error("a Job without annotations has no copy")
	}
}

// The record of a run cannot be written: then no Job is created, which would be created again once it is gone. A Job that exists
// needs no trial.
func TestRerun_TriesTheRecordFirst(t *testing.T) {
	refused := apierrors.NewForbidden(batchv1.Resource("cronjobs"), "report", errors.New("a policy"))
	present := record.Record{Hash: "v1.k.b"}
	a := newJobsAPI(t, report())
	var tried int
	var answer error
	begin := func() error {
		_, err := Of(record.Rerun).Begin(t.Context(), a.Client, &Beginning{Workload: a.read(report()), Present: present, TryRecord: func(context.Context) error {
			if tried++; len(a.writes) > 0 {
				t.Errorf("before the record is tried, there were the writes %v", a.writes)
			}
			return answer
		}})
		return err
	}
	answer = refused
	if err := begin(); !apierrors.IsForbidden(err) || len(a.took()) > 0 || tried != 1 {
		t.Fatalf("err = %v, tried %d times, Jobs = %v, want a refusal and none", err, tried, a.names())
	}
	answer = nil
	if err := begin(); err != nil || len(a.took()) != 1 || tried != 2 {
		t.Fatalf("err = %v, tried %d times, Jobs = %v, want one", err, tried, a.names())
	}
	if err := begin(); err != nil || len(a.took()) > 0 || tried != 2 {
		t.Errorf("err = %v, tried %d times, Jobs = %v, want the same", err, tried, a.names())
	}
}

// Reads fail: nothing is written, and the error is that of the API server.
func TestRerun_ReadsFail(t *testing.T) {
	present := record.Record{Hash: "v1.k.b"}
	started := record.RunName(newJobsAPI(t).read(report()), present)
	complete := replaced()
	complete.Name, complete.UID, complete.Spec.Suspend = copyName, "uid-copy", new(true)
	complete.Annotations[record.CopyAnnotation] = record.Copy{Name: "seed", UID: "uid-seed", Generation: 3, Deleting: true}.Text()
	forbids := report()
	forbids.Spec.ConcurrencyPolicy = batchv1.ForbidConcurrent
	begin := func(a *jobsAPI) error {
		_, err := Of(record.Rerun).Begin(t.Context(), a.Client, &Beginning{Workload: a.read(forbids), Present: present})
		return err
	}
	from := func(o *batchv1.Job) func(*jobsAPI) error {
		return func(a *jobsAPI) error {
			_, err := Of(record.Rerun).Continue(t.Context(), a.Client, &Restart{Workload: a.read(o), Memory: &Memory{}, Digester: digester})
			return err
		}
	}
	for what, tt := range map[string]struct {
		verb, resource, name string
		do                   func(*jobsAPI) error
	}{
		"of the CronJob":             {"get", "cronjobs", "report", begin},
		"of its Job":                 {"get", "jobs", started, begin},
		"of its active Jobs":         {"list", "jobs", "", begin},
		"of the Job":                 {"get", "jobs", "seed", from(seed())},
		"of the copy":                {"get", "jobs", copyName, from(seed())},
		"of the copy, by itself":     {"get", "jobs", copyName, from(complete)},
		"of the Job, after its copy": {"get", "jobs", "seed", from(complete)},
	} {
		a := newJobsAPI(t, seed(), forbids.DeepCopy(), complete.DeepCopy())
		failed := apierrors.NewInternalError(errors.New("no"))
		a.fake.PrependReactor(tt.verb, tt.resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
			get, is := action.(clienttesting.GetAction)
			return !is || get.GetName() == tt.name, nil, failed
		})
		if err := tt.do(a); !apierrors.IsInternalError(err) || len(a.took()) > 0 {
			t.Errorf("%s: err = %v", what, err)
		}
	}
}

// What the index has read is not what exists.
func TestRerun_OthersExist(t *testing.T) {
	other := func(o *batchv1.Job) *batchv1.Job {
		o.UID = "uid-other"
		return o
	}
	complete := replaced()
	complete.Name, complete.UID, complete.Spec.Suspend = copyName, "uid-copy", new(true)
	complete.Annotations[record.CopyAnnotation] = sealed(record.Copy{Name: "seed", UID: "uid-seed", Generation: 3, Deleting: true})
	complete.Annotations[record.CopyLabelsAnnotation] = "{}"
	ending := complete.DeepCopy()
	ending.DeletionTimestamp = new(metav1.Now())
	unmarked := complete.DeepCopy()
	delete(unmarked.Annotations, record.CopyAnnotation)
	for what, tt := range map[string]struct {
		read, live *batchv1.Job
		refuse     error
		steps      []string
		next       Next
	}{
		"another Job of the name":               {read: seed(), live: other(seed())},
		"another copy of the name":              {read: complete, live: other(complete.DeepCopy())},
		"the copy is being deleted":             {read: complete, live: ending},
		"the copy is none any longer":           {read: complete, live: unmarked},
		"a Job was created a moment ago":        {read: complete, live: complete, refuse: apierrors.NewAlreadyExists(batchv1.Resource("jobs"), "seed"), steps: []string{"patch " + copyName}, next: Next{After: soon}},
		"the copy is complete, the Job deleted": {read: complete, live: complete, steps: []string{"patch " + copyName, "create seed", "delete " + copyName}},
	} {
		a := newJobsAPI(t, tt.live.DeepCopy())
		a.refuse = func(write string) error {
			if write == "create seed" {
				return tt.refuse
			}
			return nil
		}
		next, err := Of(record.Rerun).Continue(t.Context(), a.Client, &Restart{Workload: a.read(tt.read), Memory: &Memory{}, Digester: digester})
		if got := a.took(); err != nil || next != tt.next || !slices.Equal(got, tt.steps) {
			t.Errorf("%s: next = %+v, %v, steps = %v, want %+v, %v", what, next, err, got, tt.next, tt.steps)
		}
	}
}

// The deletion of a copy that is of no use any longer is refused.
func TestRerun_CopyCannotBeDeleted(t *testing.T) {
	refused := apierrors.NewForbidden(batchv1.Resource("jobs"), copyName, errors.New("no"))
	duplicate := func(deleting bool) *batchv1.Job {
		o := copyOf(seed())
		o.UID = "uid-copy"
		o.Annotations[record.CopyAnnotation] = record.Copy{Name: "seed", UID: "uid-seed", Generation: 2, Deleting: deleting}.Text()
		return o
	}
	for what, tt := range map[string]struct {
		from    string
		objects []runtime.Object
	}{
		"of another specification": {"seed", []runtime.Object{seed(), duplicate(false)}},
		"of a Job that is gone":    {copyName, []runtime.Object{duplicate(false)}},
		"of a name that is taken":  {copyName, []runtime.Object{duplicate(true), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "seed", UID: "uid-other"}}}},
	} {
		a := newJobsAPI(t, tt.objects...)
		a.refuse = func(string) error { return refused }
		if _, err := a.next(tt.from); !apierrors.IsForbidden(err) {
			t.Errorf("%s: err = %v", what, err)
		}
	}
}

// A copy is completed with the record of the Job, also with what that lacks.
func TestRerun_RecordOfTheCopy(t *testing.T) {
	job := seed()
	delete(job.Annotations, record.AppliedSourcesAnnotation)
	duplicate := copyOf(seed())
	duplicate.UID = "uid-copy"
	a := newJobsAPI(t, job, duplicate)
	if _, err := a.next("seed"); err != nil {
		t.Fatal(err)
	}
	if got, found := a.job("seed").Annotations[record.AppliedSourcesAnnotation]; found {
		t.Errorf("%s = %q, want none", record.AppliedSourcesAnnotation, got)
	}
}
