// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/notify"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/workload"
)

// Views finds a ConfigDependency by name. Its errors are API errors.
type Views interface {
	Lookup(namespace, name string) (*v1alpha1.ConfigDependency, error)
}

// REST is the storage of the subresource.
type REST struct {
	Views  Views
	Index  decide.Index
	Client workload.Client
	// Dialects are those whose annotations are read.
	Dialects policy.Dialects
	// Observe: only dry runs are allowed.
	Observe bool
	Sink    notify.Sink
	Clock   clock.PassiveClock

	turns turns
}

var (
	_ rest.Storage                        = &REST{}
	_ rest.NamedCreater                   = &REST{}
	_ rest.GroupVersionKindProvider       = &REST{}
	_ rest.SubresourceObjectMetaPreserver = &REST{}
)

// New returns an empty Reload.
func (*REST) New() runtime.Object { return &v1alpha1.Reload{} }

// Destroy implements rest.Storage. There is nothing to release.
func (*REST) Destroy() {}

// GroupVersionKind makes discovery show the kind of the subresource instead of its parent's.
func (*REST) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return v1alpha1.SchemeGroupVersion.WithKind("Reload")
}

// PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate keeps the UID of the request,
// which is a precondition.
func (*REST) PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() bool { return true }

// Create restarts the pods of the workload behind the named ConfigDependency. Its errors
// are API errors, unwrapped: the generic API server turns any other into a 500.
func (r *REST) Create(ctx context.Context, name string, o runtime.Object, admit rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	request := o.(*v1alpha1.Reload)
	namespace := genericapirequest.NamespaceValue(ctx)
	if err := validate(request, namespace, name); err != nil {
		return nil, err
	}
	view, err := r.Views.Lookup(namespace, name)
	if err != nil {
		return nil, err
	}
	if err := validateKind(r.Client.Kinds, view); err != nil {
		return nil, err
	}
	setDefaults(request, namespace, name)
	if admit != nil {
		if err := admit(ctx, request.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	request.Status, err = r.reload(ctx, view, request, options.DryRun)
	if err != nil {
		return nil, err
	}
	request.CreationTimestamp = metav1.NewTime(r.Clock.Now())
	request.ManagedFields = nil
	return request, nil
}
