// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package waves

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/judge"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/test/await"
)

// The size of the fleet of TestWaves.
const many = 500

func TestWaves(t *testing.T) {
	f := newFleet(t, "many", 1, many)
	for _, part := range []func(*fleet){(*fleet).killLeaders, (*fleet).deletePolicy, (*fleet).crashCanary} {
		if part(f); t.Failed() {
			return
		}
	}
}

const turn = "A restart is due when it is its turn: "

// A budget holds at each moment, whichever replica leads. Nothing is restarted twice, and both replicas say the same.
func (f *fleet) killLeaders() {
	sign := newFleet(f.T, "sign", 1, 1)
	f.limit("budgets: [{workloads: 20}]")
	const message = turn + "20 workloads may be restarted at a time (ReloadPolicy many)."
	w, signs := f.watch(), sign.watch()
	f.write("second")
	f.awaitWave(w, 0, 50)
	first := f.leader()
	server.Replicas[first].Kill()
	f.awaitWave(w, 0, 150)
	f.must(server.Replicas[first].Start())
	f.awaitWave(w, 0, 250)

	f.cordon(true)
	f.awaitStuck(20)
	_, _, done := w.seen()
	f.awaitWaiting("Pending/Budget", many-done-20, 20, message)
	second := f.leader()
	server.Replicas[second].Kill()
	sign.write("second") // once that leads to a restart, the next leader restarts what it may
	f.awaitWave(signs, 1, 0)
	f.must(server.Replicas[second].Start())
	f.awaitWaiting("Pending/Budget", many-done-20, 20, message)
	f.cordon(false)
	f.finish(w, many, 20)
}

// Without its policy, what is left of a wave is limited by the flag.
func (f *fleet) deletePolicy() {
	f.limit("budgets: [{workloads: 5}]")
	w := f.watch()
	f.write("third")
	f.awaitWave(w, 0, 20)
	f.cordon(true)
	f.awaitStuck(5)
	_, most, done := w.seen()
	f.awaitWaiting("Pending/Budget", many-done-5, 5, turn+"5 workloads may be restarted at a time (ReloadPolicy many).")
	if most != 5 {
		f.Errorf("%d were in progress at a time, want 5", most)
	}
	f.unlimit()
	f.awaitStuck(100)
	f.awaitWaiting("Pending/Budget", many-done-100, 100, turn+"100 workloads may be restarted at a time (--max-rollouts-in-progress).")
	f.cordon(false)
	f.finish(w, many, 100)
}

// While a canary fails, none of the others is restarted, until it has other content.
func (f *fleet) crashCanary() {
	const canary = "app-250"
	_, err := kube.AppsV1().Deployments(f.namespaces[0]).Patch(f.Context(), canary, types.MergePatchType, // it crashes before it counts as available
		[]byte(`{"metadata": {"annotations": {"configdep.io/order": "-1"}}, "spec": {"minReadySeconds": 10}}`), metav1.PatchOptions{})
	f.must(err)
	leader := f.leader()
	recovered := func(ctx context.Context) (float64, error) {
		return metric(ctx, leader, "configdep_current_after_seconds_count")
	}
	waits := func(state, message string) {
		f.Helper()
		f.awaitWaiting(state, many-1, 1, message)
		_, reason, _ := strings.Cut(state, "/")
		for i := range apis {
			if n, err := metric(f.Context(), i, fmt.Sprintf("configdep_workloads_waiting{reason=%q}", reason)); err != nil || n != many-1 {
				f.Errorf("configdep_workloads_waiting is %v for %s on replica %d (%v), want %d", n, reason, i, err, many-1)
			}
		}
	}
	const order = "A restart is due when workloads of a lower order that read Secret/db are up to date and ready, such as Deployment " + canary + "."
	const halted = "The restart is on hold, because Deployment " + canary + " fails with the content of Secret/db (ReloadPolicy many). It is due when that has recovered, or the content changes again."

	w := f.watch()
	f.write("bad")
	f.crash(canary, true)
	waits("Pending/Order", order)
	f.limit("failureLimit: 1")
	waits("Blocked/HaltedAfterFailure", halted)
	events, err := kube.CoreV1().Events(f.namespaces[0]).List(f.Context(), metav1.ListOptions{FieldSelector: "reason=ConfigPodsFailing"})
	f.must(err)
	if len(events.Items) != 1 || events.Items[0].InvolvedObject.Name != canary || !strings.Contains(events.Items[0].Message, "CrashLoopBackOff") {
		f.Errorf("the events ConfigPodsFailing are %+v", events.Items)
	}
	before, err := recovered(f.Context())
	f.must(err)
	f.write("third") // the content of before
	f.await(map[string]int{"InSync": many})
	await.Until(f, "the metric says that all have recovered", func(ctx context.Context) error {
		n, err := recovered(ctx)
		if err == nil && n != before+many {
			err = fmt.Errorf("%v have", n-before)
		}
		return err
	})

	f.write("bad, too")
	f.crash(canary, true)
	waits("Blocked/HaltedAfterFailure", halted)
	if begun, _, _ := w.seen(); len(begun) != 3 || len(slices.Compact(begun)) != 1 {
		f.Errorf("%v have been restarted, want the canary alone", begun)
	}
	good := f.watch()
	f.write("good")
	waits("Pending/Order", order)
	if begun, _, _ := good.seen(); len(begun) > 0 {
		f.Errorf("%v have been restarted before the canary is up to date", begun)
	}
	<-time.After(judge.ClockMargin + 2*time.Second) // then the kubelet starts the container again, which clearly reads this
	f.crash(canary, false)
	f.finish(good, many-1, 100)
	f.unlimit()
}

// Namespaces take turns. As many restarts as may be in progress reach the API server in any order.
func TestNamespacesTakeTurns(t *testing.T) {
	const namespaces, budget = 200, 10
	f := newFleet(t, "turns", namespaces, 2)
	f.limit("suspend: true")
	f.write("second")
	f.await(map[string]int{"Blocked/PolicySuspended": 2 * namespaces})
	w := f.watch()
	f.limit(fmt.Sprintf("budgets: [{workloads: %d}]", budget))
	begun, first := f.finish(w, f.size(), budget), map[string]bool{}
	for i, key := range begun[:namespaces-budget+1] {
		namespace, _, _ := strings.Cut(key, "/")
		if first[namespace] {
			t.Fatalf("restart %d is the second in %s", i+1, namespace)
		}
		first[namespace] = true
	}
}

// finish waits until n have been restarted, once, with not more than some at a time, and all are up to date.
func (f *fleet) finish(w *wave, n, limit int) []string {
	f.Helper()
	f.awaitWave(w, n, n)
	f.await(map[string]int{"InSync": f.size()})
	begun, most, _ := w.seen()
	if len(begun) != n || most > limit {
		f.Errorf("%d Deployments were restarted %d times, with up to %d in progress, want %d", n, len(begun), most, limit)
	}
	return begun
}

// crash lets the new pod of a Deployment crash, or run again.
func (f *fleet) crash(name string, is bool) {
	f.Helper()
	pods := kube.CoreV1().Pods(f.namespaces[0])
	await.Watching(f, fmt.Sprintf("a pod of %s crashes: %t", name, is), func(ctx context.Context) error {
		list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			return err
		}
		d, err := kube.AppsV1().Deployments(f.namespaces[0]).Get(ctx, name, metav1.GetOptions{}) // later, so that no older pod has its hash
		if err != nil {
			return err
		}
		for i := range list.Items {
			p := &list.Items[i]
			if len(list.Items) == 1 || p.Annotations[record.ConfigHashAnnotation] != d.Spec.Template.Annotations[record.ConfigHashAnnotation] || len(p.Status.ContainerStatuses) == 0 {
				continue
			}
			c, ready := &p.Status.ContainerStatuses[0], corev1.ConditionTrue
			c.RestartCount, c.Ready, c.State = 4, true, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
			if is {
				ready, c.RestartCount, c.Ready, c.State = corev1.ConditionFalse, 3, false, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
			}
			for i := range p.Status.Conditions {
				if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady || c.Type == corev1.ContainersReady {
					c.Status, c.LastTransitionTime = ready, metav1.Now()
				}
			}
			_, err := pods.UpdateStatus(ctx, p, metav1.UpdateOptions{})
			return err
		}
		return errors.New("there is none")
	})
}
