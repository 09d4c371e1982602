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

// Pages are the pages that may be in memory at the same time, of all workers. Each takes its turn, so that a namespace with many objects
// does not delay the others. The zero value limits nothing.
type Pages struct{ turns *semaphore.Weighted }

// NewPages returns the pages of a process.
func NewPages() Pages { return Pages{semaphore.NewWeighted(2)} }

// Each lists objects in pages, and calls f for each object, until f returns false or an error, which Each returns. F must not keep the
// object.
func Each[T any, L interface{ GetContinue() string }](
	ctx context.Context, pages Pages, options metav1.ListOptions, list func(context.Context, metav1.ListOptions) (L, error), items func(L) []T, f func(*T) (more bool, err error),
) error {
	options.Limit = PageSize
	for {
		next, err := eachOfPage(ctx, pages, options, list, items, f)
		if options.Continue = next; err != nil || next == "" {
			return err
		}
	}
}

// eachOfPage returns where the next page begins; empty: there is none, or it is not needed.
func eachOfPage[T any, L interface{ GetContinue() string }](
	ctx context.Context, pages Pages, options metav1.ListOptions, list func(context.Context, metav1.ListOptions) (L, error), items func(L) []T, f func(*T) (more bool, err error),
) (next string, err error) {
	if pages.turns != nil {
		if err := pages.turns.Acquire(ctx, 1); err != nil {
			return "", err
		}
		defer pages.turns.Release(1)
	}
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
