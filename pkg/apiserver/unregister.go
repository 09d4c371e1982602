// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/certificate"
	"github.com/configdep/configdep/pkg/follow"
)

// unregistration deletes the APIService when the namespace of the server is deleted. An
// APIService without its Service makes discovery fail in part, and then no namespace in the
// cluster can be deleted completely, including the server's own. There is time to delete it:
// the namespace controller waits some seconds before it deletes the content of a namespace.
type unregistration struct {
	client    kubernetes.Interface
	dynamic   dynamic.Interface
	namespace string
}

// apiService is the name of the APIService of the server.
var apiService = v1alpha1.SchemeGroupVersion.Version + "." + v1alpha1.SchemeGroupVersion.Group

// watch watches the namespace of the server until the context is done.
func (u *unregistration) watch(ctx context.Context) {
	namespaces := u.client.CoreV1().Namespaces()
	follow.Object[*corev1.Namespace, *corev1.NamespaceList]{
		Name: u.namespace, Client: u.client, List: namespaces.List, Watch: namespaces.Watch,
		Present: func(n *corev1.Namespace) {
			if n.DeletionTimestamp != nil {
				u.tryToUnregister(ctx)
			}
		},
	}.Run(ctx)
}

// tryToUnregister unregisters the server, and retries for some seconds.
func (u *unregistration) tryToUnregister(ctx context.Context) {
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8}
	err := wait.ExponentialBackoffWithContext(ctx, backoff, func(ctx context.Context) (bool, error) {
		err := u.unregister(ctx)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Deleting the APIService, as the namespace of the server is being deleted")
		}
		return err == nil, nil
	})
	if err == nil {
		klog.FromContext(ctx).Info("Deleted the APIService, as the namespace of the server is being deleted", "namespace", u.namespace)
	}
}

// unregister deletes the APIService, unless it refers to a Service in another namespace.
func (u *unregistration) unregister(ctx context.Context) error {
	found, err := u.dynamic.Resource(certificate.APIServices).Get(ctx, apiService, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	namespace, _, err := unstructured.NestedString(found.Object, "spec", "service", "namespace")
	if err != nil {
		return fmt.Errorf("reading the APIService: %w", err)
	}
	if namespace != u.namespace {
		return nil
	}
	uid := found.GetUID()
	err = u.dynamic.Resource(certificate.APIServices).Delete(ctx, found.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // already deleted, or replaced
		return nil
	}
	return err
}
