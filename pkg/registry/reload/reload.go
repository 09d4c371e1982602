// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/audit"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/notify"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/pkg/registry/view"
	"github.com/configdep/configdep/pkg/strategy"
	"github.com/configdep/configdep/pkg/workload"
)

// conflicts is the backoff of a patch after conflicts, because the workload has changed
// since it was read. It takes seconds, because during a rollout the status changes many
// times a second. The jitter is as large as the delay, or replicas with requests for the
// same workload would keep colliding.
var conflicts = wait.Backoff{Steps: 25, Duration: 10 * time.Millisecond, Factor: 1.2, Jitter: 1}

// change lets try change the live workload behind a ConfigDependency, and again after conflicts. It returns API errors.
func (r *REST) change(ctx context.Context, shown *v1alpha1.ConfigDependency, dryRun []string, try func(*workload.Live) error) error {
	ref := &shown.Spec.WorkloadRef
	key := r.Client.Key(ref.APIVersion, ref.Kind, shown.Namespace, ref.Name)
	end := r.turns.take(ctx, turnKey{key, len(dryRun) > 0})
	if end == nil {
		return apierrors.NewTooManyRequests(fmt.Sprintf("many requests for %s %s are being served, one after the other", ref.Kind, ref.Name), 1)
	}
	defer end()

	err := retryOnConflict(ctx, func() error {
		live, err := workload.Get(ctx, r.Client, r.Dialects, key)
		if err != nil {
			return unauthorized(err)
		}
		if live.UID != ref.UID {
			return refusal{conflict(shown, "%s %s has been deleted and created again", ref.Kind, ref.Name)}
		}
		return try(live)
	})
	if err != nil {
		return apiError(err, shown)
	}
	return nil
}

// reload decides whether to restart the workload, and patches it.
func (r *REST) reload(ctx context.Context, shown *v1alpha1.ConfigDependency, request *v1alpha1.Reload, dryRun []string) (v1alpha1.ReloadStatus, error) {
	ref := shown.Spec.WorkloadRef
	status := v1alpha1.ReloadStatus{WorkloadRef: &ref}
	err := r.change(ctx, shown, dryRun, func(live *workload.Live) error { return r.try(ctx, live, shown, request, dryRun, &status) })
	if err != nil {
		return v1alpha1.ReloadStatus{}, err
	}
	if len(dryRun) == 0 {
		r.tell(ctx, shown, request, &status)
	}
	return status, nil
}

// refusal is the error of a request that is refused. It is not tried again, as it is no conflict of a patch.
type refusal struct{ error }

// try is one attempt of reload.
func (r *REST) try(ctx context.Context, live *workload.Live, shown *v1alpha1.ConfigDependency, request *v1alpha1.Reload, dryRun []string, status *v1alpha1.ReloadStatus) error {
	content, synced := r.evaluate(live.Workload)
	if !synced {
		return refusal{view.NotReady()}
	}
	if err := checkPreconditions(shown, request, live.Workload, content.present.Hash); err != nil {
		return refusal{err}
	}
	status.PreviousHash, status.ConfigHash = content.previous, content.present.Hash
	status.Generation = live.Generation
	if request.Spec.Mode == v1alpha1.ReloadIfStale && (!content.stale || live.Replicas == 0) {
		status.Message = unneeded(&content, live)
		return nil
	}
	if why := r.refuses(status.WorkloadRef, &content, live, len(dryRun) > 0); why != "" {
		return refusal{conflict(shown, "%s", why)}
	}
	last := record.NewRequestedReload(record.LastReloadOf(live.Workload), r.Clock.Now(), user(ctx), request.Spec.Reason)
	restart := record.Restart{Present: content.present, Last: last, Changed: content.changed, Always: true}
	restart.Pods, restart.Unfit = strategy.Names(content.policy.RestartsBy(live.Workload), content.all)
	data, err := content.policy.RestartPatch(live.Workload, &restart)
	if err != nil {
		return err
	}
	patched, err := r.patch(ctx, live.WorkloadKey, data, dryRun)
	if err != nil {
		return err
	}
	status.Triggered, status.Generation = true, patched.GetGeneration()
	missing := ""
	if len(content.missing) > 0 {
		missing = strings.Join(content.missing, "; ") + ", so " + content.consequence
	}
	description := content.policy.StrategyOf(live.Workload, &restart).Describe(cmp.Or(missing, live.Caveat))
	description.Caveat = cmp.Or(missing, description.Caveat)
	status.Message = doneMessage(status.WorkloadRef, description, len(dryRun) > 0)
	return nil
}

func (r *REST) patch(ctx context.Context, key dependency.WorkloadKey, data []byte, dryRun []string) (metav1.Object, error) {
	patched, err := workload.Patch(ctx, r.Client, key, data, dryRun)
	if apierrors.IsForbidden(err) && !r.mayPatch(ctx, key) {
		return nil, unauthorized(err)
	}
	return patched, err
}

const onlyObserves = "configdep only observes (--observe): only dry runs are possible"

// refuses returns why the workload cannot be restarted, or empty.
func (r *REST) refuses(ref *v1alpha1.WorkloadReference, c *content, l *workload.Live, dryRun bool) string {
	is := ref.Kind + " " + ref.Name
	switch pause := &c.policy.Pause; {
	case !l.Rollable || c.policy.OnlyReports(l.Workload):
		return is + " cannot be restarted because of its specification, although others of its kind can"
	case r.Observe && !dryRun:
		return onlyObserves
	case c.terminating:
		return is + " is being deleted"
	case c.held != "":
		return is + " cannot be restarted now: " + c.held
	case c.policy.StrategyNotAllowed:
		return strings.Join(c.policy.Problems, "; ")
	case l.KeepsPods != "" && c.policy.RestartsBy(l.Workload).MarksTemplate():
		return is + " cannot be restarted: " + policy.NoRollout(&l.Traits)
	case l.Paused && pause.Since != "":
		return fmt.Sprintf("%s was paused when it was restarted, and its pods will be replaced when the pause period of %v is over", is, pause.Period)
	case l.Paused:
		return is + " is paused, so no rollout would begin: resume it first"
	}
	return ""
}

// content holds the results of evaluating the content that a workload consumes.
type content struct {
	policy   policy.Policy // the effective policy
	present  record.Record // of the current content
	previous string        // the recorded hash
	pods     *decide.Judgement
	stale    bool // pods are known to run with old content, and are not about to be replaced
	changed  []record.Changed
	missing  []string // the missing sources and keys without which new pods cannot start
	// consequence is what cannot be done because of them.
	consequence string

	terminating bool   // it is being deleted, or its namespace is
	held        string // why a ReloadPolicy lets no request restart it
	all         []*dependency.Pod
}

// retryOnConflict is retry.RetryOnConflict, but ends with the context.
func retryOnConflict(ctx context.Context, try func() error) error {
	var last error
	err := wait.ExponentialBackoffWithContext(ctx, conflicts, func(context.Context) (bool, error) {
		if last = try(); apierrors.IsConflict(last) {
			return false, nil
		}
		return true, last
	})
	if err != nil && ctx.Err() == nil {
		return last
	}
	return err
}

// read calls f with what is known of the cluster and of a live workload. It returns false while the index is not synced.
func (r *REST) read(w *dependency.Workload, f func(decide.Evaluator)) (synced bool) {
	return r.Index.Read(func(now decide.Evaluator) {
		now.Graph.Borrow(w)
		policy.Note(w, now.Graph.Namespace(w.Namespace), now.Defaults)
		f(now)
	})
}

// evaluate evaluates a live workload. It returns false while the index is not synced.
func (r *REST) evaluate(w *dependency.Workload) (c content, synced bool) {
	synced = r.read(w, func(now decide.Evaluator) {
		g, e := now.Graph, now.Evaluate(w)
		d := e.Decide(r.Clock.Now())
		c.policy, c.present, c.previous, c.pods, c.stale = e.Policy, e.Present(), e.Record.Hash, d.Pods, e.RestartHelps(&d)
		c.changed = e.Changed(&d)
		c.missing, _ = e.Missing()
		c.consequence = e.Consequence()
		c.terminating, c.held = g.Terminating(w), e.HoldsRequests(r.Clock.Now())
		c.all = strategy.PodsOf(g, w)
	})
	return c, synced
}

// checkPreconditions refuses a request whose preconditions do not match the current state.
func checkPreconditions(shown *v1alpha1.ConfigDependency, request *v1alpha1.Reload, live *dependency.Workload, hash string) error {
	var uids []types.UID
	if request.UID != "" {
		uids = append(uids, request.UID)
	}
	if p := request.Spec.Preconditions; p != nil {
		if p.UID != nil {
			uids = append(uids, *p.UID)
		}
		if p.ConfigHash != nil && *p.ConfigHash != hash {
			return conflict(shown, "precondition failed: configHash in precondition: %q, current configHash: %q", *p.ConfigHash, hash)
		}
	}
	for _, uid := range uids {
		if uid != shown.UID && uid != live.UID {
			return conflict(shown, "precondition failed: UID in precondition: %q, UID of the ConfigDependency: %q, UID of its %s: %q", uid, shown.UID, live.Kind, live.UID)
		}
	}
	return nil
}

// unneeded returns why a request with mode IfStale restarts nothing.
func unneeded(c *content, l *workload.Live) string {
	underWay := record.UnderWay(l.Workload)
	switch {
	case l.Replicas == 0:
		return "Not restarted: no pods run, and new pods read the current content."
	case record.Halted(l.Workload) != "":
		return "Not restarted: a restart in place has halted. " + record.Halted(l.Workload)
	case underWay != nil:
		return "Not restarted: " + underWay.Progress().Already + "."
	case c.pods.Stale > 0:
		return fmt.Sprintf("Not restarted: the pod template of %s %s has been changed already, but %s.", l.Kind, l.Name, cmp.Or(behind(l), "the pods are being replaced"))
	case c.pods.Unknown > 0:
		return fmt.Sprintf("Not restarted: %s may run with old content, but that is not certain. %s", dependency.Pods(c.pods.Unknown, c.pods.Total), perPod)
	}
	if behind := behind(l); behind != "" && (c.pods.Total == 0 || c.pods.Current < c.pods.Total) {
		return fmt.Sprintf("Not restarted: no pod of %s %s is known to run with old content, but %s.", l.Kind, l.Name, behind)
	}
	if c.pods.Total == 0 {
		return "Not restarted: no pods are found that run with old content."
	}
	return "Not restarted: the pods run with the current content."
}

const perPod = "The subresource pods says more. Use mode Always to restart them."

func doneMessage(ref *v1alpha1.WorkloadReference, d record.Description, dryRun bool) string {
	message := fmt.Sprintf("The %s of %s %s %s", d.What, ref.Kind, ref.Name, d.Done)
	if dryRun {
		message = fmt.Sprintf("Dry run: the %s of %s %s %s", d.What, ref.Kind, ref.Name, d.Would)
	}
	if d.Caveat != "" {
		message += "; but " + d.Caveat
	}
	return message + "."
}

func user(ctx context.Context) string {
	if u, found := genericapirequest.UserFrom(ctx); found {
		return u.GetName()
	}
	return ""
}

// tell sends an event and adds an audit annotation.
func (r *REST) tell(ctx context.Context, shown *v1alpha1.ConfigDependency, request *v1alpha1.Reload, status *v1alpha1.ReloadStatus) {
	audit.AddAuditAnnotation(ctx, "configdep.io/reload-triggered", strconv.FormatBool(status.Triggered))
	if !status.Triggered {
		return
	}
	message := "Restarted at the request of " + user(ctx)
	if request.Spec.Reason != "" {
		message += ": " + request.Spec.Reason
	}
	ref := status.WorkloadRef
	r.Sink.Notify(notify.Event{
		What:     notify.Restarted,
		Workload: r.Client.Key(ref.APIVersion, ref.Kind, shown.Namespace, ref.Name),
		UID:      ref.UID, Message: message, Trigger: record.TriggerRequest, RequestedBy: user(ctx), At: r.Clock.Now(),
	})
}

func conflict(shown *v1alpha1.ConfigDependency, format string, args ...any) error {
	return apierrors.NewConflict(v1alpha1.Resource("configdependencies"), shown.Name, fmt.Errorf(format, args...))
}

// apiError returns the error that the user gets for a refusal, or an error of the API server. Refusals
// of the patch by quota or admission are passed on.
func apiError(err error, shown *v1alpha1.ConfigDependency) error {
	ref := shown.Spec.WorkloadRef
	var refused refusal
	var status *apierrors.StatusError
	switch {
	case errors.As(err, &refused):
		return refused.error
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		// The client has disconnected, or the request has timed out.
		return apierrors.NewTimeoutError(fmt.Sprintf("changing %s %s: %v", ref.Kind, ref.Name, err), 0)
	case !errors.As(err, &status):
		return apierrors.NewInternalError(fmt.Errorf("changing %s %s: %w", ref.Kind, ref.Name, err))
	case apierrors.IsNotFound(status):
		return apierrors.NewNotFound(v1alpha1.Resource("configdependencies"), shown.Name)
	default:
		return status
	}
}

// unauthorized returns what the user gets for an error of a request that the server itself may not make. All reads that are forbidden
// are of that kind, because no admission applies to them.
func unauthorized(err error) error {
	if apierrors.IsForbidden(err) {
		return refusal{apierrors.NewInternalError(fmt.Errorf("configdep's service account (not your user) is not authorized: %w", err))}
	}
	return err
}

// mayPatch reports whether the server has the right to patch a workload; true if that cannot be found out. It asks the API server, because
// a refusal by quota or admission has the same status. By default, all authenticated users may ask that (system:basic-user).
func (r *REST) mayPatch(ctx context.Context, key dependency.WorkloadKey) bool {
	resource := r.Client.Kinds.Of(key.Kind).Served()
	review, err := r.Client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "patch", Group: resource.Group, Version: resource.Version, Resource: resource.Resource, Namespace: key.Namespace, Name: key.Name,
		}},
	}, metav1.CreateOptions{})
	return err != nil || review.Status.Allowed
}
