// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/dependency"
)

// The kubelet refreshes the files of volumes about once a minute, and at once when an annotation of the pod changes. With Policy.Nudge,
// pods are annotated when content changes that restarts nothing, because it is only in files that the application reads again.

// NudgedAnnotation is on a workload and on its pods: for which content the pods were nudged. A workload that does not have it has just asked
// for nudges, and its files are as old as they are.
const NudgedAnnotation = Prefix + "nudged"

// errNoNudge: the server lacks the right to annotate pods.
var errNoNudge = errors.New("configdep may annotate pods only if the strategy in-place is allowed (--strategies)")

// readNudge reads NudgeAnnotation. On a namespace, it is for those workloads whose files are read again.
func (p *Policy) readNudge(r *reader, defaults *Defaults) {
	where := parse(r, NudgeAnnotation, func(value string) (bool, error) {
		nudge, err := parseBool(value)
		if err == nil && nudge && defaults.Strategies != nil && !slices.Contains(defaults.Strategies, InPlace) {
			err = errNoNudge
		}
		return nudge, err
	}, &p.Nudge, "")
	if p.Nudge && !p.LiveVolumes {
		p.Nudge = false
		if where == NudgeAnnotation {
			p.Problems = append(p.Problems, "annotation "+NudgeAnnotation+"=\"true\" has no effect without "+LiveVolumesAnnotation+"=\"true\": set both")
		}
	}
}

// onlyFiles returns the uses of a source whose content is in files alone, and restarts nothing, if the policy is to nudge pods. Other uses
// of the source may need a restart.
func (p *Policy) onlyFiles(s *Source, n naming) []dependency.Use {
	if !p.Nudge || n.whole || !s.Triggers && s.Reason != ReasonLiveVolume {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(s.Uses), func(u dependency.Use) bool { return !u.Reads() || needsRestart(u) })
}

// nudges reports whether there is content for which the pods have not been nudged. Only pods that are certain to belong to the workload are.
func (e *Evaluation) nudges() bool {
	w := e.Workload
	return e.Policy.Nudge && e.Policy.Mode != Off && len(e.Policy.Problems) == 0 && e.Live != "" && w.Marks.Nudged != e.Live &&
		w.Rollable && !w.Reruns && !w.UnknownPods && !w.PodsByLabels && !e.graph.Terminating(w)
}

// NudgeIsNew reports whether there is nothing to compare live content with: the workload was not nudged before, or the key of the hash has
// been replaced.
func NudgeIsNew(w *dependency.Workload, live string) bool {
	return dependency.KeyOf(w.Marks.Nudged) != dependency.KeyOf(live)
}

// NudgedPatch returns the JSON merge patch that records for which content the pods of a workload have been nudged.
func NudgedPatch(w *dependency.Workload, live string) ([]byte, error) {
	return patch(w, object{NudgedAnnotation: live}, nil)
}

// NudgeOf returns the value of NudgedAnnotation on pods for live content. It is short, and says as little of it as the hash.
func NudgeOf(live string) string {
	const digits = 16
	sum := live[strings.LastIndexByte(live, '.')+1:]
	return sum[:min(digits, len(sum))]
}

// NudgePatch returns the JSON merge patch that nudges a pod.
func NudgePatch(uid types.UID, nudge string) []byte {
	return []byte(mustJSON(object{"metadata": object{"uid": uid, "annotations": object{NudgedAnnotation: nudge}}}))
}
