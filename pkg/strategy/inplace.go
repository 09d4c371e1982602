// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package strategy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/record"
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
	of, valid := record.PodsInPlaceOf(r.Workload)
	pods := restarts{availability: r.availability(), of: of, refused: r.Memory.refused}
	for _, p := range r.Pods {
		if wait := r.Memory.awaits(p, r.Now); wait > 0 {
			return Next{After: wait}, nil
		}
		pods.add(p)
	}
	dead := r.dead(&pods.availability, pods.ending)
	switch {
	case !valid:
		return Next{RollOut: true, Because: "another client changed the annotation " + record.RecreatingAnnotation}, nil
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
		return Next{Waits: "pod " + pods.waiting + " has not started yet"}, nil
	}
	if isReady(p) {
		waits, why, after := pods.tooFew(r, dead), "", pods.after()
		if waits == "" {
			after = pause
			b, err := budgetOf(ctx, client, p)
			if err != nil {
				return Next{}, fmt.Errorf("listing the PodDisruptionBudgets of namespace %s: %w", r.Namespace, err)
			}
			if b.UID != "" {
				if _, taken := r.Budgets.LoadOrStore(b.UID, nil); taken {
					return Next{After: time.Second}, nil
				}
				defer r.Budgets.Delete(b.UID)
			}
			if waits, why, err = b.protects(ctx, client, r, p); err != nil {
				return Next{}, fmt.Errorf("listing the pods of PodDisruptionBudget %s/%s: %w", r.Namespace, b.Name, err)
			}
		}
		if waits != "" {
			if r.Memory.refused != (place{}) { // it may wait for a pod that was refused, which is tried again
				r.Memory.refused, after = place{}, refusedAfter
			}
			return Next{After: after, Waits: waits, Why: why}, nil
		}
	}
	told := record.Told{Since: r.Now, Again: r.Now}
	if before, found := toldLast(p); found {
		told.Unfinished = hasStarted(p, &before) && (!restarted(p, &before) || unsure(p, &before, r.Now))
	}
	next, err := r.tell(ctx, client, p, of.ID, told, 1)
	return r.refused(&of, p, next, err)
}

// await takes the next step while a pod has been told and is not back.
func (r *Restart) await(ctx context.Context, client workload.Client, of *record.PodsInPlace, p *dependency.Pod) (Next, error) {
	told, times := toldOf(p, of.ID)
	again := tellsAgain(of, &told)
	switch {
	case told.Ahead(r.Now): // it would never be late
		told = told.Until(r.Now)
		next, err := r.write(ctx, client, p, &told, of.ID, times)
		return r.refused(of, p, next, err)
	case waiting(p, &told) && !r.Now.Before(again):
		return r.tell(ctx, client, p, of.ID, record.Told{Since: told.Since, Again: r.Now}, times+1)
	}
	next := r.availability()
	next.changes(again)
	next.changes(told.Again.Add(tellAgain))                    // see unsure
	next.changes(told.Since.Add(cmp.Or(r.Deadline, deadline))) // see restarts.failed
	return Next{After: next.after(), Waits: "pod " + p.Name + " is being restarted"}, nil
}

// tellsAgain returns when a pod is told again. Each time, its restarter lets it drain. So once that has failed, the pauses are doubled: each is
// as long as it has been since the pod was told first.
func tellsAgain(of *record.PodsInPlace, told *record.Told) time.Time {
	after := tellAgain
	if of.Failed != "" {
		after = min(max(after, told.Again.Sub(told.Since)), tellAtLeast)
	}
	return told.Again.Add(after)
}

// refused remembers whether a pod could be told, and returns the step. If none could be told for a while, that is recorded, so that every
// replica shows it. The others are tried next: what refuses one pod may allow them.
func (r *Restart) refused(of *record.PodsInPlace, p *dependency.Pod, next Next, err error) (Next, error) {
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
	progress.Refused = record.RefusedOf(p.Name, errors.Unwrap(err))
	return Next{InPlace: &InPlace{Progress: &progress}, Failed: progress.Refused}, nil
}

// tooFew says why no ready pod may become unavailable, with so many dead pods; empty: one may.
func (s *restarts) tooFew(r *Restart, dead int32) string {
	switch {
	case s.available+dead <= r.Replicas-max(1, r.MaxUnavailable):
		return s.some(s.available, r.Replicas)
	// Its controller makes pods unavailable, too. If all are up to date, only their number counts; a dead pod keeps a rollout from its end.
	case r.Rollout.Phase == dependency.RolloutRunning && dead == 0 && (r.MaxUnavailable <= 1 || !r.areUpToDate()):
		return r.Rollout.Message
	default:
		return ""
	}
}

// areUpToDate reports whether all pods are known to have the current template.
func (r *Restart) areUpToDate() bool {
	return r.Revision != "" && !slices.ContainsFunc(r.Pods, func(p *dependency.Pod) bool { return p.Deleted.IsZero() && p.Revision != r.Revision })
}

// tell tells a pod to restart.
func (r *Restart) tell(ctx context.Context, client workload.Client, p *dependency.Pod, restart string, told record.Told, times int) (Next, error) {
	told.Hash, told.Restarts = r.Hash, map[string]int32{}
	for i := range p.Containers {
		if c := &p.Containers[i]; c.Ran {
			told.Restarts[c.Name] = c.Restarts
		}
	}
	next, err := r.write(ctx, client, p, &told, restart, times)
	if err == nil && next.After == 0 {
		next.InPlace = &InPlace{Pods: []PodStep{{Name: p.Name, UID: p.UID}}}
	}
	return next, err
}

// write patches a pod.
func (r *Restart) write(ctx context.Context, client workload.Client, p *dependency.Pod, told *record.Told, restart string, times int) (Next, error) {
	patch := told.PodPatch(p.UID, strconv.FormatUint(p.Version, 10), restart, times)
	_, err := client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: record.FieldManager})
	switch {
	case err == nil:
		r.Memory.acted(p, r.Now)
		return Next{}, nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // deleted, or its status has changed meanwhile
		return Next{After: time.Second}, nil
	default:
		return Next{}, fmt.Errorf("annotating pod %s/%s: %w", p.Namespace, p.Name, err)
	}
}

// toldOf and toldLast return what policy.ToldOf and policy.ToldLast do of a pod.
func toldOf(p *dependency.Pod, restart string) (record.Told, int) {
	if p.InPlace == nil {
		return record.Told{}, 0
	}
	return record.ToldOf(p.InPlace.Told, restart)
}

func toldLast(p *dependency.Pod) (record.Told, bool) {
	if p.InPlace == nil {
		return record.Told{}, false
	}
	return record.ToldLast(p.InPlace.Told)
}

func isReady(p *dependency.Pod) bool { return !p.Ready.IsZero() }

// restarts summarizes the pods of a workload, for the next step of a restart in place.
type restarts struct {
	availability

	of record.PodsInPlace
	// left are those that have yet to be restarted, and back are those that have been since the last step was recorded.
	left []types.UID
	back []PodStep
	// current is the one that has been told and is not back; nil: there is none.
	current *dependency.Pod
	// first is the first in order that has yet to be told, and later is the first after the place refused; nil: there is none.
	first, later *dependency.Pod
	refused      place
	// waiting is the name of a pod for which nothing can be done until it has started; empty: there is none.
	waiting   string
	available int32
	ending    []*dependency.Pod
}

// next returns the pod to tell next, or nil.
func (s *restarts) next() *dependency.Pod { return cmp.Or(s.later, s.first) }

// place is where a pod comes in the order in which pods are told. Those that are not ready come first: they serve no requests, and those
// that cannot become ready with old content must not hold up the others. So do those that may restart anyway, because they were told of an
// earlier restart. The zero value is before all pods.
type place struct {
	ready bool
	name  string
}

func placeOf(p *dependency.Pod, now time.Time) place {
	return place{isReady(p) && !mayRestart(p, now), p.Name}
}

func (a place) before(b place) bool {
	if a.ready != b.ready {
		return b.ready
	}
	return a.name < b.name
}

// add adds a pod. One that is terminating needs no restart.
func (s *restarts) add(p *dependency.Pod) {
	if !p.Deleted.IsZero() {
		s.ending = append(s.ending, p)
		return
	}
	if s.isAvailable(p) {
		s.available++
	}
	if !s.of.Has(p.UID) {
		return
	}
	_, before := toldLast(p) // while its containers restart, they may look as if they never ran
	switch told, times := toldOf(p, s.of.ID); {
	case times == 0 && !before && !hasStarted(p, &record.Told{}), times > 0 && !hasStarted(p, &told): // the others need not wait for it
		s.waiting = p.Name
	case times == 0:
		at := placeOf(p, s.now)
		if s.first == nil || at.before(placeOf(s.first, s.now)) {
			s.first = p
		}
		if s.refused.before(at) && (s.later == nil || at.before(placeOf(s.later, s.now))) {
			s.later = p
		}
	case isReady(p) && restarted(p, &told) && !unsure(p, &told, s.now):
		s.back = append(s.back, PodStep{p.Name, p.UID, true})
		return
	case s.current == nil:
		s.current = p
	}
	s.left = append(s.left, p.UID)
}

// hasStarted reports whether a container of a pod that was told has ever run. If none has, there is nothing that the others could wait for.
// While containers restart, they may look as if they never ran.
func hasStarted(p *dependency.Pod, told *record.Told) bool {
	restarter := apart(p)
	for i := range p.Containers {
		c := &p.Containers[i]
		if _, had := told.Restarts[c.Name]; lasts(c) && c.Name != restarter && (had || c.Ran) {
			return true
		}
	}
	return told.Unfinished
}

// failed says in a sentence that the pod that was told last has not come back in time; empty: it still has time, or there is none.
func (s *restarts) failed(r *Restart) string {
	if s.current == nil {
		return ""
	}
	told, _ := toldOf(s.current, s.of.ID)
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
		if told, _ := toldOf(s.current, s.of.ID); !told.Ahead(r.Now) {
			return ""
		}
	}
	return s.of.Refused
}

// lasts reports whether a container runs as long as its pod.
func lasts(c *dependency.PodContainer) bool { return c.Role != dependency.InitContainer }

// isRunning reports whether a container runs.
func isRunning(c *dependency.PodContainer) bool { return c.Waiting == "" && !c.Ended }

// apart returns the name of the restarter of a pod, which reads no content; empty: no other container lasts, so it may.
func apart(p *dependency.Pod) string {
	for i := range p.Containers {
		if c := &p.Containers[i]; p.InPlace != nil && lasts(c) && c.Name != p.InPlace.Restarter {
			return p.InPlace.Restarter
		}
	}
	return ""
}

// restarted reports whether all containers of a pod have restarted since it was told. A container that had never run then has started
// since.
func restarted(p *dependency.Pod, told *record.Told) bool {
	has, _ := progressOf(p, told)
	return has
}

// unsure reports whether a restart of a pod may be that of which it was told before, which had not been reported yet: its containers have
// restarted once, and started before it was told, by the clock of its node. Then its restarter restarts them again on its own. If it has not
// after tellAgain, the clock is wrong.
func unsure(p *dependency.Pod, told *record.Told, now time.Time) bool {
	if !told.Unfinished || now.Sub(told.Again) >= tellAgain {
		return false
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		before, had := told.Restarts[c.Name]
		if had && lasts(c) && c.Restarts <= before+1 && isRunning(c) && c.Started.Before(told.Since.Truncate(time.Second)) {
			return true
		}
	}
	return false
}

// waiting reports whether a container of a pod still runs as it did when the pod was told. If none does, the containers are restarting, or
// have restarted: telling the pod again would stop those that take long to start, again and again.
func waiting(p *dependency.Pod, told *record.Told) bool {
	_, remains := progressOf(p, told)
	return remains
}

// progressOf reports whether all containers of a pod have restarted since it was told, and whether one of them still runs that has not. A
// regular container that started before its restarter did, in the same second at best, was restarted for another reason.
func progressOf(p *dependency.Pod, told *record.Told) (all, remains bool) {
	var restarter *dependency.PodContainer // a sidecar that runs
	for i := range p.Containers {
		if c := &p.Containers[i]; p.InPlace != nil && c.Name == p.InPlace.Restarter && c.Role == dependency.SidecarContainer && isRunning(c) {
			restarter = c
		}
	}
	all = true
	for i := range p.Containers {
		c := &p.Containers[i]
		before, had := told.Restarts[c.Name]
		switch {
		case !lasts(c):
		case !isRunning(c):
			all = false
		case had && c.Restarts <= before:
			all, remains = false, true
		case c.Role == dependency.SidecarContainer || restarter == nil:
		case c.Started.Before(restarter.Started):
			all, remains = false, true
		}
	}
	return all, remains
}
