// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// live returns a pod that reads Secret db from its environment, and ConfigMap files from a volume.
func live() corev1.PodSpec {
	pod := podOf(envFrom(dependency.Secret, "db"))
	pod.Volumes = []corev1.Volume{{Name: "files", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "files"}}}}}
	pod.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "files", MountPath: "/files"}}
	return pod
}

// nudged records what the pods were nudged for.
func (x *world) nudged() {
	x.t.Helper()
	e := x.evaluate()
	x.patch(policy.NudgedPatch(e.Workload, e.Live))
}

func TestDecide_NudgesForContentThatIsOnlyInFiles(t *testing.T) {
	x := newWorld(t, live(), secret("db", "a", "1"), configMap("files", "a", "1"))
	x.annotate(policy.LiveVolumesAnnotation, "true", policy.NudgeAnnotation, "true")
	if x.decide().Nudge {
		t.Error("it nudges before the record is written")
	}
	x.recordFirst()
	expect := func(what string, want bool) {
		t.Helper()
		if d := x.decide(); d.Nudge != want {
			t.Errorf("%s: nudges = %v, want %v: %+v", what, d.Nudge, want, d)
		}
	}
	expect("the first time", true)
	if e := x.evaluate(); !policy.NudgeIsNew(e.Workload, e.Live) {
		t.Error("the first time, there is nothing to compare with")
	}
	x.nudged()
	expect("recorded", false)
	x.set(configMap("files", "a", "2"))
	expect("files have changed", true)
	if e := x.evaluate(); policy.NudgeIsNew(e.Workload, e.Live) {
		t.Error("there is something to compare with")
	}
	if d := x.decide(); d.State != policy.InSync || d.Action != policy.None {
		t.Errorf("decision = %+v, want no restart", d)
	}
	x.nudged()
	expect("recorded again", false)
	x.set(secret("db", "a", "2"))
	expect("what restarts the workload has changed", false)
	x.tick(time.Minute)
	x.act()
	expect("restarted", false)
	x.set(configMap("files", "a", "3"))
	x.defaults.Observe = true
	expect("the server only observes", false)
	x.defaults.Observe = false
	x.annotate(policy.NudgeAnnotation, "false")
	expect("it does not ask for it", false)
	x.annotate(policy.NudgeAnnotation, "true", policy.ReloadAnnotation, "off")
	expect("it has opted out", false)
	x.annotate(policy.ReloadAnnotation, "auto")
	expect("it asks for it", true)
	x.replaceKey()
	if e := x.evaluate(); !policy.NudgeIsNew(e.Workload, e.Live) {
		t.Error("with another key, there is nothing to compare with")
	}
}

// recordFirst records the current content, after which something else is to be done.
func (x *world) recordFirst() {
	x.t.Helper()
	if d := x.act(); d.Action != policy.WriteBaseline {
		x.t.Fatalf("decision = %+v, want a baseline", d)
	}
	x.tick(time.Minute)
}

// Of a source that is read in several ways, only what needs no restart counts.
func TestDecide_NudgesForFilesOfASourceThatIsReadOtherwiseToo(t *testing.T) {
	pod := live()
	env(dependency.ConfigMap, "files", "a")(&pod)
	x := newWorld(t, pod, secret("db", "a", "1"), configMap("files", "a", "1", "b", "1"))
	x.annotate(policy.LiveVolumesAnnotation, "true", policy.NudgeAnnotation, "true")
	x.recordFirst()
	x.nudged()
	x.set(configMap("files", "a", "1", "b", "2"))
	if d := x.decide(); !d.Nudge || d.Stale {
		t.Errorf("a file has changed: %+v", d)
	}
	x.nudged()
	x.set(configMap("files", "a", "2", "b", "2"))
	if d := x.decide(); !d.Nudge || !d.Stale {
		t.Errorf("a file and a variable have changed: %+v", d)
	}
	x.nudged()
	x.set(secret("db", "a", "2"))
	if d := x.decide(); d.Nudge || !d.Stale {
		t.Errorf("a variable has changed: %+v", d)
	}
}

func TestNewPolicy_Nudge(t *testing.T) {
	const alone = `annotation configdep.io/nudge="true" has no effect without configdep.io/live-volumes="true": set both`
	const refused = `annotation configdep.io/nudge="true" is not allowed: configdep may annotate pods only if the strategy in-place is allowed (--strategies)`
	with := []policy.Strategy{policy.Annotate, policy.InPlace}
	for name, tc := range map[string]struct {
		strategies          []policy.Strategy
		workload, namespace map[string]string
		want                bool
		problem             string
	}{
		"both":                       {with, map[string]string{policy.LiveVolumesAnnotation: "true", policy.NudgeAnnotation: "true"}, nil, true, ""},
		"all strategies are allowed": {nil, map[string]string{policy.LiveVolumesAnnotation: "true", policy.NudgeAnnotation: "true"}, nil, true, ""},
		"by the namespace":           {with, map[string]string{policy.LiveVolumesAnnotation: "true"}, map[string]string{policy.NudgeAnnotation: "true"}, true, ""},
		"the namespace alone":        {with, nil, map[string]string{policy.NudgeAnnotation: "true"}, false, ""},
		"alone":                      {with, map[string]string{policy.NudgeAnnotation: "true"}, nil, false, alone},
		"no":                         {with, map[string]string{policy.NudgeAnnotation: "false"}, nil, false, ""},
		"maybe":                      {with, map[string]string{policy.NudgeAnnotation: "maybe"}, nil, false, `invalid annotation configdep.io/nudge="maybe": must be "true" or "false"`},
		"not allowed":                {[]policy.Strategy{policy.Annotate}, map[string]string{policy.LiveVolumesAnnotation: "true", policy.NudgeAnnotation: "true"}, nil, false, refused},
		"no, and not allowed":        {[]policy.Strategy{policy.Annotate}, map[string]string{policy.NudgeAnnotation: "false"}, nil, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := policy.Annotated{Workload: map[string]string{policy.ReloadAnnotation: "auto"}, Namespace: tc.namespace, Traits: dependency.Traits{Rollable: true}}
			maps.Copy(a.Workload, tc.workload)
			p := policy.NewPolicy(a, policy.Defaults{Strategies: tc.strategies})
			var problems []string
			if tc.problem != "" {
				problems = []string{tc.problem}
			}
			if p.Nudge != tc.want || !slices.Equal(p.Problems, problems) || p.StrategyNotAllowed {
				t.Errorf("nudge = %v, problems = %q, want %v, %q", p.Nudge, p.Problems, tc.want, problems)
			}
		})
	}
}

func TestNudgePatch_IsBoundToThePod(t *testing.T) {
	var patch struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(policy.NudgePatch("u", policy.NudgeOf("v1.key.0123456789abcdef0123")), &patch); err != nil {
		t.Fatal(err)
	}
	if patch.Metadata.UID != "u" || patch.Metadata.Annotations[policy.NudgedAnnotation] != "0123456789abcdef" {
		t.Errorf("patch = %+v", patch)
	}
	if got := policy.NudgeOf("v1.key.01"); got != "01" {
		t.Errorf("of a short hash: %q", got)
	}
}
