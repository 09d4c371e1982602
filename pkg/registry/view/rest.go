// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"context"
	"reflect"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/configdep/configdep/pkg/registry/response"
	"github.com/configdep/configdep/pkg/registry/watchcache"
)

// REST is the storage of a resource that is read from a view.
type REST[K comparable, O any, P Object[O]] struct {
	view     *View[K, O, P]
	resource *Resource[O]
}

var (
	_ rest.Storage              = &REST[string, metav1.PartialObjectMetadata, *metav1.PartialObjectMetadata]{}
	_ rest.Scoper               = &REST[string, metav1.PartialObjectMetadata, *metav1.PartialObjectMetadata]{}
	_ rest.SingularNameProvider = &REST[string, metav1.PartialObjectMetadata, *metav1.PartialObjectMetadata]{}
	_ rest.ShortNamesProvider   = &REST[string, metav1.PartialObjectMetadata, *metav1.PartialObjectMetadata]{}
	_ rest.CategoriesProvider   = &REST[string, metav1.PartialObjectMetadata, *metav1.PartialObjectMetadata]{}
	_ rest.Getter               = &REST[string, metav1.PartialObjectMetadata, *metav1.PartialObjectMetadata]{}
	_ rest.Lister               = &REST[string, metav1.PartialObjectMetadata, *metav1.PartialObjectMetadata]{}
	_ rest.Watcher              = &REST[string, metav1.PartialObjectMetadata, *metav1.PartialObjectMetadata]{}
)

// NewREST returns storage that answers from a view.
func NewREST[K comparable, O any, P Object[O]](v *View[K, O, P], r *Resource[O]) *REST[K, O, P] {
	return &REST[K, O, P]{v, r}
}

// New returns an empty object.
func (*REST[K, O, P]) New() runtime.Object { return P(new(O)) }

// NewList returns an empty list.
func (r *REST[K, O, P]) NewList() runtime.Object { return r.resource.NewList(metav1.ListMeta{}, nil) }

// Destroy releases nothing.
func (*REST[K, O, P]) Destroy() {}

// NamespaceScoped is true.
func (*REST[K, O, P]) NamespaceScoped() bool { return true }

// GetSingularName implements rest.SingularNameProvider.
func (r *REST[K, O, P]) GetSingularName() string { return r.resource.Singular }

// ShortNames implements rest.ShortNamesProvider.
func (r *REST[K, O, P]) ShortNames() []string { return r.resource.ShortNames }

// Categories implements rest.CategoriesProvider.
func (r *REST[K, O, P]) Categories() []string { return r.resource.Categories }

// Get returns one object, at least as new as the resourceVersion of the options.
func (r *REST[K, O, P]) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	found, err := r.view.get(ctx, genericapirequest.NamespaceValue(ctx), name, options.ResourceVersion)
	if err != nil {
		return nil, err
	}
	if err := response.Take(ctx, r.view.renderer.Size(found, nil)); err != nil {
		return nil, err
	}
	out := *found // encoding sets the type of the copy
	return P(&out), nil
}

// List returns the objects of a namespace, or of all, that the selectors of the options match, in
// the order of namespace and name.
func (r *REST[K, O, P]) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	if options == nil {
		options = &metainternalversion.ListOptions{}
	}
	match, err := newMatcher[O, P](r.resource, options.LabelSelector, options.FieldSelector)
	if err != nil {
		return nil, err
	}
	size, pageBytes, largest := rowSize[P], response.PageBytes, 0 // of Metadata
	switch response.FormatOf(ctx) {
	case response.Streamed: // one by one, from copies that share what they refer to
		pageBytes = 0
		size = func(o P) int {
			largest = max(largest, r.view.renderer.Size(o, nil))
			return int(reflect.TypeFor[O]().Size())
		}
	case response.Objects:
		size = func(o P) int { return rowSize(o) + r.view.renderer.Size(o, nil) }
	}
	list, err := r.view.cache.List(ctx, watchcache.ListOptions[P]{
		Namespace:            genericapirequest.NamespaceValue(ctx),
		Name:                 match.name,
		Matches:              match.function(),
		ResourceVersion:      options.ResourceVersion,
		ResourceVersionMatch: options.ResourceVersionMatch,
		Limit:                options.Limit,
		Continue:             options.Continue,
		Size:                 size,
		PageBytes:            pageBytes,
	})
	if err != nil {
		return nil, err
	}
	if err := response.Take(ctx, list.Bytes+largest); err != nil {
		return nil, err
	}
	items := make([]O, len(list.Items))
	for i, o := range list.Items {
		items[i] = *o
	}
	return r.resource.NewList(metav1.ListMeta{ResourceVersion: list.ResourceVersion, Continue: list.Continue, RemainingItemCount: list.Remaining}, items), nil
}

// rowSize returns the size of an object in a table, without what it shows, in bytes.
func rowSize[P metav1.Object](o P) int {
	const others = 1 << 10
	n := others + len(o.GetNamespace()) + 2*len(o.GetName())
	for key, value := range o.GetLabels() {
		n += len(key) + len(value) + len(`"":"",`)
	}
	return n
}

// Watch sends what happens to the objects that a list with the same options returns.
func (r *REST[K, O, P]) Watch(ctx context.Context, options *metainternalversion.ListOptions) (watch.Interface, error) {
	if options == nil {
		options = &metainternalversion.ListOptions{}
	}
	match, err := newMatcher[O, P](r.resource, options.LabelSelector, options.FieldSelector)
	if err != nil {
		return nil, err
	}
	return r.view.cache.Watch(ctx, watchcache.WatchOptions[P]{
		Namespace:         genericapirequest.NamespaceValue(ctx),
		Name:              match.name,
		Matches:           match.function(),
		MatchesOwn:        match.matchesOwn,
		ResourceVersion:   options.ResourceVersion,
		SendInitialEvents: options.SendInitialEvents,
		AllowBookmarks:    options.AllowWatchBookmarks,
	})
}
