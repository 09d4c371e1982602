// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// set is a ReplicaSet or a ControllerRevision.
type set struct {
	template template
	identity string
	number   int64
	taken    int64 // its rank among the sets that were the newest
	created  time.Time
	serial   int
	version  uint64
	// reused: it was created for an earlier rollout.
	reused bool
	// annotations are the annotations of the workload at the creation of the set, which kubectl rollout undo
	// restores.
	annotations map[string]string
}

func (s *set) name(d *workload) string { return fmt.Sprint(workloadName(d.slot), "-set-", s.serial) }

func (s *set) uid(d *workload) types.UID {
	return types.UID(fmt.Sprint("set-", d.uid, "-", s.serial))
}

func (s *set) hash() string { return fmt.Sprint("set-", s.serial) }

// newest returns the set of the current template, or nil if it does not exist yet.
func (d *workload) newest() *set {
	if len(d.sets) == 0 {
		return nil
	}
	return slices.MaxFunc(d.sets, func(a, b *set) int { return int(a.taken - b.taken) })
}

func (d *workload) set(identity string) *set {
	i := slices.IndexFunc(d.sets, func(s *set) bool { return s.identity == identity })
	if i < 0 {
		return nil
	}
	return d.sets[i]
}

// revise makes the set of the current template the newest.
func (w *world) revise(d *workload) {
	d.taken++
	before, s := d.newest(), d.set(d.template.identity())
	switch {
	case s == nil:
		s = &set{template: d.template, identity: d.template.identity(), created: w.apiTime(), serial: len(d.sets)}
		d.sets = append(slices.Clone(d.sets), s)
		d.number++
		s.number = d.number
	case !before.reused && before.serial > 0 && !d.hasPods(before):
		// The controller has just created that set and has not read it yet, so it considers this number the
		// highest.
	default:
		w.number(d, s)
	}
	s.taken = d.taken
	w.tellSet(d, s, false)
	s.annotations = d.annotations
	if d.kind == "Deployment" && s.serial > 0 && len(d.sets) > 1 {
		w.logf("    %s: revision %d", workloadName(d.slot), s.number)
	}
}

// number gives a set of an earlier rollout the highest number.
func (w *world) number(d *workload, s *set) {
	d.number++
	s.number, s.reused = d.number, true
	w.tellSet(d, s, false)
}

// metadata returns what servers read of a ReplicaSet.
func (s *set) metadata(d *workload) runtime.Object {
	owner := d.owner()
	return &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ReplicaSet"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: s.name(d), UID: s.uid(d), ResourceVersion: fmt.Sprint(s.version), OwnerReferences: []metav1.OwnerReference{owner},
			Labels: map[string]string{"pod-template-hash": s.hash()}, Annotations: map[string]string{"deployment.kubernetes.io/revision": fmt.Sprint(s.number)},
		},
	}
}

// run returns a Job of a CronJob.
func (s *set) run(d *workload) runtime.Object {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s.name(d), UID: s.uid(d), ResourceVersion: fmt.Sprint(s.version),
		CreationTimestamp: metav1.NewTime(seconds(s.created)), OwnerReferences: []metav1.OwnerReference{d.owner()}}}
}

// tellSet emits the event of a ReplicaSet of a Deployment, or of a Job of a CronJob. Servers read no other sets.
func (w *world) tellSet(d *workload, s *set, deleted bool) {
	if d.kind != "Deployment" && d.kind != "CronJob" {
		return
	}
	w.revision++
	s.version = w.revision
	e := event{stream: replicaSets, slot: d.slot, deleted: deleted}
	if e.other = s.metadata(d); d.kind == "CronJob" {
		e.stream, e.other = jobs, s.run(d)
	}
	w.emit(e)
}

// startRun starts a Job of a CronJob.
func (w *world) startRun(d *workload) bool {
	if d.kind != "CronJob" || d.deleting {
		return false
	}
	w.uids++
	s := &set{template: d.template, identity: d.template.identity(), created: w.apiTime(), serial: w.uids}
	d.sets = append(slices.Clone(d.sets), s)
	w.tellSet(d, s, false)
	w.addPod(d, s, 0)
	return true
}

// endRuns ends the pods of a Job or a CronJob.
func (w *world) endRuns(d *workload) bool {
	if !d.runs() || len(d.pods) == 0 {
		return false
	}
	for len(d.pods) > 0 {
		w.end(d, d.pods[0])
	}
	if d.ended = true; d.kind == "CronJob" {
		for _, s := range d.sets {
			w.tellSet(d, s, true)
		}
		d.sets = nil
	}
	return true
}

// runs reports whether pods of a workload run to an end, and are not replaced.
func (d *workload) runs() bool { return d.kind == "Job" || d.kind == "CronJob" }

func (d *workload) hasPods(s *set) bool {
	return slices.ContainsFunc(d.pods, func(p *pod) bool { return p.identity == s.identity })
}

// rollSoon lets the controllers of kube-controller-manager handle a workload.
func (w *world) rollSoon(d *workload) {
	if w.pace == 0 {
		for range 50 {
			if !w.step(d) {
				return
			}
		}
		w.oracle.fail("the controllers of %s do not stop working", workloadName(d.slot))
		return
	}
	if d.due.IsZero() {
		d.due = time.Now().Add(w.pace)
	}
}

// step makes one step towards the specification of a workload, and reports whether a step was needed.
func (w *world) step(d *workload) bool {
	if w.workloads[d.slot] != d {
		return false
	}
	moved := !d.deleting && w.stepPods(d)
	w.status(d)
	return moved
}

func (w *world) stepPods(d *workload) bool {
	identity := d.template.identity()
	if d.kind == "CronJob" || d.bare {
		return false
	}
	switch s := d.newest(); {
	case s != nil && s.identity == identity && s.number < d.number: // the controller now reads what it has created
		w.number(d, s)
		return true
	case s != nil && s.identity == identity:
	case d.paused && d.set(identity) == nil: // the set is created when the Deployment is resumed
		if s == nil {
			return false
		}
	default:
		w.revise(d)
		if d.current == "" {
			d.current = identity
		}
		return true
	}
	switch d.kind {
	case "Deployment", rollout:
		return w.stepDeployment(d)
	case "Job":
		if d.ended || len(d.pods) > 0 {
			return false
		}
		w.addPod(d, d.newest(), 0)
		return true
	case "StatefulSet", advanced:
		return w.stepStatefulSet(d)
	default:
		return w.stepDaemonSet(d)
	}
}

// alive returns the pods that are not terminating: those of one set, and all others.
func (d *workload) alive(identity string) (of, others []*pod) {
	for _, p := range d.pods {
		switch {
		case p.terminating:
		case p.identity == identity:
			of = append(of, p)
		default:
			others = append(others, p)
		}
	}
	return of, others
}

// first returns a pod that is not ready, otherwise any.
func first(pods []*pod) *pod {
	if i := slices.IndexFunc(pods, func(p *pod) bool { return !p.ready() }); i >= 0 {
		return pods[i]
	}
	return pods[0]
}

func ready(pods ...[]*pod) (n int) {
	for _, p := range slices.Concat(pods...) {
		if p.ready() {
			n++
		}
	}
	return n
}

// stepDeployment replaces pods with maxSurge 1 and maxUnavailable 0.
func (w *world) stepDeployment(d *workload) bool {
	newest := d.newest()
	now, old := d.alive(newest.identity)
	switch {
	case len(now) > 0 && len(now) >= len(old):
		d.largest = newest.identity
	case len(old) > 0:
		d.largest = old[0].identity
	case d.replicas == 0:
		d.largest = ""
	}
	if d.paused {
		return w.scalePaused(d, now, old)
	}
	switch {
	case len(now) < d.replicas && len(now)+len(old) <= d.replicas:
		w.addPod(d, newest, 0)
	case len(now) > d.replicas:
		w.remove(d, first(now))
	case len(old) > 0 && (!first(old).ready() || ready(now, old) > d.replicas):
		w.remove(d, first(old))
	case len(old) == 0 && d.toRestart() != nil && ready(now) >= d.replicas:
		return w.restartByTime(d)
	default:
		return false
	}
	return true
}

// scalePaused keeps the number of pods of a paused Deployment: those of its only ReplicaSet with pods,
// else of the largest, with a surge of one in the middle of a rollout.
func (w *world) scalePaused(d *workload, now, old []*pod) bool {
	s := d.set(d.largest)
	if s == nil {
		s = d.newest()
	}
	want := d.replicas
	if len(now) > 0 && len(old) > 0 {
		want += min(1, d.replicas)
	}
	switch all := len(now) + len(old); {
	case all < want:
		w.addPod(d, s, 0)
	case all > want:
		of, others := d.alive(s.identity)
		w.remove(d, first(append(of, others...)))
	default:
		return false
	}
	return true
}

// stepStatefulSet keeps pods in order, and replaces them from the last one down to the partition.
func (w *world) stepStatefulSet(d *workload) bool {
	newest := d.newest()
	by := map[int]*pod{}
	for _, p := range d.pods {
		by[p.ordinal] = p // a pod that never ends is not replaced
	}
	whole := true
	for ordinal := range d.replicas {
		p := by[ordinal]
		if p == nil {
			s := newest
			if old := d.set(d.current); old != nil && !d.onDelete && ordinal < d.partition {
				s = old
			}
			w.addPod(d, s, ordinal)
			return true
		}
		if !p.ready() {
			whole = false
			break
		}
	}
	for ordinal := len(d.pods) + d.replicas + 3; ordinal >= d.replicas; ordinal-- {
		if p := by[ordinal]; p != nil && !p.terminating {
			w.remove(d, p)
			return true
		}
	}
	if !whole || d.onDelete {
		return false
	}
	for ordinal := d.replicas - 1; ordinal >= d.partition; ordinal-- {
		if p := by[ordinal]; p.identity != newest.identity {
			w.remove(d, p)
			return true
		}
	}
	if d.partition == 0 {
		d.current = newest.identity
	}
	return false
}

// stepDaemonSet keeps a pod on each node that should have one, and replaces them one by one. Pods on other nodes
// are deleted at once or, on tainted nodes, when they would be replaced.
func (w *world) stepDaemonSet(d *workload) bool {
	newest := d.newest()
	by := map[int]*pod{}
	for _, p := range d.pods {
		if p.ordinal >= d.replicas && !d.tainted && !p.terminating {
			w.remove(d, p)
			return true
		}
		by[p.ordinal] = p
	}
	for node := range d.replicas {
		if by[node] == nil {
			w.addPod(d, newest, node)
			return true
		}
	}
	now, old := d.alive(newest.identity)
	if d.onDelete || len(old) == 0 || first(old).ready() && ready(now, old) < d.replicas {
		return false
	}
	w.remove(d, first(old))
	return true
}

// progress is the progress in the status of a workload.
type progress struct {
	observed            int64
	number              int64
	all, updated, ready int
	updatedReady        int
	// desired and misscheduled are for DaemonSets.
	desired, misscheduled int
	update, current       string // the revisions of a StatefulSet
	failed                bool   // a Deployment has exceeded its deadline
	hash                  string // of the ReplicaSet of a Rollout
	restarted             bool   // none of its pods is older than its time of a restart
}

// status writes the status, if it has changed.
func (w *world) status(d *workload) {
	if d.kind == "CronJob" {
		return
	}
	if d.newest() == nil {
		if d.paused && d.progress.observed != d.generation {
			d.progress.observed = d.generation
			w.revision++
			w.tellWorkload(d)
		}
		return
	}
	now, old := d.alive(d.newest().identity)
	desired, misscheduled := 0, 0
	if d.kind == "DaemonSet" { // pods on nodes that should have none are in no other number
		surplus := func(p *pod) bool { return p.ordinal >= d.replicas }
		all := len(now) + len(old)
		now, old = slices.DeleteFunc(now, surplus), slices.DeleteFunc(old, surplus)
		desired, misscheduled = d.replicas, all-len(now)-len(old)
	}
	p := progress{observed: d.generation, number: d.newest().number, all: len(now) + len(old), updated: len(now),
		ready: ready(now, old), updatedReady: ready(now), desired: desired, misscheduled: misscheduled,
		update: d.newest().name(d), hash: d.newest().hash(), restarted: d.toRestart() == nil}
	if d.ordered() {
		p.all = len(d.pods) // including terminating pods
	}
	p.current = p.update
	if s := d.set(d.current); s != nil {
		p.current = s.name(d)
	}
	if d.newest().identity != d.template.identity() { // paused
		now, _ = d.alive(d.template.identity())
		p.updated, p.updatedReady = len(now), ready(now)
	}
	w.watchDeadline(d, &p)
	if p == d.progress {
		return
	}
	if d.progress = p; !d.incomplete() {
		d.restarted = 0
	}
	w.revision++
	w.tellWorkload(d)
}

// watchDeadline notes whether the rollout of a Deployment has exceeded its deadline.
func (w *world) watchDeadline(d *workload, p *progress) {
	before := &d.progress
	switch {
	case !d.surges() || w.kubelets.Deadline == 0 || d.paused:
		d.deadline = time.Time{}
	case p.updated >= d.replicas && p.all <= p.updated && p.updatedReady >= d.replicas:
		d.deadline = time.Time{}
	case p.number != before.number || p.updated > before.updated || p.ready > before.ready || d.deadline.IsZero() && !before.failed:
		d.deadline = time.Now().Add(w.kubelets.Deadline)
	case !d.deadline.IsZero() && !time.Now().Before(d.deadline):
		d.deadline, p.failed = time.Time{}, true
		w.logf("    %s: the rollout has exceeded its deadline", workloadName(d.slot))
	default:
		p.failed = before.failed
	}
}

// wanted returns how many pods there should be, as the status says.
func (m *manifest) wanted() int {
	if m.kind == "DaemonSet" {
		return m.progress.desired + m.progress.misscheduled
	}
	return m.replicas
}

// unfinished reports whether the status shows an incomplete rollout.
func (m *manifest) unfinished() bool {
	p := &m.progress
	return p.observed < m.generation || p.updated < m.replicas || p.all > p.updated && m.surges() || p.updatedReady < m.replicas
}
