// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/notify"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/strategy"
	"github.com/configdep/configdep/pkg/workload"
)

// step is a decision with everything that is needed to carry it out.
type step struct {
	policy.Decision
	workload *dependency.Workload
	policy   policy.Policy
	present  policy.Record
	changed  []policy.Changed
	fields   policy.FieldsRecorder // of a policy with Fields
	only     bool                  // only content of fields has changed
	digester *dependency.Digester
	order    uint64 // the place of the latest change that was read
	// data is the patch, or err is why there is none, for actions that need the
	// evaluation to create it.
	data []byte
	err  error
	// progress is how far a restart in place is, if that is written.
	progress string
}

// reconcile handles one workload. It returns after which time to do so again, if time alone
// changes what is to be done or a request has failed. Only one worker handles a workload at
// a time, so its note needs no lock.
func (c *Controller) reconcile(ctx context.Context, index policy.Index, key dependency.WorkloadKey) (time.Duration, error) {
	var found findings
	for {
		s := c.decide(index, key, found)
		if s == nil {
			return 0, nil
		}
		n := c.note(key)
		if s.workload != nil { // else our own write is waited for
			c.tellBlocked(n, s)
			c.tellUnmanaged(n, s)
		}
		if s.Action == policy.None {
			if !s.Stale {
				n.pace.failures = 0 // what failed is no longer needed
				n.shown = ""        // other pods run, so the same content can be a change again
			}
			return s.recheck(c.Clock.Now()), nil
		}
		if wait := n.pace.wait(c.Clock.Now(), s.workload.ResourceVersion); wait > 0 {
			return wait, nil
		}
		if read := c.readUpTo.Load(); read > 0 && read < s.KnownBy {
			return behindPause, nil
		}
		if wait := n.looked.Add(restlessPause).Sub(c.Clock.Now()); s.Action == policy.Inspect && wait > 0 {
			return wait, nil
		}
		if wait := n.hurried.Add(waitPause).Sub(c.Clock.Now()); s.Action == policy.Continue && wait > 0 {
			return wait, nil
		}
		if s.Action == policy.Verify && found.verified != nil {
			return restlessPause, nil // the content or the template has been written since
		}
		again, after, err := c.act(ctx, s, &found)
		if s.Action == policy.Inspect && found.inspected != nil {
			n.looked = c.Clock.Now()
		}
		switch {
		case err != nil && ctx.Err() != nil: // not refused: this replica no longer leads
			return 0, err
		case err != nil:
			if apierrors.IsConflict(err) && dependency.ParseVersion(s.workload.ResourceVersion) < n.written {
				n.writtenAt = c.Clock.Now() // our last write is not lost but late
			}
			c.tellLookFailed(s, err)
			return n.pace.failed(c.Clock.Now(), s.workload.ResourceVersion, err), err
		case !again:
			return cmp.Or(after, s.recheck(c.Clock.Now()), n.awaits(c.Clock.Now(), s.workload.ResourceVersion)), nil
		}
	}
}

// behindPause is how long to wait before checking again whether everything that a record knows has been read.
const behindPause = time.Second

// findings are the results of lookups that a decision asked for.
type findings struct {
	verified  *policy.Verification
	inspected *policy.Inspection
}

// act carries out a decision. It reports whether to decide again with what it has found, or after
// which time. If the controller of the workload has yet to see the template, nothing is found, and
// nothing is done until the next change of the status puts the workload into the queue.
func (c *Controller) act(ctx context.Context, s *step, found *findings) (again bool, after time.Duration, err error) {
	switch s.Action {
	case policy.WriteBaseline, policy.WriteVerified, policy.WriteMixed, policy.Abandon:
		err = c.record(ctx, s)
	case policy.RollOut:
		after, err = c.rollOut(ctx, s)
	case policy.ApplyFields:
		err = c.setFields(ctx, s)
	case policy.ReleaseFields:
		err = c.releaseFields(ctx, s)
	case policy.Observe:
		c.observe(s)
	case policy.Resume:
		if err = s.err; err == nil {
			err = c.patch(ctx, s, s.data)
		}
	case policy.Continue:
		after, err = c.continueRestart(ctx, s)
	case policy.Verify:
		found.verified, err = c.revisionIsNewer(ctx, s)
		again = found.verified != nil
	case policy.Inspect:
		found.inspected, err = c.inspect(ctx, s)
		n := c.note(s.workload.WorkloadKey)
		if again = found.inspected != nil; again && found.inspected.Unreported && len(found.inspected.Mixed) == 0 {
			again, after = false, double(restlessPause, n.unreported)
			n.unreported++
		} else {
			n.unreported = 0
		}
	}
	return again, after, err
}

// recheck returns after which time the decision changes without any event, or zero.
func (s *step) recheck(now time.Time) time.Duration {
	if s.RecheckAt.IsZero() {
		return 0
	}
	return max(time.Millisecond, s.RecheckAt.Sub(now))
}

// decide returns what is to be done; nil: the workload does not exist, or rests.
func (c *Controller) decide(index policy.Index, key dependency.WorkloadKey, found findings) (s *step) {
	index.Read(func(known policy.Evaluator) {
		g := known.Graph
		w := g.Workload(key)
		if w == nil {
			c.forget(key)
			return
		}
		if c.rests(w) {
			return
		}
		n, now := c.note(key), c.Clock.Now()
		if wait := n.awaits(now, w.ResourceVersion); wait > 0 { // it puts the workload into the queue
			s = &step{Decision: policy.Decision{RecheckAt: now.Add(wait)}}
			return
		}
		e := known.Evaluate(w)
		n.follow(e)
		observed := n.observed(w, e.Record.Hash)
		observed.Now, observed.Verified, observed.Inspected, observed.StandsBy = now, found.verified, found.inspected, c.standbyRuns()
		s = &step{Decision: e.Decide(observed), workload: w, policy: e.Policy, digester: g.Digester()}
		n.settle(&s.Decision, now)
		if s.Action != policy.None {
			s.present, s.order = e.Present(), g.Order()
		}
		switch s.Action {
		case policy.WriteMixed:
			s.data, s.err = e.MixedPatch(s.Mixed)
		case policy.Resume:
			s.data, s.err = e.ResumePatch()
		case policy.RollOut:
			s.changed, s.only = e.Changed(), e.FieldsOnly()
		}
		s.fields = e.FieldsRecorder()
	})
	return s
}

// follow notes which record a workload has. If the record is another one, the workload was restarted, by this
// replica or another.
func (n *note) follow(e *policy.Evaluation) {
	if n.record != e.Record.Hash {
		n.record, n.staleSince = e.Record.Hash, time.Time{}
	}
}

// observed returns what is known about the record of a workload, which has a hash.
func (n *note) observed(w *dependency.Workload, hash string) policy.Observed {
	o := policy.Observed{StaleSince: n.staleSince}
	if n.hash == hash && n.isLast(w) {
		o.Decided = n.decided
		if hash != "" {
			o.Written = n.recorded
		}
	}
	return o
}

// settle notes since when content has differed; while a workload is blocked, content need not
// settle.
func (n *note) settle(d *policy.Decision, now time.Time) {
	switch {
	case !d.Stale, d.State == policy.Blocked:
		n.staleSince = time.Time{}
	case n.staleSince.IsZero():
		n.staleSince = now
	}
}

// record writes the record, which restarts nothing.
func (c *Controller) record(ctx context.Context, s *step) error {
	data, err := s.data, s.err
	switch s.Action {
	case policy.WriteBaseline:
		data, err = policy.BaselinePatch(s.workload, s.present)
	case policy.WriteVerified:
		data, err = policy.VerifiedPatch(s.workload, s.present, c.Clock.Now())
	case policy.Abandon:
		data, err = policy.AbandonedPatch(s.workload, s.present)
	}
	if err == nil {
		err = c.patch(ctx, s, data)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil // deleted meanwhile
	case err == nil, apierrors.IsConflict(err), ctx.Err() != nil:
	case c.standbyRuns(): // the leader tells of its own
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
	w := s.workload
	c.Sink.Notify(notify.Event{
		What: notify.WouldRestart, Workload: w.WorkloadKey, UID: w.UID, Trigger: s.Trigger, At: c.Clock.Now(), DueAt: s.DueAt,
		Message: "Not restarted, because configdep only observes (--observe), although " + s.Because,
	})
}

// rollOut restarts the pods of the workload. It returns after which time to try again, if the restart has to wait.
func (c *Controller) rollOut(ctx context.Context, s *step) (time.Duration, error) {
	w := s.workload
	// After a rollback, the template may have the hash already.
	always := w.Marks.TemplateHash == s.present.Hash
	// And pods of an earlier template with this hash may still run, with other content.
	always = always || w.Rollout.Phase != dependency.RolloutComplete || w.OthersLeft()
	restart := policy.Restart{Present: s.present, Changed: s.changed, Always: always, FieldsOnly: s.only}
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
		restart.Pods, restart.Unfit, err = strategy.Pods(ctx, c.Client, by, w)
	}
	if err == nil { // pods may have taken a while to list
		data, err = c.restartPatch(s, w, &restart)
	}
	if err == nil {
		err = c.patch(ctx, s, data)
	}
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
func (c *Controller) restartPatch(s *step, w *dependency.Workload, restart *policy.Restart) ([]byte, error) {
	restart.Last = policy.NewAutomaticReload(policy.LastReloadOf(w), c.Clock.Now(), s.policy.MinInterval, s.Trigger)
	return s.policy.RestartPatch(w, restart)
}

// restartedBecause says to users what was done.
func restartedBecause(s *step) string {
	switch w := s.workload; {
	case !w.Reruns:
		return "Restarted because " + s.Because
	case w.Recurring:
		return "Started Job " + policy.RunName(w, s.present) + " because " + s.Because
	default:
		return "Is being replaced because " + s.Because
	}
}

// patch sends a patch and notes its version.
func (c *Controller) patch(ctx context.Context, s *step, data []byte) error {
	w := s.workload
	// If revisions go back during the request, all notes are dropped. Then the version of this
	// patch is written to a note that is not used.
	n := c.note(w.WorkloadKey)
	patched, err := workload.Patch(ctx, c.Client, w.WorkloadKey, data, nil)
	if err != nil {
		if !refused(err) {
			n.hash, n.decided = "", 0 // it may have been made, and has perhaps the same hash
		}
		return err
	}
	version := dependency.ParseVersion(patched.GetResourceVersion())
	decided, recorded := s.order, version
	if slices.Contains([]policy.Action{policy.None, policy.Continue, policy.Resume, policy.ApplyFields, policy.ReleaseFields}, s.Action) { // which leave the record as it was
		before := n.observed(w, w.Marks.Hash)
		decided, recorded = before.Decided, before.Written
	}
	n.written, n.writtenAt, n.decided, n.recorded = version, c.Clock.Now(), decided, recorded
	marks := policy.MarksOf(patched.GetAnnotations())
	n.hash, n.said = marks.Hash, saidBy(&marks)
	if n.pace.wrote(c.Clock.Now(), s.checksum()) && !c.standbyRuns() {
		// The same message each time, so that the events of a fight are counted in one.
		c.notify(w, notify.Reverted, fmt.Sprintf(
			"Another client keeps reverting what configdep writes to this %s, or its sources keep changing back and forth. configdep waits longer before each write, up to %v.",
			w.Kind, duration.HumanDuration(longestDelay)))
	}
	return nil
}

// refused reports whether a request has certainly changed nothing, because the API server
// refused it.
func refused(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return false
	}
	code := answer.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusRequestTimeout
}

// checksum identifies what a step writes, whatever the version of the workload.
func (s *step) checksum() uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, s.Action, s.present.Hash, s.present.Sources, s.Mixed, s.progress)
	return h.Sum64()
}

// tellUnmanaged sends an event when automatic restarts are turned off for a workload that
// was restarted automatically: kubectl rollout undo does so when it goes back to a revision
// from before the workload opted in.
func (c *Controller) tellUnmanaged(n *note, s *step) {
	if s.Action == policy.ReleaseFields { // what declared them is gone already, and is told when they are released
		return
	}
	managed := s.State != policy.Unmanaged
	if n.managed && !managed && s.Reason == policy.ReasonNotOptedIn {
		c.notify(s.workload, notify.SwitchedOff, "Automatic restarts are off: "+whyOff(s.workload, n.declaredBy, s.policy.DeclaredBy))
	}
	n.managed, n.declaredBy = managed, s.policy.DeclaredBy
}

// whyOff says which object turned automatic restarts off, by what declared the mode before and now.
func whyOff(w *dependency.Workload, before, now string) string {
	was, wasOnNamespace := strings.CutPrefix(before, policy.DeclaredByNamespace)
	is, isOnNamespace := strings.CutPrefix(now, policy.DeclaredByNamespace)
	var what string
	switch {
	case now == policy.DeclaredBySelector:
		return fmt.Sprintf("%s does not select Namespace %s.", now, w.Namespace)
	case now != policy.DeclaredByDefault && !isOnNamespace:
		what = fmt.Sprintf("%s is set to off on the %s.", is, w.Kind)
	case before != policy.DeclaredByDefault && !wasOnNamespace:
		what = fmt.Sprintf("%s was removed from the %s.", was, w.Kind)
	case now == policy.DeclaredByDefault:
		return fmt.Sprintf("%s was removed from Namespace %s.", was, w.Namespace)
	default:
		return fmt.Sprintf("%s is set to off on Namespace %s.", is, w.Namespace)
	}
	if w.UndoRestores {
		what += " (kubectl rollout undo restores the annotations of the older revision.)"
	}
	return what
}

// tellBlocked sends an event when automatic restarts of a workload are blocked, once for each
// cause.
func (c *Controller) tellBlocked(n *note, s *step) {
	told := ""
	if s.State == policy.Blocked {
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

// blocked are the reasons for which restarts are blocked that are events; a user has paused the others.
var blocked = map[string]notify.What{
	policy.ReasonInvalidAnnotation:  notify.InvalidAnnotation,
	policy.ReasonTooManyPatterns:    notify.TooManyPatterns,
	policy.ReasonStrategyNotAllowed: notify.StrategyNotAllowed,
	policy.ReasonTooManySources:     notify.TooManySources,
	policy.ReasonSourceMissing:      notify.SourceMissing,
	policy.ReasonKeyMissing:         notify.SourceMissing,
	policy.ReasonFieldsNotAllowed:   notify.FieldsNotAllowed,
	policy.ReasonFieldConflict:      notify.FieldConflict,
	policy.ReasonFieldsRefused:      notify.FieldsRefused,
}

// tellLookFailed sends an event if a decision needs a lookup of the pods or their templates, or
// a step of a restart, such as an eviction, and that fails. Other writes report their failures themselves.
func (c *Controller) tellLookFailed(s *step, err error) {
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err): // deleted meanwhile
	case s.Action == policy.Verify, s.Action == policy.Inspect:
		c.notify(s.workload, notify.LookUpFailed,
			fmt.Sprintf("Checking which content the pods were started with failed and will be retried: %v", err))
	case s.Action == policy.ApplyFields, s.Action == policy.ReleaseFields:
		c.notify(s.workload, notify.LookUpFailed, fmt.Sprintf("Setting fields failed and will be retried: %v", err))
	case s.Action == policy.Resume:
		c.notify(s.workload, notify.LookUpFailed, fmt.Sprintf("Resuming the %s failed and will be retried: %v", s.workload.Kind, err))
	case s.Action == policy.Continue:
		c.notify(s.workload, notify.LookUpFailed, fmt.Sprintf("%s failed and will be retried: %v", policy.UnderWay(s.workload).Progress().Step, err))
	}
}

// notify sends an event about something other than a restart.
func (c *Controller) notify(w *dependency.Workload, what notify.What, message string) {
	c.Sink.Notify(notify.Event{What: what, Workload: w.WorkloadKey, UID: w.UID, Message: message})
}
