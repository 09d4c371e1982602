// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/judge"
	"github.com/configdep/configdep/pkg/limit"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/pkg/wave"
)

// What makes a due restart wait: ReloadPolicies, annotations that ask for the same, and other workloads of the same wave.

// Limits returns the ReloadPolicies that select the workload, by name.
func (e *Evaluation) Limits() []*limit.Policy {
	if !e.limited {
		e.limited = true
		if s := limit.In(e.graph); s != nil && e.Policy.Mode != policy.Off && e.Workload.Rollable {
			e.limits = s.Of(e.graph.NamespaceLabels(e.Workload.Namespace), e.Workload.Labels)
		}
	}
	return e.limits
}

// maxLimits limits the number of ReloadPolicies that select a workload, times the number of its sources: the planner compares each with each while others
// wait.
const maxLimits = 4096

// tooLimited reports whether the workload exceeds maxLimits.
func (e *Evaluation) tooLimited() bool { return len(e.tracked)*len(e.Limits()) > maxLimits }

// limitsFor returns those that limit a restart.
func (e *Evaluation) limitsFor(d *Decision) []*limit.Policy {
	return slices.DeleteFunc(slices.Clone(e.Limits()), func(p *limit.Policy) bool {
		return p.Problem == "" && !slices.ContainsFunc(d.due, func(c *due) bool { return p.Concerns(c.counted.Kind, c.counted.Name) })
	})
}

// isSuspended decides if nothing may be restarted until a user changes a policy.
func (e *Evaluation) isSuspended(d *Decision, what string) bool {
	for _, p := range e.limitsFor(d) {
		switch {
		case p.Problem != "":
			d.State, d.Reason = Blocked, ReasonPolicyInvalid
			d.Message = fmt.Sprintf("%s. The ReloadPolicy %s is invalid, so nothing that it selects is restarted: %s", what, p.Name, p.Problem)
			return true
		case p.Suspend:
			d.State, d.Reason = Blocked, ReasonPolicySuspended
			d.Message = fmt.Sprintf("%s. The ReloadPolicy %s suspends restarts.", what, p.Name)
			return true
		}
	}
	if e.tooLimited() {
		d.State, d.Reason = Blocked, ReasonTooManySources
		d.Message = fmt.Sprintf("%s. The workload is not restarted automatically: %d ReloadPolicies select it, and it has %d sources. The product of both may be at most %d.", what, len(e.Limits()), len(e.tracked), maxLimits)
		return true
	}
	if unknown := limit.In(e.graph).Unknown(); unknown != "" {
		d.State, d.Reason = Pending, ReasonPolicyUnknown
		d.Message = fmt.Sprintf("%s. A restart is due, but %s, and they may limit it.", what, unknown)
		return true
	}
	return false
}

// isNotified decides if a change is only reported.
func (e *Evaluation) isNotified(d *Decision, what string) bool {
	if e.Policy.Strategy != record.Notify || d.FieldsOnly() { // fields are set without a restart
		return false
	}
	d.State, d.Reason, d.Action = Stale, ReasonNotifyOnly, Observe
	d.Message = what + ". With the strategy notify, nothing restarts the workload. Create a Reload to restart it."
	return true
}

// NeedsApproval reports whether a restart is due that needs an approval, which it may have.
func (e *Evaluation) NeedsApproval(d *Decision) bool {
	return len(d.due) > 0 && e.asksForApproval(d) != ""
}

// asksForApproval returns what asks for an approval of a restart; empty: nothing does.
func (e *Evaluation) asksForApproval(d *Decision) string {
	if e.Policy.Approval {
		return "the annotation " + policy.ApprovalAnnotation
	}
	for _, p := range e.limitsFor(d) {
		if p.Approval {
			return "the ReloadPolicy " + p.Name
		}
	}
	return ""
}

// awaitsApproval decides if a user has to approve the content.
func (e *Evaluation) awaitsApproval(d *Decision, what string) bool {
	by := e.asksForApproval(d)
	if by == "" {
		return false
	}
	switch a := record.ApprovalOf(e.Workload); {
	case slices.ContainsFunc(d.due, func(c *due) bool { return c.assumed }):
		d.State, d.Reason = Pending, ReasonApproval
		d.Message = fmt.Sprintf("%s. A restart is due when a user has approved the new content, as %s asks for.", what, by)
	case a == nil || a.ConfigHash != e.Hash:
		d.State, d.Reason = Pending, ReasonApproval
		d.Message = fmt.Sprintf("%s. A restart is due when a user has approved the content %s, as %s asks for.", what, e.Hash, by)
	case a.Decision == record.Denied:
		d.State, d.Reason = Blocked, ReasonDenied
		d.Message = fmt.Sprintf("%s. The content was denied at %s by %s.%s", what, a.Time.UTC().Format(time.RFC3339), a.By, reasonOf(a.Reason))
	default:
		return false
	}
	return true
}

func reasonOf(reason string) string {
	if reason == "" {
		return ""
	}
	return " The reason is: " + reason
}

// maxWindowSteps limits how often the windows of several policies are looked at to find a time at which all are open.
const maxWindowSteps = 32

// awaitsWindow decides if no restart may begin at this time.
func (e *Evaluation) awaitsWindow(d *Decision, what string, now time.Time) bool {
	at, by := now, ""
	for range maxWindowSteps {
		next, closed, foreseeable := e.opens(d, at)
		if closed != "" && by == "" {
			by = closed
		}
		switch {
		case !foreseeable:
			d.State, d.Reason, d.RecheckAt = Blocked, ReasonWindow, next
			d.Message = fmt.Sprintf("%s. By %s, no restart may begin in the foreseeable future.", what, closed)
			return true
		case !next.After(at) && at.Equal(now):
			return false
		case !next.After(at):
			d.State, d.Reason, d.RecheckAt = Pending, ReasonWindow, at
			d.Message = fmt.Sprintf("%s. A restart is due at %s, when one may begin by %s.", what, at.UTC().Format(time.RFC3339), by)
			return true
		}
		at = next
	}
	d.State, d.Reason, d.RecheckAt = Blocked, ReasonWindow, now.Add(time.Hour)
	d.Message = fmt.Sprintf("%s. By %s and others, no restart may begin in the foreseeable future.", what, by)
	return true
}

// opens returns when the first windows that are closed at a time open, and which annotation or policy has them; empty: none are closed.
func (e *Evaluation) opens(d *Decision, at time.Time) (opens time.Time, by string, foreseeable bool) {
	if opens, foreseeable = e.Policy.Windows.Opens(at); opens.After(at) {
		return opens, "the annotation " + policy.WindowsAnnotation, foreseeable
	}
	for _, p := range e.limitsFor(d) {
		if opens, foreseeable = p.Windows.Opens(at); opens.After(at) {
			return opens, "the ReloadPolicy " + p.Name, foreseeable
		}
	}
	return at, "", true
}

// HoldsRequests says, in a clause, why a ReloadPolicy that also binds requests does not allow one to restart the workload now; empty: all allow it.
// A policy for some sources binds the requests for workloads that read one of them.
func (e *Evaluation) HoldsRequests(now time.Time) string {
	for _, p := range limit.In(e.graph).Of(e.graph.NamespaceLabels(e.Workload.Namespace), e.Workload.Labels) {
		if !p.Bound || p.Problem != "" || !slices.ContainsFunc(e.Sources, func(s Source) bool { return p.Concerns(s.Kind, s.Name) }) {
			continue
		}
		if p.Suspend {
			return "the ReloadPolicy " + p.Name + " suspends restarts, also on request"
		}
		switch opens, foreseeable := p.Windows.Opens(now); {
		case !foreseeable:
			return "by the ReloadPolicy " + p.Name + ", no restart may begin in the foreseeable future, also on request"
		case opens.After(now):
			return fmt.Sprintf("by the ReloadPolicy %s, no restart may begin before %s, also on request", p.Name, opens.UTC().Format(time.RFC3339))
		}
	}
	return ""
}

// awaitedLook is how often a waiting restart is checked again, in case something went unnoticed.
const awaitedLook = 10 * time.Minute

// await makes a due restart wait for other workloads, and tells Waves about this one.
func (e *Evaluation) await(d *Decision, now time.Time) {
	if e.waves == nil {
		return
	}
	m := e.member(d, now)
	h := e.waves.Hold(m)
	again := []time.Time{d.Pods.failing.at}
	for _, p := range m.Baking {
		again = append(again, d.Pods.ready.Add(p.BakeTime))
	}
	for _, at := range again {
		if !at.IsZero() && now.Before(at) {
			d.RecheckAt = judge.Earlier(d.RecheckAt, at)
		}
	}
	if f := &d.Pods.failing; len(m.Fails) > 0 && f.pod != "" {
		d.Fails = fmt.Sprintf("pod %s is not ready (%s)", f.pod, f.why)
	}
	if h == nil || !m.Due {
		return
	}
	what := upperFirst(d.Because) + ". "
	policyOf := ""
	switch {
	case h.Policy != nil:
		policyOf = " (ReloadPolicy " + h.Policy.Name + ")"
	case h.Why == wave.Budget:
		policyOf = " (--max-rollouts-in-progress)"
	}
	d.Action, d.RecheckAt = None, judge.Earlier(now.Add(awaitedLook), h.Again)
	switch h.Why {
	case wave.Halted:
		d.State, d.Reason = Blocked, ReasonHalted
		d.Message = fmt.Sprintf("%sThe restart is on hold, because %s fails with the content of %s%s. It is due when that has recovered, or the content changes again.", what, e.nameOf(h.By), h.Source, policyOf)
	case wave.Order:
		d.State, d.Reason = Pending, ReasonOrder
		if h.By.Name == "" {
			d.Message = what + "configdep is checking whether workloads of a lower order come first."
			return
		}
		ready := "are up to date and ready"
		if h.Policy != nil && h.Policy.BakeTime > 0 {
			ready = fmt.Sprintf("have been up to date and ready for %v", h.Policy.BakeTime)
		}
		d.Message = fmt.Sprintf("%sA restart is due when workloads of a lower order that read %s %s%s, such as %s.", what, h.Source, ready, policyOf, e.nameOf(h.By))
	case wave.Budget:
		d.State, d.Reason = Pending, ReasonBudget
		allowed := fmt.Sprintf("%d workloads", h.Max)
		if h.Max == 1 {
			allowed = "1 workload"
		}
		if h.Limit != nil {
			allowed = h.Limit.String()
		}
		when := "A restart is due when it is its turn: "
		if h.Limit != nil && h.Limit.None() {
			when = "No restart may begin: "
		}
		d.Message = what + when + allowed + " may be restarted at a time" + policyOf + "."
	}
}

// nameOf names a workload for users who may read this one: they must not learn about workloads in other namespaces.
func (e *Evaluation) nameOf(key dependency.WorkloadKey) string {
	if key.Namespace != e.Workload.Namespace {
		return "a workload in another namespace"
	}
	return string(key.Kind) + " " + key.Name
}

// member returns what a wave has to know of the workload.
func (e *Evaluation) member(d *Decision, now time.Time) *wave.Member {
	w, j := e.Workload, d.Pods
	m := &wave.Member{WorkloadKey: w.WorkloadKey, Order: e.Policy.Order, Pods: int(max(1, w.Replicas))}
	if e.Policy.Mode == policy.Off || !w.Rollable {
		return m
	}
	last := record.LastReloadOf(w)
	of := e.Record.For != "" && e.Record.For == w.Marks.TemplateHash // the rollout is one of configdep
	lacks := d.State == Blocked && (d.Reason == ReasonSourceMissing || d.Reason == ReasonKeyMissing) && (w.Replicas > 0 || e.reruns()) && e.loses()
	m.Due = d.Action == RollOut && len(d.due) > 0 && !d.FieldsOnly()
	m.InProgress = d.State != Failed && (record.UnderWay(w) != nil || of && (w.Rollout.Phase == dependency.RolloutRunning || w.Rollout.Reason == dependency.ReasonNotObserved))
	m.Unfinished = m.Due || m.InProgress || d.Awaits() && (d.State == Settling || d.State == Pending || d.Reason == ReasonDenied) || lacks
	fails := last != nil && !lacks && e.Comparable() &&
		(j.failing.pod != "" || w.Rollout.Phase == dependency.RolloutFailed || d.Reason == ReasonPodsNotReady || d.Reason == ReasonRestartFailed)
	m.Unfinished = m.Unfinished || fails
	if !e.tooLimited() {
		m.Policies = slices.DeleteFunc(slices.Clone(e.Limits()), func(p *limit.Policy) bool { return p.Problem != "" })
	}
	for _, p := range m.Policies {
		if p.BakeTime > 0 && !j.ready.IsZero() && now.Before(j.ready.Add(p.BakeTime)) {
			m.Baking = append(m.Baking, p)
		}
	}
	if !m.Matters() {
		return m
	}
	e.addSources(m, d, last, fails)
	return m
}

// loses reports whether new content no longer has what the workload needs: with the content that is recorded for the same keys, pods have run.
func (e *Evaluation) loses() bool {
	for i := range e.Sources {
		s := &e.Sources[i]
		if s.tracked == nil || !s.Missing || s.Awaited {
			continue
		}
		entry, known := e.Record.Sources[s.tracked.id]
		if now := s.tracked.Content(); known && entry.Content != now && scopeIn(entry.Content) == scopeIn(now) {
			return true
		}
	}
	return false
}

// addSources adds the sources for which the workload is to be restarted, or was, and those that it reads.
func (e *Evaluation) addSources(m *wave.Member, d *Decision, last *record.LastReload, fails bool) {
	for i := range e.tracked {
		t := &e.tracked[i]
		s := wave.Source{Kind: t.counted.Kind, Name: t.counted.Name}
		m.Reads = append(m.Reads, s)
		because := last == nil || last.Because(t.id)
		if m.InProgress && because {
			m.Began = append(m.Began, s)
		}
		switch {
		case slices.ContainsFunc(d.due, func(c *due) bool { return c.id == t.id }):
			m.For = append(m.For, s)
		case fails && because && e.Record.Sources[t.id].Content == t.Content(): // what fails may not have read later content
			m.Fails = append(m.Fails, s)
		}
	}
}

// failing is a pod of the current template that fails.
type failing struct {
	pod, why string
	at       time.Time // when one will count as failed that is not ready
}

// failures are why containers wait that fail, in the words of their kubelet.
var failures = []string{
	"CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "ImagePullBackOff", "ErrImagePull", "InvalidImageName",
	"ErrImageNeverPull", "PostStartHookError",
}

// addHealth notes since when a pod of the current template has been ready, or that it fails.
func (out *Judgement) addHealth(e *Evaluation, j *judge.Judge, p *dependency.Pod) {
	if e.waves == nil || !p.Deleted.IsZero() || e.isOlder(j, p) {
		return
	}
	if !p.Ready.IsZero() {
		out.ready = later(out.ready, p.Ready)
		return
	}
	last := record.LastReloadOf(e.Workload)
	if last == nil || p.Created.Before(last.Time.Truncate(time.Second)) {
		return
	}
	since := later(p.Created, time.Unix(p.Unready, 0))
	if e.Workload.Rollout.Phase == dependency.RolloutComplete && since.After(last.Time.Add(stuckTime)) { // long after the restart
		return
	}
	why := ""
	for i := range p.Containers {
		switch c := &p.Containers[i]; {
		case slices.Contains(failures, c.Waiting):
			why = c.Waiting
		case c.Restarts > 0 && why == "":
			why = "restarted"
		}
	}
	if within := e.Policy.HealthyWithin; why == "" && within > 0 {
		if at := since.Add(within); out.now.Before(at) {
			out.failing.at = judge.Earlier(out.failing.at, at)
		} else {
			why = "not ready within " + within.String()
		}
	}
	if why != "" && (out.failing.pod == "" || strings.Compare(p.Name, out.failing.pod) < 0) {
		out.failing.pod, out.failing.why = p.Name, why
	}
}
