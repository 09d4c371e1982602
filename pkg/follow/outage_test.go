// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package follow_test

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/configdep/configdep/pkg/follow"
)

// Only the first watch after connections were refused is ended, however often they were, and what fails otherwise fails as it does.
func TestListAfterOutage(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	busy := apierrors.NewTooManyRequests("busy", 1)
	expired := apierrors.NewResourceExpired("too old")
	const begins, ends = "begins", "ends, to list"
	for name, tt := range map[string]struct {
		answers []error
		want    []any
	}{
		"no outage":                              {[]error{nil, nil}, []any{begins, begins}},
		"an outage at the start":                 {[]error{refused, nil, nil}, []any{refused, ends, begins}},
		"a long outage":                          {[]error{nil, refused, refused, refused, nil, nil}, []any{begins, refused, refused, refused, ends, begins}},
		"two outages":                            {[]error{refused, nil, refused, nil, nil}, []any{refused, ends, refused, ends, begins}},
		"an API server that then has much to do": {[]error{refused, busy, nil, nil}, []any{refused, busy, ends, begins}},
		"other failures":                         {[]error{busy, nil, expired, nil}, []any{busy, begins, expired, begins}},
	} {
		t.Run(name, func(t *testing.T) {
			var w *watch.FakeWatcher
			var answer error
			begin := follow.ListAfterOutage(func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
				if options.ResourceVersion != "5" {
					t.Errorf("options %+v", options)
				}
				if answer != nil {
					return nil, answer
				}
				w = watch.NewFake()
				return w, nil
			})
			for i := range tt.answers {
				answer = tt.answers[i]
				got, err := begin(t.Context(), metav1.ListOptions{ResourceVersion: "5"})
				switch want := tt.want[i]; want {
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
		})
	}
}
