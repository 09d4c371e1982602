// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// pod is a pod of a workload.
type pod struct {
	uid, ordinal int // the ordinal in a StatefulSet, or the node in a DaemonSet
	slot         int
	name         string
	owner        metav1.OwnerReference
	labels       map[string]string // immutable
	template     template
	identity     string // of the template
	created      time.Time
	born         uint64               // the revision of the world
	version      uint64               // the revision of its last change
	changed      bool                 // since then
	mounted      bool                 // whether its volumes are set up
	mount        *mount               // the volume of the SecretProviderClass; nil: it is not set up, or there is none
	files        [sourceCount]reading // the content with which its volumes were set up
	terminating  bool                 // it is being deleted, or has failed
	failed       bool                 // it has failed, and stays
	poisoned     bool                 // it crashes because of what it has read; see waves
	creating     bool                 // as its kubelet says while its containers wait for nothing else
	wasReady     bool                 // as last told, and turned is since when it has been ready, or not; both are kept with waves alone
	turned       time.Time
	broken       time.Time // since when it has not been ready for good, by the clock of its node; zero: it is not broken
	setUp, told  time.Time // when its volumes were set up, and when the pod was last annotated, so that the kubelet refreshed them
	wakes        time.Time // when its kubelet can start the next container; zero: it waits for something else
	ends         time.Time // when it has ended; zero: it runs, or its node is lost, so that it never ends
	containers   []container
	annotations  map[string]string // other than those of the template; immutable
	inPlace      podInPlace
	agent        agent
	acts         time.Time // when its restarter or kubelet does the next step of a restart in place; zero: never
}

// container is what the oracle must know: with what content it was started.
type container struct {
	started uint64                      // the revision of the world; 0: not started
	real    time.Time                   // when that was
	at      time.Time                   // the same by the clock of the node; zero: its kubelet has forgotten it
	read    [2][sourceCount + 1]reading // as variables, and as files
	until   time.Time                   // it does not start earlier
	// restarts is how often it was started again.
	restarts int32
	ran      bool
}

// reading is the content of a source that was read, which it had since a revision.
type reading struct {
	content

	since uint64
}

func (p *pod) node() int { return p.uid % 3 }

// snapshot returns the pod as it is now.
func (p *pod) snapshot() *pod {
	out := *p
	out.containers = slices.Clone(p.containers)
	return &out
}

// tellPod emits the event of a pod. Servers read those alone that have not finished.
func (w *world) tellPod(d *workload, p *pod, deleted bool) {
	w.revision++
	p.version, p.changed = w.revision, false
	if w.waves != nil && p.ready() != p.wasReady {
		p.wasReady, p.turned = !p.wasReady, w.nodeTime(p.node())
	}
	w.emit(event{stream: pods, slot: d.slot, pod: p.snapshot(), deleted: deleted || p.failed})
}

// ready reports whether all containers run, with an image that becomes ready.
func (p *pod) ready() bool {
	return !p.terminating && !p.inPlace.unready && p.broken.IsZero() && !p.crashes() &&
		!slices.ContainsFunc(p.containers, func(c container) bool { return c.started == 0 })
}

// addPod creates a pod of a workload.
func (w *world) addPod(d *workload, s *set, ordinal int) {
	w.uids++
	p := &pod{uid: w.uids, ordinal: ordinal, template: s.template, identity: s.identity, created: w.apiTime(),
		born: w.revision, containers: make([]container, len(variants[s.template.variant]))}
	p.slot, p.owner, p.labels = d.slot, d.owner(), map[string]string{"app": workloadName(d.slot)}
	p.name = fmt.Sprint(workloadName(d.slot), "-pod-", p.uid)
	switch d.kind {
	case "Deployment":
		p.owner = metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: s.name(d), UID: s.uid(d), Controller: new(true)}
		p.labels["pod-template-hash"] = s.hash()
	case rollout:
		p.owner = metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: s.name(d), UID: s.uid(d), Controller: new(true)}
		p.labels["rollouts-pod-template-hash"] = s.hash()
	case "StatefulSet", advanced:
		p.name = fmt.Sprint(workloadName(d.slot), "-", ordinal)
		p.labels["controller-revision-hash"] = s.name(d)
	case "DaemonSet":
		p.labels["pod-template-generation"] = fmt.Sprint(d.templates)
		p.labels["controller-revision-hash"] = s.name(d)
	case "CronJob":
		p.owner = metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: s.name(d), UID: s.uid(d), Controller: new(true)}
	}
	if d.agents.sources != 0 {
		p.labels[agentLabel] = "true"
	}
	w.born(d, p)
	d.pods = append(d.pods, p)
	if start := w.kubelets.Start; start > 0 {
		for i := range p.containers {
			p.containers[i].until = time.Now().Add(start + time.Duration(i)*start/3)
		}
	}
	w.logf("    %s: pod %d is created", workloadName(d.slot), p.uid)
	w.tellPod(d, p, false)
	w.kubelet(d, p)
}

// kubelet starts as much as possible of a pod. As in kubernetes/pkg/kubelet, the pod waits for all its volumes.
// Init containers start one after the other; the next one, or the first of the others, starts after the previous
// one has completed (or runs, if it is a sidecar). A sidecar whose environment cannot be set up also delays the
// containers after it, because computeInitContainerActions only continues from one that has a status. Each of the
// other containers starts independently.
func (w *world) kubelet(d *workload, p *pod) {
	p.wakes = time.Time{}
	w.cure(p)
	w.startAll(d, p)
	w.creating(p)
	if p.changed {
		w.tellPod(d, p, false)
	}
}

// wake lets the kubelet of a pod look again at a time.
func (p *pod) wake(at time.Time) {
	if p.wakes.IsZero() || at.Before(p.wakes) {
		p.wakes = at
	}
}

func (w *world) startAll(d *workload, p *pod) {
	if p.terminating || p.inPlace.down || p.inPlace.stuck {
		return
	}
	spec := variants[p.template.variant]
	if !p.mounted {
		if until := p.containers[0].until; time.Now().Before(until) {
			p.wake(until)
			return
		}
		for _, u := range allUses[p.template.variant] {
			if u.mounted() && !u.startsWith(w.reading(u.source)) {
				return
			}
		}
		p.mounted, p.setUp = true, time.Now()
		for s := range p.files {
			p.files[s] = w.reading(s)
		}
		if d.mounts {
			w.mount(p)
		}
	}
	for i := range spec {
		if p.containers[i].started == 0 && w.canStart(p, i) {
			w.startContainer(d, p, i)
		}
		if p.containers[i].started == 0 && spec[i].role != mainContainer {
			return
		}
	}
}

// canStart reports whether a container can be started. If time alone changes that, the kubelet looks again.
func (w *world) canStart(p *pod, i int) bool {
	if until := p.containers[i].until; time.Now().Before(until) {
		p.wake(until)
		return false
	}
	for _, u := range variants[p.template.variant][i].uses {
		switch {
		case u.mounted() || u.startsWith(w.seen(p, u.source)):
		case u.startsWith(w.reading(u.source)): // the kubelet has yet to see it
			p.wake(time.Now().Add(w.kubelets.Lag))
			return false
		default:
			return false
		}
	}
	return true
}

func (w *world) startContainer(d *workload, p *pod, i int) {
	c := container{started: w.revision, real: time.Now(), at: w.nodeTime(p.node())}
	for s := range sourceCount {
		c.read[0][s], c.read[1][s] = w.seen(p, s), w.reading(s)
	}
	for _, u := range variants[p.template.variant][i].uses {
		if u.mounted() {
			c.read[1][u.source] = w.file(p, u)
		}
	}
	if p.mount != nil {
		c.read[0][class], c.read[1][class] = p.mount.reading(), p.mount.reading()
	}
	p.start(i, c)
	w.poison(p)
	w.logf("    %s: container %d of pod %d starts", workloadName(d.slot), i, p.uid)
}

// restartContainer lets a container crash, and start again after a time. It reads variables again, its files as the kubelet has last updated the
// volumes, and subPath files, which are mounted at each start.
func (w *world) restartContainer(slot, n int, after time.Duration) bool {
	d := w.workloads[slot]
	if d == nil || len(d.pods) == 0 {
		return false
	}
	p := d.pods[n%len(d.pods)]
	i := n / len(d.pods) % len(p.containers)
	if p.terminating || p.containers[i].started == 0 || variants[p.template.variant][i].role == initContainer {
		return false
	}
	p.stop(i)
	p.containers[i].until = time.Now().Add(after)
	w.kubelet(d, p)
	w.rollSoon(d)
	return true
}

// contentChanged lets the kubelets see a source: containers that wait for it start.
func (w *world) contentChanged(int) {
	for _, d := range w.workloads {
		if d == nil {
			continue
		}
		for _, p := range d.pods {
			w.kubelet(d, p)
		}
		w.rollSoon(d)
	}
}

// evict deletes a pod.
func (w *world) evict(d *workload, p *pod) {
	w.remove(d, p)
	w.rollSoon(d)
}

// remove deletes a pod, which ends after its grace period.
func (w *world) remove(d *workload, p *pod) {
	if p.terminating || w.kubelets.Grace == 0 {
		w.end(d, p)
		return
	}
	p.terminating, p.wakes, p.ends = true, time.Time{}, time.Now().Add(w.kubelets.Grace)
	w.logf("    %s: pod %d is being deleted", workloadName(d.slot), p.uid)
	w.tellPod(d, p, false)
}

// end removes a pod that has ended.
func (w *world) end(d *workload, p *pod) {
	d.pods = slices.DeleteFunc(slices.Clone(d.pods), func(o *pod) bool { return o == p })
	w.logf("    %s: pod %d is deleted", workloadName(d.slot), p.uid)
	w.tellPod(d, p, true)
	w.tellMount(p, true)
	w.syncSoon(d)
}

// drainPod deletes one of the pods, or makes its node lost.
func (w *world) drainPod(slot, n int, lost bool) bool {
	d := w.workloads[slot]
	if d == nil || len(d.pods) == 0 {
		return false
	}
	p := d.pods[n%len(d.pods)]
	switch {
	case !lost:
		w.evict(d, p)
	case d.kind == "DaemonSet" || p.terminating: // these tolerate it
		return false
	default:
		p.terminating, p.wakes = true, time.Time{}
		w.tellPod(d, p, false)
		w.logf("    %s: pod %d is on a node that is lost", workloadName(d.slot), p.uid)
		w.rollSoon(d)
	}
	return true
}

// failPod lets a pod fail, as one that its kubelet has evicted. Only what comes of a ReplicaSet stays.
func (w *world) failPod(d *workload, n int) bool {
	if !d.surges() || len(d.pods) == 0 {
		return false
	}
	p := d.pods[n%len(d.pods)]
	if p.terminating {
		return false
	}
	p.terminating, p.failed, p.wakes = true, true, time.Time{}
	w.logf("    %s: pod %d fails", workloadName(d.slot), p.uid)
	w.oracle.tally["pods that failed"]++
	w.tellPod(d, p, false)
	w.rollSoon(d)
	return true
}

// object returns a pod as an API object.
func (p *pod) object() *corev1.Pod {
	t := podTemplate(&p.template)
	if p.mount != nil {
		addClass(&t.Spec)
	}
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: p.name, UID: types.UID(fmt.Sprint("pod-", p.uid)), Labels: p.labels, ResourceVersion: fmt.Sprint(p.version),
		Annotations: merged(t.Annotations, p.annotations), CreationTimestamp: metav1.NewTime(seconds(p.created)), OwnerReferences: []metav1.OwnerReference{p.owner},
	}, Spec: t.Spec}
	if r := p.agent.told; r != nil {
		o.Annotations[statusOfAgent] = r.text(p.agent.sources)
	}
	o.Spec.NodeName = fmt.Sprint("node-", p.node())
	o.Status.Phase = corev1.PodRunning
	ready := corev1.ConditionFalse
	if p.ready() {
		ready = corev1.ConditionTrue
	}
	since := p.created
	if !p.broken.IsZero() {
		since = p.broken
	}
	if !p.turned.IsZero() {
		since = p.turned
	}
	o.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.NewTime(seconds(since))}}
	if p.terminating {
		o.DeletionTimestamp = new(metav1.NewTime(seconds(p.created)))
	}
	started := metav1.NewTime(seconds(p.created))
	o.Status.StartTime = &started
	for i := range p.containers {
		c := &p.containers[i]
		status := corev1.ContainerStatus{Name: fmt.Sprint("container-", i), Image: "app", RestartCount: c.restarts, Ready: c.started != 0 && ready == corev1.ConditionTrue}
		at := metav1.NewTime(seconds(c.at))
		if c.at.IsZero() {
			at = metav1.Time{}
		}
		switch role := variants[p.template.variant][i].role; {
		case c.started == 0:
			status.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError"}
			if p.creating {
				status.State.Waiting.Reason = "ContainerCreating"
			}
			o.Status.Phase = corev1.PodPending
		case role == initContainer:
			status.State.Terminated = &corev1.ContainerStateTerminated{StartedAt: at, FinishedAt: at, Reason: "Completed"}
		case p.crashes():
			status.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
			status.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{StartedAt: at, FinishedAt: at, Reason: "Error", ExitCode: 1}
		default:
			status.State.Running = &corev1.ContainerStateRunning{StartedAt: at}
			status.Started = new(true)
		}
		if variants[p.template.variant][i].role == mainContainer {
			o.Status.ContainerStatuses = append(o.Status.ContainerStatuses, status)
		} else {
			o.Status.InitContainerStatuses = append(o.Status.InitContainerStatuses, status)
		}
	}
	return o
}

// podList returns the pods of a workload, or the one of a name.
func (d *workload) podList(name string) runtime.Object {
	out := &corev1.PodList{}
	if d != nil {
		for _, p := range d.pods {
			if name == "" || p.name == name {
				out.Items = append(out.Items, *p.object())
			}
		}
	}
	return out
}
