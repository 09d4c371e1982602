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

// Nudge is a nudge of the pods of a workload that is under way. The zero value has not begun. It remembers the pods of one page at most.
type Nudge struct {
	of     types.UID
	value  string
	pods   *workload.Selection // nil: they have not been selected
	begun  bool                // the first page has been read
	after  string              // where the next page begins; empty: there is none
	behind []nudged            // the pods of the last page that are left
	failed error               // the first
}

// nudged is a pod to nudge.
type nudged struct {
	name string
	uid  types.UID
}

// Step annotates pods whose annotation has another value, as many as allowed says, so that their kubelets refresh their volumes. It reports
// whether there are more, for which it must be called again; otherwise, all have been nudged, or the error says which has been refused. A
// pod that is refused keeps no other from being nudged. Pods that start meanwhile have the content.
func (n *Nudge) Step(ctx context.Context, client workload.Client, w *dependency.Workload, value string, allowed func() bool) (more bool, err error) {
	if n.value != value || n.of != w.UID {
		*n = Nudge{of: w.UID, value: value}
	}
	for done := 0; ; {
		if len(n.behind) == 0 {
			more, err := n.read(ctx, client, w)
			if err != nil { // the next call goes on with the same page
				return false, err
			}
			if !more {
				failed := n.failed
				*n = Nudge{}
				return false, failed
			}
			continue
		}
		if done == maxNudges || !allowed() {
			return true, nil
		}
		p := n.behind[0]
		_, err := client.CoreV1().Pods(w.Namespace).Patch(ctx, p.name, types.MergePatchType, policy.NudgePatch(p.uid, value), metav1.PatchOptions{FieldManager: policy.FieldManager})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // the pod is gone, or another one
			n.failed = cmp.Or(n.failed, fmt.Errorf("annotating pod %s/%s: %w", w.Namespace, p.name, err))
		}
		n.behind = n.behind[1:]
		done++
	}
}

// read reads the next page of pods. It returns false if there is none.
func (n *Nudge) read(ctx context.Context, client workload.Client, w *dependency.Workload) (more bool, err error) {
	if n.begun && n.after == "" {
		return false, nil
	}
	if n.pods == nil {
		if n.pods, err = workload.Select(ctx, client, w, false); err != nil {
			return false, listing(w, err)
		}
	}
	var behind []nudged
	after, err := n.pods.Page(ctx, client, n.after, func(p *corev1.Pod) {
		if p.DeletionTimestamp == nil && p.Annotations[policy.NudgedAnnotation] != n.value {
			behind = append(behind, nudged{p.Name, p.UID})
		}
	})
	switch {
	case n.after != "" && apierrors.IsResourceExpired(err): // begin again, which leaves out the pods that have been nudged
		*n = Nudge{of: n.of, value: n.value, failed: n.failed}
		return true, nil
	case err != nil:
		return false, listing(w, err)
	}
	n.behind, n.after, n.begun = behind, after, true
	return true, nil
}
