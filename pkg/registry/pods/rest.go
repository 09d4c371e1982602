// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/registry/response"
	"github.com/configdep/configdep/pkg/registry/view"
)

// maxPods limits the pods in an answer, and maxJudged the product of pods and sources, so that the work is bounded. The documentation of the API names them.
const (
	maxPods   = 5000
	maxJudged = 5_000_000
)

// Views finds a ConfigDependency by name. Its errors are API errors.
type Views interface {
	Lookup(namespace, name string) (*v1alpha1.ConfigDependency, error)
}

// Config configures a REST.
type Config struct {
	Views Views
	Index decide.Index
	Kinds kind.Table
	Clock clock.PassiveClock
}

// REST is the storage of the subresource.
type REST struct {
	tableConvertor
	Config
	maxPods, maxJudged int
	renderer           renderer // for one answer; it is copied
}

var (
	_ rest.Storage                  = &REST{}
	_ rest.Getter                   = &REST{}
	_ rest.GroupVersionKindProvider = &REST{}
	_ rest.TableConvertor           = &REST{}
)

// NewREST returns the storage.
func NewREST(c Config) *REST {
	return &REST{Config: c, maxPods: maxPods, maxJudged: maxJudged, renderer: renderer{maxContainerBytes, maxSourceBytes, maxStaleSourceBytes}}
}

// New returns an empty ConfigDependencyPods.
func (*REST) New() runtime.Object { return &v1alpha1.ConfigDependencyPods{} }

// Destroy implements rest.Storage. There is nothing to release.
func (*REST) Destroy() {}

// GroupVersionKind makes discovery show the kind of the subresource instead of its parent's.
func (*REST) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return v1alpha1.SchemeGroupVersion.WithKind("ConfigDependencyPods")
}

// Get judges the pods of the workload behind the named ConfigDependency. Its errors are API
// errors, unwrapped: the generic API server turns any other into a 500.
func (r *REST) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	found, err := r.Views.Lookup(genericapirequest.NamespaceValue(ctx), name)
	if err != nil {
		return nil, err
	}
	ref := found.Spec.WorkloadRef
	key := r.Kinds.Key(ref.APIVersion, ref.Kind, found.Namespace, ref.Name)
	var size int
	r.Index.Read(func(now decide.Evaluator) {
		if w := now.Graph.Workload(key); w != nil {
			size = r.size(now, w)
		}
	})
	if err := response.Take(ctx, size); err != nil {
		return nil, err
	}
	var out *v1alpha1.ConfigDependencyPods
	synced := r.Index.Read(func(now decide.Evaluator) {
		if w := now.Graph.Workload(key); w != nil && w.UID == ref.UID {
			out = r.render(ctx, now, w)
		}
	})
	switch {
	case !synced:
		return nil, view.NotReady()
	case out == nil:
		return nil, apierrors.NewNotFound(v1alpha1.Resource("configdependencies"), name)
	case ctx.Err() != nil: // the client has gone, or the request has taken too long
		return nil, apierrors.NewTimeoutError(fmt.Sprintf("judging the pods of %s %s: %v", ref.Kind, ref.Name, ctx.Err()), 0)
	}
	out.ObjectMeta = metav1.ObjectMeta{Namespace: found.Namespace, Name: found.Name, UID: found.UID}
	out.WorkloadRef = ref
	return out, nil
}

// size returns how many bytes the answer for a workload has at most.
func (r *REST) size(now decide.Evaluator, w *dependency.Workload) int {
	const perPod, perContainer, perSource = 512, 512, 384
	var pods, containers, sources, names int
	now.Graph.PodsOf(w, func(p *dependency.Pod) bool {
		pods, containers = pods+1, containers+len(p.Containers)
		return pods < r.maxPods
	})
	for _, s := range now.Evaluate(w).Sources {
		sources, names = sources+perSource+2*len(s.Name), names+len(s.Name)+len(`"SecretProviderClass/",`)
	}
	return pods*perPod + min(containers*perContainer, maxContainerBytes) + min(containers*sources, maxSourceBytes) + min(pods*names, maxStaleSourceBytes)
}

// render returns what is known about the pods of a workload. It ends early once the context is done.
func (r *REST) render(ctx context.Context, now decide.Evaluator, w *dependency.Workload) *v1alpha1.ConfigDependencyPods {
	at := r.Clock.Now()
	j, answer := now.Evaluate(w).Judge(at), r.renderer
	out := &v1alpha1.ConfigDependencyPods{ConfigHash: j.Hash, TemplateRevision: j.Revision, Time: metav1.NewTime(at)}
	most := min(r.maxPods, r.maxJudged/max(1, len(j.Sources)))
	now.Graph.PodsOf(w, func(p *dependency.Pod) bool {
		if out.Truncated = len(out.Pods) == most; out.Truncated {
			return false
		}
		rendered := answer.render(j, p)
		count(&out.Summary, &rendered)
		out.Pods = append(out.Pods, rendered)
		return ctx.Err() == nil
	})
	out.Message = r.message(w, out)
	return out
}

func (r *REST) message(w *dependency.Workload, out *v1alpha1.ConfigDependencyPods) string {
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
		parts = append(parts, fmt.Sprintf("Only the first %d pods are shown.", len(out.Pods)))
	}
	return strings.Join(parts, " ")
}
