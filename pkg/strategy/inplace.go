// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package strategy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/workload"
)

const (
	// tellAgain is after which time a pod is told again of which a container still runs that has not restarted: a restarter that is
	// restarted alone takes what it was told before for done.
	tellAgain = 3 * time.Minute
	// tellAtLeast is how often at least a pod is told of which the restart has failed.
	tellAtLeast = time.Hour
	// deadline is within which time a pod has to be back if its workload does not say.
	deadline = 10 * time.Minute
	// refusedAfter is how long no pod can be told before that is recorded: a webhook may just be restarting.
	refusedAfter = time.Minute
)

// inPlace lets the restarters of the pods that existed when the restart began restart them: one at a time, and a ready pod only while
// enough others are available and its PodDisruptionBudget allows it.
type inPlace struct{ rollout }

// Continue implements Effects. The order matters: what has been done is recorded before the next pod is told, so that no step depends on
// what only this process knows.
func (inPlace) Continue(ctx context.Context, client workload.Client, r *Restart) (Next, error) {
	of, valid := policy.PodsInPlaceOf(r.Workload)
	if valid && !r.Superseded && r.Memory.told != "" {
		if on, err := r.onItsWay(ctx, client, &of); on || err != nil {
			return Next{After: pause, Waits: isRestarted(r.Memory.told)}, err
		}
	}
	r.Memory.told = ""
	pods := restarts{availability: r.availability(), of: of, refused: r.Memory.refused, seen: r.Memory.unstarted, unstarted: map[types.UID]string{}}
	if err := eachPod(ctx, client, r.Workload, pods.add); err != nil {
		return Next{}, err
	}
	r.Memory.unstarted = pods.unstarted
	dead := int32(0)
	if !r.ReplacesTerminating {
		dead = r.Memory.dead(pods.ending, r.Now)
	}
	switch {
	case !valid:
		return Next{RollOut: true, Because: "another client changed the annotation " + policy.RecreatingAnnotation}, nil
	case len(pods.left) == 0:
		r.Memory.ending = nil
		return Next{Done: true, InPlace: &InPlace{Pods: pods.back}}, nil
	case r.Superseded:
		return Next{RollOut: true}, nil
	}
	failed := pods.failed(r)
	if progress := of.Keep(pods.left, failed, pods.refusal(r)); progress.Text() != of.Text() {
		next := Next{InPlace: &InPlace{Progress: &progress, Pods: pods.back}}
		if failed != of.Failed {
			next.Failed = failed
		}
		return next, nil
	}
	if pods.current != nil {
		return r.await(ctx, client, &of, pods.current)
	}
	p := pods.next()
	if p == nil {
		return Next{After: time.Minute, Waits: "pod " + pods.waiting + " has not started yet"}, nil
	}
	if isReady(p) {
		waits, why := pods.tooFew(r, dead), ""
		if waits == "" {
			b, err := budgetOf(ctx, client, p)
			if err != nil {
				return Next{}, fmt.Errorf("listing the PodDisruptionBudgets of namespace %s: %w", r.Namespace, err)
			}
			if b.UID != "" {
				if !r.Budgets.take(b.UID) {
					return Next{After: time.Second}, nil
				}
				defer r.Budgets.release(b.UID)
			}
			if waits, why, err = b.protects(ctx, client, p, r.Now); err != nil {
				return Next{}, fmt.Errorf("listing the pods of PodDisruptionBudget %s/%s: %w", r.Namespace, b.Name, err)
			}
		}
		if waits != "" {
			r.Memory.refused = place{} // it may wait for a pod that was refused
			return Next{After: pause, Waits: waits, Why: why}, nil
		}
	}
	told := policy.Told{Since: r.Now, Again: r.Now}
	if before, found := policy.ToldLast(p.Annotations); found {
		told.Unfinished = hasStarted(p, &before) && (!restarted(p, &before) || unsure(p, &before, r.Now))
	}
	next, err := tell(ctx, client, p, of.ID, told, 1)
	return r.refused(&of, p, next, err)
}

// await takes the next step while a pod has been told and is not back.
func (r *Restart) await(ctx context.Context, client workload.Client, of *policy.PodsInPlace, p *corev1.Pod) (Next, error) {
	switch told, times := policy.ToldOf(p.Annotations, of.ID); {
	case told.Ahead(r.Now): // it would never be late
		told = told.Until(r.Now)
		next, err := write(ctx, client, p, told.PodPatch(p.UID, p.ResourceVersion, of.ID, times))
		return r.refused(of, p, next, err)
	case r.isToldAgain(of, p, &told):
		return tell(ctx, client, p, of.ID, policy.Told{Since: told.Since, Again: r.Now}, times+1)
	default:
		r.Memory.told = p.Name
		return Next{After: pause, Waits: isRestarted(p.Name)}, nil
	}
}

// isToldAgain reports whether it is time to tell a pod again. Each time, its restarter lets it drain. So once that has failed, the pauses are
// doubled: each is as long as it has been since the pod was told first.
func (r *Restart) isToldAgain(of *policy.PodsInPlace, p *corev1.Pod, told *policy.Told) bool {
	after := tellAgain
	if of.Failed != "" {
		after = min(max(after, told.Again.Sub(told.Since)), tellAtLeast)
	}
	return waiting(p, told) && r.Now.Sub(told.Again) >= after
}

// refused remembers whether a pod could be told, and returns the step. If none could be told for a while, that is recorded, so that every
// replica shows it. The others are tried next: what refuses one pod may allow them.
func (r *Restart) refused(of *policy.PodsInPlace, p *corev1.Pod, next Next, err error) (Next, error) {
	m := r.Memory
	if err == nil {
		m.refusedSince = time.Time{}
		return next, nil
	}
	m.refused = placeOf(p, r.Now)
	if m.refusedSince.IsZero() {
		m.refusedSince = r.Now
	}
	if of.Refused != "" || r.Now.Sub(m.refusedSince) < refusedAfter {
		return Next{}, err
	}
	progress := *of
	progress.Refused = policy.RefusedOf(p.Name, errors.Unwrap(err))
	return Next{InPlace: &InPlace{Progress: &progress}, Failed: progress.Refused}, nil
}

func isRestarted(pod string) string { return "pod " + pod + " is being restarted" }

// onItsWay reports whether nothing is to be done but to wait for the pod that was told last, so that no other has to be looked at: a workload
// may have thousands.
func (r *Restart) onItsWay(ctx context.Context, client workload.Client, of *policy.PodsInPlace) (bool, error) {
	name := r.Memory.told
	found, err := client.CoreV1().Pods(r.Namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()})
	if err != nil {
		return false, fmt.Errorf("looking for pod %s/%s: %w", r.Namespace, name, err)
	}
	i := slices.IndexFunc(found.Items, func(p corev1.Pod) bool { return p.Name == name })
	if i < 0 || found.Items[i].DeletionTimestamp != nil {
		return false, nil
	}
	p := &found.Items[i]
	told, times := policy.ToldOf(p.Annotations, of.ID)
	back := isReady(p) && restarted(p, &told) && !unsure(p, &told, r.Now)
	late := of.Failed == "" && (!isReady(p) || !restarted(p, &told)) && r.Now.Sub(told.Since) >= cmp.Or(r.Deadline, deadline)
	return times > 0 && !back && !late && !r.isToldAgain(of, p, &told) && !told.Ahead(r.Now), nil
}

// tooFew says why no ready pod may become unavailable, with so many dead pods; empty: one may.
func (s *restarts) tooFew(r *Restart, dead int32) string {
	switch {
	case s.available+dead <= r.Replicas-max(1, r.MaxUnavailable):
		return s.some(s.available, r.Replicas)
	// Its controller makes pods unavailable, too. If all are up to date, only their number counts; a dead pod keeps a rollout from its end.
	case r.Rollout.Phase == dependency.RolloutRunning && dead == 0 && (r.MaxUnavailable <= 1 || r.Updated != dependency.UpdatedAll):
		return r.Rollout.Message
	default:
		return ""
	}
}

// tell tells a pod to restart.
func tell(ctx context.Context, client workload.Client, p *corev1.Pod, restart string, told policy.Told, times int) (Next, error) {
	told.Restarts = map[string]int32{}
	for _, c := range lasting(p) {
		if hasRun(c.status) {
			told.Restarts[c.name] = c.status.RestartCount
		}
	}
	next, err := write(ctx, client, p, told.PodPatch(p.UID, p.ResourceVersion, restart, times))
	if err == nil && next.After == pause {
		next.InPlace = &InPlace{Pods: []PodStep{{Name: p.Name, UID: p.UID}}}
	}
	return next, err
}

// write patches a pod.
func write(ctx context.Context, client workload.Client, p *corev1.Pod, patch []byte) (Next, error) {
	_, err := client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: policy.FieldManager})
	switch {
	case err == nil:
		return Next{After: pause}, nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // deleted, or its status has changed meanwhile
		return Next{After: time.Second}, nil
	default:
		return Next{}, fmt.Errorf("annotating pod %s/%s: %w", p.Namespace, p.Name, err)
	}
}

// restarts summarizes the pods of a workload, for the next step of a restart in place.
type restarts struct {
	availability

	of policy.PodsInPlace
	// left are those that have yet to be restarted, and back are those that have been since the last step was recorded.
	left []types.UID
	back []PodStep
	// current is the one that has been told and is not back; nil: there is none.
	current *corev1.Pod
	// first is the first in order that has yet to be told, and later is the first after the place refused; nil: there is none.
	first, later *corev1.Pod
	refused      place
	// waiting is the name of a pod for which nothing can be done until it has started; empty: there is none.
	waiting string
	// seen is Memory.unstarted before, and unstarted is the same now.
	seen, unstarted map[types.UID]string
	available       int32
	ending          []endingPod
}

// next returns the pod to tell next, or nil.
func (s *restarts) next() *corev1.Pod { return cmp.Or(s.later, s.first) }

// place is where a pod comes in the order in which pods are told. Those that are not ready come first: they serve no requests, and those
// that cannot become ready with old content must not hold up the others. So do those that may restart anyway, because they were told of an
// earlier restart. The zero value is before all pods.
type place struct {
	ready bool
	name  string
}

func placeOf(p *corev1.Pod, now time.Time) place {
	return place{isReady(p) && !mayRestart(p, now), p.Name}
}

func (a place) before(b place) bool {
	if a.ready != b.ready {
		return b.ready
	}
	return a.name < b.name
}

// add adds a pod. One that is terminating needs no restart.
func (s *restarts) add(p *corev1.Pod) {
	if p.DeletionTimestamp != nil {
		s.ending = append(s.ending, endingPod{p.UID, ptr.Deref(p.DeletionGracePeriodSeconds, 0)})
		return
	}
	if s.isAvailable(p) {
		s.available++
	}
	if !s.of.Has(p.UID) {
		return
	}
	late, runs := s.startsLate(p)
	if late && !runs && (p.Spec.NodeName == "" || s.seen[p.UID] == s.of.ID) {
		s.unstarted[p.UID] = s.of.ID
	}
	_, before := policy.ToldLast(p.Annotations) // while its containers restart, they may look as if they never ran
	switch told, times := policy.ToldOf(p.Annotations, s.of.ID); {
	case times == 0 && late && runs:
		return
	case times == 0 && !before && !hasStarted(p, &policy.Told{}), times > 0 && !hasStarted(p, &told): // the others need not wait for it
		s.waiting = p.Name
	case times == 0:
		at := placeOf(p, s.now)
		if s.first == nil || at.before(placeOf(s.first, s.now)) {
			s.first = p.DeepCopy()
		}
		if s.refused.before(at) && (s.later == nil || at.before(placeOf(s.later, s.now))) {
			s.later = p.DeepCopy()
		}
	case isReady(p) && restarted(p, &told) && !unsure(p, &told, s.now):
		s.back = append(s.back, PodStep{p.Name, p.UID, true})
		return
	case s.current == nil:
		s.current = p.DeepCopy()
	}
	s.left = append(s.left, p.UID)
}

// startsLate reports whether a pod needs no restart, because it reads the current content when it starts, and whether all of its containers
// have run by now. A pod may have its volumes long before it runs, while an image is pulled, so this process must have seen it without a node
// since the restart began. If no source is in a volume, it is enough that its containers started after that, by the clock of the node: in
// doubt it was before.
func (s *restarts) startsLate(p *corev1.Pod) (late, run bool) {
	if _, before := policy.ToldLast(p.Annotations); before || s.of.Began.IsZero() { // it may be restarting; see hasStarted
		return false, false
	}
	from := s.of.Began
	switch {
	case s.seen[p.UID] == s.of.ID:
	case p.Spec.NodeName != "" && mountsSources(p):
		return false, false
	default:
		from = from.Add(dependency.ClockMargin)
	}
	restarter := apart(p)
	run = true
	for _, all := range []struct {
		containers []corev1.Container
		statuses   []corev1.ContainerStatus
	}{{p.Spec.InitContainers, p.Status.InitContainerStatuses}, {p.Spec.Containers, p.Status.ContainerStatuses}} {
		for i := range all.containers {
			switch c := statusOf(all.statuses, all.containers[i].Name); {
			case all.containers[i].Name == restarter:
			case !hasRun(c):
				run = false
			case c.RestartCount > 0, startOf(c).Before(from):
				return false, false
			}
		}
	}
	return true, run
}

// mountsSources reports whether a pod has volumes of sources. The certificates of the cluster, which all pods have, do not count.
func mountsSources(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		return v.ConfigMap != nil || v.Secret != nil || v.CSI != nil || v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(from corev1.VolumeProjection) bool {
			return from.Secret != nil || from.ConfigMap != nil && from.ConfigMap.Name != "kube-root-ca.crt"
		})
	})
}

// hasStarted reports whether a container of a pod that was told has ever run. If none has, there is nothing that the others could wait for.
// While containers restart, they may look as if they never ran.
func hasStarted(p *corev1.Pod, told *policy.Told) bool {
	restarter := apart(p)
	return told.Unfinished || slices.ContainsFunc(lasting(p), func(c container) bool {
		_, had := told.Restarts[c.name]
		return c.name != restarter && (had || hasRun(c.status))
	})
}

// failed says in a sentence that the pod that was told last has not come back in time; empty: it still has time, or there is none.
func (s *restarts) failed(r *Restart) string {
	if s.current == nil {
		return ""
	}
	told, _ := policy.ToldOf(s.current.Annotations, s.of.ID)
	within := cmp.Or(r.Deadline, deadline)
	switch {
	case r.Now.Sub(told.Since) < within, isReady(s.current) && restarted(s.current, &told): // then it is only unsure which restart that was
		return ""
	case !waiting(s.current, &told): // a container may still start, or end again and again
		return fmt.Sprintf("Pod %s has not become ready within %v of its restart in place.", s.current.Name, within)
	default:
		return fmt.Sprintf("The containers of pod %s have not restarted within %v.", s.current.Name, within)
	}
}

// refusal returns PodsInPlace.Refused: as it was, until a pod has been told, or there is none to tell.
func (s *restarts) refusal(r *Restart) string {
	if s.current == nil && s.next() == nil {
		return ""
	}
	if s.current != nil {
		if told, _ := policy.ToldOf(s.current.Annotations, s.of.ID); !told.Ahead(r.Now) {
			return ""
		}
	}
	return s.of.Refused
}

// container is a container that runs as long as its pod.
type container struct {
	name    string
	sidecar bool
	status  *corev1.ContainerStatus
}

// lasting returns the regular containers and the sidecars of a pod.
func lasting(p *corev1.Pod) (out []container) {
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; ptr.Deref(c.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways {
			out = append(out, container{c.Name, true, statusOf(p.Status.InitContainerStatuses, c.Name)})
		}
	}
	for i := range p.Spec.Containers {
		name := p.Spec.Containers[i].Name
		out = append(out, container{name, false, statusOf(p.Status.ContainerStatuses, name)})
	}
	return out
}

// apart returns the name of the restarter of a pod, which reads no content; empty: no other container lasts, so it may.
func apart(p *corev1.Pod) string {
	r, _ := kind.RestarterOf(&p.Spec)
	if slices.ContainsFunc(lasting(p), func(c container) bool { return c.name != r.Name }) {
		return r.Name
	}
	return ""
}

// hasRun reports whether a container has ever run, as far as its kubelet has reported.
func hasRun(s *corev1.ContainerStatus) bool {
	return s != nil && (s.State.Running != nil || s.State.Terminated != nil || s.RestartCount > 0 || s.LastTerminationState != corev1.ContainerState{})
}

// startOf returns when a container that has run started last; zero: that is not known.
func startOf(s *corev1.ContainerStatus) time.Time {
	switch {
	case s.State.Running != nil:
		return s.State.Running.StartedAt.Time
	case s.State.Terminated != nil:
		return s.State.Terminated.StartedAt.Time
	default:
		return time.Time{}
	}
}

func statusOf(all []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	if i := slices.IndexFunc(all, func(s corev1.ContainerStatus) bool { return s.Name == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

// restarted reports whether all containers of a pod have restarted since it was told. A container that had never run then has started
// since.
func restarted(p *corev1.Pod, told *policy.Told) bool {
	has, _ := progressOf(p, told)
	return has
}

// unsure reports whether a restart of a pod may be that of which it was told before, which had not been reported yet: its containers have
// restarted once, and started before it was told, by the clock of its node. Then its restarter restarts them again on its own. If it has not
// after tellAgain, the clock is wrong.
func unsure(p *corev1.Pod, told *policy.Told, now time.Time) bool {
	if !told.Unfinished || now.Sub(told.Again) >= tellAgain {
		return false
	}
	return slices.ContainsFunc(lasting(p), func(c container) bool {
		before, had := told.Restarts[c.name]
		return had && c.status != nil && c.status.RestartCount <= before+1 && c.status.State.Running != nil &&
			c.status.State.Running.StartedAt.Time.Before(told.Since.Truncate(time.Second))
	})
}

// waiting reports whether a container of a pod still runs as it did when the pod was told. If none does, the containers are restarting, or
// have restarted: telling the pod again would stop those that take long to start, again and again.
func waiting(p *corev1.Pod, told *policy.Told) bool {
	_, remains := progressOf(p, told)
	return remains
}

// progressOf reports whether all containers of a pod have restarted since it was told, and whether one of them still runs that has not. A
// regular container that started before its restarter did, in the same second at best, was restarted for another reason.
func progressOf(p *corev1.Pod, told *policy.Told) (all, remains bool) {
	var restarter *corev1.ContainerStatus
	if r, found := kind.RestarterOf(&p.Spec); found && r.Sidecar {
		restarter = statusOf(p.Status.InitContainerStatuses, r.Name)
	}
	all = true
	for _, c := range lasting(p) {
		before, had := told.Restarts[c.name]
		switch {
		case c.status == nil, c.status.State.Running == nil:
			all = false
		case had && c.status.RestartCount <= before:
			all, remains = false, true
		case c.sidecar || restarter == nil || restarter.State.Running == nil:
		case c.status.State.Running.StartedAt.Before(&restarter.State.Running.StartedAt):
			all, remains = false, true
		}
	}
	return all, remains
}
