// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// tellAgain is after which time a pod may be told again, and within the time of deadline it has to be back.
const (
	tellAgain = 3 * time.Minute
	deadline  = 10 * time.Minute
)

// judgeCorrection judges that a server changes only when a pod was told: it may if that is in the future by its clock.
func (o *oracle) judgeCorrection(r *request, d *workload, p *pod, restarting string) {
	now := r.sent.Add(o.world.skews.Servers[r.server.id])
	ahead := func(annotation string) bool {
		var times struct{ Since, Again time.Time }
		if err := json.Unmarshal([]byte(annotation), &times); err != nil {
			o.fail("%s: pod %d: %v: %s", workloadName(d.slot), p.uid, err, annotation)
		}
		return times.Since.After(now) || times.Again.After(now)
	}
	if !ahead(p.annotations[restartingAnnotation]) || ahead(restarting) {
		o.fail("%s: pod %d is told what it was told before", workloadName(d.slot), p.uid)
	}
}

// judgeTold judges that a server tells a pod to restart.
func (o *oracle) judgeTold(r *request, d *workload, p *pod, id string) {
	name, listed := workloadName(d.slot), r.listed
	begun, found := o.begun[id]
	was, seen := listedPod{}, false
	if listed != nil {
		was, seen = listed.pods[p.uid]
	}
	switch {
	case !found:
		o.fail("%s: pod %d is told of a restart that has never begun", name, p.uid)
	case p.born > begun:
		o.fail("%s: pod %d is told to restart, but was created after the restart began", name, p.uid)
	case d.deleting:
		o.fail("%s: pod %d is told to restart, but the workload is being deleted", name, p.uid)
	case !seen:
		o.fail("%s: pod %d is told to restart without being looked at", name, p.uid)
	}
	if o.violation != "" {
		return
	}
	o.tally.Told++
	if p.inPlace.id == id {
		o.tally.ToldAgain++
		switch {
		case !was.unfinished && !was.looksOld:
			o.fail("%s: pod %d is told again, but all its containers have restarted since it was told last", name, p.uid)
		case o.world.skews.right() && time.Since(p.inPlace.last) < tellAgain:
			o.fail("%s: pod %d is told again after %v, want %v", name, p.uid, time.Since(p.inPlace.last), tellAgain)
		}
		return
	}
	left := readInPlace(d.annotations[recreatingAnnotation])
	for _, other := range d.pods {
		if l, found := listed.pods[other.uid]; found && other != p && left.names(other) && !l.terminating && l.id == id && (l.remains || !l.ready) {
			o.fail("%s: pod %d is told to restart while pod %d is not back", name, p.uid, other.uid)
		}
	}
	if !was.ready {
		return
	}
	if !listed.free {
		o.fail("%s: pod %d is told to restart, although its PodDisruptionBudget does not allow that or was not read", name, p.uid)
	}
	if least := listed.replicas - max(1, d.mostUnavailable()); listed.replicas >= 0 && listed.ready-1+listed.dead < least {
		o.fail("%s: pod %d is told to restart, and %d of %d pods were ready", name, p.uid, listed.ready, listed.replicas)
	}
}

// progresses reports whether a patch records how far a restart in place is.
func (b *patchBody) progresses() bool {
	value := b.Metadata.Annotations[recreatingAnnotation]
	return value != nil && isInPlace(*value) && len(b.Metadata.Annotations) == 1 && len(b.Spec.Template.Metadata.Annotations) == 0
}

// judgeProgress judges a record of how far a restart in place is.
func (o *oracle) judgeProgress(r *request, d *workload, value string) {
	name, was, is := workloadName(d.slot), readInPlace(d.annotations[recreatingAnnotation]), readInPlace(value)
	if _, found := o.begun[is.ID]; !found || is.ID != was.ID || is.Total != was.Total {
		o.fail("a record of %s says how far another restart is: %s after %s", name, value, d.annotations[recreatingAnnotation])
		return
	}
	for _, p := range d.pods {
		switch {
		case is.names(p) && !was.names(p):
			o.fail("%s: pod %d comes to a restart in place later", name, p.uid)
		case was.names(p) && !is.names(p) && !p.terminating && !p.renewed(value):
			o.fail("%s: pod %d is recorded as restarted in place, but is not", name, p.uid)
		case was.names(p) && !is.names(p) && !p.terminating && !r.listed.pods[p.uid].ready:
			o.fail("%s: pod %d is recorded as restarted in place, but was not ready", name, p.uid)
		}
	}
	if is.Failed == "" || is.Failed == was.Failed {
		return
	}
	o.tally.Halted++
	if o.world.skews.right() && !slices.ContainsFunc(d.pods, func(p *pod) bool {
		return is.names(p) && p.inPlace.id == is.ID && time.Since(p.inPlace.since) >= deadline && strings.Contains(is.Failed, p.name(d)+" ")
	}) {
		o.fail("%s is halted, but no pod has been away for long: %s", name, is.Failed)
	}
}

// judgeWay judges whether a controller restarts a workload in the right way.
func (o *oracle) judgeWay(r *request, d *workload, rules rules, body *patchBody, restarts bool) {
	name, by, value := workloadName(d.slot), d.restartsBy(rules), body.Metadata.Annotations[recreatingAnnotation]
	if value != nil && isInPlace(*value) && !body.progresses() {
		is := readInPlace(*value)
		if restarts {
			o.beginsInPlace(r, d, by, &is)
		}
		return
	}
	if r.reload != nil || len(body.Spec.Template.Metadata.Annotations) == 0 || !rules.inPlace || d.kind == boat {
		return
	}
	unfit := r.listed != nil && hasUnfit(r.listed.pods)
	switch {
	case by == "in-place" && !unfit && d.underWay() == "":
		o.fail("%s is rolled out, although its pods can be restarted in place", name)
	case restarts:
		o.tally.NotInPlace++
	}
}

func hasUnfit(pods map[int]listedPod) bool {
	for _, p := range pods {
		if !p.restarter && !p.terminating {
			return true
		}
	}
	return false
}

// beginsInPlace judges the begin of a restart in place.
func (o *oracle) beginsInPlace(r *request, d *workload, by string, is *restartInPlace) {
	name := workloadName(d.slot)
	o.tally.InPlace++
	if o.begun == nil {
		o.begun = map[string]uint64{}
	}
	_, again := o.begun[is.ID]
	switch {
	case by != "in-place":
		o.fail("%s is restarted in place, which it does not ask for or has no restarter for", name)
	case again || is.ID == "":
		o.fail("the restart %q of %s has begun before", is.ID, name)
	case r.listed == nil:
		o.fail("%s is restarted in place, but its pods have not been listed", name)
	case hasUnfit(r.listed.pods):
		o.fail("%s is restarted in place, but a pod has no restarter", name)
	}
	if o.violation != "" {
		return
	}
	for _, p := range d.pods {
		if was, found := r.listed.pods[p.uid]; found && !was.terminating && !is.names(p) {
			o.fail("%s: pod %d is left out of a restart in place", name, p.uid)
		}
	}
	o.begun[is.ID] = o.world.revision
}

// checkUnderWay checks that no server shows a workload as InSync while it is being restarted.
func (o *oracle) checkUnderWay(d *workload, s *server, got verdict) {
	if got.state == "InSync" && got.reason != "NoPods" && d.underWay() != "" && s.view.synced && !s.lags() {
		o.fail("%s: server %d shows InSync (%s) while pods are left to restart: %s", workloadName(d.slot), s.id, got.reason, d.annotations[recreatingAnnotation])
	}
}

// checkHalted checks that the leader says so when a pod has not come back.
func (o *oracle) checkHalted(d *workload, s *server, got verdict) {
	is := readInPlace(d.annotations[recreatingAnnotation])
	if r := o.rules(d); is.ID == "" || d.superseded(r) || !r.managed() || d.paused || d.holder.fights() || d.deleting || o.world.terminating || !o.world.skews.right() {
		return
	}
	for _, p := range d.pods {
		if is.names(p) && p.inPlace.id == is.ID && !p.terminating && (p.remains() || !p.ready()) && time.Since(p.inPlace.since) > deadline+time.Minute &&
			got.state != "Failed" && got.state != "Blocked" {
			o.fail("%s: server %d shows %s (%s), but pod %d has not come back for %v", workloadName(d.slot), s.id, got.state, got.message, p.uid, time.Since(p.inPlace.since))
		}
	}
}
