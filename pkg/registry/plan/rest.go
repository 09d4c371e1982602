// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package plan serves the subresource "plan" of ConfigDependencies. A plan is about the whole cluster, and an answer shows the restarts of one namespace of it.
package plan

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/plan"
	"github.com/configdep/configdep/pkg/registry/response"
	"github.com/configdep/configdep/pkg/registry/view"
	"github.com/configdep/configdep/pkg/render"
)

// The limits of an answer.
const (
	maxRestarts = 1000
	maxBytes    = 1 << 20
)

// A plan looks at all workloads, so it is made for several requests: an answer may be as old as keep, or keepTimes as old as it took to make it. As much time
// passes between two plans of changes that are assumed, so that they do not take a processor from others.
const (
	keep      = time.Second
	keepTimes = 4
	// maxTime is for how long the future is looked into.
	maxTime = 30 * time.Second
)

// Config is what a REST is made from.
type Config struct {
	Views interface {
		Lookup(namespace, name string) (*v1alpha1.ConfigDependency, error)
	}
	Index decide.Index
	// MaxInProgress is how many restarts may be in progress, whatever policies say; negative: any number.
	MaxInProgress int
	Clock         clock.PassiveClock
}

// REST is the storage of the subresource. It is safe for concurrent use.
type REST struct {
	tableConvertor
	Config

	turn           chan struct{} // is held while a plan is made, and guards the rest
	plain, assumed made
}

// made is a plan that was made for an assumption.
type made struct {
	of    dependency.SourceKey
	plan  *plan.Plan
	until time.Time
}

var (
	_ rest.Storage                  = &REST{}
	_ rest.GetterWithOptions        = &REST{}
	_ rest.GroupVersionKindProvider = &REST{}
	_ rest.TableConvertor           = &REST{}
)

// NewREST returns a REST.
func NewREST(c Config) *REST { return &REST{Config: c, turn: make(chan struct{}, 1)} }

// New returns an empty ConfigDependencyPlan.
func (*REST) New() runtime.Object { return &v1alpha1.ConfigDependencyPlan{} }

// Destroy implements rest.Storage.
func (*REST) Destroy() {}

// GroupVersionKind makes discovery show the kind of the subresource instead of its parent's.
func (*REST) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return v1alpha1.SchemeGroupVersion.WithKind("ConfigDependencyPlan")
}

// NewGetOptions implements rest.GetterWithOptions.
func (*REST) NewGetOptions() (options runtime.Object, subpath bool, subpathKey string) {
	return &v1alpha1.PlanOptions{}, false, ""
}

// Get returns the plan for the namespace of a ConfigDependency. Its errors are API errors, unwrapped.
func (r *REST) Get(ctx context.Context, name string, options runtime.Object) (runtime.Object, error) {
	namespace := genericapirequest.NamespaceValue(ctx)
	found, err := r.Views.Lookup(namespace, name)
	if err != nil {
		return nil, err
	}
	o, _ := options.(*v1alpha1.PlanOptions)
	source, err := assumed(o, namespace)
	if err != nil {
		return nil, err
	}
	p, err := r.plan(ctx, source)
	if err != nil {
		return nil, err
	}
	out, size := show(p, namespace)
	if err := response.Take(ctx, size); err != nil {
		return nil, err
	}
	out.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: name, UID: found.UID}
	if source != (dependency.SourceKey{}) {
		out.Assumed = string(source.Kind) + "/" + source.Name
	}
	return out, nil
}

// assumed returns the source that is assumed to change; its zero value: none is.
func assumed(o *v1alpha1.PlanOptions, namespace string) (key dependency.SourceKey, err error) {
	switch {
	case o == nil || o.Assume == "" && !o.AllNamespaces:
		return key, nil
	case o.Assume == "":
		return key, apierrors.NewBadRequest("allNamespaces needs assume, such as assume=Secret/db")
	}
	kind, name, _ := strings.Cut(o.Assume, "/")
	all := []dependency.SourceKind{dependency.ConfigMap, dependency.Secret, dependency.SecretProviderClass}
	if i := slices.IndexFunc(all, func(k dependency.SourceKind) bool { return strings.EqualFold(string(k), kind) }); i >= 0 && len(validation.NameIsDNSSubdomain(name, false)) == 0 {
		key = dependency.SourceKey{Kind: all[i], Namespace: namespace, Name: name}
		if o.AllNamespaces {
			key.Namespace = ""
		}
		return key, nil
	}
	return key, apierrors.NewBadRequest(fmt.Sprintf("assume=%q: must be the kind and the name of a source, such as Secret/db; the kinds are ConfigMap, Secret and SecretProviderClass", o.Assume))
}

// plan returns a plan for the whole cluster, which must not be changed.
func (r *REST) plan(ctx context.Context, source dependency.SourceKey) (*plan.Plan, error) {
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return nil, apierrors.NewTimeoutError("other plans are being made", 1)
	}
	m, began := &r.plain, r.Clock.Now()
	if source != (dependency.SourceKey{}) {
		m = &r.assumed
	}
	switch left := m.until.Sub(began); {
	case left <= 0:
	case m.of == source:
		return m.plan, nil
	default:
		return nil, apierrors.NewTooManyRequests("other plans have just been made", int(math.Ceil(left.Seconds())))
	}
	making, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxTime) // for others, too, if this client goes
	defer cancel()
	*m = made{of: source}
	synced := r.Index.Read(func(now decide.Evaluator) {
		if m == &r.assumed {
			now.Assumed = &decide.Change{Source: source, At: began}
		}
		m.plan = plan.Of(making, now, r.MaxInProgress, began)
	})
	if !synced {
		return nil, view.NotReady()
	}
	end := r.Clock.Now()
	if m.until = end.Add(keepTimes * end.Sub(began)); m == &r.plain && m.until.Before(began.Add(keep)) {
		m.until = began.Add(keep)
	}
	return m.plan, nil
}

// show returns what a plan says about a namespace, and about how many bytes that has.
func show(p *plan.Plan, namespace string) (*v1alpha1.ConfigDependencyPlan, int) {
	out := &v1alpha1.ConfigDependencyPlan{Time: metav1.NewTime(p.At), Truncated: p.Cut}
	budget := render.Budget(maxBytes)
	for i := range p.Restarts {
		at, s := &p.Restarts[i], &out.Summary
		mine := at.Workload.Namespace == namespace
		count(s, at, mine)
		if !mine {
			continue
		}
		shown := v1alpha1.PlannedRestart{
			Name: at.Workload.ViewName(), Position: int64(at.Position), StartTime: timeOf(at.Begins), CompletionTime: timeOf(at.Ends),
			State: v1alpha1.State(at.State), Reason: at.Reason, Message: at.Message,
		}
		if len(out.Restarts) == maxRestarts || out.MoreRestarts > 0 || !budget.Take(sizeOf(&shown)) {
			out.MoreRestarts++
			continue
		}
		out.Restarts = append(out.Restarts, shown)
	}
	return out, maxBytes - int(budget)
}

func count(s *v1alpha1.PlanSummary, r *plan.Restart, mine bool) {
	switch {
	case r.Begins.IsZero():
		if mine {
			s.Held++
		}
		return
	case r.Ends.IsZero():
		if s.ClusterFailed++; mine {
			s.Failed++
		}
		return
	case r.Position > 0:
		s.ClusterPlanned++
		if mine {
			s.Planned++
		}
	default:
		s.ClusterInProgress++
		if mine {
			s.InProgress++
		}
	}
	if mine && (s.CompletionTime == nil || s.CompletionTime.Time.Before(r.Ends)) {
		s.CompletionTime = timeOf(r.Ends)
	}
}

func sizeOf(r *v1alpha1.PlannedRestart) int {
	const rest = `{"name":"","position":10000,"startTime":"2006-01-02T15:04:05Z","completionTime":"2006-01-02T15:04:05Z","state":"","reason":"","message":""},`
	return len(rest) + len(r.Name) + len(r.State) + len(r.Reason) + len(r.Message)
}

func timeOf(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return new(metav1.NewTime(t))
}
