// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/audit"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/notify"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/pkg/registry/view"
	"github.com/configdep/configdep/pkg/workload"
)

// Approvals is the storage of the subresource approval. Its requests take turns with those of the subresource reload.
type Approvals struct{ *REST }

var _ rest.NamedCreater = Approvals{}

// New returns an empty Approval.
func (Approvals) New() runtime.Object { return &v1alpha1.Approval{} }

// GroupVersionKind makes discovery show the kind of the subresource instead of its parent's.
func (Approvals) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return v1alpha1.SchemeGroupVersion.WithKind("Approval")
}

// PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate keeps no UID: the hash of the content is the precondition.
func (Approvals) PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() bool { return false }

// Create records what the user has decided about the content of the workload behind the named ConfigDependency. Its errors
// are API errors, unwrapped.
func (r Approvals) Create(ctx context.Context, name string, o runtime.Object, admit rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	request := o.(*v1alpha1.Approval)
	namespace := genericapirequest.NamespaceValue(ctx)
	if err := validateApproval(request, namespace, name); err != nil {
		return nil, err
	}
	shown, err := r.Views.Lookup(namespace, name)
	if err != nil {
		return nil, err
	}
	ref := &shown.Spec.WorkloadRef
	if k := r.Client.Kinds.OfReference(ref.APIVersion, ref.Kind); k == nil || !k.Traits.Rollable {
		return nil, conflict(shown, needsNone, ref.Kind, ref.Name, "configdep does not restart a "+ref.Kind+".")
	}
	request.Namespace, request.Name, request.Status = namespace, name, v1alpha1.ApprovalStatus{}
	if admit != nil {
		if err := admit(ctx, request.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	err = r.change(ctx, shown, options.DryRun, func(live *workload.Live) error { return r.try(ctx, live, shown, request, options.DryRun) })
	if err != nil {
		return nil, err
	}
	if len(options.DryRun) == 0 {
		r.tell(ctx, shown, request)
	}
	request.CreationTimestamp = *request.Status.DecisionTime
	request.ManagedFields = nil
	return request, nil
}

const needsNone = "%s %s needs no approval. %s"

// try is one attempt of Create.
func (r Approvals) try(ctx context.Context, live *workload.Live, shown *v1alpha1.ConfigDependency, request *v1alpha1.Approval, dryRun []string) error {
	spec, now := &request.Spec, r.Clock.Now()
	approval := record.NewApproval(string(spec.Decision), spec.ConfigHash, user(ctx), spec.Reason, metav1.NewMicroTime(now))
	data, err := record.ApprovalPatch(live.Workload, &approval)
	if err != nil {
		return err
	}
	var hash string
	var needed bool
	var before, after decide.Decision
	synced := r.read(live.Workload, func(known decide.Evaluator) {
		e := known.Evaluate(live.Workload)
		hash, before = e.Hash, e.Decide(now)
		needed = e.NeedsApproval(&before)
		live.Marks.Approval = approval.Text()
		after = known.Evaluate(live.Workload).Decide(now)
	})
	switch {
	case !synced:
		return refusal{view.NotReady()}
	case spec.ConfigHash != hash:
		return refusal{conflict(shown, "the content of %s %s has changed meanwhile, or spec.configHash is not its status.configHash: look at it again", live.Kind, live.Name)}
	case !needed:
		return refusal{conflict(shown, needsNone, live.Kind, live.Name, before.Message)}
	case r.Observe && len(dryRun) == 0:
		return refusal{conflict(shown, onlyObserves)}
	}
	if _, err := r.patch(ctx, live.WorkloadKey, data, dryRun); err != nil {
		return err
	}
	message := "Denied. The workload is not restarted until the content changes again, or is approved."
	if spec.Decision == v1alpha1.ApprovalApproved {
		message = "Approved. " + after.Message
	}
	if len(dryRun) > 0 {
		message = "Dry run, nothing is recorded: " + message
	}
	request.Status = v1alpha1.ApprovalStatus{WorkloadRef: &shown.Spec.WorkloadRef, DecidedBy: approval.By, DecisionTime: new(metav1.NewTime(now)), Message: message}
	return nil
}

// tell sends an event and adds an audit annotation.
func (r Approvals) tell(ctx context.Context, shown *v1alpha1.ConfigDependency, request *v1alpha1.Approval) {
	decision := string(request.Spec.Decision)
	audit.AddAuditAnnotation(ctx, "configdep.io/approval", decision)
	message := fmt.Sprintf("%s by %s: the content %s", decision, user(ctx), request.Spec.ConfigHash)
	if request.Spec.Reason != "" {
		message += ". The reason is: " + request.Spec.Reason
	}
	ref := &shown.Spec.WorkloadRef
	r.Sink.Notify(notify.Event{
		What: notify.Approval, Workload: r.Client.Key(ref.APIVersion, ref.Kind, shown.Namespace, ref.Name), UID: ref.UID, Message: message,
		RequestedBy: user(ctx), At: r.Clock.Now(),
	})
}
