// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/registry/watchcache"
)

// REST is the storage of the resource configdependencies.
type REST struct {
	tableConvertor
	views *Views
}

var (
	_ rest.Storage              = &REST{}
	_ rest.Scoper               = &REST{}
	_ rest.SingularNameProvider = &REST{}
	_ rest.ShortNamesProvider   = &REST{}
	_ rest.CategoriesProvider   = &REST{}
	_ rest.Getter               = &REST{}
	_ rest.Lister               = &REST{}
	_ rest.Watcher              = &REST{}
)

// NewREST returns storage that answers from views.
func NewREST(views *Views) *REST { return &REST{views: views} }

// New returns an empty ConfigDependency.
func (*REST) New() runtime.Object { return &v1alpha1.ConfigDependency{} }

// NewList returns an empty list of ConfigDependencies.
func (*REST) NewList() runtime.Object { return &v1alpha1.ConfigDependencyList{} }

// Destroy releases nothing.
func (*REST) Destroy() {}

// NamespaceScoped is true.
func (*REST) NamespaceScoped() bool { return true }

// GetSingularName returns the name under which kubectl takes one object.
func (*REST) GetSingularName() string { return "configdependency" }

// ShortNames returns the short name for kubectl.
func (*REST) ShortNames() []string { return []string{"cfgdep"} }

// Categories returns a category of our own. It is not "all", because "kubectl delete all"
// would then try to delete what cannot be deleted.
func (*REST) Categories() []string { return []string{"configdep"} }

// Get returns one ConfigDependency, at least as new as the resourceVersion of the options.
func (r *REST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	found, err := r.views.get(ctx, genericapirequest.NamespaceValue(ctx), name, options.ResourceVersion)
	if err != nil {
		return nil, err
	}
	out := *found // encoding sets the type of the copy
	return &out, nil
}

// Lookup returns the ConfigDependency of a name, which must not be changed. Its errors are
// API errors: not found, or unavailable before the first sync.
func (v *Views) Lookup(namespace, name string) (*v1alpha1.ConfigDependency, error) {
	return v.get(context.Background(), namespace, name, "")
}

func (v *Views) get(ctx context.Context, namespace, name, version string) (*v1alpha1.ConfigDependency, error) {
	o, found, err := v.cache.Get(ctx, key(namespace, name), version)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, apierrors.NewNotFound(v1alpha1.Resource("configdependencies"), name)
	default:
		return o, nil
	}
}

// NotReady is the answer until the first sync: 503, and try again in a second.
func NotReady() *apierrors.StatusError {
	err := apierrors.NewServiceUnavailable("the dependency index has not synced yet")
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}

// List returns the ConfigDependencies of a namespace, or of all, that the selectors of
// the options match, in the order of namespace and name.
func (r *REST) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	if options == nil {
		options = &metainternalversion.ListOptions{}
	}
	match, err := newMatcher(options.LabelSelector, options.FieldSelector)
	if err != nil {
		return nil, err
	}
	list, err := r.views.cache.List(ctx, watchcache.ListOptions[*v1alpha1.ConfigDependency]{
		Namespace:            genericapirequest.NamespaceValue(ctx),
		Name:                 match.name,
		Matches:              match.function(),
		ResourceVersion:      options.ResourceVersion,
		ResourceVersionMatch: options.ResourceVersionMatch,
		Limit:                options.Limit,
		Continue:             options.Continue,
	})
	if err != nil {
		return nil, err
	}
	out := &v1alpha1.ConfigDependencyList{
		ListMeta: metav1.ListMeta{ResourceVersion: list.ResourceVersion, Continue: list.Continue, RemainingItemCount: list.Remaining},
		Items:    make([]v1alpha1.ConfigDependency, len(list.Items)),
	}
	for i, o := range list.Items {
		out.Items[i] = *o
	}
	return out, nil
}

// Watch sends what happens to the ConfigDependencies that a list with the same options
// returns.
func (r *REST) Watch(ctx context.Context, options *metainternalversion.ListOptions) (watch.Interface, error) {
	if options == nil {
		options = &metainternalversion.ListOptions{}
	}
	match, err := newMatcher(options.LabelSelector, options.FieldSelector)
	if err != nil {
		return nil, err
	}
	return r.views.cache.Watch(ctx, watchcache.WatchOptions[*v1alpha1.ConfigDependency]{
		Namespace:         genericapirequest.NamespaceValue(ctx),
		Name:              match.name,
		Matches:           match.function(),
		MatchesOwn:        match.matchesOwn,
		ResourceVersion:   options.ResourceVersion,
		SendInitialEvents: options.SendInitialEvents,
		AllowBookmarks:    options.AllowWatchBookmarks,
	})
}
