// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/configdep/configdep/pkg/dependency"
)

const (
	// maxFinds limits the sources that are looked up for one workload.
	maxFinds = 16
	// findLimit limits the time for all of them, well below the timeout of kube-apiserver.
	findLimit = time.Second
	// findRate limits how many are looked up in a second for all callers together, after findBurst at once: each is a
	// request to kube-apiserver, and callers are not authenticated.
	findRate, findBurst = 50, 200
)

// find looks up sources that the index does not have, or not with all keys.
func (h *Handler) find(ctx context.Context, digester *dependency.Digester, keys []dependency.SourceKey) ([]*dependency.Source, error) {
	if len(keys) > maxFinds {
		return nil, fmt.Errorf("%d sources are not in the index, and at most %d are looked up", len(keys), maxFinds)
	}
	if !h.finds.AllowN(h.Clock.Now(), len(keys)) {
		return nil, fmt.Errorf("more than %d lookups of sources in one second", findRate)
	}
	ctx, cancel := context.WithTimeout(ctx, findLimit)
	defer cancel()
	found := make([]*dependency.Source, len(keys))
	group, ctx := errgroup.WithContext(ctx)
	for i, key := range keys {
		group.Go(func() (err error) {
			found[i], err = h.Finder.Find(ctx, digester, key)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(found, func(s *dependency.Source) bool { return s == nil }), nil
}
