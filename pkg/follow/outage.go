// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
)

// WatchFunc begins a watch.
type WatchFunc = func(context.Context, metav1.ListOptions) (watch.Interface, error)

// ListAfterOutage returns a function for the watches of one reflector. The first watch after a time in which no API server accepted
// connections fails as if its version were too old, so that the reflector lists instead.
//
// Otherwise it would go on where it was, which loses changes if etcd has been restored from a backup meanwhile: the watch is silent until as
// many revisions have been written again, and does not show what was restored. After every other failure, a reflector lists by itself.
func ListAfterOutage(begin WatchFunc) WatchFunc {
	refused := false // a reflector begins one watch at a time
	return func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		w, err := begin(ctx, options)
		switch {
		case err != nil:
			refused = refused || utilnet.IsConnectionRefused(err)
			return nil, err
		case refused:
			refused = false
			w.Stop()
			return nil, apierrors.NewResourceExpired("no API server could be reached since this version, and etcd may have been restored")
		default:
			return w, nil
		}
	}
}
