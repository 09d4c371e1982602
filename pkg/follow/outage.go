// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"io"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
)

// WatchFunc begins a watch.
type WatchFunc = func(context.Context, metav1.ListOptions) (watch.Interface, error)

// ListAfterOutage returns a function for the watches of one reflector, which after a time in which no API server could be reached lists
// instead of going on where it was: etcd may have been restored from a backup meanwhile. A watch is then silent until as many revisions
// have been written again, and never shows what was restored.
//
// While connections are refused, it tries again every second or two, and then fails as if the version were too old. For connections that
// end without an answer, or time out, client-go has a watch that is empty, which fails with io.EOF. After both errors, a reflector lists, and
// logs nothing. After other errors it does so by itself, except for the status 429, with which an API server answers.
func ListAfterOutage(begin WatchFunc) WatchFunc {
	refused := false // a reflector begins one watch at a time
	return func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		for {
			w, err := begin(ctx, options)
			switch {
			case utilnet.IsConnectionRefused(err):
				refused = true
				select {
				case <-time.After(wait.Jitter(time.Second, 1)):
					continue
				case <-ctx.Done():
					return nil, err
				}
			case err != nil:
				return nil, err
			case reflect.TypeOf(w) == reflect.TypeOf(watch.NewEmptyWatch()):
				return nil, io.EOF
			case refused:
				refused = false
				w.Stop()
				return nil, apierrors.NewResourceExpired("no API server could be reached since this version, and etcd may have been restored")
			default:
				return w, nil
			}
		}
	}
}
