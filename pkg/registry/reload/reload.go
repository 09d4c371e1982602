package reload

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/audit"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/util/retry"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// conflicts is how a patch is tried again when the workload has changed since it was
// read: for seconds, because during a rollout its status changes many times in one, and
// with as much chance as delay, or many requests for one workload would collide for ever.
var conflicts = wait.Backoff{Steps: 25, Duration: 10 * time.Millisecond, Factor: 1.2, Jitter: 1}

// reload decides by the live workload and patches it.
func (r *REST) reload(ctx context.Context, view *v1alpha1.ConfigDependency, request *v1alpha1.Reload, dryRun []string) (v1alpha1.ReloadStatus, error) {
	ref := view.Spec.WorkloadRef
	key := dependency.WorkloadKey{Kind: dependency.WorkloadKind(ref.Kind), Namespace: view.Namespace, Name: ref.Name}
	status := v1alpha1.ReloadStatus{WorkloadRef: &ref}

	var refused error // a conflict of ours, which trying again does not resolve
	err := retry.RetryOnConflict(conflicts, func() error {
		live, err := read(ctx, r.Client, key)
		if err != nil {
			return err
		}
		hash := r.configHash(live.Workload)
		if refused = checkPreconditions(view, request, live.Workload, hash); refused != nil {
			return nil
		}
		status.PreviousHash, status.ConfigHash = policy.AppliedHash(live.Workload), hash
		status.Generation = live.generation
		if message := unneeded(request, &status); message != "" {
			status.Message = message
			return nil
		}
		if live.Paused {
			refused = conflict(view, "%s %s is paused, so no rollout would begin: resume it first", ref.Kind, ref.Name)
			return nil
		}
		data, err := policy.RolloutPatch(string(live.UID), live.ResourceVersion, hash, policy.LastReload{
			Time:        metav1.NewTime(r.Clock.Now()),
			Trigger:     policy.TriggerRequest,
			RequestedBy: user(ctx),
			Reason:      request.Spec.Reason,
		})
		if err != nil {
			return err
		}
		status.Generation, err = patch(ctx, r.Client, key, data, dryRun)
		if err != nil {
			return err
		}
		status.Triggered = true
		status.Message = doneMessage(&ref, live.caveat, len(dryRun) > 0)
		return nil
	})
	if err != nil {
		return v1alpha1.ReloadStatus{}, apiError(err, view)
	}
	if refused != nil {
		return v1alpha1.ReloadStatus{}, refused
	}
	if len(dryRun) == 0 {
		r.tell(ctx, view, request, &status)
	}
	return status, nil
}

func (r *REST) configHash(w *dependency.Workload) (hash string) {
	r.Graph.Read(func(g *dependency.Graph) {
		hash = r.Digester().ConfigHash(w.References, g.Sources(w.Namespace), nil)
	})
	return hash
}

// checkPreconditions refuses a request that is about something else than what is there.
func checkPreconditions(view *v1alpha1.ConfigDependency, request *v1alpha1.Reload, live *dependency.Workload, hash string) error {
	if live.UID != view.Spec.WorkloadRef.UID {
		return conflict(view, "%s %s has been deleted and created again", live.Kind, live.Name)
	}
	var uids []types.UID
	if request.UID != "" {
		uids = append(uids, request.UID)
	}
	if p := request.Spec.Preconditions; p != nil {
		if p.UID != nil {
			uids = append(uids, *p.UID)
		}
		if p.ConfigHash != nil && *p.ConfigHash != hash {
			return conflict(view, "the precondition configHash is %q, the present one is %q", *p.ConfigHash, hash)
		}
	}
	for _, uid := range uids {
		if uid != view.UID && uid != live.UID {
			return conflict(view, "the precondition uid is %q, that of the ConfigDependency is %q and that of its %s is %q", uid, view.UID, live.Kind, live.UID)
		}
	}
	return nil
}

// unneeded returns why a request with mode IfStale restarts nothing, or "".
func unneeded(request *v1alpha1.Reload, status *v1alpha1.ReloadStatus) string {
	switch {
	case request.Spec.Mode != v1alpha1.ReloadIfStale:
		return ""
	case status.PreviousHash == "":
		return "Not restarted: it is not recorded with which content the pods were started, so they are not known to be stale. Mode Always restarts them."
	case !sameKey(status.PreviousHash, status.ConfigHash):
		return "Not restarted: the recorded hash was made with another key and cannot be compared, so the pods are not known to be stale. Mode Always restarts them."
	case status.PreviousHash == status.ConfigHash:
		return "Not restarted: the pods were started with the present content."
	default:
		return ""
	}
}

// sameKey tells whether two hashes have the same version and key id.
func sameKey(a, b string) bool {
	return a[:strings.LastIndexByte(a, '.')+1] == b[:strings.LastIndexByte(b, '.')+1]
}

func doneMessage(ref *v1alpha1.WorkloadReference, caveat string, dryRun bool) string {
	message := fmt.Sprintf("The pods of %s %s are being replaced", ref.Kind, ref.Name)
	if dryRun {
		message = fmt.Sprintf("Dry run: the pods of %s %s would be replaced", ref.Kind, ref.Name)
	}
	if caveat != "" {
		message += "; but " + caveat
	}
	return message + "."
}

func user(ctx context.Context) string {
	if u, found := genericapirequest.UserFrom(ctx); found {
		return u.GetName()
	}
	return ""
}

// tell leaves an event and an audit annotation.
func (r *REST) tell(ctx context.Context, view *v1alpha1.ConfigDependency, request *v1alpha1.Reload, status *v1alpha1.ReloadStatus) {
	audit.AddAuditAnnotation(ctx, "configdep.io/reload-triggered", strconv.FormatBool(status.Triggered))
	if !status.Triggered {
		return
	}
	because := ""
	if request.Spec.Reason != "" {
		because = ": " + request.Spec.Reason
	}
	ref := status.WorkloadRef
	r.Recorder.Eventf(&corev1.ObjectReference{
		APIVersion: ref.APIVersion, Kind: ref.Kind, Namespace: view.Namespace, Name: ref.Name, UID: ref.UID,
	}, corev1.EventTypeNormal, "ConfigReloaded", "Restarted on request of %s%s", user(ctx), because)
}

func conflict(view *v1alpha1.ConfigDependency, format string, args ...any) error {
	return apierrors.NewConflict(v1alpha1.Resource("configdependencies"), view.Name, fmt.Errorf(format, args...))
}

// apiError returns the error that the user gets for one of the API server. Whatever
// quota and admission say of the patch is passed on.
func apiError(err error, view *v1alpha1.ConfigDependency) error {
	ref := view.Spec.WorkloadRef
	var status *apierrors.StatusError
	switch {
	case !errors.As(err, &status):
		return apierrors.NewInternalError(fmt.Errorf("restarting %s %s: %w", ref.Kind, ref.Name, err))
	case apierrors.IsNotFound(status):
		return apierrors.NewNotFound(v1alpha1.Resource("configdependencies"), view.Name)
	case deniedByRBAC(status):
		return apierrors.NewInternalError(fmt.Errorf("the service account of configdep lacks a right, not you: %s", status.ErrStatus.Message))
	default:
		return status
	}
}

// deniedByRBAC tells a refusal of the server's own rights, "User … cannot patch resource
// …", from one by quota or admission, which has the same code.
func deniedByRBAC(status *apierrors.StatusError) bool {
	message := status.ErrStatus.Message
	return apierrors.IsForbidden(status) &&
		(strings.Contains(message, " cannot get resource ") || strings.Contains(message, " cannot patch resource "))
}
