// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/configdep/configdep/pkg/kind"
)

// Once the context is done, no further pod of a page is looked at.
func TestEach_EndsWithItsContext(t *testing.T) {
	client := newClient(&appsv1.StatefulSet{ObjectMeta: meta("web", nil, ""), Spec: appsv1.StatefulSetSpec{Selector: selector()}},
		pod("web-0", web, "web-uid"), pod("web-1", web, "web-uid"))
	s, err := Select(t.Context(), client, workload(kind.StatefulSet), false)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	seen := 0
	_, err = s.Each(ctx, client, AllPods, func(*corev1.Pod) {
		seen++
		cancel()
	})
	if !errors.Is(err, context.Canceled) || seen != 1 {
		t.Errorf("%d pods: %v", seen, err)
	}
}
