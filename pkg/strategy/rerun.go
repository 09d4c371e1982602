// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package strategy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	batchv1client "k8s.io/client-go/kubernetes/typed/batch/v1"
	"k8s.io/utils/ptr"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/pkg/workload"
)

// rerun starts a Job of a CronJob, or replaces a Job; policy.Rerun has the steps. Each step reads the objects, so that any
// leader can take the next one, and two of them do nothing twice.
type rerun struct{}

// instantiate is the annotation by which kubectl create job --from tells a Job that no schedule has started.
const instantiate = "cronjob.kubernetes.io/instantiate"

// Begin implements Effects: it starts the Job of a CronJob, unless that exists.
func (rerun) Begin(ctx context.Context, client workload.Client, b *Beginning) (Next, error) {
	if !b.Recurring {
		return Next{}, nil
	}
	of, err := client.BatchV1().CronJobs(b.Namespace).Get(ctx, b.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return Next{}, err
	case of.UID != b.UID || of.ResourceVersion != b.ResourceVersion:
		return Next{}, apierrors.NewConflict(batchv1.Resource("cronjobs"), b.Name, errors.New("it has changed since it was read"))
	}
	jobs, name := client.BatchV1().Jobs(b.Namespace), record.RunName(b.Workload, b.Present)
	if started, err := isRun(ctx, jobs, name, of); err != nil || started {
		return Next{}, err
	}
	if !kind.MayRunTwice(of) {
		active, err := workload.Active(ctx, client, b.Workload)
		if err != nil {
			return Next{}, fmt.Errorf("looking for the active Jobs of CronJob %s/%s: %w", b.Namespace, b.Name, err)
		}
		if len(active) > 0 {
			return Next{After: pause, Waits: "a run is active, and the concurrencyPolicy is not Allow"}, nil
		}
	}
	// If the record were refused after the Job is created, the Job would be created again once it has finished and been removed.
	if b.TryRecord != nil {
		if err := b.TryRecord(ctx); err != nil {
			return Next{}, fmt.Errorf("trying to record the run on CronJob %s/%s, before Job %s is created: %w", b.Namespace, b.Name, name, err)
		}
	}
	_, err = jobs.Create(ctx, runOf(of, name), metav1.CreateOptions{FieldManager: record.FieldManager})
	switch {
	case apierrors.IsAlreadyExists(err): // since it was looked for
		return Next{After: soon, Waits: "Job " + name + " has just been created"}, nil
	case err != nil:
		return Next{}, fmt.Errorf("creating Job %s/%s: %w", b.Namespace, name, err)
	}
	return Next{}, nil
}

// isRun reports whether a Job exists and is a run of a CronJob. It is an error if it is none.
func isRun(ctx context.Context, jobs batchv1client.JobInterface, name string, of *batchv1.CronJob) (bool, error) {
	job, err := jobs.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("looking for Job %s/%s: %w", of.Namespace, name, err)
	case !metav1.IsControlledBy(job, of):
		return false, fmt.Errorf("job %s/%s exists, and is not of CronJob %s", of.Namespace, name, of.Name)
	}
	return true, nil
}

// runOf returns what kubectl create job --from creates.
func runOf(of *batchv1.CronJob, name string) *batchv1.Job {
	template := of.Spec.JobTemplate.DeepCopy()
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: of.Namespace, Name: name, Labels: template.Labels, Annotations: map[string]string{instantiate: "manual"},
			// Without BlockOwnerDeletion, which needs the right to update the finalizers of CronJobs.
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: batchv1.SchemeGroupVersion.String(), Kind: string(kind.CronJob), Name: of.Name, UID: of.UID, Controller: new(true),
			}},
		},
		Spec: template.Spec,
	}
	maps.Copy(job.Annotations, template.Annotations)
	return job
}

// Continue implements Effects: it takes all steps that are possible now, from the Job or from its copy.
func (rerun) Continue(ctx context.Context, client workload.Client, r *Restart) (Next, error) {
	p := replacement{client.BatchV1().Jobs(r.Namespace), r.Digester}
	if _, is := record.CopyOf(r.Workload); is {
		return p.fromCopy(ctx, r.Name, r.UID)
	}
	return p.fromJob(ctx, r)
}

// replacement replaces a Job.
type replacement struct {
	jobs     batchv1client.JobInterface
	digester *dependency.Digester
}

// soon is how long to wait for what is under way.
const soon = time.Second

// fromJob takes the steps until the Job is deleted.
func (p replacement) fromJob(ctx context.Context, r *Restart) (Next, error) {
	job, err := p.get(ctx, r.Name)
	name := record.CopyName(r.Name, r.UID)
	switch {
	case err != nil:
		return Next{}, err
	case job == nil || job.UID != r.UID:
		return Next{}, nil // the rest is up to the copy
	case job.DeletionTimestamp != nil:
		return Next{After: pause, Waits: "Job " + job.Name + " is being deleted"}, nil
	case job.Annotations[record.RecreatingAnnotation] != name || ptr.Deref(job.Spec.Suspend, false) || len(job.OwnerReferences) > 0:
		return Next{After: soon}, nil // the index is about to tell
	}
	duplicate, err := p.get(ctx, name)
	created := err == nil && duplicate == nil
	if created {
		duplicate, err = p.jobs.Create(ctx, copyOf(job), metav1.CreateOptions{FieldManager: record.FieldManager})
		if err != nil {
			err = fmt.Errorf("creating Job %s/%s, a copy: %w", job.Namespace, name, err)
		}
	}
	if err != nil {
		return Next{}, err
	}
	of, is := record.ParseCopy(duplicate.Name, duplicate.Annotations[record.CopyAnnotation])
	switch {
	case !is || of.UID != job.UID:
		return Next{}, fmt.Errorf("job %s/%s exists, and is no copy of Job %s", duplicate.Namespace, name, job.Name)
	case duplicate.DeletionTimestamp != nil:
		return Next{After: soon}, nil
	case of.Generation != job.Generation || !isIntact(duplicate): // it is of another specification
		return Next{After: soon}, p.delete(ctx, duplicate)
	case !created && !of.IsSealed(p.digester, duplicate.Namespace, duplicate.UID) && !isCopy(duplicate, job):
		return Next{}, fmt.Errorf("job %s/%s says that it is a copy of Job %s, but its content differs: delete it, unless it is needed",
			duplicate.Namespace, name, job.Name)
	}
	if duplicate, err = p.complete(ctx, duplicate, of, job); err != nil {
		return Next{}, err
	}
	if duplicate.DeletionTimestamp != nil || !isIntact(duplicate) { // since it was read
		return Next{After: soon}, nil
	}
	// The version excludes that the Job has changed since it was copied.
	err = p.jobs.Delete(ctx, job.Name, metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationBackground),
		Preconditions:     &metav1.Preconditions{UID: &job.UID, ResourceVersion: &job.ResourceVersion},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return Next{}, fmt.Errorf("deleting Job %s/%s: %w", job.Namespace, job.Name, err)
	}
	return p.fromCopy(ctx, duplicate.Name, duplicate.UID)
}

// ofRecord are the annotations of a Job that record with which content it was started.
var ofRecord = []string{record.ConfigHashAnnotation, record.AppliedSourcesAnnotation, record.LastReloadAnnotation}

// complete notes on the copy all that the new Job is created from, and that the Job is to be deleted.
func (p replacement) complete(ctx context.Context, duplicate *batchv1.Job, of record.Copy, job *batchv1.Job) (*batchv1.Job, error) {
	of.Deleting = true
	of = of.Sealed(p.digester, duplicate.Namespace, duplicate.UID)
	annotations := map[string]any{record.CopyAnnotation: of.Text()}
	same := duplicate.Annotations[record.CopyAnnotation] == of.Text()
	for _, key := range ofRecord {
		annotations[key] = nil
		if value, found := job.Annotations[key]; found {
			annotations[key] = value
		}
		same = same && duplicate.Annotations[key] == job.Annotations[key]
	}
	if same {
		return duplicate, nil
	}
	return p.annotate(ctx, duplicate, annotations)
}

// annotate writes annotations of a copy.
func (p replacement) annotate(ctx context.Context, duplicate *batchv1.Job, annotations map[string]any) (*batchv1.Job, error) {
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": duplicate.UID, "annotations": annotations, // in any version: its status changes as soon as it is created
	}})
	if err != nil {
		return nil, err
	}
	patched, err := p.jobs.Patch(ctx, duplicate.Name, types.MergePatchType, data, metav1.PatchOptions{FieldManager: record.FieldManager})
	if err != nil {
		return nil, fmt.Errorf("writing annotations of Job %s/%s, a copy: %w", duplicate.Namespace, duplicate.Name, err)
	}
	return patched, nil
}

// noteCreation notes on a copy whether the Job is to be created again, before it is.
func (p replacement) noteCreation(ctx context.Context, duplicate *batchv1.Job, of record.Copy, creating bool) error {
	of.Creating = creating
	_, err := p.annotate(ctx, duplicate, map[string]any{record.CopyAnnotation: of.Sealed(p.digester, duplicate.Namespace, duplicate.UID).Text()})
	return err
}

// fromCopy takes the steps after the Job was deleted.
func (p replacement) fromCopy(ctx context.Context, name string, uid types.UID) (Next, error) {
	duplicate, err := p.get(ctx, name)
	if err != nil || duplicate == nil || duplicate.UID != uid || duplicate.DeletionTimestamp != nil {
		return Next{}, err
	}
	of, is := record.ParseCopy(duplicate.Name, duplicate.Annotations[record.CopyAnnotation])
	if !is {
		return Next{}, nil
	}
	job, err := p.get(ctx, of.Name)
	switch {
	case err != nil:
		return Next{}, err
	case job == nil && of.Deleting && !of.IsSealed(p.digester, duplicate.Namespace, duplicate.UID):
		return Next{Failed: fmt.Sprintf("Job %s was not created from this copy, because configdep has not verified it. If the Job is needed, create it again, then delete this copy.", of.Name)}, nil
	case job == nil && of.Deleting && !isIntact(duplicate): // its pods may run, or the Job would not be the one that was deleted
		return Next{Failed: fmt.Sprintf("Job %s was not created from this copy, because another client has changed or resumed it. If the Job is needed, create it again, then delete this copy.", of.Name)}, nil
	case job == nil && of.Creating:
		return Next{Failed: fmt.Sprintf("Job %s is gone, although it was created again from this copy, or was about to be. It is not created once more, because it may have run. If it has not, and is needed, create it again, then delete this copy.", of.Name)}, nil
	case job == nil && of.Deleting:
		out, err := replacementOf(duplicate, of)
		if err != nil {
			return Next{}, err
		}
		if err := p.noteCreation(ctx, duplicate, of, true); err != nil {
			return Next{}, err
		}
		_, err = p.jobs.Create(ctx, out, metav1.CreateOptions{FieldManager: record.FieldManager})
		switch {
		case apierrors.IsAlreadyExists(err): // since it was looked for
			return Next{After: soon}, nil
		case workload.Refuses(err): // so that it does not exist, and is tried again
			return Next{}, errors.Join(fmt.Errorf("creating Job %s/%s: %w", duplicate.Namespace, of.Name, err), p.noteCreation(ctx, duplicate, of, false))
		case err != nil:
			return Next{}, fmt.Errorf("creating Job %s/%s: %w", duplicate.Namespace, of.Name, err)
		}
		return Next{}, p.delete(ctx, duplicate)
	case job == nil: // deleted by a user, or because it has finished: then it is not created again
		return Next{}, p.delete(ctx, duplicate)
	case job.UID == of.UID && job.DeletionTimestamp != nil:
		return Next{After: pause, Waits: "Job " + job.Name + " is being deleted"}, nil
	case job.UID == of.UID && job.Annotations[record.RecreatingAnnotation] == duplicate.Name:
		return Next{After: pause}, nil // the next step is up to the Job
	case job.UID == of.UID, job.Annotations[record.ReplacesAnnotation] == string(of.UID):
		return Next{}, p.delete(ctx, duplicate) // it is no longer to be replaced, or has been
	default:
		return Next{Failed: fmt.Sprintf("Job %s was not created again, because another client has created a Job with this name. Its copy is being deleted.", of.Name)},
			p.delete(ctx, duplicate)
	}
}

// isIntact reports whether a copy is suspended, and its specification is the one that it was created with: the API server increments the
// generation with each change. Of a suspended Job, unlike of others, it lets clients change where the pods run, and their labels.
func isIntact(duplicate *batchv1.Job) bool {
	return ptr.Deref(duplicate.Spec.Suspend, false) && duplicate.Generation <= 1
}

// get returns a Job; nil: there is none.
func (p replacement) get(ctx context.Context, name string) (*batchv1.Job, error) {
	job, err := p.jobs.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, fmt.Errorf("reading Job %s: %w", name, err)
	}
	return job, nil
}

func (p replacement) delete(ctx context.Context, duplicate *batchv1.Job) error {
	err := p.jobs.Delete(ctx, duplicate.Name, metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationBackground), Preconditions: &metav1.Preconditions{UID: &duplicate.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting Job %s/%s, a copy: %w", duplicate.Namespace, duplicate.Name, err)
	}
	return nil
}

// managed are the labels of a copy. It must have some, because the API server gives those of the pod template to a Job without labels.
var managed = map[string]string{"app.kubernetes.io/managed-by": "configdep"}

// copyOf returns the suspended copy of a Job.
func copyOf(job *batchv1.Job) *batchv1.Job {
	out := again(job, record.CopyName(job.Name, job.UID))
	for _, key := range []string{record.RecreatingAnnotation, record.ReplacesAnnotation} {
		delete(out.Annotations, key)
	}
	out.Annotations[record.CopyAnnotation] = record.Copy{Name: job.Name, UID: job.UID, Generation: job.Generation, Suspend: job.Spec.Suspend}.Text()
	labels, err := json.Marshal(out.Labels)
	if err != nil {
		panic(err) // impossible: they are texts
	}
	out.Annotations[record.CopyLabelsAnnotation], out.Labels = string(labels), maps.Clone(managed)
	out.Spec.Suspend = new(true)
	return out
}

// isCopy reports whether a Job has the content of the copy of another Job, but for its record. Any user who may create Jobs can
// create one with the name and the annotation of a copy.
func isCopy(duplicate, job *batchv1.Job) bool {
	of, _ := record.ParseCopy(duplicate.Name, duplicate.Annotations[record.CopyAnnotation])
	if len(duplicate.OwnerReferences) > 0 || len(duplicate.Finalizers) > 0 || !ptr.Equal(of.Suspend, job.Spec.Suspend) {
		return false // with an owner, it would be deleted together with that
	}
	got, want := again(duplicate, duplicate.Name), copyOf(job)
	for _, o := range []*batchv1.Job{got, want} {
		for _, key := range append([]string{record.CopyAnnotation}, ofRecord...) {
			delete(o.Annotations, key)
		}
	}
	return equality.Semantic.DeepEqual(got, want)
}

// replacementOf returns the Job that replaces another one, from the copy of that.
func replacementOf(duplicate *batchv1.Job, of record.Copy) (*batchv1.Job, error) {
	out := again(duplicate, of.Name)
	out.Labels = nil
	if err := json.Unmarshal([]byte(duplicate.Annotations[record.CopyLabelsAnnotation]), &out.Labels); err != nil {
		return nil, fmt.Errorf("reading the annotation %s of Job %s/%s, a copy: %w", record.CopyLabelsAnnotation, duplicate.Namespace, duplicate.Name, err)
	}
	delete(out.Annotations, record.CopyAnnotation)
	delete(out.Annotations, record.CopyLabelsAnnotation)
	out.Annotations[record.ReplacesAnnotation] = string(of.UID)
	out.Spec.Suspend = of.Suspend
	return out, nil
}

// generated are the labels that the API server adds to the pods of a Job, and to the Job if it has no others.
var generated = []string{"controller-uid", batchv1.ControllerUidLabel, "job-name", batchv1.JobNameLabel}

// again returns a Job to create with another name, without what the API server sets.
func again(job *batchv1.Job, name string) *batchv1.Job {
	out := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: name, Labels: maps.Clone(job.Labels), Annotations: maps.Clone(job.Annotations)},
		Spec:       *job.Spec.DeepCopy(),
	}
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	if !ptr.Deref(job.Spec.ManualSelector, false) {
		out.Spec.Selector = nil
		for _, key := range generated {
			delete(out.Labels, key)
			delete(out.Spec.Template.Labels, key)
		}
	}
	return out
}
