// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"embed"
	"encoding/json"
	"path"
	"slices"
	"strings"
	"testing"
	"time"
)

// one returns a history with one server and one workload that has opted in and reads s0.a.
func one(operations ...operation) *history {
	return &history{Servers: 1, defaults: defaults{Mode: "off"}, Workloads: []seed{opted("Deployment", readsS0, readsS0)}, Operations: operations}
}

func opted(kind string, before, after int) seed {
	return seed{Kind: kind, Replicas: 2, Variants: [2]int{before, after}, Annotations: map[string]string{reloadAnnotation: "auto"}}
}

func (h *history) with(change func(*history)) *history {
	change(h)
	return h
}

// Common operations of histories.
var (
	create = operation{Do: "create workload"}
	birth  = operation{Do: "birth"}
	lead   = operation{Do: "lead"}
	calm   = operation{Do: "calm"}
	look   = operation{Do: "look"}
	optIn  = operation{Do: "opt", Annotation: reloadAnnotation, Text: "auto"}
	optOut = operation{Do: "opt", Annotation: reloadAnnotation, Text: "off"}
)

func wait(d time.Duration) operation { return operation{Do: "wait", Wait: d} }

// has creates a source with the same value for each key.
func has(source int, v value) operation {
	return operation{Do: "create source", A: source, Content: content{v, v, v}}
}

// change sets a key.
func change(source, key int, v value) operation {
	return operation{Do: "set key", A: source, B: key, C: int(v)}
}

func do(what string, b, c int) operation { return operation{Do: what, B: b, C: c} }

// before starts a history with a workload whose pods run, recorded by a server that had not seen its creation.
func before(then ...operation) []operation {
	return append([]operation{has(2, 1), create, birth, lead, calm}, then...)
}

const s0 = 2

// rotation changes the content of the SecretProviderClass, and lets all drivers update their pods.
var rotation = []operation{do("rotate", 0, 0), {Do: "poll"}, {Do: "poll", A: 1}, {Do: "poll", A: 2}}

func mounts(h *history) { h.Workloads[0].Mounts = true }

// cases are histories that once revealed a bug, each named after what must or must not happen.
var cases = map[string]*history{
	// Records that are removed.
	"RecordStrippedWhileSettling": one(before(change(s0, 0, 2), wait(500*time.Millisecond), do("rewrite", 1, -1), calm)...),
	"RecordStrippedWhilePaused":   one(before(do("pause", 0, 0), change(s0, 0, 2), do("rewrite", 1, -1), do("resume", 0, 0), calm)...),
	"RecordStrippedEachTime": one(before(change(s0, 0, 2), calm, change(s0, 0, 3), calm)...).with(func(h *history) {
		h.Workloads[0].Reaction, h.Workloads[0].Delay = stripsMetadata, 3*time.Second
	}),
	"RecordStrippedAndKeyRemovedWhileNoServerRuns": one(has(0, 1), has(s0, 1), create, birth, lead, calm, change(s0, 0, 2), calm, wait(time.Minute), do("set image", 0, 1), calm,
		do("kill", 0, 0), do("rewrite", 1, -1), wait(time.Minute), operation{Do: "remove key", A: s0, B: 1}, wait(time.Minute), birth, lead, calm).with(func(h *history) {
		h.Workloads[0] = opted("Deployment", readsSecretAndMap, readsSecretAndMap)
	}),
	"UndoneRecordComesTrueWhileASourceIsMissing": one(has(s0, 1), has(1, 1), create, birth, lead, calm, change(s0, 0, 2), calm,
		operation{Do: "delete source", A: 1}, wait(time.Minute), do("undo", 0, 0), wait(10*time.Minute), change(s0, 0, 1), wait(10*time.Minute), has(1, 1), calm).with(func(h *history) {
		h.Workloads[0] = opted("Deployment", twoContainers, twoContainers)
	}),
	"UndoneRecordComesTrueWithoutLeader": one(before(change(s0, 0, 2), calm, do("resign", 0, 0), do("undo", 0, 0), wait(10*time.Minute),
		change(s0, 0, 1), wait(time.Second), lead, calm)...),
	"RecordOfALeaderThatLagsComesTrue": one(has(s0, 1), create, birth, operation{Do: "birth", A: 1}, lead, do("pause", 0, 0), do("hold", int(secrets), 0),
		change(s0, 0, 2), optIn, wait(time.Second), do("resign", 0, 0), operation{Do: "lead", A: 1}, wait(5*time.Minute), do("evict pod", 0, 0),
		wait(5*time.Minute), change(s0, 0, 1), wait(time.Minute), do("resume", 0, 0), calm).with(func(h *history) {
		h.Servers = 2
		h.Workloads[0].Annotations = map[string]string{}
	}),
	"RestartGoesBackToTheTemplateOfAPodOnATaintedNode": one(before(change(s0, 0, 2), calm, do("hold pods", 0, 2), do("scale", 1, 0), wait(time.Minute),
		change(s0, 0, 3), wait(time.Minute), do("evict pod", 0, 0), wait(time.Minute), do("restart container", 0, 0), wait(time.Minute),
		change(s0, 0, 2), wait(time.Minute), do("evict pod", 0, 1), wait(time.Minute), calm)...).with(func(h *history) { h.Workloads[0].Kind = "DaemonSet" }),
	"DeletionThatIsSeenLate": one(has(0, 1), has(s0, 1), create, birth, lead, calm, do("hold", int(secrets), 0), operation{Do: "delete source", A: s0},
		do("evict pod", 0, 1), wait(10*time.Minute), do("relist", int(secrets), 0), do("release", int(secrets), 0), wait(300*time.Millisecond), has(s0, 1),
		calm).with(func(h *history) { h.Workloads[0] = opted("Deployment", readsAnOptionalSource, readsAnOptionalSource) }),

	// Records that were never written.
	"FirstRecordRefused":    one(before(optOut, do("rewrite", 1, -1), do("refuse", 1, 0), optIn, wait(time.Second), change(s0, 0, 2), wait(time.Hour), calm)...),
	"NotInSyncWhileRefused": one(before(optOut, do("rewrite", 1, -1), do("refuse", 1, 0), optIn, wait(time.Second), change(s0, 0, 2), look)...),
	"FirstRecordHeldUpByAnotherSource": one(has(0, 1), has(s0, 1), create, birth, lead, operation{Do: "delete source"}, optIn, wait(time.Second),
		change(s0, 1, 2), wait(time.Second), has(0, 1), calm).with(func(h *history) {
		h.Workloads[0] = opted("Deployment", readsOneKey, readsOneKey)
		h.Workloads[0].Annotations = map[string]string{}
	}),
	"FirstRecordWithoutLeader": one(has(s0, 1), create, birth, wait(time.Second), optIn, wait(time.Second), change(s0, 0, 2), lead, calm).with(func(h *history) {
		h.Workloads[0].Annotations = map[string]string{}
	}),

	// Pods whose containers start at different times.
	"ContainerStartsBesideOneThatWaits": one(has(s0, 1), birth, lead, create, wait(time.Second), change(s0, 0, 2), wait(time.Second), has(1, 1), calm).with(func(h *history) {
		h.Workloads[0] = opted("Deployment", twoContainers, twoContainers)
	}),
	"ContainerStartsBesideOneThatWaitsForTheNextRollout": one(has(s0, 1), has(1, 1), birth, lead, create, calm, operation{Do: "delete source", A: 1}, do("set image", 0, 1), wait(time.Second),
		change(s0, 0, 2), wait(time.Second), has(1, 1), calm).with(func(h *history) {
		h.Workloads[0] = opted("Deployment", twoContainers, twoContainers)
	}),

	// Content that changes and changes back.
	"PodMadeBetweenThereAndBack":            one(before(change(s0, 0, 2), do("evict pod", 0, 0), wait(300*time.Millisecond), change(s0, 0, 1), calm)...),
	"ContainerRestartedBetweenThereAndBack": one(before(change(s0, 0, 2), do("restart container", 0, 0), wait(300*time.Millisecond), change(s0, 0, 1), calm)...),
	"ScaledUpBetweenThereAndBackWhilePaused": one(before(do("pause", 0, 0), change(s0, 0, 2), do("scale", 3, 0), wait(time.Minute), change(s0, 0, 1),
		do("resume", 0, 0), calm)...),
	"RolledOutBetweenThereAndBack":    one(before(do("refuse", 1, 0), change(s0, 0, 2), do("set image", 0, 1), wait(time.Second), change(s0, 0, 1), calm)...),
	"RolledBackInTheMiddleOfARollout": one(before(do("protect", 0, 0), change(s0, 0, 2), do("set image", 0, crashing), wait(100*time.Millisecond), do("set image", 0, 0), calm)...),
	"OldRevisionComesBackWithItsPods": one(before(do("set image", 0, crashing), calm, change(s0, 0, 2), wait(100*time.Millisecond), do("undo", 0, 0), calm)...),

	"PausedInTheMiddleOfARolloutAndListed": one(before(do("hold", 0, 0), do("set image", 0, 1), wait(250*time.Millisecond), do("pause", 0, 0), do("relist", 0, 0), do("release", 0, 0),
		wait(time.Second), change(s0, 0, 2), wait(100*time.Millisecond), do("resume", 0, 0), calm)...).with(func(h *history) { h.Pace = 100 * time.Millisecond }),
	"PausedAfterARolloutAndListed": one(before(do("hold", 0, 0), do("set image", 0, 1), wait(time.Minute), do("pause", 0, 0), do("relist", 0, 0), do("release", 0, 0),
		wait(time.Second), change(s0, 0, 2), wait(100*time.Millisecond), do("resume", 0, 0), calm)...),

	// The controller gives the revision of a template that is restored the highest number only if it has read that
	// it created another one in between.
	"RolledBackBeforeTheRevisionIsRead": one(has(0, 1), has(s0, 1), create, birth, lead, calm, change(s0, 1, 2), do("set image", 0, 1), wait(150*time.Millisecond), do("undo", 0, 0), calm).with(func(h *history) {
		h.Workloads[0] = opted("DaemonSet", readsOneKey, readsOneKey)
		h.Pace = 100 * time.Millisecond
	}),
	"RolledBackBeforeTheRevisionIsReadOfADeployment": one(has(0, 1), has(s0, 1), create, birth, lead, calm, change(s0, 1, 2), do("set image", 0, 1), wait(150*time.Millisecond), do("undo", 0, 0), calm).with(func(h *history) {
		h.Workloads[0] = opted("Deployment", readsOneKey, readsOneKey)
		h.Pace = 100 * time.Millisecond
	}),

	"RolledBackAfterThereAndBack": one(before(change(s0, 0, 2), calm, do("set image", 0, crashing), wait(time.Second), change(s0, 0, 3), wait(100*time.Millisecond),
		do("restart container", 0, 0), wait(200*time.Millisecond), change(s0, 0, 2), wait(100*time.Millisecond), do("undo", 0, 0), calm)...),

	// Evictions with wrong clocks.
	"EvictsWithAClockBehind": one(before(change(s0, 0, 2), calm)...).with(func(h *history) {
		h.Workloads[0].Annotations[strategyAnnotation] = "recreate"
		h.Skews.Servers[0] = -20 * time.Minute
	}),
	"EvictsYoungPodsWithAClockBehind": one(has(s0, 1), birth, lead, create, wait(time.Second), change(s0, 0, 2), calm).with(func(h *history) {
		h.Workloads[0].Annotations[strategyAnnotation] = "recreate"
		h.Skews.Servers[0] = -5 * time.Second
	}),
	"EvictsOnceWithAClockAhead": one(before(change(s0, 0, 2), calm)...).with(func(h *history) {
		h.Workloads[0].Annotations[strategyAnnotation] = "recreate"
		h.Skews.Servers[0] = 90 * time.Second
	}),
	// Within the time in which a volume may have old files, which the kubelet sets up again when a pod is told.
	"RestartsInPlaceOnceForFiles": one(append([]operation{has(0, 1)}, before(operation{Do: "restarter", C: 1, Wait: 20 * time.Second}, change(0, 0, 2), wait(10*time.Minute), calm)...)...).with(func(h *history) {
		h.Workloads[0].Annotations[strategyAnnotation] = "in-place"
		h.Workloads[0].Variants[0] = restartable(2)
	}),
	"EvictsPastADeadNode": one(before(do("lose node", 0, 0), wait(time.Minute), change(s0, 0, 2), calm)...).with(func(h *history) {
		h.Workloads[0].Annotations[strategyAnnotation] = "recreate"
	}),

	// Annotations that kubectl rollout undo restores with a template, and removes.
	"UndoToBeforeTheOptIn": one(has(s0, 1), create, birth, lead, wait(time.Second), optIn, do("set image", 0, 1), calm, change(s0, 0, 2), calm,
		do("undo", 0, 0), do("undo", 0, 0), wait(time.Second), change(s0, 0, 3), wait(time.Second), optIn, calm, change(s0, 0, 4), calm).with(func(h *history) {
		h.Workloads[0].Annotations = map[string]string{}
	}),
	"UndoBringsAnEvictionBack": one(before(do("protect", 1, 0), change(s0, 0, 2), wait(3*time.Second), do("set image", 0, 1), do("protect", 0, 0), calm,
		do("undo", 0, 0), calm, change(s0, 0, 3), calm)...).with(func(h *history) {
		h.Workloads[0].Annotations[strategyAnnotation] = "recreate"
	}),

	// The key of the hash.
	"KeyReplacedWhileSettling": one(before(change(s0, 0, 2), wait(500*time.Millisecond), do("replace key", 0, 0), calm)...),
	"KeyReplacedWhilePaused":   one(before(do("pause", 0, 0), change(s0, 0, 2), wait(time.Minute), do("replace key", 0, 0), wait(time.Minute), do("resume", 0, 0), calm)...),
	"KeyReplacedAndRestored": one(before(change(s0, 0, 2), wait(500*time.Millisecond), do("replace key", 0, 0), wait(100*time.Millisecond), do("replace key", 2, 0), calm,
		change(s0, 0, 3), calm)...),
	"KeyReplacedOfARecordOfAnotherProcess": one(before(do("refuse", 1, 0), change(s0, 0, 2), wait(time.Minute), do("kill", 0, 0), birth, lead, wait(time.Minute),
		do("replace key", 0, 0), do("refuse", 0, 0), calm)...),
	"KeyReplacedWithEqualContent": one(before(do("replace key", 0, 0), calm, do("replace key", 0, 0), do("replace key", 0, 0), calm)...),

	// Sources that begin to count.
	"TemplateEditedThereAndBackWhilePaused": one(has(0, 1), has(s0, 1), create, birth, lead, calm, do("pause", 0, 0), change(s0, 0, 2), wait(time.Second),
		do("set image", 1, 0), wait(time.Second), do("set image", 0, 0), wait(time.Second), do("resume", 0, 0), calm).with(func(h *history) {
		h.Workloads[0].Variants = [2]int{readsS0, readsOneKey}
	}),
	"RedundantOptIn": one(has(s0, 1), birth, lead, do("create workload", 0, 0), do("refuse", 1, 0), wait(100*time.Millisecond), change(s0, 0, 2), wait(100*time.Millisecond),
		optIn, wait(100*time.Millisecond), calm).with(func(h *history) {
		h.Mode = "auto"
		h.Workloads[0].Annotations = map[string]string{}
		h.Operations = append([]operation{has(s0, 1), birth, lead, {Do: "impair", B: 1}, create}, h.Operations[5:]...)
	}),

	// A release is one rollout. The record that follows it moves the time of all that the server has written, such as the annotation of the template.
	"ReleaseOfAWorkloadThatWasRestarted": one(before(change(s0, 0, 2), calm, operation{Do: "release template", B: s0, C: 1})...).with(func(h *history) {
		h.Kubelets.Start = 4 * time.Second
	}),
	"ReleaseLongAfterThereAndBack": one(before(operation{Do: "there and back", A: s0, C: 2, Wait: 200 * time.Millisecond}, wait(10*time.Minute),
		operation{Do: "release template", B: s0, C: 1, Wait: 200 * time.Millisecond})...).with(func(h *history) {
		h.Kubelets.Start = 4 * time.Second
	}),

	// Pods that wait for a user to replace them.
	"UndoneWhilePodsWaitForAUser": one(before(do("hold pods", 0, 2), change(s0, 0, 2), wait(time.Minute), do("undo", 0, 0), calm)...).with(func(h *history) {
		h.Workloads[0].Kind = "StatefulSet"
	}),
	"ThereAndBackWhilePodsWaitForAUser": one(before(do("hold pods", 0, 2), change(s0, 0, 2), wait(time.Minute),
		operation{Do: "there and back", A: s0, C: 3, Wait: 200 * time.Millisecond}, calm)...).with(func(h *history) { h.Workloads[0].Kind = "StatefulSet" }),
	"ScopeEditedWhilePodsWaitForAUser": one(before(do("hold pods", 0, 2), change(s0, 0, 2), wait(time.Minute),
		operation{Do: "toggle", Annotation: excludeAnnotation, Text: "configmap/c0"}, wait(time.Minute), do("kill", 0, 0), birth, lead, calm)...).with(func(h *history) {
		h.Workloads[0].Kind = "StatefulSet"
	}),
	// A container that is about to start may read the files with which its volumes were refreshed last.
	"ChangedWhileTheOnlyContainerWaits": one(has(0, 1), has(s0, 1), create, birth, lead, calm, operation{Do: "restart container", Wait: 10 * time.Second}, change(0, 0, 2),
		wait(2*time.Second), do("kill", 0, 0), birth, lead, calm).with(func(h *history) {
		h.Workloads[0] = opted("Deployment", 2, 2)
		h.Workloads[0].Replicas = 1
		h.Kubelets.Refresh = 80 * time.Second
	}),

	// Endless writes.
	"PacesWritesOfARecordThatIsStripped": one(before(wait(time.Minute), calm)...).with(func(h *history) {
		h.Workloads[0].Reaction, h.Workloads[0].Delay = stripsMetadata, 10*time.Millisecond
	}),
	"PacesRefusedPatchesOfABusyWorkload": one(before(do("refuse", 1, 0), change(s0, 0, 2), operation{Do: "busy", B: 600, Wait: 100 * time.Millisecond})...),
	"PacesRefusedRecordsOfABusyWorkload": one(before(do("refuse", 1, 0), do("rewrite", 1, -1), operation{Do: "busy", B: 600, Wait: 100 * time.Millisecond})...),

	// Unnecessary restarts.
	"PausedWhenTheServerStarts": one(before(do("kill", 0, 0), do("pause", 0, 0), do("set image", 0, 1), wait(3*time.Second), change(s0, 0, 2), wait(3*time.Second),
		birth, lead, wait(3*time.Second), do("resume", 0, 0), calm)...),
	"HashOfNoSourceSaysNothing": one(has(0, 1), has(s0, 1), birth, lead, create, do("reload", 0, 0), wait(300*time.Millisecond), change(s0, 1, 2), calm).with(func(h *history) {
		h.Workloads[0] = opted("Deployment", readsOneKey, readsOneKey)
		h.Workloads[0].Annotations[reloadAnnotation] = "listed"
	}),
	"DoubtEndsWithARestartAlthoughAnotherSourceIsIgnoredLater": one(has(3, 1), birth, lead, create, has(s0, 1), calm, operation{Do: "delete source", A: s0}, wait(time.Minute),
		operation{Do: "mark source", A: 3}, calm).with(func(h *history) { h.Workloads[0] = opted("Deployment", 4, 4) }),
	// Containers that start soon after a driver has updated what their pods have mounted.
	"MountedClassInDoubtIsAdopted": one(before(slices.Concat([]operation{optOut, calm}, rotation, []operation{wait(time.Minute), do("restart container", 0, 0), do("restart container", 0, 1),
		do("opt in at rest", 0, 0)})...)...).with(mounts),
	"MountedClassIsReadByARestartInPlace": one(before(slices.Concat(rotation, []operation{calm})...)...).with(mounts).with(func(h *history) {
		h.Workloads[0].Variants, h.Workloads[0].Annotations[strategyAnnotation] = [2]int{restartable(readsS0), restartable(readsS0)}, "in-place"
	}),
	"SettlesInTheSecondOfTheStart": one(birth, lead, has(s0, 1), create, calm, change(s0, 0, 2), wait(500*time.Millisecond), change(s0, 0, 3), calm),
	"NoReplicas":                   one(before(do("scale", 0, 1), calm, change(s0, 0, 2), calm)...),
	"NoReplicasOfAStatefulSet":     one(before(do("scale", 0, 1), calm, change(s0, 0, 2), calm)...).with(func(h *history) { h.Workloads[0].Kind = "StatefulSet" }),
	"WorkloadBeingDeleted":         one(before(do("terminate workload", 0, 0), change(s0, 0, 2), calm)...),
	"NamespaceBeingDeleted":        one(before(do("terminate namespace", 0, 0), operation{Do: "delete source", A: s0}, calm)...).with(func(h *history) { h.Workloads[0] = opted("Deployment", 4, 4) }),
	"ReloadIfStaleAfterARollout":   one(before(optOut, change(s0, 0, 2), wait(3*time.Second), do("restart", 0, 0), wait(3*time.Second), do("reload", 1, 0), calm)...),
}

func TestHistory(t *testing.T) {
	for name, h := range cases {
		t.Run(name, func(t *testing.T) { play(t, h) })
	}
}

//go:embed testdata
var testdata embed.FS

// TestKeptHistories replays histories that once failed, in the format in which a failing one is printed.
func TestKeptHistories(t *testing.T) {
	files, err := testdata.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(f.Name(), ".json"), func(t *testing.T) {
			data, err := testdata.ReadFile(path.Join("testdata", f.Name()))
			if err != nil {
				t.Fatal(err)
			}
			h := &history{}
			if err := json.Unmarshal(data, h); err != nil {
				t.Fatal(err)
			}
			play(t, h)
		})
	}
}

// play plays a known history, and reports a violation.
func play(t *testing.T, h *history) {
	t.Helper()
	if out := run(t, h, true); out.violation != "" {
		t.Errorf("%s\n%v%s", out.violation, h, strings.Join(out.trace, "\n"))
	}
}
