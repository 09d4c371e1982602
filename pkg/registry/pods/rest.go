// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/podstate"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/registry/view"
	"github.com/configdep/configdep/pkg/workload"
)

const (
	// maxPods limits the pods that are read for one request.
	maxPods = 5000
	// maxRequests limits concurrent requests. Further requests are rejected immediately, and
	// clients retry them: if they waited here, they would occupy the seats of priority and
	// fairness that cheap requests need.
	maxRequests = 4
)

// Views finds a ConfigDependency by name. Its errors are API errors.
type Views interface {
	Lookup(namespace, name string) (*v1alpha1.ConfigDependency, error)
}

// Index gives access to the dependency graph, and reports whether revisions of different
// resources can be compared.
type Index interface {
	policy.Index
	Progress() dependency.Progress
}

// Config configures a REST.
type Config struct {
	Views  Views
	Index  Index
	Client workload.Client
	Clock  clock.PassiveClock
	// NoRevisions: do not look up ControllerRevisions.
	NoRevisions bool
}

// REST is the storage of the subresource.
type REST struct {
	tableConvertor
	Config
	requests chan struct{} // holds an element for each request that is being served
	maxPods  int
	renderer renderer // for one answer; it is copied
}

var (
	_ rest.Storage                  = &REST{}
	_ rest.Getter                   = &REST{}
	_ rest.GroupVersionKindProvider = &REST{}
	_ rest.TableConvertor           = &REST{}
)

// NewREST returns the storage.
func NewREST(c Config) *REST {
	return &REST{
		Config: c, requests: make(chan struct{}, maxRequests), maxPods: maxPods,
		renderer: renderer{maxContainerBytes, maxSourceBytes, maxStaleSourceBytes},
	}
}

// New returns an empty ConfigDependencyPods.
func (*REST) New() runtime.Object { return &v1alpha1.ConfigDependencyPods{} }

// Destroy implements rest.Storage. There is nothing to release.
func (*REST) Destroy() {}

// GroupVersionKind makes discovery show the kind of the subresource instead of its parent's.
func (*REST) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return v1alpha1.SchemeGroupVersion.WithKind("ConfigDependencyPods")
}

// Get reads the pods of the workload behind the named ConfigDependency and judges them. Its
// errors are API errors, unwrapped: the generic API server turns any other into a 500.
func (r *REST) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	view, err := r.Views.Lookup(genericapirequest.NamespaceValue(ctx), name)
	if err != nil {
		return nil, err
	}
	select {
	case r.requests <- struct{}{}:
		defer func() { <-r.requests }()
	default:
		return nil, apierrors.NewTooManyRequests("this replica is already reading the pods of other workloads", 1)
	}
	out, err := r.read(ctx, view)
	if err != nil {
		return nil, apiError(ctx, err, view)
	}
	return out, nil
}

// read reads the knowledge about the sources and the template first, and then the workload and
// its pods. The order matters: the latter must not be older.
func (r *REST) read(ctx context.Context, view *v1alpha1.ConfigDependency) (*v1alpha1.ConfigDependencyPods, error) {
	ref := view.Spec.WorkloadRef
	key := r.Client.Key(ref.APIVersion, ref.Kind, view.Namespace, ref.Name)
	w, known, err := r.know(key, ref)
	if err != nil {
		return nil, err
	}
	selection, err := workload.Select(ctx, r.Client, w, !r.NoRevisions)
	if err != nil {
		return nil, err
	}
	known.Revision = selection.Revision
	out := &v1alpha1.ConfigDependencyPods{
		ObjectMeta:       metav1.ObjectMeta{Namespace: view.Namespace, Name: view.Name, UID: view.UID},
		WorkloadRef:      ref,
		ConfigHash:       known.Hash,
		TemplateRevision: selection.Revision,
		Time:             metav1.NewTime(r.Clock.Now()),
	}
	answer := r.renderer
	out.Truncated, err = selection.Each(ctx, r.Client, r.maxPods, func(p *corev1.Pod) {
		rendered := answer.render(p, known)
		count(&out.Summary, &rendered)
		out.Pods = append(out.Pods, rendered)
	})
	if err != nil {
		return nil, err
	}
	out.Message = message(w, out, r.maxPods)
	return out, nil
}

// know reads a workload and the knowledge about its sources from the index.
func (r *REST) know(key dependency.WorkloadKey, ref v1alpha1.WorkloadReference) (w *dependency.Workload, known *podstate.Knowledge, err error) {
	synced := r.Index.Read(func(now policy.Evaluator) {
		g := now.Graph
		if w = g.Workload(key); w != nil && w.UID == ref.UID {
			known = podstate.Know(g, now.Evaluate(w))
		}
	})
	switch {
	case !synced:
		return nil, nil, view.NotReady()
	case known == nil:
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	known.Ordered = r.Index.Progress().OneCounter
	return w, known, nil
}

func message(w *dependency.Workload, out *v1alpha1.ConfigDependencyPods, most int) string {
	var parts []string
	if w.Recurring {
		if len(out.Pods) == 0 {
			parts = append(parts, "No run is active.")
		}
		parts = append(parts, "The next run reads the content that is present then.")
	} else if len(out.Pods) == 0 {
		parts = append(parts, "No pod runs.")
	}
	if out.Truncated {
		parts = append(parts, fmt.Sprintf("Only the first %d pods that the selector matches were read.", most))
	}
	return strings.Join(parts, " ")
}

// apiError returns the error that the user gets for one of the API server.
func apiError(ctx context.Context, err error, view *v1alpha1.ConfigDependency) error {
	ref := view.Spec.WorkloadRef
	var status *apierrors.StatusError
	switch {
	case ctx.Err() != nil: // the client has gone, or the request has taken too long
		return apierrors.NewTimeoutError(fmt.Sprintf("reading the pods of %s %s: %v", ref.Kind, ref.Name, err), 0)
	case !errors.As(err, &status):
		return apierrors.NewInternalError(fmt.Errorf("reading the pods of %s %s: %w", ref.Kind, ref.Name, err))
	case apierrors.IsNotFound(status):
		return apierrors.NewNotFound(v1alpha1.Resource("configdependencies"), view.Name)
	case apierrors.IsForbidden(status):
		return apierrors.NewInternalError(fmt.Errorf("configdep's service account (not your user) is not authorized: %s", status.ErrStatus.Message))
	case apierrors.IsResourceExpired(status):
		return apierrors.NewServerTimeout(v1alpha1.Resource("configdependencies"), "get", 1)
	default:
		return status
	}
}
