// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/record"
)

// member is a pod of a StatefulSet or DaemonSet.
type member struct {
	revision string
	created  time.Duration // before now, as the others
	ready    bool
	since    time.Duration // of the condition Ready; 0: there is none
	ends     time.Duration // when it was to be gone; 0: it is not being deleted
}

// setOf returns a world with a StatefulSet, or DaemonSet, of the revision 2, and its pods.
func setOf(t *testing.T, of dependency.WorkloadKind, observed bool, pods ...member) (x *world, decideAt func() decide.Decision) {
	t.Helper()
	x = oneSecret(t)
	x.tick(time.Hour)
	now := x.now
	var label string
	var updated, ready int32
	for _, p := range pods {
		if p.ends == 0 && p.revision == "2" {
			updated++
		}
		if p.ready {
			ready++
		}
	}
	switch of {
	case kind.StatefulSet:
		label = appsv1.ControllerRevisionHashLabelKey
		set := ingesttest.StatefulSet("set", x.deployment.Spec.Template.Spec)
		set.UID, set.Generation, set.Spec.Replicas = "set", 2, new(int32(len(pods)))
		set.Status = appsv1.StatefulSetStatus{ObservedGeneration: 2, Replicas: int32(len(pods)), ReadyReplicas: ready, UpdatedReplicas: updated, UpdateRevision: "2"}
		if !observed {
			set.Generation = 3
			set.Spec.Template.Annotations = map[string]string{record.ConfigHashAnnotation: "of another restart"}
		}
		x.Set(set)
	case kind.DaemonSet:
		label = "pod-template-generation"
		set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "set", UID: "set", Generation: 2, Annotations: map[string]string{appsv1.DeprecatedTemplateGeneration: "2"}}}
		set.Spec.Template.Spec = x.deployment.Spec.Template.Spec
		set.Status = appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: int32(len(pods)), UpdatedNumberScheduled: updated, NumberAvailable: ready}
		x.Set(set)
	}
	for i, m := range pods {
		x.now = now.Add(-m.created)
		p := startedPod(fmt.Sprint("set-", i), &x.deployment.Spec.Template, x.now)
		p.Labels = map[string]string{label: m.revision}
		p.OwnerReferences = []metav1.OwnerReference{controller("apps/v1", string(of), "set", "set")}
		if m.since != 0 {
			status := corev1.ConditionFalse
			if m.ready {
				status = corev1.ConditionTrue
			}
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.NewTime(now.Add(-m.since))}}
		}
		p.CreationTimestamp = metav1.NewTime(x.now)
		if m.ends != 0 {
			p.DeletionTimestamp = new(metav1.NewTime(now.Add(-m.ends)))
		}
		x.Set(p)
	}
	x.now = now
	return x, func() (d decide.Decision) {
		x.Read(func(known decide.Evaluator) {
			d = known.Evaluate(known.Graph.Workload(dependency.WorkloadKey{Kind: of, Namespace: namespace, Name: "set"})).Decide(x.now)
		})
		return d
	}
}

// A rollout that waits for a pod for too long has failed, and the message says what frees it.
func TestDecide_ARolloutThatWaitsForAPod(t *testing.T) {
	const minute, day = time.Minute, 24 * time.Hour
	fine, old := member{revision: "2", created: 30 * minute, ready: true, since: 29 * minute}, member{revision: "1", created: day, ready: true, since: day}
	broken := func(revision string, created, since time.Duration) member {
		return member{revision: revision, created: created, since: since}
	}
	at := func(before time.Duration) string { return epoch.Add(time.Hour - before).Format(time.RFC3339) }
	for name, tt := range map[string]struct {
		kind  dependency.WorkloadKind
		pods  []member
		after time.Duration // when it counts as failed; negative: never
		want  string
	}{
		"an earlier template": {
			kind.StatefulSet, []member{old, broken("1", day, 11*minute), fine}, 0,
			"The StatefulSet waits for pod set-1, which has an earlier pod template and has not been ready since " + at(11*minute) + ". It is not replaced before it is ready: delete it, so that it is created again.",
		},
		"for a moment only":            {kind.StatefulSet, []member{old, broken("1", day, minute), fine}, 9 * minute, "pod set-1, which has an earlier"},
		"exactly":                      {kind.StatefulSet, []member{old, broken("1", day, 10*minute), fine}, 0, "pod set-1, which has an earlier"},
		"not yet scheduled":            {kind.StatefulSet, []member{old, broken("1", 4*minute, 0), fine}, 6 * minute, "pod set-1"},
		"a node whose clock is behind": {kind.StatefulSet, []member{old, broken("1", 3*minute, day), fine}, 7 * minute, "has not been ready since " + at(3*minute)},
		"the current template": {
			kind.StatefulSet, []member{old, old, broken("2", 20*minute, 19*minute)}, 0,
			"The StatefulSet waits for pod set-2, which has the current pod template and has not been ready since " + at(19*minute) + ". Fix the cause, or roll back.",
		},
		"a pod was created lately":                   {kind.StatefulSet, []member{broken("1", day, day), {revision: "2", created: 2 * minute, ready: true, since: minute}}, 8 * minute, "pod set-0, which"},
		"of two, the one that has waited for longer": {kind.StatefulSet, []member{broken("1", day, 20*minute), broken("1", day, 40*minute), fine}, 0, "pod set-1, which"},
		"a pod that does not end": {
			kind.StatefulSet, []member{old, {revision: "1", created: day, since: 20 * minute, ends: 15 * minute}, fine}, 0,
			"The StatefulSet waits for pod set-1 to end, which was due at " + at(15*minute) + ". If its node is down for good, delete the pod by force.",
		},
		"the last old pod does not end":   {kind.StatefulSet, []member{{revision: "1", created: day, since: day, ends: 9 * minute}, fine}, minute, "to end"},
		"all pods have the template":      {kind.StatefulSet, []member{fine, broken("2", 30*minute, 20*minute)}, -1, ""},
		"all pods are ready":              {kind.StatefulSet, []member{old, fine}, -1, ""},
		"a DaemonSet":                     {kind.DaemonSet, []member{old, broken("2", 20*minute, 19*minute)}, 0, "The DaemonSet waits for pod set-1, which has the current pod template"},
		"a DaemonSet replaces old pods":   {kind.DaemonSet, []member{old, broken("1", day, day), fine}, -1, ""},
		"a DaemonSet, a node is down":     {kind.DaemonSet, []member{old, {revision: "2", created: day, since: day, ends: day}}, -1, ""},
		"a DaemonSet, all are up to date": {kind.DaemonSet, []member{fine, broken("2", 20*minute, 19*minute)}, -1, ""},
	} {
		x, decideNow := setOf(t, tt.kind, true, tt.pods...)
		begun := x.now
		if tt.after != 0 {
			d := decideNow()
			if d.State != decide.RollingOut || tt.after > 0 && (!d.RecheckAt.Equal(begun.Add(tt.after)) || !d.Timed) {
				t.Errorf("%s: before: %s, again after %v, timed %v", name, d.State, d.RecheckAt.Sub(begun), d.Timed)
			}
			x.now = begun.Add(max(tt.after, 0))
		}
		if tt.after < 0 {
			x.tick(day)
			if d := decideNow(); d.State != decide.RollingOut || !d.RecheckAt.IsZero() {
				t.Errorf("%s: after a day: %s (%s)", name, d.State, d.Message)
			}
			continue
		}
		d := decideNow()
		if d.State != decide.Failed || d.Reason != decide.ReasonPodsNotReady || !strings.HasPrefix(d.Message, "The rollout is not progressing: ") || !strings.Contains(d.Message, tt.want) || !d.Timed {
			t.Errorf("%s: %s, %s, timed %v: %q, want %q", name, d.State, d.Reason, d.Timed, d.Message, tt.want)
		}
		if d.Action == decide.RollOut || !d.RecheckAt.IsZero() {
			t.Errorf("%s: action %s, again at %v", name, d.Action, d.RecheckAt)
		}
	}
	if _, decideNow := setOf(t, kind.StatefulSet, false, old, broken("1", day, day)); decideNow().State != decide.RollingOut {
		t.Error("the controller has not observed the template yet")
	}
}

// Controllers that have a deadline tell themselves when it has passed.
func TestDecide_ARolloutWithADeadline(t *testing.T) {
	x := oneSecret(t)
	x.adopt()
	x.image("app:2")
	p := x.start().DeepCopy()
	p.Status.ContainerStatuses = nil
	x.pods[len(x.pods)-1] = p
	x.Set(p)
	x.tick(24 * time.Hour)
	x.want("after a day", outcome{State: decide.RollingOut, Reason: "PodsUpdating"})
}
