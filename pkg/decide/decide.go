// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// Decide returns the state of a workload at a time, and what is to be done.
func (e *Evaluation) Decide(now time.Time) Decision {
	j := e.judge(e.Judge(now))
	d := e.decide(j, now)
	d.Pods, d.Trigger = j, e.trigger(&d)
	if e.defaults.Observe {
		e.observe(&d)
	}
	e.sayNotInPlace(&d)
	e.tellRefused(&d, now)
	e.await(&d, now)
	e.sayMore(&d)
	d.Timed = j.Local || !j.certain() || d.Stale || e.Workload.RecordDropped || slices.Contains([]State{Settling, Pending}, d.State) ||
		d.State == RollingOut && !d.RecheckAt.IsZero() || d.Reason == ReasonPodsNotReady || d.Reason == ReasonHalted || d.unrecorded
	e.askAgents(&d)
	e.sayWhy(&d)
	return d
}

// tellRefused says why the API server keeps refusing a request that is due: a restart, or the first record, with which changes are compared. The request
// is retried all the same.
func (e *Evaluation) tellRefused(d *Decision, now time.Time) {
	d.unrecorded = d.Action == WriteRecord && !e.Comparable() && slices.Contains([]State{InSync, Stale, Unknown}, d.State)
	if d.Action == None || d.State != Pending && !d.unrecorded {
		return
	}
	if r := e.graph.Refusal(e.Workload.WorkloadKey, e.Hash, now); r != nil {
		d.State, d.Reason = Blocked, ReasonRefused
		if d.unrecorded {
			d.Message = "No change restarts the workload until configdep has recorded what its pods run with."
		}
		d.Message += " The API server refuses it: " + r.Why
	}
}

// sayMore adds to a message what is true besides the state: that pods run with old content, or that new ones cannot start.
func (e *Evaluation) sayMore(d *Decision) {
	missing, _ := e.Missing()
	switch {
	case (d.State == Blocked || d.State == Failed) && d.Pods.Stale > 0 && len(d.due) == 0 && d.Reason != ReasonRestartFailed:
		d.Message += " " + upperFirst(podsRun(d.Pods.Stale, d.Pods.Total)) + " old content."
	case d.State != Blocked && len(missing) > 0 && d.Reason != ReasonTerminating:
		d.Message += " " + upperFirst(strings.Join(missing, "; ")) + ": " + e.Consequence() + "."
	}
	for _, remark := range e.Policy.Remarks {
		d.Message += " " + upperFirst(remark) + "."
	}
}

// sayWhy adds to a message why pods do not start, in the cluster's own words. These come last, because tenants can write them. It does not
// change messages of the state Blocked: these say what to fix, and each change of them causes an event.
func (e *Evaluation) sayWhy(d *Decision) {
	if d.State == Blocked {
		return
	}
	if j := d.Pods; len(j.waits) > 0 {
		d.Message += " " + dependency.SomePods(int32(j.halted), int32(j.Total), "not running") + ": " + enumerate(j.waits) + "."
	}
	if words := e.Workload.Rollout.Words; words != "" {
		d.Message += " The " + string(e.Workload.Kind) + " reports: " + words
	}
}

// trigger returns Decision.Trigger.
func (e *Evaluation) trigger(d *Decision) string {
	if len(d.due) > 0 {
		return d.due[0].id
	}
	if last := record.LastReloadOf(e.Workload); last != nil {
		return last.Trigger
	}
	return d.Trigger
}

// observe turns a decision into that of a server that only observes. It shows what would be done.
func (e *Evaluation) observe(d *Decision) {
	const only = " configdep only observes (--observe)"
	switch d.Action {
	case None, Observe:
	case RollOut:
		d.Action, d.State, d.Reason = Observe, Stale, ReasonObserved
		d.Message = upperFirst(d.Because) + "." + only + ": otherwise, it would restart the workload now."
	case WriteRecord, Forget:
		d.Action = None
	default:
		d.Action = None
		d.Message += only + ", and leaves that to others."
	}
}

// decide is Decide, but for what depends on all of the decision.
func (e *Evaluation) decide(j *Judgement, now time.Time) Decision {
	w := e.Workload
	if d, is := e.decideCopy(); is {
		return d
	}
	if e.graph.Terminating(w) {
		d := Decision{State: InSync, Reason: ReasonTerminating, Stale: j.Stale > 0}
		switch {
		case d.Stale:
			d.State = Stale
		case j.Unknown > 0:
			d.State = Unknown
		}
		d.Message = fmt.Sprintf("The %s or its namespace is being deleted, so it will not be restarted.", w.Kind)
		return d
	}
	if !w.Rollable {
		return e.decideOther(j)
	}
	if w.Reruns {
		if d, decided := e.decideRerun(j, now); decided {
			return d
		}
	}
	if d, paused := e.decidePause(now); paused {
		return d
	}
	if d, is := e.decideReleased(); is {
		return d
	}
	switch {
	case len(e.Policy.Problems) > 0: // only workloads that have opted in, or tried to, have any
		return e.forgets(e.invalid(j))
	case e.Policy.Mode == policy.Off:
		return e.forgets(e.told(j))
	case w.Truncated:
		return Decision{State: Blocked, Reason: ReasonTooManySources, Message: e.tooManySources() + " " + onHold}
	}
	changes := e.changes(j)
	if missing, _ := e.Missing(); len(missing) > 0 {
		d := e.missing(len(changes) > 0 || e.superseded() != nil)
		if !e.Comparable() { // it has just opted in: what changes from now on restarts it, once all is there
			d.Action, d.Record = WriteRecord, e.nextWithoutMissing(j, now)
		}
		return d
	}
	if d, decided := e.decideFields(now, len(changes) > 0); decided {
		return d
	}
	return e.decideKnown(j, changes, now)
}

// byRecord reports whether only the record tells what the pods run with, because configdep cannot see any: the kind does not say which pods they are,
// or a custom resource has none where its description says.
func (e *Evaluation) byRecord(j *Judgement) bool {
	w := e.Workload
	return w.UnknownPods || e.reruns() || w.Custom && w.Replicas > 0 && j.Total == 0 && j.pending == 0
}

// restores reports whether the content has become what it was before a rollout that configdep began, and no pod of that rollout has started. Writing the
// hash of the current content then restores the template of the existing pods, so that their controller keeps them.
func (e *Evaluation) restores(j *Judgement) bool {
	w := e.Workload
	return w.Rollout.Phase != dependency.RolloutComplete && e.Record.For != "" && e.Record.For == w.Marks.TemplateHash && e.Record.For != e.Hash && j.former > 0 && !j.taken && e.Policy.RestartsBy(w).MarksTemplate()
}

// changes returns the sources because of which a restart is due: their content has not been read by containers or, if only the record tells, differs from
// the record.
func (e *Evaluation) changes(j *Judgement) []*due {
	out := e.seen(j)
	for i := range e.tracked {
		t := &e.tracked[i]
		if e.assumed.concerns(e.sourceKey(&t.counted)) {
			out = append(slices.DeleteFunc(slices.Clone(out), func(c *due) bool { return c.tracked == t }), &due{tracked: t, since: e.assumed.At, assumed: true})
		}
	}
	return out
}

// seen returns those of changes that have been made.
func (e *Evaluation) seen(j *Judgement) (out []*due) {
	if !e.byRecord(j) && !e.restores(j) {
		return j.due
	}
	for i := range e.tracked {
		t := &e.tracked[i]
		entry, known := e.Record.Sources[t.id]
		if known && e.Comparable() && entry.Content != t.Content() && scopeIn(entry.Content) == scopeIn(t.Content()) && !t.isIgnored(&entry) {
			out = append(out, &due{tracked: t, since: e.changedSince(t, e.Record.At)})
		}
	}
	return out
}

// changedSince returns when the first change of a source was made after a time; zero: it is not remembered.
func (e *Evaluation) changedSince(t *tracked, at time.Time) time.Time {
	periods := e.graph.Periods(e.sourceKey(&t.counted))
	for i := range periods {
		switch p := &periods[i]; {
		case !p.Before.After(at):
		case i == 0 && len(periods) > 1: // there may have been earlier ones
			return time.Time{}
		default:
			return p.Before
		}
	}
	return periods[len(periods)-1].Written // before this process began to look
}

// nodeClockTime is how long until pods with an impossible start time are judged again.
const nodeClockTime = 10 * time.Minute

// decideKnown decides for a workload that has opted in, and of which all is known.
func (e *Evaluation) decideKnown(j *Judgement, changes []*due, now time.Time) Decision {
	w := e.Workload
	if s := e.superseded(); s != nil && w.Replicas > 0 {
		return e.decideStrategyChanged(s.Progress())
	}
	if len(changes) > 0 && (w.Replicas > 0 || e.byRecord(j)) {
		return e.decideDue(changes, now)
	}
	d := e.told(j)
	if underWay := record.UnderWay(w); underWay != nil {
		d.Action = Continue
		return d
	}
	if again := e.awaited(j); d.RecheckAt.IsZero() {
		d.RecheckAt = again
	}
	if j.clock && d.RecheckAt.IsZero() { // a clock that is ahead tells when the time has come
		d.RecheckAt = now.Add(nodeClockTime)
	}
	if w.Rollout.Reason == dependency.ReasonNotObserved && e.Comparable() { // it is about to be known whether a restart is due
		return d
	}
	next, changed := e.Next(j, now)
	if e.byRecord(j) { // the next restart records it
		next, changed = e.Present(), changed || !e.Comparable()
		next.At = now
		for id := range next.Sources {
			_, known := e.Record.Sources[id]
			changed = changed || !known // it was missing, and no pod tells of it
		}
	}
	if changed {
		d.Action, d.Record = WriteRecord, next
	}
	return d
}

// forgets completes a decision about a workload that may have opted out: its record goes, so that opting in again adopts the content of that time.
func (e *Evaluation) forgets(d Decision) Decision {
	w := e.Workload
	if out := len(e.Policy.Problems) == 0 || e.Policy.Idle; out && (w.Marks.Hash != "" || w.Marks.Sources != "" || record.UnderWay(w) != nil) {
		d.Action = Forget
	}
	return d
}

func (e *Evaluation) invalid(j *Judgement) Decision {
	reason := ReasonInvalidAnnotation
	switch {
	case len(e.Policy.Problems) > 1:
	case e.Policy.TooManyPatterns:
		reason = ReasonTooManyPatterns
	case e.Policy.StrategyNotAllowed:
		reason = ReasonStrategyNotAllowed
	}
	return Decision{State: Blocked, Reason: reason, Stale: j.Stale > 0, Message: e.problems() + " " + onHold}
}

// missing decides while something is missing that pods need. Stale: pods run with other content, if there should be any.
func (e *Evaluation) missing(stale bool) Decision {
	missing, absent := e.Missing()
	reason := ReasonKeyMissing
	if absent {
		reason = ReasonSourceMissing
	}
	stale = stale && (e.Workload.Replicas > 0 || e.reruns())
	return Decision{State: Blocked, Reason: reason, Stale: stale, Message: upperFirst(strings.Join(missing, "; ")) + ": " + e.Consequence() + ". " + holds(stale)}
}

// decideDue decides when a restart is due for some content.
func (e *Evaluation) decideDue(changes []*due, now time.Time) Decision {
	w := e.Workload
	d := Decision{Because: because(changes), Stale: true, due: changes}
	what := upperFirst(d.Because)
	settled, settle, release := e.settles(changes)
	at := record.NotBefore(record.LastReloadOf(w), e.Policy.MinInterval, now)
	switch {
	case w.Paused:
		d.State, d.Reason = Blocked, ReasonPaused
		d.Message = what + ". The restart is on hold until the Deployment is resumed."
	case e.Policy.Strategy == record.Agent && !d.FieldsOnly(): // fields are set without a restart
		d.State, d.Reason = Blocked, ReasonNotByAgents
		d.Message = what + ". The containers read it themselves, and with the strategy agent nothing restarts them. Create a Reload to restart the workload."
	case e.Policy.Hold != "":
		d.State, d.Reason = Blocked, ReasonOnHold
		d.Message = what + ". " + e.onHold()
	case e.isSuspended(&d, what):
	case now.Before(settled):
		d.State, d.Reason, d.RecheckAt = Settling, ReasonSourceChanged, settled
		at := settled.UTC().Format(time.RFC3339)
		d.Message = fmt.Sprintf("%s. A restart is due at %s, unless the content changes again: the settle time is %v.", what, at, settle)
		if settle > e.Policy.Settle && allDoubts(changes) {
			d.Message = fmt.Sprintf("%s at about the time when pods started. A restart is due at %s, unless the content changes again: the settle time is %v, so that the new pods clearly start after the change.", what, at, settle)
		}
		if release != "" {
			d.Message = fmt.Sprintf("%s. The client %s, which also writes the pod template, has changed other objects in the namespace, so a release may be under way. A restart is due at %s, unless it changes more: the settle time is then %v.",
				what, dependency.Line(string(release)), at, settle)
		}
	case now.Before(at):
		d.State, d.Reason, d.RecheckAt = Pending, ReasonMinInterval, at
		d.Message = what + ". " + e.heldByInterval(at)
	case e.isNotified(&d, what):
	case e.awaitsApproval(&d, what):
	case w.Busy:
		d.State, d.Reason = Pending, ReasonRunActive
		d.Message = what + ". A run is due when the one that is active has finished: the concurrencyPolicy of the " + string(w.Kind) + " is not Allow."
	case e.awaitsWindow(&d, what, now):
	default:
		d.State, d.Reason, d.Action = Pending, ReasonSourceChanged, RollOut
		d.Message = what + ". " + restartDue
		if e.Policy.Windows == nil && e.limits == nil { // else it may have been due since a window opened
			d.DueAt = later(settled, at)
		}
	}
	if then := d; (d.State == Settling || d.Reason == ReasonMinInterval) && e.awaitsApproval(&then, what) {
		d.Message += " It then also waits for a user's approval, as " + e.asksForApproval(&d) + " asks for."
	}
	return d
}

// decideStrategyChanged decides if the strategy was changed during a restart by another strategy. If pods are
// left, the workload is restarted by the current strategy instead.
func (e *Evaluation) decideStrategyChanged(of record.Progress) Decision {
	d := Decision{State: Pending, Reason: ReasonStrategyChanged, Action: Continue, Trigger: record.TriggerUnknown, Stale: true,
		Because: "its strategy was changed while " + of.While,
		Message: "The strategy was changed while " + of.While + ". If any of these pods remain, a restart is due."}
	if e.Workload.Paused {
		d.State, d.Reason, d.Action = Blocked, ReasonPaused, None
		d.Message = "The strategy was changed while " + of.While + ". If any of these pods remain, the restart is on hold until the Deployment is resumed."
	}
	return d
}

// told returns the state that the pods and the rollout tell, if nothing is to be done.
func (e *Evaluation) told(j *Judgement) Decision {
	w := e.Workload
	d := Decision{State: InSync, Reason: ReasonContentApplied, Message: "The pods run with the current content."}
	rollout, underWay := w.Rollout, record.UnderWay(w)
	switch {
	case underWay != nil && e.Policy.Mode != policy.Off:
		d.State, d.Reason, d.Message = RollingOut, underWay.Progress().Reason, underWay.Progress().Message
		if pods, valid := record.PodsInPlaceOf(w); valid {
			describe(&pods, &d)
		}
		return d
	case rollout.Phase == dependency.RolloutFailed:
		d.State, d.Reason = Failed, rollout.Reason
		d.Message = "The rollout is not progressing: " + rollout.Message + "."
		return d
	case rollout.Phase == dependency.RolloutRunning && j.Stale <= j.excused: // it replaces all pods that are stale
		d.State, d.Reason = RollingOut, rollout.Reason
		d.Message = "The rollout is not complete: " + rollout.Message + "."
		e.tellStuck(&d, j)
		return d
	case j.Stale > 0:
		e.tellStale(&d, j)
		return d
	case j.Unknown > 0:
		d.State, d.Reason, d.Message = Unknown, j.Reason, e.unknown(j)
		return d
	case rollout.Phase == dependency.RolloutHeld:
		d.State, d.Reason = RollingOut, rollout.Reason
		d.Message = "The rollout is waiting for a user: " + rollout.Message + "."
		return d
	case len(e.Sources) == 0 && e.Agents.pods == 0:
		d.Reason, d.Message = ReasonNothingRead, "It consumes no ConfigMap or Secret."
		return d
	case j.Total == 0 && j.pending == 0 && len(e.Sources) > 0 && w.Replicas > 0 && rollout.Phase == dependency.RolloutComplete && !e.byRecord(j):
		d.State, d.Reason = Unknown, ReasonPodsNotFound
		d.Message = fmt.Sprintf("The %s reports that its pods are up to date, but none of them is found. Pods belong to a workload by their owner; those of a Deployment by the name of their ReplicaSet.", w.Kind)
		return d
	case j.Total == 0 && len(e.Sources) > 0 && (w.Recurring && !w.UnknownPods || !e.byRecord(j)):
		d.Reason, d.Message = ReasonNoPods, "No pods run; new pods read the current content."
		if w.Recurring {
			d.Reason, d.Message = ReasonNextRunReadsContent, "No run is active; the next run reads the current content."
		}
	case j.Total > 0 && j.NotStarted == j.Total && !j.started:
		d.Reason, d.Message = ReasonNotStarted, "No container has started yet. They read the current content when they start."
	case w.RecordDropped:
		d.Reason = ReasonRecordRemoved
		d.Message = "The pods run with the current content, but another client removed configdep's annotations. They will be written again, with increasing delays if this happens repeatedly."
	case e.Policy.Mode != policy.Off && w.Rollable && len(e.tracked) == 0:
		d.Reason = ReasonNothingTriggers
		d.Message = "No ConfigMap or Secret restarts this workload automatically; spec.sources says why."
	case e.Policy.Mode != policy.Off && w.Rollable && e.nothingExists():
		d.Reason = ReasonNothingTriggers
		d.Message = "Nothing restarts this workload automatically until a source that annotations name exists."
	case e.byRecord(j):
		d.Message = ""
	}
	d.Message = strings.TrimSpace(d.Message+" "+e.nextChange(&d)) + e.covered() + e.notSeen() + e.onlyNamed()
	return d
}

// tellStale completes a decision about pods that run with old content although nothing is to be done.
func (e *Evaluation) tellStale(d *Decision, j *Judgement) {
	w := e.Workload
	var ids []string
	why, gone := "", false // of a source that triggers
	for i, n := range j.StalePods {
		if n == 0 {
			continue
		}
		s := &e.Sources[i]
		ids = append(ids, idOf(s.Kind, s.Name))
		switch {
		case !s.Triggers:
		case s.tracked.isGone():
			gone = true
		default:
			why = s.tracked.notDue()
		}
	}
	d.State, d.Stale = Stale, true
	d.Message = fmt.Sprintf("%s old content of %s", podsRun(j.Stale, j.Total), enumerate(ids))
	if !j.StaleSince.IsZero() {
		d.Message += ", which changed at " + j.StaleSince.UTC().Format(time.RFC3339)
	}
	d.Message += ": " + enumerate(j.Names) + "."
	const reload = " Create a Reload to restart the workload."
	awaited := e.awaited(j)
	switch {
	case w.Recurring:
		d.Reason = ReasonKindNotRestarted
		d.Message += " The next run reads the current content."
	case !w.Rollable || w.Reruns && !e.Policy.Reruns:
		d.Reason = ReasonKindNotRestarted
		d.Message += " configdep does not restart a " + string(w.Kind) + "."
	case e.Policy.Mode == policy.Off:
		d.Reason = ReasonNotOptedIn
		d.Message += " Automatic restarts are off." + reload
	case w.Rollout.Phase == dependency.RolloutHeld:
		d.Reason = ReasonHeld
		d.Message += " The pod template has been changed already, but the rollout is waiting for a user: " + w.Rollout.Message + "."
	case why == "" && gone:
		d.Reason = ReasonNotTriggering
		d.Message += " It was deleted, which does not restart the workload." + reload
	case why == "":
		d.Reason = ReasonNotTriggering
		d.Message += " Its changes do not restart the workload; spec.sources says why." + reload
	case !awaited.IsZero():
		d.State, d.Reason, d.RecheckAt = RollingOut, ReasonControllerTold, awaited
		d.Message += " The controller of the " + string(w.Kind) + " has been told to restart them. If it has not by " + d.RecheckAt.UTC().Format(time.RFC3339) + ", it is told again."
	default:
		d.Reason = ReasonOptedInStale
		d.Message += why + reload
	}
}

// awaited returns until when to wait for the controller of the workload, which was told to restart stale pods; zero: not at all.
func (e *Evaluation) awaited(j *Judgement) (until time.Time) {
	for i, n := range j.StalePods {
		t := e.Sources[i].tracked
		if n == 0 || t == nil {
			continue
		}
		if entry, known := e.Record.Sources[t.id]; known {
			if told, missed := e.missedBy(&entry); missed.After(told) && missed.After(j.now) { // later, what reached a pod although it seems stale is over
				until = later(until, missed)
			}
		}
	}
	return until
}

// decideOther decides for kinds that have no rollout.
func (e *Evaluation) decideOther(j *Judgement) Decision {
	switch missing, _ := e.Missing(); {
	case e.Workload.Recurring && len(e.Policy.Problems) > 0:
		d := e.invalid(j)
		d.Message = e.problems()
		return d
	case e.Workload.Recurring && e.Policy.Mode != policy.Off && len(missing) > 0:
		d := e.missing(false)
		d.Message = upperFirst(strings.Join(missing, "; ")) + ": the next run cannot start until this is fixed."
		return d
	}
	return e.told(j)
}
