// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"encoding/json"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"github.com/configdep/configdep/pkg/apis/policy/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
)

// The oracle of waves. At each restart, it counts everything again, by what the acting server has read and done, and without code of the product. What a server
// learns in an instant counts from the next one on, as it may have decided before. What counts in doubt is left out, and at rest, it may hold a restart.

// known is what a server knows of waves, besides its view, since it began to lead.
type known struct {
	led    time.Time
	flying map[int]flight // the last restart that it has begun of each workload
	since  map[fact]time.Time
}

// lost is after which time a server takes what it has written for lost, unless it has read it.
const lost = 5 * time.Minute

// flight is a restart: the version that it made, and what describes it.
type flight struct {
	revision uint64
	last     string
	at       time.Time
}

// fact is what is true of a workload.
type fact struct {
	slot int
	what string
}

const (
	rolls = "a restart is in progress"
	due   = "a restart is due"
	fails = "pods fail with the current content"
	loses = "the content lacks what pods need, and had"
)

// restartOf returns the patch of a restart; nil: the request is another one.
func restartOf(r *request) *patchBody {
	var body patchBody
	if p := r.patch(); p == nil || isJSONPatch(p.GetPatch()) || json.Unmarshal(p.GetPatch(), &body) != nil || len(body.Spec.Template.Metadata.Annotations) == 0 {
		return nil
	}
	return &body
}

// wrote notes that a server has been told that it has begun a restart.
func (s *server) wrote(r *request, a *answer) {
	if body, d := restartOf(r), s.world.workloads[max(0, r.slot)]; body != nil && r.reload == nil && !r.ghost && a.err == nil && d != nil {
		s.known.flying[r.slot] = flight{d.written.revision, ptr.Deref(body.Metadata.Annotations[lastReloadAnnotation], ""), time.Now()}
	}
}

// flight returns what describes a restart that a server has begun and not read yet; empty: there is none.
func (s *server) flight(m *manifest) string {
	for _, r := range s.network.requests {
		if body := restartOf(r); body != nil && r.server == s && r.slot == m.slot && r.reload == nil && !r.ghost && (r.done == nil || r.done.err == nil) {
			return ptr.Deref(body.Metadata.Annotations[lastReloadAnnotation], "")
		}
	}
	if f := s.known.flying[m.slot]; f.revision > m.revision && time.Since(f.at) < lost {
		return f.last
	}
	return ""
}

// writes reports whether a server waits for the answer to a request that writes to a workload.
func (s *server) writes(m *manifest) bool {
	return slices.ContainsFunc(s.network.requests, func(r *request) bool { return r.server == s && r.slot == m.slot && r.patch() != nil && r.done == nil })
}

// knows notes what a server has read, and since when.
func (o *oracle) knows(s *server) {
	if s.planner == nil {
		return
	}
	before := s.known.since
	s.known.since = map[fact]time.Time{}
	for slot, m := range s.view.workloads {
		for what, is := range map[string]bool{rolls: s.rolls(m), due: s.due(m), fails: s.fails(m), loses: s.loses(m), s.ready(m).String(): true} {
			if at, was := before[fact{slot, what}]; was && is && !s.asleep {
				s.known.since[fact{slot, what}] = at
			} else if is {
				s.known.since[fact{slot, what}] = time.Now()
			}
		}
	}
}

func (s *server) knew(m *manifest, what string) bool {
	at, is := s.known.since[fact{m.slot, what}]
	return is && at.Before(time.Now())
}

// incomplete reports whether the status shows a rollout that goes on.
func (m *manifest) incomplete() bool {
	p, n := &m.progress, m.replicas
	if m.kind == "DaemonSet" {
		n = p.desired
	}
	return p.observed < m.generation || !p.failed && (p.updated < n || p.all > p.updated && m.surges() || p.updatedReady < p.updated)
}

// stuck reports whether a rollout may have failed because it waits for a pod, so that it makes room for others.
func (s *server) stuck(m *manifest) bool {
	fresh := func(p *pod) bool { return time.Since(p.created) < stuckTime-slack-2*mostSkew }
	return (m.kind == "StatefulSet" || m.kind == "DaemonSet") && !slices.ContainsFunc(s.podsOf(m.slot), fresh)
}

// rolls reports whether a restart is certainly in progress. What is recorded with another key of the hash does not tell that of a rollout.
func (s *server) rolls(m *manifest) bool {
	rules, now := s.rules(m), s.current(m)
	replaced := len(now) >= m.wanted() && len(now) == len(s.podsOf(m.slot)) && !slices.ContainsFunc(now, func(p *pod) bool { return !p.ready() }) // the status lags
	return m.restarted > 0 && m.incomplete() && !replaced && !s.stuck(m) && s.world.keys == 0 && !m.paused && rules.managed()
}

// due reports whether a restart is certainly due, or will be when content has settled, so that workloads of a higher order wait.
func (s *server) due(m *manifest) (is bool) {
	rules := s.rules(m)
	if !rules.managed() || rules.hold || m.annotations[appliedAnnotation] == "" || m.paused || m.deleting || m.wanted() == 0 || s.world.keys > 0 || s.lags(replicaSets) || s.lacks(m) || !s.opens(m) {
		return false
	}
	for _, p := range s.view.policies {
		if p != nil && selects(p, m) && (invalid(p) || p.Spec.Suspend) {
			return false
		}
	}
	s.eachReads(m, func(r *reads) {
		older := m.kind == "DaemonSet" && r.pod.labels["pod-template-generation"] != strconv.FormatInt(m.templates, 10) // or so it seems
		is = is || r.scope.triggers && !older && r.pod.identity == m.template.identity() && r.stale() && !r.isAdopted() && !r.doubtful() && !r.missing() && !r.behind()
	})
	return is
}

// opens reports whether there is a time at which all windows are open. Without one, others do not wait for a workload.
func (s *server) opens(m *manifest) bool {
	for at, end := s.time(), s.time().Add(windowPeriod); at.Before(end); at = at.Add(10 * time.Second) {
		closed := func(p *v1alpha1.ReloadPolicy) bool { return p != nil && selects(p, m) && !isOpen(p, at) }
		if (!s.rules(m).windows || within(at, time.Minute)) && !slices.ContainsFunc(s.view.policies[:], closed) {
			return true
		}
	}
	return false
}

// lacks reports whether pods could not start, by what a server has read.
func (s *server) lacks(m *manifest) bool {
	return slices.ContainsFunc(usesOf(m.template.variant), func(u use) bool { return !u.starts(s.view.sources[u.source].present, s.view.sources[u.source].content) })
}

// loses reports whether what has changed of the content certainly keeps pods from starting, which have started before.
func (s *server) loses(m *manifest) bool {
	var was record
	_ = json.Unmarshal([]byte(m.annotations[appliedAnnotation]), &was) // empty, or not ours
	rules := s.rules(m)
	return rules.managed() && !m.paused && !m.deleting && m.wanted() > 0 && !m.incomplete() && len(s.current(m)) > 0 && slices.ContainsFunc(usesOf(m.template.variant), func(u use) bool {
		v := &s.view.sources[u.source]
		content, _, _ := strings.Cut(was.Sources[sourceID(u.source)], "@")
		return content != "" && !u.starts(v.present, v.content) && rules.scope(m.template.variant, u.source, v.mark).triggers
	})
}

// current returns the pods of the current template.
func (s *server) current(m *manifest) []*pod {
	return slices.DeleteFunc(s.podsOf(m.slot), func(p *pod) bool {
		return p.terminating || p.identity != m.template.identity() || p.created.Before(m.created)
	})
}

// ready returns when the last pod of the current template has become ready, as it says itself.
func (s *server) ready(m *manifest) (at time.Time) {
	for _, p := range s.current(m) {
		if p.wasReady && p.turned.After(at) {
			at = seconds(p.turned)
		}
	}
	return at
}

// fails reports whether pods certainly fail with the content with which they were restarted, and which is the current one.
func (s *server) fails(m *manifest) bool {
	rules := s.rules(m)
	if !rules.managed() || m.restarted == 0 || m.wanted() == 0 || s.world.keys > 0 || s.lags(replicaSets) || s.lacks(m) || m.deleting ||
		slices.ContainsFunc(usesOf(m.template.variant), func(u use) bool { return s.view.sources[u.source].changed > m.restarted }) {
		return false
	}
	stale := false
	s.eachReads(m, func(r *reads) {
		stale = stale || r.pod.identity == m.template.identity() && (r.stale() || r.doubtful())
	})
	return !stale && slices.ContainsFunc(s.current(m), func(p *pod) bool {
		return p.crashes() && p.containers[0].started > 0 && !seconds(p.created).Before(seconds(lastOf(m.annotations[lastReloadAnnotation]).Time))
	})
}

// lastRestart is what describes a restart.
type lastRestart struct {
	Time    time.Time `json:"time"`
	Trigger string    `json:"trigger"`
	Others  []string  `json:"others"`
}

func lastOf(text string) (last lastRestart) {
	_ = json.Unmarshal([]byte(text), &last) // empty, or not ours
	return last
}

// of returns the sources because of which it was.
func (l *lastRestart) of() (sources []string) {
	return slices.DeleteFunc(append([]string{l.Trigger}, l.Others...), func(id string) bool { return !strings.Contains(id, "/") })
}

func (s *server) approvalOf(m *manifest) (a approval) {
	_ = json.Unmarshal([]byte(m.annotations[approvedAnnotation]), &a) // empty, or not ours
	return a
}

// invalid reports whether a policy has one of the faults that histories have.
func invalid(p *v1alpha1.ReloadPolicy) bool {
	return p.Spec.BakeTime != nil && p.Spec.BakeTime.Duration < 0 || unreadable(p) || slices.ContainsFunc(p.Spec.Budgets, func(b v1alpha1.Budget) bool { return (b.Pods == nil) == (b.Workloads == nil) })
}

// unreadable reports whether it is not known what a policy selects.
func unreadable(p *v1alpha1.ReloadPolicy) bool {
	return p.Spec.WorkloadSelector != nil && p.Spec.WorkloadSelector.MatchExpressions[0].Operator != "In"
}

func selects(p *v1alpha1.ReloadPolicy, m *manifest) bool {
	return p.Spec.WorkloadSelector == nil || unreadable(p) || slices.Contains(p.Spec.WorkloadSelector.MatchExpressions[0].Values, workloadName(m.slot))
}

// concerns reports whether a policy is about restarts because of one of some sources.
func concerns(p *v1alpha1.ReloadPolicy, sources ...string) bool {
	return len(p.Spec.Sources) == 0 || slices.ContainsFunc(p.Spec.Sources, func(of v1alpha1.SourcePattern) bool {
		return slices.ContainsFunc(sources, func(id string) bool {
			matched, _ := path.Match(string(of.Kind)+"/"+of.Name, id)
			return matched
		})
	})
}

// within reports whether a time is in a window of everyFive.
func within(at time.Time, d time.Duration) bool { return at.Sub(at.Truncate(windowPeriod)) < d }

// isOpen reports whether the windows of a policy are open.
func isOpen(p *v1alpha1.ReloadPolicy, at time.Time) bool {
	open := !slices.ContainsFunc(p.Spec.Windows, func(w v1alpha1.Window) bool { return w.Kind == "Allow" })
	for _, w := range p.Spec.Windows {
		if in := within(at, w.Duration.Duration); w.Kind == "Allow" {
			open = open || in
		} else if in {
			return false
		}
	}
	return open
}

// triggers returns the sources whose changes restart a workload.
func (s *server) triggers(m *manifest) (ids []string) {
	rules := s.rules(m)
	for source := range sourceCount {
		if scope := rules.scope(m.template.variant, source, s.view.sources[source].mark); scope.triggers {
			ids = append(ids, sourceID(source))
		}
	}
	return ids
}

func sourceID(source int) string { return kindNames[sourceStream(source)] + "/" + sourceNames[source] }

// used returns how many other workloads, and how many of their pods, certainly count for a budget of a policy, or of none. May: those that may count.
func (s *server) used(p *v1alpha1.ReloadPolicy, x *manifest, source string, may bool) (workloads, pods int) {
	for _, m := range s.view.workloads {
		last := s.flight(m)
		if m.slot == x.slot || p != nil && !selects(p, m) || last == "" && (may && !m.incomplete() || !may && (!s.knew(m, rolls) || s.stuck(m))) {
			continue
		}
		if last == "" {
			last = m.annotations[lastReloadAnnotation]
		}
		l, ids := lastOf(last), s.triggers(m)
		of := slices.DeleteFunc(l.of(), func(id string) bool { return !slices.Contains(ids, id) }) // the owner may have changed what counts
		if may || len(of) > 0 && (p == nil || (source == "" || slices.Contains(of, source)) && concerns(p, of...)) {
			workloads, pods = workloads+1, pods+max(1, m.wanted())
		}
	}
	return workloads, pods
}

// limit returns how many workloads or pods a budget allows at a time; negative: any number.
func (s *server) limit(p *v1alpha1.ReloadPolicy, b *v1alpha1.Budget, source string, at time.Time) int {
	if b.Schedule != "" && !within(at, b.Duration.Duration) {
		return -1
	}
	value := b.Workloads
	if value == nil {
		value = b.Pods
	}
	percent, is := strings.CutSuffix(value.String(), "%")
	n, err := strconv.Atoi(percent)
	if s.must(err); !is {
		return n
	}
	all := 0
	for _, m := range s.view.workloads {
		ids := s.triggers(m)
		if rules := s.rules(m); rules.mode == "off" || !selects(p, m) || source != "" && !slices.Contains(ids, source) || !slices.ContainsFunc(ids, func(id string) bool { return concerns(p, id) }) {
			continue
		}
		if all++; b.Pods != nil {
			all += max(1, m.wanted()) - 1
		}
	}
	return (all*n + 99) / 100
}

// room reports whether budgets allow one more workload, which is restarted because of some sources.
func (s *server) room(p *v1alpha1.ReloadPolicy, x *manifest, sources []string, at time.Time, may bool) bool {
	for i := range p.Spec.Budgets {
		b, of := &p.Spec.Budgets[i], []string{""}
		if b.Scope == v1alpha1.ScopeSource {
			of = slices.DeleteFunc(slices.Clone(sources), func(id string) bool { return !concerns(p, id) })
		}
		for _, source := range of {
			n, most := s.limit(p, b, source, at), max(1, x.wanted())
			for _, m := range s.view.workloads {
				if may && selects(p, m) && s.mayComeFirst(m) { // and not fit
					most = max(most, m.wanted())
				}
			}
			workloads, pods := s.used(p, x, source, may)
			if n >= 0 && b.Workloads != nil && workloads >= n || b.Pods != nil && (n == 0 || n > 0 && workloads > 0 && pods+most > n) {
				return false
			}
		}
	}
	return true
}

// first returns a workload of a lower order for which one has to wait that is restarted because of a source; nil: none. May: or may have to.
func (s *server) first(x *manifest, sources []string, may bool) *manifest {
	rules := s.rules(x)
	for _, m := range s.view.workloads {
		its, ids := s.rules(m), s.triggers(m)
		if its.order >= rules.order || its.mode == "off" || its.invalid && !may || !slices.ContainsFunc(sources, func(id string) bool { return slices.Contains(ids, id) }) {
			continue
		}
		if !may && s.flight(m) == "" && s.writes(m) {
			continue // it is only looked at again when that has ended
		}
		if s.flight(m) != "" || s.knew(m, rolls) || s.knew(m, due) || s.knew(m, fails) || s.knew(m, loses) || may && s.mayComeFirst(m) {
			return m
		}
		for _, p := range s.view.policies {
			if p == nil || invalid(p) || p.Spec.BakeTime == nil || s.lags(replicaSets) || s.lags(pods) || !selects(p, m) || !selects(p, x) || !slices.ContainsFunc(sources, func(id string) bool { return slices.Contains(ids, id) && concerns(p, id) }) {
				continue
			}
			if at := s.ready(m); !at.IsZero() && s.time().Before(at.Add(p.Spec.BakeTime.Duration)) && s.knew(m, at.String()) {
				return m
			}
		}
	}
	return nil
}

// mayComeFirst reports whether a workload that does not certainly come first may.
func (s *server) mayComeFirst(m *manifest) (may bool) {
	rules := s.rules(m)
	if rules.hold || m.paused || rules.invalid {
		return s.unready(m) || m.incomplete() // what fails, or is in the middle of a rollout, is waited for all the same
	}
	s.eachReads(m, func(r *reads) { may = may || r.stale() || r.doubtful() })
	return may || m.incomplete() || s.lacks(m) || s.unready(m)
}

// unready reports whether a pod is not ready, for which the rollout may wait.
func (s *server) unready(m *manifest) bool {
	return m.progress.failed || slices.ContainsFunc(s.podsOf(m.slot), func(p *pod) bool { return !p.ready() })
}

// time is the time of a server.
func (s *server) time() time.Time { return time.Now().Add(s.world.skews.Servers[s.id]) }

// failing counts the workloads that fail with the current content of one of some sources.
func (s *server) failing(p *v1alpha1.ReloadPolicy, sources []string, may bool) (most int) {
	for _, id := range sources {
		n := 0
		for _, m := range s.view.workloads {
			l := lastOf(m.annotations[lastReloadAnnotation])
			if selects(p, m) && concerns(p, id) && (may && s.unready(m) || s.flight(m) == "" && s.knew(m, fails) && slices.Contains(l.of(), id) && slices.Contains(s.triggers(m), id)) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// checkWave checks a restart that a server has just decided to begin.
func (o *oracle) checkWave(r *request) {
	s, body := r.server, restartOf(r)
	if s.planner == nil || body == nil || r.ghost || s.view.workloads[r.slot] == nil {
		return
	}
	m, name, now := s.view.workloads[r.slot], workloadName(r.slot), s.time()
	last := lastOf(ptr.Deref(body.Metadata.Annotations[lastReloadAnnotation], ""))
	sources, rules, limited, approve := last.of(), s.rules(m), s.world.waves.Max >= 0, false
	if r.reload != nil { // a policy binds the requests for what reads one of its sources
		for _, u := range usesOf(m.template.variant) {
			sources = append(sources, sourceID(u.source))
		}
	}
	for _, p := range s.view.policies {
		if p == nil || r.reload != nil && (invalid(p) || p.Spec.Requests != v1alpha1.RequestsBound) {
			continue
		}
		limited = true
		switch {
		case !selects(p, m) || !invalid(p) && !concerns(p, sources...):
			continue
		case invalid(p):
			o.fail("%s is restarted, although the policy %s is invalid", name, p.Name)
		case p.Spec.Suspend:
			o.fail("%s is restarted, although the policy %s suspends restarts", name, p.Name)
		case !isOpen(p, now):
			o.fail("%s is restarted, although no window of the policy %s is open", name, p.Name)
		case r.reload != nil:
			o.tally["restarts on request that a policy could have held"]++
		case !s.room(p, m, sources, now, false):
			o.fail("%s is restarted, although a budget of the policy %s is used", name, p.Name)
		case p.Spec.FailureLimit != nil && s.failing(p, sources, false) >= int(*p.Spec.FailureLimit):
			o.fail("%s is restarted, although as many workloads fail as the policy %s allows", name, p.Name)
		}
		o.tally["restarts that a policy could have held"]++
		approve = approve || p.Spec.Approval == v1alpha1.ApprovalRequired
	}
	if r.reload != nil {
		return
	}
	o.tally["restarts in waves"]++
	if n, _ := s.used(nil, m, "", false); s.world.waves.Max >= 0 && n >= s.world.waves.Max {
		o.fail("%s is restarted, although %d workloads are being restarted", name, n)
	}
	if f := s.first(m, sources, false); f != nil {
		got := s.show(f)
		o.fail("%s is restarted before %s, which has a lower order: %s (%s: %s)", name, workloadName(f.slot), got.State, got.Reason, got.Message)
	}
	if approve || rules.approval {
		o.checkApproval(s, m, ptr.Deref(body.Metadata.Annotations[hashAnnotation], ""))
	}
	if led := time.Since(s.known.led); limited && led < 2*time.Second {
		o.fail("%s is restarted %v after server %d has begun to lead", name, led, s.id)
	}
	if !s.streams[policies].listed {
		o.fail("%s is restarted before server %d has read policies", name, s.id)
	}
}

// checkApproval checks that a user has approved the content with which a workload is restarted.
func (o *oracle) checkApproval(s *server, m *manifest, hash string) {
	a := s.approvalOf(m)
	seen, known := o.approved[approvedHash{m.uid, hash}]
	if m.annotations[approvedAnnotation] == "" && known { // its owner has removed it, which is no decision
		a.Decision, a.ConfigHash = "Approved", hash
	}
	same := !slices.ContainsFunc(usesOf(m.template.variant), func(u use) bool { return differ(u.reads(), seen[u.source].content, s.view.sources[u.source].content) })
	if o.tally["restarts with approved content"]++; a.Decision != "Approved" || a.ConfigHash != hash || !same {
		o.fail("%s is restarted with content that no user has approved", workloadName(m.slot))
	}
}

// waits checks, when nothing is due any longer, that a restart that waits is held by something at each time, and reports whether one does.
func (o *oracle) waits(s *server, m *manifest, got *shown) bool {
	if s.planner == nil || !slices.Contains([]string{decide.ReasonBudget, decide.ReasonOrder, decide.ReasonHalted, decide.ReasonWindow, decide.ReasonPolicySuspended, decide.ReasonPolicyInvalid, decide.ReasonApproval, decide.ReasonDenied}, got.Reason) {
		return false
	}
	o.tally["at rest: "+string(got.State)+" "+got.Reason]++
	for at, end := s.time(), s.time().Add(windowPeriod); at.Before(end); at = at.Add(10 * time.Second) {
		if !s.held(m, got, at) {
			o.fail("%s: server %d shows %s (%s: %s) at rest, although nothing holds it", workloadName(m.slot), s.id, got.State, got.Reason, got.Message)
			break
		}
	}
	return true
}

// held reports whether anything may hold a restart at a time.
func (s *server) held(m *manifest, got *shown, at time.Time) bool {
	sources, approve := s.triggers(m), got.rules.approval
	for _, p := range s.view.policies {
		switch {
		case p == nil || !selects(p, m):
		case invalid(p):
			return true
		case !concerns(p, sources...):
		case p.Spec.Suspend, !isOpen(p, at), !s.room(p, m, sources, at, true), p.Spec.FailureLimit != nil && s.failing(p, sources, true) >= int(*p.Spec.FailureLimit):
			return true
		default:
			approve = approve || p.Spec.Approval == v1alpha1.ApprovalRequired
		}
	}
	n, _ := s.used(nil, m, "", true)
	a := s.approvalOf(m)
	return s.world.waves.Max >= 0 && n >= s.world.waves.Max || got.rules.windows && !within(at, time.Minute) || approve && (a.Decision != "Approved" || a.ConfigHash != got.hash) || s.first(m, sources, true) != nil
}
