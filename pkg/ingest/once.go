// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
)

// ReadOnce reads the cluster once, without a watch, into an index that is not running. It returns the resources that the client may
// not list, of which the index then has nothing.
func (x *Index) ReadOnce(ctx context.Context, reader *Reader, digester *dependency.Digester) (denied []string, err error) {
	x.mu.Lock()
	x.graph.SetDigester(digester)
	clear(x.unprobed)
	x.mu.Unlock()
	for _, s := range x.scope.streams(digester) {
		list, err := reader.list(ctx, s, metav1.ListOptions{})
		switch {
		case err == nil:
		case apierrors.IsForbidden(err):
			list = &metav1.List{}
			if resource := s.resource.Resource; !slices.Contains(denied, resource) { // several streams read Secrets
				denied = append(denied, resource)
			}
		case apierrors.IsNotFound(err) && s.optional != nil:
			list = &metav1.List{}
		default:
			return nil, fmt.Errorf("reading %s: %w", s.resource.Resource, err)
		}
		objects := make([]any, len(list.Items))
		for i := range list.Items {
			objects[i] = list.Items[i].Object
		}
		x.replace(s, objects, list.ResourceVersion)
	}
	return denied, nil
}
