// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
)

// Decide returns the state of a workload and what is to be done.
func (e *Evaluation) Decide(o Observed) Decision {
	d := e.decide(o)
	if e.defaults.Observe {
		e.observe(&d)
	}
	e.sayNotInPlace(&d)
	d.Timed = e.timed(&d)
	d.Provisional = d.Timed && e.provisional(&d)
	e.askAgents(&d, o.Now)
	return d
}

// observe turns a decision into that of a server that only observes. It shows what would be done, and says nothing about
// doubts that only a record could settle.
func (e *Evaluation) observe(d *Decision) {
	const only = " configdep only observes (--observe)"
	switch d.Action {
	case None, Verify:
	case RollOut:
		d.Action, d.Reason = Observe, ReasonObserved
		d.Message = upperFirst(d.Because) + "." + only + ": otherwise, it would restart the workload now."
	case WriteBaseline, WriteVerified, WriteMixed, Inspect:
		*d = e.inSync(None)
		if e.Workload.Idle {
			*d = e.noPods()
		}
		d.Action = None // of an eviction that another server began
	default:
		d.Action = None
		d.Message += only + ", and leaves that to others."
	}
}

// decide is Decide, but for Timed, Provisional and Defaults.Observe.
func (e *Evaluation) decide(o Observed) Decision {
	if !e.Workload.Rollable {
		return e.decideOther()
	}
	if d, is := e.decideCopy(); is {
		return d
	}
	if e.graph.Terminating(e.Workload) {
		return Decision{State: Unmanaged, Reason: ReasonTerminating,
			Message: fmt.Sprintf("The %s or its namespace is being deleted, so it will not be restarted.", e.Workload.Kind)}
	}
	if e.Workload.Reruns {
		if d, decided := e.decideRerun(); decided {
			return d
		}
	}
	if d, paused := e.decidePause(o.Now); paused {
		return d
	}
	if d, due := e.decideReleased(); due {
		return d
	}
	if len(e.Policy.Problems) > 0 { // only workloads that have opted in, or tried to, have any
		return e.invalid()
	}
	if e.Policy.Mode == Off {
		d := Decision{State: Unmanaged, Reason: ReasonNotOptedIn,
			Message: "Automatic restarts are off. Create a Reload to restart the workload."}
		if UnderWay(e.Workload) != nil {
			d.Action = Abandon
		}
		return d
	}
	if e.Workload.Truncated {
		return Decision{State: Blocked, Reason: ReasonTooManySources, Message: e.tooManySources() + " " + onHold}
	}
	e.decided, e.written, e.known = o.Decided, o.Written, known{}
	changed, trigger := e.stale()
	if missing, _ := e.Missing(); len(missing) > 0 {
		return e.missing(len(changed) > 0 || e.superseded() != nil)
	}
	if d, decided := e.decideFields(o, len(changed) > 0); decided {
		return d
	}
	excursions := e.inquiries()
	doubts := len(excursions)
	if o.StandsBy {
		excursions = slices.DeleteFunc(slices.Clone(excursions), func(x Excursion) bool { return !x.Witnessed })
	}
	d := e.decideKnown(o, changed, trigger, excursions)
	if d.Action == WriteBaseline {
		d.KnownBy = e.knownBy(e.replaced())
	}
	if d.RecheckAt.IsZero() && (d.Action == Inspect || len(excursions) < doubts) {
		d.RecheckAt = o.Now.Add(doubtRecheck)
	}
	return d
}

// tooManySources says why not all sources of a workload are known.
func (e *Evaluation) tooManySources() string {
	w := e.Workload
	if w.TemplateOf != nil {
		if of := e.graph.Workload(*w.TemplateOf); of != nil && !of.Truncated {
			return fmt.Sprintf("More than %d workloads have the pod template of %s %s. configdep knows the sources of the first %d by name, and not of this one.",
				dependency.MaxBorrowers, of.Kind, of.Name, dependency.MaxBorrowers)
		}
	}
	what := "The pod template"
	if w.Custom {
		what = "The " + string(w.Kind)
	}
	return fmt.Sprintf("%s names more than %d ConfigMaps and Secrets, or names them in more than %d places (a place counts once for each key that it names). configdep does not know all of its sources.",
		what, dependency.MaxSources, dependency.MaxUses)
}

// decideKnown decides by what has changed since the pods were started, and by what may have changed back.
func (e *Evaluation) decideKnown(o Observed, changed []change, trigger string, excursions []Excursion) Decision {
	switch {
	case e.Workload.Replicas == 0 && !e.Workload.Reruns:
		return e.decideNoReplicas(len(changed) > 0 || len(excursions) > 0)
	case e.superseded() != nil:
		return e.decideStrategyChanged(e.superseded().Progress())
	case len(changed) > 0:
		d := e.decideStale(o, changed, trigger, excursions)
		d.KnownBy = e.knownBy(changed)
		if o.StandsBy && d.Action == RollOut && e.witnessed(changed) {
			d.Action = WriteMixed // so that the leader knows
			for i := range changed {
				d.Mixed = append(d.Mixed, changed[i].trackedSource.id)
			}
		}
		return d
	case len(excursions) > 0:
		return e.decideExcursions(o, excursions)
	case e.Workload.TemplatePending && e.Record.Hash != "":
		// What the template reads that has yet to be applied says nothing about the pods.
		return e.inSync(None)
	case !e.Comparable():
		return e.notRecorded()
	case !e.recorded():
		return e.inSync(WriteBaseline)
	default:
		return e.inSync(None)
	}
}

// decideNoReplicas decides for a workload that is scaled to zero. Pods that are created later
// read the current content then.
func (e *Evaluation) decideNoReplicas(stale bool) Decision {
	w, d := e.Workload, e.noPods()
	switch {
	case w.PerNode:
	case !w.Idle && stale:
		d.State, d.Reason, d.Stale = Pending, ReasonScalingDown, true
		d.Message = "Content has changed, and the last pods are terminating; new pods read the current content."
	case !e.Comparable():
		return e.notRecorded()
	case !w.Idle:
		d.Message = "The last pods are terminating; new pods read the current content."
	case !e.recorded(): // this also restores the list of pods to evict, if another client removed both
		d.Action = WriteBaseline
	case UnderWay(e.Workload) != nil:
		d.Action = Continue
	}
	return d
}

// noPods decides when there is nothing to restart.
func (e *Evaluation) noPods() Decision {
	d := Decision{State: InSync, Reason: ReasonNoPods, Message: "No pods run; new pods read the current content."}
	if last := LastReloadOf(e.Workload); last != nil {
		d.Trigger = last.Trigger
	}
	return d
}

// decideExcursions decides when content has changed and changed back.
func (e *Evaluation) decideExcursions(o Observed, excursions []Excursion) Decision {
	ids := make([]string, len(excursions))
	for i := range excursions {
		ids[i] = excursions[i].ID
	}
	what := enumerate(ids)
	// Content or the template may have changed again since the pods were looked up.
	if !o.Inspected.of(e.Workload, excursions) {
		return Decision{State: Pending, Reason: ReasonVerifying, Action: Inspect, Excursions: excursions, Trigger: ids[0],
			Message: "Some pods may have been started with other content of " + what + ". The leader is checking the start times of their containers to decide whether a restart is due."}
	}
	if len(o.Inspected.Mixed) > 0 {
		return Decision{State: Pending, Reason: ReasonVerifying, Action: WriteMixed, Mixed: o.Inspected.Mixed, Trigger: ids[0], Stale: true,
			Message: "Some pods may have been started with other content of " + what + ". " + restartDue}
	}
	if o.StandsBy { // the leader records that, and may be in doubt about something else
		return e.inSync(None)
	}
	return e.inSync(WriteVerified)
}

// notRecorded decides when no record can be compared with the current content.
func (e *Evaluation) notRecorded() Decision {
	d := e.inSync(WriteBaseline)
	if d.State == InSync {
		d.State, d.Reason = Pending, ReasonNotRecorded
		d.Message = "The content that the pods run with has not been recorded yet. Recording it restarts nothing; later changes restart the workload."
	}
	return d
}

func (e *Evaluation) invalid() Decision {
	reason := ReasonInvalidAnnotation
	switch {
	case len(e.Policy.Problems) > 1:
	case e.Policy.TooManyPatterns:
		reason = ReasonTooManyPatterns
	case e.Policy.StrategyNotAllowed:
		reason = ReasonStrategyNotAllowed
	}
	return Decision{State: Blocked, Reason: reason, Stale: e.superseded() != nil && !e.Workload.Idle, Message: e.problems() + " " + onHold}
}

// missing decides while something is missing that pods need. Stale: annotations or content say that pods run with other content.
func (e *Evaluation) missing(stale bool) Decision {
	missing, absent := e.Missing()
	reason := ReasonKeyMissing
	if absent {
		reason = ReasonSourceMissing
	}
	return Decision{State: Blocked, Reason: reason, Stale: stale && !e.Workload.Idle,
		Message: upperFirst(strings.Join(missing, "; ")) + ": " + e.Consequence() + ". " + onHold}
}

// recorded reports whether the workload has a record of exactly the current content.
func (e *Evaluation) recorded() bool {
	present := e.Present()
	if e.Workload.RecordDropped() || e.Workload.RecordRekeyed() ||
		e.Record.Hash != present.Hash || e.Record.Sources == nil || len(e.Record.Sources) != len(present.Sources) {
		return false
	}
	for id, entry := range present.Sources {
		if e.Record.Sources[id] != entry {
			return false
		}
	}
	return true
}

// witnessed reports whether the record says that the pods run with the current content of all that has changed, but
// this process knows better, because it saw each change since they started.
func (e *Evaluation) witnessed(changes []change) bool {
	return !slices.ContainsFunc(changes, func(c change) bool {
		_, _, _, live := e.timesChanged(c.trackedSource, dependency.Moment{Version: e.started(c.trackedSource)}, 0)
		return !e.knows(c.trackedSource) || e.differs(c.trackedSource) || !live
	})
}

// replaced returns what a baseline replaces in the record: content of which this process has seen no later change.
func (e *Evaluation) replaced() (replaced []change) {
	for i := range e.tracked {
		u := &e.tracked[i]
		if c := e.change(u); e.Comparable() && e.differs(u) && !e.adoptedByWebhook(c.at) {
			replaced = append(replaced, c)
		}
	}
	return replaced
}

// knownBy returns Decision.KnownBy.
func (e *Evaluation) knownBy(changes []change) uint64 {
	recorded := e.Workload.RecordedAt.Version
	if e.decided == 0 && slices.ContainsFunc(changes, func(c change) bool {
		return c.at.Version <= recorded && !e.recordedMixed(c.trackedSource)
	}) {
		return recorded
	}
	return 0
}

// decideStale decides when pods run with old content, as far as is known.
func (e *Evaluation) decideStale(o Observed, changes []change, trigger string, excursions []Excursion) Decision {
	known := e.datesOf(changes)
	d := Decision{Trigger: trigger, Because: e.describe(changes, trigger), Stale: true, WrittenAt: known.written}
	what := upperFirst(d.Because)
	if e.Workload.Paused {
		d.State, d.Reason = Blocked, ReasonPaused
		d.Message = what + ". The restart is on hold until the Deployment is resumed."
		return d
	}
	if e.mayHaveRead(&known) {
		switch {
		case !o.Verified.of(e.Workload, known.written):
			d.State, d.Reason, d.Action = Pending, ReasonVerifying, Verify
			d.Message = what + ", and so has the pod template. The leader is checking which changed first to decide whether a restart is due."
			if e.Policy.Strategy == Agent { // nothing that follows from it is recorded, so replicas would show for ever that it is being checked
				d.notByAgents(what)
			}
			return d
		case o.Verified.Newer && len(excursions) > 0: // what else changed may have been read all the same
			return e.decideExcursions(o, excursions)
		case o.Verified.Newer:
			return e.inSync(WriteVerified)
		}
	}
	if e.Policy.Strategy == Agent {
		d.notByAgents(what)
		return d
	}
	settled, settle, release := e.settles(o, changes, e.lastChange(changes, &known))
	if o.Now.Before(settled) {
		d.State, d.Reason, d.RecheckAt = Settling, ReasonSourceChanged, settled
		d.Message = fmt.Sprintf("%s. A restart is due once the content has not changed for %v", what, settle)
		if release {
			d.Message = fmt.Sprintf("%s. The client that changed it also writes the pod template, so a release may be under way: a restart is due once that client has changed no ConfigMap, Secret or pod template in the namespace for %v", what, settle)
		}
		d.Message += "."
		return d
	}
	at := notBefore(LastReloadOf(e.Workload), e.Policy.MinInterval, o.Now)
	if o.Now.Before(at) {
		d.State, d.Reason, d.RecheckAt = Pending, ReasonMinInterval, at
		d.Message = what + ". " + e.heldByInterval(at)
		return d
	}
	if e.Workload.Busy {
		d.State, d.Reason = Pending, ReasonRunActive
		d.Message = what + ". A run is due when the one that is active has finished: the concurrencyPolicy of the " + string(e.Workload.Kind) + " is not Allow."
		return d
	}
	d.State, d.Reason, d.Action = Pending, ReasonSourceChanged, RollOut
	if !known.seen.IsZero() {
		d.DueAt = later(settled, at)
	}
	d.Message = what + ". " + restartDue
	if e.Workload.RecordDropped() {
		d.Message += " It may be delayed, because another client removed configdep's annotations."
	}
	return d
}

// notByAgents blocks a decision about what has changed, because nothing restarts the containers.
func (d *Decision) notByAgents(what string) {
	d.State, d.Reason = Blocked, ReasonNotByAgents
	d.Message = what + ". The containers read it themselves, and with the strategy agent nothing restarts them. Create a Reload to restart the workload."
}

// mayHaveRead reports whether the pods may have read the changes: the owner may have changed the
// template after the content while no replica was watching.
func (e *Evaluation) mayHaveRead(known *dates) bool {
	return !e.Workload.ByRecord() && known.complete && !known.afterPods && e.Workload.TemplateWritten.After(known.written)
}

// of reports whether a verification is about the current content and template.
func (v *Verification) of(w *dependency.Workload, written time.Time) bool {
	return v != nil && v.WrittenAt.Equal(written) && v.StartedBy == w.StartedBy
}

// decideStrategyChanged decides when the strategy was changed while a restart by another one was under way. If
// pods are left, the workload is restarted by the current one instead.
func (e *Evaluation) decideStrategyChanged(of Progress) Decision {
	d := Decision{State: Pending, Reason: ReasonStrategyChanged, Action: Continue, Trigger: TriggerUnknown, Stale: true,
		Because: "its strategy was changed while " + of.While,
		Message: "The strategy was changed while " + of.While + ". If any of these pods remain, a restart is due."}
	if last := LastReloadOf(e.Workload); last != nil {
		d.Trigger = last.Trigger
	}
	if e.Workload.Paused {
		d.State, d.Reason, d.Action = Blocked, ReasonPaused, None
		d.Message = "The strategy was changed while " + of.While + ". If any of these pods remain, the restart is on hold until the Deployment is resumed."
	}
	return d
}

// inSync decides when the pods run with the current content. Action is what the record needs to
// say so; None if it does already.
func (e *Evaluation) inSync(action Action) Decision {
	d := Decision{State: InSync, Reason: ReasonContentApplied, Action: action,
		Message: e.applied()}
	if last := LastReloadOf(e.Workload); last != nil {
		d.Trigger = last.Trigger
	}
	if e.Workload.RecordDropped() {
		d.Reason = ReasonRecordRemoved
		d.Message = "The pods run with the current content, but another client removed configdep's annotations. They will be written again, with increasing delays if this happens repeatedly."
	}
	if len(e.tracked) == 0 {
		d.Reason = ReasonNothingTriggers
		d.Message = "No ConfigMap or Secret restarts this workload automatically; spec.sources says why."
	}
	d.Message += e.covered()
	rollout, underWay := e.Workload.Rollout, UnderWay(e.Workload)
	switch {
	case underWay != nil:
		d.State, d.Reason, d.Message = RollingOut, underWay.Progress().Reason, underWay.Progress().Message
		if pods, valid := PodsInPlaceOf(e.Workload); valid {
			pods.describe(&d)
		}
		if action == None {
			d.Action = Continue
		}
	case rollout.Phase == dependency.RolloutFailed:
		d.State, d.Reason = Failed, rollout.Reason
		d.Message = "The rollout is not progressing: " + rollout.Message + "."
	case rollout.Phase == dependency.RolloutRunning:
		d.State, d.Reason = RollingOut, rollout.Reason
		d.Message = "The rollout is not complete: " + rollout.Message + "."
	case rollout.Phase == dependency.RolloutHeld:
		d.State, d.Reason = RollingOut, rollout.Reason
		d.Message = "The rollout is waiting for a user: " + rollout.Message + "."
	default:
		d.Message += e.notSeen()
	}
	return d
}

// applied says that nothing is to be done.
func (e *Evaluation) applied() string {
	switch kind := string(e.Workload.Kind); {
	case e.Policy.OnlyReports(e.Workload):
		return "The current content has been reported. The next change is reported, too: configdep cannot restart a " + kind + "."
	case e.Workload.Reruns && e.Workload.Recurring:
		return "The next run reads the current content. The next change of it starts a run at once."
	case e.Workload.Reruns:
		return "The " + kind + " was started with the current content. The next change replaces it."
	case e.Workload.UnknownPods:
		return "The " + kind + " has been told of the current content. The next change is passed on, too."
	default:
		return "The pods run with the current content. The next change restarts them."
	}
}

// decideOther decides for kinds that have no rollout.
func (e *Evaluation) decideOther() Decision {
	if e.Workload.Recurring {
		d := Decision{State: InSync, Reason: ReasonNextRunReadsContent,
			Message: "No restart is needed: the next run of the " + string(e.Workload.Kind) + " reads the current content."}
		switch missing, _ := e.Missing(); {
		case len(e.Policy.Problems) > 0:
			d = e.invalid()
			d.Message = e.problems()
		case e.Policy.Mode == Off:
			d.State = Unmanaged
		case len(missing) > 0:
			d = e.missing(false)
			d.Message = upperFirst(strings.Join(missing, "; ")) + ": the next run cannot start until this is fixed."
		}
		return d
	}
	return Decision{State: Unmanaged, Reason: ReasonKindNotReloaded,
		Message: fmt.Sprintf("configdep does not restart it: a %s has no rollout.", e.Workload.Kind)}
}

// describe says in a clause why pods run with old content, as far as is known.
func (e *Evaluation) describe(changes []change, trigger string) string {
	if trigger == TriggerUnknown {
		return "its content has changed"
	}
	var changed, differ []string
	for i := range changes {
		if u := changes[i].trackedSource; e.Record.Sources[u.id] == u.mixedEntry() {
			differ = append(differ, u.id)
		} else {
			changed = append(changed, u.id)
		}
	}
	var clauses []string
	switch len(changed) {
	case 0:
	case 1:
		clauses = append(clauses, changed[0]+" has changed")
	default:
		clauses = append(clauses, enumerate(changed)+" have changed")
	}
	if len(differ) > 0 {
		clauses = append(clauses, "some pods may have been started with other content of "+enumerate(differ))
	}
	return strings.Join(clauses, ", and ")
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
