// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"

	"golang.org/x/sync/semaphore"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PageSize is how many objects are read at a time. Each may have 1.5 MiB, and more when it is decoded.
const PageSize = 16

// pages are the pages that may be in memory at the same time, of all workers. Each takes its turn, so that a namespace with many objects
// does not delay the others.
var pages = semaphore.NewWeighted(2)

// Each lists objects in pages, and calls f for each object, until f returns false or an error, which Each returns. F must not keep the
// object.
func Each[T any, L interface{ GetContinue() string }](
	ctx context.Context, options metav1.ListOptions, list func(context.Context, metav1.ListOptions) (L, error), items func(L) []T, f func(*T) (more bool, err error),
) error {
	options.Limit = PageSize
	for {
		next, err := eachOfPage(ctx, options, list, items, f)
		if options.Continue = next; err != nil || next == "" {
			return err
		}
	}
}

// eachOfPage returns where the next page begins; empty: there is none, or it is not needed.
func eachOfPage[T any, L interface{ GetContinue() string }](
	ctx context.Context, options metav1.ListOptions, list func(context.Context, metav1.ListOptions) (L, error), items func(L) []T, f func(*T) (more bool, err error),
) (next string, err error) {
	if err := pages.Acquire(ctx, 1); err != nil {
		return "", err
	}
	defer pages.Release(1)
	page, err := list(ctx, options)
	if err != nil {
		return "", err
	}
	all := items(page)
	for i := range all {
		if more, err := f(&all[i]); err != nil || !more {
			return "", err
		}
	}
	return page.GetContinue(), nil
}
