// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/dependency"
)

// Recreate evicts the pods one by one, and does not change the template. The controller does that, and only for
// workloads that have opted in.
var Recreate Strategy = recreate{}

type recreate struct{}

// Name implements Strategy.
func (recreate) Name() string { return "recreate" }

// NamesPods implements Strategy.
func (recreate) NamesPods() bool { return true }

// MarksTemplate implements Strategy.
func (recreate) MarksTemplate() bool { return false }

// Describe implements Strategy. The caveats of rollouts do not apply to evictions.
func (recreate) Describe(string) Description {
	return Description{What: "pods", Done: "are being evicted, one by one", Would: "would be evicted, one by one"}
}

// UnderWay implements Strategy.
func (recreate) UnderWay(w *dependency.Workload) bool {
	return w.Marks.Recreating != "" && !w.Reruns && !InPlace.UnderWay(w)
}

// Progress implements Strategy.
func (recreate) Progress() Progress {
	return Progress{
		Reason:  ReasonRecreating,
		Message: "Pods with old content are evicted one by one, as PodDisruptionBudgets allow. If that takes long, the event ConfigRestartWaiting says why.",
		Already: "the pods are already being evicted, one by one",
		While:   "pods were being evicted",
		Waits:   "The next pod will be evicted later",
		Step:    "Evicting the pods",
	}
}

func (recreate) begin(_ *dependency.Workload, r *Restart, out *restartPatch) {
	out.last.Evicted = true
	out.workload[RecreatingAnnotation] = podsToEvict(r.Pods)
}

// noPod is the value of RecreatingAnnotation when there is no pod to evict.
const noPod = "none"

func podsToEvict(pods []types.UID) string {
	if len(pods) == 0 {
		return noPod
	}
	return strings.Join(podIDsOf(pods), ",")
}

// podIDsOf returns the sorted IDs of pods.
func podIDsOf(pods []types.UID) []string {
	ids := make([]string, len(pods))
	for i, uid := range pods {
		ids[i] = podID(uid)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// podID identifies a pod in few bytes. If two pods have the same, one of them is evicted
// for nothing.
func podID(uid types.UID) string { return Checksum([]string{string(uid)}) }

// PodsToEvict are the pods that RecreatingAnnotation names.
type PodsToEvict map[string]bool

// PodsToEvictOf returns the pods of a workload that had to be evicted when its last restart began.
// Valid reports whether the value has our format; if not, it is unknown which pods are left.
func PodsToEvictOf(w *dependency.Workload) (pods PodsToEvict, valid bool) {
	value := w.Marks.Recreating
	if value == noPod {
		return nil, true
	}
	pods, valid = PodsToEvict{}, true
	for id := range strings.SplitSeq(value, ",") {
		pods[id] = true
		valid = valid && podIDs.MatchString(id)
	}
	return pods, valid
}

// podIDs matches what podID returns.
var podIDs = regexp.MustCompile("^[0-9a-f]{8}$")

// Has reports whether a pod has to be evicted.
func (p PodsToEvict) Has(uid types.UID) bool { return p[podID(uid)] }
