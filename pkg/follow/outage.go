// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"io"
	"math"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
)

// retry is how often it is tried to begin a watch while connections are refused.
var retry = wait.Backoff{Duration: time.Second, Factor: 1.25, Jitter: 0.5, Steps: math.MaxInt, Cap: 10 * time.Second}

// isEmpty reports whether a watch is that of client-go for a connection that has ended without an answer, or timed out.
func isEmpty(w watch.Interface) bool {
	return reflect.TypeOf(w) == reflect.TypeOf(watch.NewEmptyWatch())
}

// WatchFunc begins a watch.
type WatchFunc = func(context.Context, metav1.ListOptions) (watch.Interface, error)

// ListAfterOutage returns a function for the watches of one reflector, which after a time in which no API server could be reached lists
// instead of going on where it was: etcd may have been restored from a backup meanwhile. A watch is then silent until as many revisions
// have been written again, and never shows what was restored.
//
// While connections are refused, it tries again, after a second at first and later less often, up to every 10 to 15 seconds, and then fails
// as if the version were too old. For connections that end without an answer, or time out, client-go has a watch that is empty, which fails
// with io.EOF. After both errors, a reflector lists, and logs nothing. After other errors it does so by itself, except for the status 429,
// with which an API server answers.
func ListAfterOutage(begin WatchFunc) WatchFunc {
	refused := false // a reflector begins one watch at a time
	return func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		delays := retry.DelayFunc()
		for {
			w, err := begin(ctx, options)
			switch {
			case utilnet.IsConnectionRefused(err):
				refused = true
				select {
				case <-time.After(delays()):
					continue
				case <-ctx.Done():
					return nil, err
				}
			case err != nil:
				refused = refused && apierrors.IsTooManyRequests(err) // otherwise the reflector lists now
				return nil, err
			case isEmpty(w):
				refused = false
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
