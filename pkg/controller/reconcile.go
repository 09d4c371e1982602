// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/metrics"
	"github.com/configdep/configdep/pkg/notify"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/pkg/strategy"
	"github.com/configdep/configdep/pkg/wave"
	"github.com/configdep/configdep/pkg/workload"
)

// step is a decision with everything that is needed to carry it out.
type step struct {
	decide.Decision
	workload *dependency.Workload
	policy   policy.Policy
	present  record.Record
	changed  []record.Changed
	fields   decide.FieldsRecorder // of a policy with Fields
	only     bool                  // only content of fields has changed
	digester *dependency.Digester
	// pods are those of the workload, revision is the label of those with the current template, and graph has all others, for actions that need
	// them.
	pods     []*dependency.Pod
	revision string
	graph    *dependency.Graph
	// progress is how far a restart in place is, if that is written.
	progress string
}

// reconcile handles one workload. It returns how long to wait before handling it again, if time alone changes
// what to do or a request has failed. Only one worker handles a workload at a time, so its note needs no
// lock.
func (c *Controller) reconcile(ctx context.Context, index decide.Index, key dependency.WorkloadKey) (time.Duration, error) {
	s := c.decide(index, key)
	if s == nil {
		return 0, nil
	}
	n := c.note(key)
	if s.workload != nil { // else our own write is waited for
		c.tellBlocked(n, s)
		c.tellUnmanaged(n, s)
		c.tellRewrites(n, s.workload)
		c.tellHealth(n, s)
	}
	if s.Action == decide.None {
		if !s.Stale {
			n.pace.failures = 0 // what failed is no longer needed
			n.shown = ""        // other pods run, so the same content can be a change again
		}
		return s.recheck(c.Clock.Now()), nil
	}
	if wait := n.pace.wait(c.Clock.Now(), s.workload.ResourceVersion); wait > 0 {
		return wait, nil
	}
	if wait := n.refused.Add(waitPause).Sub(c.Clock.Now()); s.Action == decide.Continue && wait > 0 {
		return wait, nil
	}
	planned := s.Action == decide.RollOut && c.Planner != nil && s.Awaits()
	if planned {
		may, waited := c.Planner.Begin(key)
		if !may {
			return s.recheck(c.Clock.Now()), nil // it is its turn when the planner says so
		}
		if waited {
			s.DueAt = time.Time{} // it is not late
		}
	}
	after, err := c.act(ctx, s)
	if planned && (after > 0 || workload.Refuses(err) || apierrors.IsConflict(err)) {
		c.giveBack(index, key)
	}
	switch {
	case err != nil && ctx.Err() != nil: // not refused: this replica no longer leads
		return 0, err
	case err != nil:
		if apierrors.IsConflict(err) && dependency.ParseVersion(s.workload.ResourceVersion) < n.written {
			n.writtenAt = c.Clock.Now() // our last write is not lost but late
		}
		c.tellStepFailed(s, err)
		after = n.pace.failed(c.Clock.Now(), s.workload.ResourceVersion, err)
		if workload.Refuses(err) && n.pace.failures >= refusedAfter {
			c.noteRefusal(index, s, after, err)
		}
		return after, err
	default:
		return cmp.Or(after, s.recheck(c.Clock.Now()), n.awaits(c.Clock.Now(), s.workload.ResourceVersion)), nil
	}
}

// giveBack notes a workload as the index shows it, because its restart has not begun after all: its place is free, unless another leader has restarted
// it. If it is not known whether the restart has begun, the place is kept until the workload is handled again.
func (c *Controller) giveBack(index decide.Index, key dependency.WorkloadKey) {
	index.Read(func(known decide.Evaluator) {
		if w := known.Graph.Workload(key); w != nil {
			known.Waves = waves{c.Planner, true}
			known.Evaluate(w).Decide(c.Clock.Now())
		}
	})
}

// act carries out a decision. It returns after which time to decide again.
func (c *Controller) act(ctx context.Context, s *step) (after time.Duration, err error) {
	switch s.Action {
	case decide.WriteRecord, decide.Forget:
		err = c.record(ctx, s)
	case decide.RollOut:
		after, err = c.rollOut(ctx, s)
	case decide.ApplyFields:
		err = c.setFields(ctx, s)
	case decide.ReleaseFields:
		err = c.releaseFields(ctx, s)
	case decide.Observe:
		c.observe(s)
	case decide.Resume:
		var data []byte
		data, err = s.policy.Pause.ResumePatch(s.workload)
		err = c.patch(ctx, s, data, err)
	case decide.Continue:
		after, err = c.continueRestart(ctx, s)
	}
	return after, err
}

// recheck returns after which time the decision changes without any event, or zero.
func (s *step) recheck(now time.Time) time.Duration {
	if s.RecheckAt.IsZero() {
		return 0
	}
	return max(time.Millisecond, s.RecheckAt.Sub(now))
}

// decide returns what is to be done; nil: the workload does not exist, or rests.
func (c *Controller) decide(index decide.Index, key dependency.WorkloadKey) (s *step) {
	index.Read(func(known decide.Evaluator) {
		g := known.Graph
		w := g.Workload(key)
		c.limited(known)
		if w == nil {
			c.forget(key)
			if c.Planner != nil {
				c.Planner.Note(&wave.Member{WorkloadKey: key})
			}
			c.swept(key)
			return
		}
		if c.rests(w) {
			c.swept(key)
			return
		}
		n, now := c.note(key), c.Clock.Now()
		if wait := n.awaits(now, w.ResourceVersion); wait > 0 { // it puts the workload into the queue
			s = &step{Decision: decide.Decision{RecheckAt: now.Add(wait)}}
			return
		}
		if c.Planner != nil {
			known.Waves = waves{c.Planner, n.pace.wait(now, w.ResourceVersion) > 0}
		}
		e := known.Evaluate(w)
		s = &step{Decision: e.Decide(now), workload: w, policy: e.Policy, digester: g.Digester()}
		c.swept(key)
		if s.Action != decide.None {
			s.present = e.Present()
		}
		if s.Action == decide.Continue || s.Action == decide.RollOut {
			s.pods, s.revision, s.graph = strategy.PodsOf(g, w), g.CurrentRevision(w), g
		}
		if s.Action == decide.RollOut {
			s.changed, s.only = e.Changed(&s.Decision), s.FieldsOnly()
		}
		s.fields = e.FieldsRecorder()
	})
	return s
}

// record writes the record, or removes it, which restarts nothing.
func (c *Controller) record(ctx context.Context, s *step) error {
	data, err := record.Patch(s.workload, s.Record)
	if s.Action == decide.Forget {
		data, err = record.ForgetPatch(s.workload)
	}
	err = c.patch(ctx, s, data, err)
	switch {
	case apierrors.IsNotFound(err):
		return nil // deleted meanwhile
	case err == nil, apierrors.IsConflict(err), ctx.Err() != nil:
	default:
		c.notify(s.workload, notify.RecordFailed,
			fmt.Sprintf("Recording the content that the pods run with failed and will be retried: %v", err))
	}
	return err
}

// observe reports, once for each change, that the workload would be restarted.
func (c *Controller) observe(s *step) {
	n := c.note(s.workload.WorkloadKey)
	if n.shown == s.present.Hash {
		return
	}
	n.shown = s.present.Hash
	w, why := s.workload, "configdep only observes (--observe)"
	if s.policy.Strategy == record.Notify {
		why = "the strategy is notify"
	}
	c.Sink.Notify(notify.Event{
		What: notify.WouldRestart, Workload: w.WorkloadKey, UID: w.UID, Trigger: s.Trigger, At: c.Clock.Now(), DueAt: s.DueAt,
		Message: "Not restarted, because " + why + ", although " + s.Because,
	})
}

// rollOut restarts the pods of the workload. It returns after which time to try again, if the restart has to wait.
func (c *Controller) rollOut(ctx context.Context, s *step) (time.Duration, error) {
	w := s.workload
	// Pods of a template with this hash run with other content, or the hash says nothing of what has changed.
	always := w.Marks.TemplateHash == s.present.Hash || s.Pods != nil && s.Pods.Again
	restart := record.Restart{Present: s.present, Changed: s.changed, Always: always, FieldsOnly: s.only}
	if len(s.policy.Fields) > 0 {
		set, err := c.applyFields(ctx, s)
		if err != nil || set == nil {
			return 0, err
		}
		w, restart.Fields = s.workload, set
	}
	var data []byte
	by := s.policy.RestartsBy(w)
	next, err := strategy.Of(by).Begin(ctx, c.Client, &strategy.Beginning{Workload: w, Present: s.present, TryRecord: func(ctx context.Context) error {
		data, err := c.restartPatch(s, w, &restart)
		if err == nil {
			_, err = workload.Patch(ctx, c.Client, w.WorkloadKey, data, []string{metav1.DryRunAll})
		}
		return err
	}})
	if err == nil && next.Waits != "" {
		c.tellWaits(s, by, next.Waits, next.Why)
		return next.After, nil
	}
	if err == nil {
		restart.Pods, restart.Unfit = strategy.Names(by, s.pods)
		data, err = c.restartPatch(s, w, &restart)
	}
	err = c.patch(ctx, s, data, err)
	restarted := notify.Event{Workload: w.WorkloadKey, UID: w.UID, Trigger: s.Trigger, At: c.Clock.Now(), DueAt: s.DueAt}
	switch {
	case err == nil && s.only:
		restarted.What, restarted.Message = notify.FieldsSet, "Set fields because "+s.Because
	case err == nil && s.policy.OnlyReports(w):
		restarted.What, restarted.Message = notify.ContentChanged, "Not restarted, because configdep cannot restart a "+string(w.Kind)+", although "+s.Because
	case err == nil:
		restarted.What, restarted.Message = notify.Restarted, restartedBecause(s)
		if why := cmp.Or(restart.Unfit, s.policy.NotInPlace(w)); why != "" {
			restarted.Message += ": by a rollout and not in place, because " + why
		}
		klog.FromContext(ctx).Info("Restarted a workload", "kind", w.Kind, "workload", klog.KRef(w.Namespace, w.Name), "trigger", s.Trigger)
	case apierrors.IsConflict(err):
		restarted.What = notify.RestartConflicted
	case apierrors.IsNotFound(err):
		return 0, nil // deleted meanwhile
	case ctx.Err() != nil: // not refused: this replica no longer leads
		return 0, err
	default:
		restarted.What = notify.RestartFailed
		restarted.Message = fmt.Sprintf("A restart is due because %s, but it failed and will be retried: %v", s.Because, err)
	}
	c.Sink.Notify(restarted)
	return 0, err
}

// restartPatch returns the patch that begins a restart now.
func (c *Controller) restartPatch(s *step, w *dependency.Workload, restart *record.Restart) ([]byte, error) {
	restart.Last = record.NewAutomaticReload(record.LastReloadOf(w), c.Clock.Now(), s.policy.MinInterval, s.Trigger).WithOthers(restart.Changed)
	return s.policy.RestartPatch(w, restart)
}

// restartedBecause says to users what was done.
func restartedBecause(s *step) string {
	switch w := s.workload; {
	case !w.Reruns:
		return "Restarted because " + s.Because
	case w.Recurring:
		return "Started Job " + record.RunName(w, s.present) + " because " + s.Because
	default:
		return "Is being replaced because " + s.Because
	}
}

// patch sends a patch and notes its version, or returns the error that occurred when the patch was made.
func (c *Controller) patch(ctx context.Context, s *step, data []byte, err error) error {
	if err != nil {
		return err
	}
	w := s.workload
	// If revisions go back during the request, all notes are dropped. Then the version of this
	// patch is written to a note that is not used.
	n := c.note(w.WorkloadKey)
	patched, err := workload.Patch(ctx, c.Client, w.WorkloadKey, data, nil)
	if err != nil {
		return err
	}
	n.written, n.writtenAt = dependency.ParseVersion(patched.GetResourceVersion()), c.Clock.Now()
	if n.pace.wrote(c.Clock.Now(), s.checksum()) {
		// The same message each time, so that the events of a fight are counted in one.
		c.notify(w, notify.Reverted, fmt.Sprintf(
			"Another client keeps reverting what configdep writes to this %s, or its sources keep changing back and forth. configdep waits longer before each write, up to %v.",
			w.Kind, duration.HumanDuration(longestDelay)))
	}
	return nil
}

// checksum identifies what a step writes, whatever the version of the workload.
func (s *step) checksum() uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, s.Action, s.present.Hash, s.progress)
	return h.Sum64()
}

// tellUnmanaged sends an event when automatic restarts are turned off for a workload that
// was restarted automatically: kubectl rollout undo does so when it goes back to a revision
// from before the workload opted in.
func (c *Controller) tellUnmanaged(n *note, s *step) {
	if s.Action == decide.ReleaseFields { // what declared them is gone already, and is told when they are released
		return
	}
	managed := s.policy.Mode != policy.Off || len(s.policy.Problems) > 0
	if n.managed && !managed {
		c.notify(s.workload, notify.SwitchedOff, whyOff(s.workload, n.declaredBy, s.policy.DeclaredBy))
	}
	n.managed, n.declaredBy = managed, s.policy.DeclaredBy
}

// tellHealth sends an event when new pods fail, once for each time that they do, and measures how long pods have run with old content.
func (c *Controller) tellHealth(n *note, s *step) {
	if fails := s.Fails != ""; fails != n.fails {
		if n.fails = fails; fails {
			c.notify(s.workload, notify.PodsFailing, strings.ToUpper(s.Fails[:1])+s.Fails[1:]+" since the workload was restarted. The trigger was "+s.Trigger+".")
		}
	}
	switch j := s.Pods; {
	case j == nil:
	case j.Stale > 0:
		n.staleSince = j.StaleSince
	case j.Unknown == 0 && !n.staleSince.IsZero():
		metrics.CurrentAfter(c.Clock.Since(n.staleSince))
		n.staleSince = time.Time{}
	}
}

// toldRewrites is how many rewrites cause an event: a single one may come from a user who rolled back.
const toldRewrites = 2

// tellRewrites counts how often the owner of a workload has removed the hash from its pod template, which the admission policy would have kept there.
func (c *Controller) tellRewrites(n *note, w *dependency.Workload) {
	before := min(n.rewrites, w.Rewrites) // it may have been created again
	n.rewrites = w.Rewrites
	metrics.Rewrites(w.Namespace, w.Rewrites-before)
	if before < toldRewrites && w.Rewrites >= toldRewrites {
		c.notify(w, notify.Reverted, fmt.Sprintf(
			"Other clients write this %s without the annotation %s on its pod template. Each such write restarts its pods needlessly. "+
				"The MutatingAdmissionPolicy %s, which keeps it there, is not installed or cannot be evaluated.", w.Kind, record.ConfigHashAnnotation, c.AdmissionPolicy))
	}
}

// whyOff says that automatic restarts are off, by what, and by what they were on before, if that was something else.
func whyOff(w *dependency.Workload, before, now string) string {
	if before == now {
		return fmt.Sprintf("Automatic restarts are now off (set by %s).", declarer(w, now))
	}
	return fmt.Sprintf("Automatic restarts are now off (set by %s). Before, they were on (set by %s).", declarer(w, now), declarer(w, before))
}

func declarer(w *dependency.Workload, by string) string {
	key, onNamespace := strings.CutPrefix(by, policy.DeclaredByNamespace)
	switch {
	case by == policy.DeclaredByDefault:
		return "the server's defaults"
	case by == policy.DeclaredBySelector:
		return by
	case onNamespace:
		return key + " on Namespace " + w.Namespace
	default:
		return key + " on the " + string(w.Kind)
	}
}

// tellBlocked sends an event when automatic restarts of a workload are blocked, once for each
// cause.
func (c *Controller) tellBlocked(n *note, s *step) {
	told := ""
	if s.State == decide.Blocked {
		told = s.Message
	}
	if told == n.told {
		return
	}
	n.told = told
	if what, notified := blocked[s.Reason]; told != "" && notified {
		c.notify(s.workload, what, told)
	}
}

// blocked maps the reasons of blocked restarts to events. For the other reasons, there is none: a user has paused these restarts.
var blocked = map[string]notify.What{
	decide.ReasonInvalidAnnotation:  notify.InvalidAnnotation,
	decide.ReasonTooManyPatterns:    notify.TooManyPatterns,
	decide.ReasonStrategyNotAllowed: notify.StrategyNotAllowed,
	decide.ReasonTooManySources:     notify.TooManySources,
	decide.ReasonSourceMissing:      notify.SourceMissing,
	decide.ReasonKeyMissing:         notify.SourceMissing,
	decide.ReasonFieldsNotAllowed:   notify.FieldsNotAllowed,
	decide.ReasonFieldConflict:      notify.FieldConflict,
	decide.ReasonFieldsRefused:      notify.FieldsRefused,
}

// tellStepFailed sends an event if a step of a restart, such as an eviction, fails. Other writes report their failures themselves.
func (c *Controller) tellStepFailed(s *step, err error) {
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err): // deleted meanwhile
	case s.Action == decide.ApplyFields, s.Action == decide.ReleaseFields:
		c.notify(s.workload, notify.LookUpFailed, fmt.Sprintf("Setting fields failed and will be retried: %v", err))
	case s.Action == decide.Resume:
		c.notify(s.workload, notify.LookUpFailed, fmt.Sprintf("Resuming the %s failed and will be retried: %v", s.workload.Kind, err))
	case s.Action == decide.Continue:
		c.notify(s.workload, notify.LookUpFailed, fmt.Sprintf("%s failed and will be retried: %v", record.UnderWay(s.workload).Progress().Step, err))
	}
}

// notify sends an event about something other than a restart.
func (c *Controller) notify(w *dependency.Workload, what notify.What, message string) {
	c.Sink.Notify(notify.Event{What: what, Workload: w.WorkloadKey, UID: w.UID, Message: message})
}
