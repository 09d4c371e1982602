// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// A list that is answered slowly delays those of others only as long as a page is awaited, and a worker that waits ends with its context.
func TestEach_TakesTurnsByPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, answers := 0, make(chan string)
		list := func(_ context.Context, o metav1.ListOptions) (*corev1.PodList, error) {
			if o.Limit != PageSize {
				t.Errorf("limit = %d", o.Limit)
			}
			asked++
			return &corev1.PodList{ListMeta: metav1.ListMeta{Continue: <-answers}, Items: make([]corev1.Pod, 1)}, nil
		}
		pages := NewPages()
		each := func(ctx context.Context) (seen int, err error) {
			err = Each(ctx, pages, metav1.ListOptions{}, list, func(l *corev1.PodList) []corev1.Pod { return l.Items }, func(*corev1.Pod) (bool, error) {
				seen++
				return true, nil
			})
			return seen, err
		}
		results := make(chan int)
		for range 3 {
			go func() {
				seen, err := each(t.Context())
				if err != nil {
					t.Error(err)
				}
				results <- seen
			}()
		}
		synctest.Wait()
		if asked != 2 {
			t.Fatalf("%d pages are awaited at once, want 2", asked)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := each(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("error = %v of a context that has ended", err)
		}
		answers <- "more" // then it is the turn of the one that waits
		synctest.Wait()
		if asked != 3 {
			t.Errorf("%d pages were asked for, want that of the worker that waits", asked)
		}
		for range 3 {
			answers <- ""
			synctest.Wait()
		}
		if all := <-results + <-results + <-results; all != 4 {
			t.Errorf("%d objects, want 4 of 4 pages", all)
		}
	})
}

// The lists of a server take turns.
func TestNewClient_LimitsPages(t *testing.T) {
	if c, err := NewClient(&rest.Config{}, nil); err != nil || c.Pages.turns == nil {
		t.Errorf("the client limits nothing (%v)", err)
	}
}
