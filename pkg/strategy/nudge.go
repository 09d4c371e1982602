// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package strategy

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/workload"
)

// maxNudges is how many pods of a workload are nudged in one step, so that others get their turn.
const maxNudges = 50

// Nudge annotates pods of a workload whose annotation has another value, as many as allowed says, so that their kubelets refresh their
// volumes. It reports whether there are more. A pod that is refused keeps no other from being nudged.
func Nudge(ctx context.Context, client workload.Client, w *dependency.Workload, nudge string, allowed func() bool) (more bool, err error) {
	var behind []*corev1.Pod
	err = eachPod(ctx, client, w, func(p *corev1.Pod) {
		if p.DeletionTimestamp == nil && p.Annotations[policy.NudgedAnnotation] != nudge && len(behind) <= maxNudges {
			behind = append(behind, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID}})
		}
	})
	if err != nil {
		return false, err
	}
	var failed error // the first
	for i, p := range behind {
		if i == maxNudges || !allowed() {
			return true, failed
		}
		_, err := client.CoreV1().Pods(w.Namespace).Patch(ctx, p.Name, types.MergePatchType, policy.NudgePatch(p.UID, nudge), metav1.PatchOptions{FieldManager: policy.FieldManager})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // the pod is gone, or another one
			failed = cmp.Or(failed, fmt.Errorf("annotating pod %s/%s: %w", w.Namespace, p.Name, err))
		}
	}
	return false, failed
}
