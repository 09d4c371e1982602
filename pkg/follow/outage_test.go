// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package follow_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/configdep/configdep/pkg/follow"
)

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

// Only the first watch after an outage ends, however long it was, and what fails otherwise fails as it does.
func TestListAfterOutage(t *testing.T) {
	busy, expired := apierrors.NewTooManyRequests("busy", 1), apierrors.NewResourceExpired("too old")
	const begins, ends, unanswered = "begins", "ends, to list", "unanswered"
	for name, tt := range map[string]struct {
		answers []any // to the requests
		want    []any // of the watches
	}{
		"no outage":                    {[]any{begins, begins}, []any{begins, begins}},
		"an outage at the start":       {[]any{errRefused, begins, begins}, []any{ends, begins}},
		"a long outage":                {[]any{begins, errRefused, errRefused, errRefused, begins, begins}, []any{begins, ends, begins}},
		"two outages":                  {[]any{errRefused, begins, errRefused, begins, begins}, []any{ends, ends, begins}},
		"much to do after an outage":   {[]any{errRefused, busy, begins, begins}, []any{busy, ends, begins}},
		"a balancer without a backend": {[]any{unanswered, unanswered, begins}, []any{io.EOF, io.EOF, begins}},
		"it lists after another":       {[]any{errRefused, expired, begins, begins}, []any{expired, begins, begins}},
		"then a balancer":              {[]any{errRefused, unanswered, begins}, []any{io.EOF, begins}},
		"other failures":               {[]any{busy, begins, expired, begins}, []any{busy, begins, expired, begins}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w *watch.FakeWatcher
				asked := 0
				begin := follow.ListAfterOutage(func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
					if options.ResourceVersion != "5" {
						t.Errorf("options %+v", options)
					}
					answer := tt.answers[asked]
					asked++
					switch answer := answer.(type) {
					case error:
						return nil, answer
					default:
						if answer == unanswered {
							return watch.NewEmptyWatch(), nil
						}
						w = watch.NewFake()
						return w, nil
					}
				})
				for i, want := range tt.want {
					got, err := begin(t.Context(), metav1.ListOptions{ResourceVersion: "5"})
					switch want {
					case begins:
						if err != nil || got != w || w.IsStopped() {
							t.Errorf("watch %d: %v, %v", i, got, err)
						}
					case ends:
						if !apierrors.IsResourceExpired(err) || got != nil || !w.IsStopped() {
							t.Errorf("watch %d: %v, %v; stopped: %t", i, got, err, w.IsStopped())
						}
					default:
						if want, _ := want.(error); !errors.Is(err, want) {
							t.Errorf("watch %d fails with %v, want %v", i, err, want)
						}
					}
				}
				if asked != len(tt.answers) {
					t.Errorf("%d requests, want %d", asked, len(tt.answers))
				}
			})
		})
	}
}

// While connections are refused, it is asked every second at first, and later every 10 to 15 seconds, until the context is done.
func TestListAfterOutage_Waits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		asked, soon, began := 0, 0, time.Now()
		_, err := follow.ListAfterOutage(func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			asked++
			if time.Since(began) < 5*time.Second {
				soon++
			}
			return nil, errRefused
		})(ctx, metav1.ListOptions{})
		if !errors.Is(err, syscall.ECONNREFUSED) || time.Since(began) != time.Hour {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if soon < 3 || soon > 5 || asked < 3600/15 || asked > 3600/10+20 {
			t.Errorf("%d requests in the first seconds, and %d in an hour", soon, asked)
		}
	})
}

// An object that is followed is listed after an outage.
func TestObject_ListsAfterOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		objects := client.CoreV1().ConfigMaps("ns")
		lists, watches, first, done := 0, 0, watch.NewFake(), make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			follow.Object[*corev1.ConfigMap, *corev1.ConfigMapList]{
				Name: "one", Client: client,
				List: func(ctx context.Context, options metav1.ListOptions) (*corev1.ConfigMapList, error) {
					lists++
					return objects.List(ctx, options)
				},
				Watch: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
					switch watches++; watches {
					case 1:
						time.AfterFunc(time.Minute, first.Stop) // a reflector lists after one that ends at once
						return first, nil
					case 2:
						return nil, errRefused
					case 4:
						close(done)
						fallthrough
					default:
						return objects.Watch(ctx, options)
					}
				},
				Present: func(*corev1.ConfigMap) {},
			}.Run(ctx)
		})
		<-done // the first, one that is refused, one that is ended, and one that goes on
		cancel()
		running.Wait()
		if lists != 2 || watches != 4 {
			t.Errorf("%d lists and %d watches, want 2 and 4", lists, watches)
		}
	})
}
