// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/judge"
	"github.com/configdep/configdep/pkg/render"
)

// shown is what a server shows of a workload.
type shown struct {
	decide.Decision

	verdicts map[verdictOf]judge.SourceVerdict
	rules    rules
	// kept: the hash of the content is that of pods which a rollout is about to replace, and of which none of its pods has started: it gives back their template.
	kept bool
	hash string // of the content
	// current reports whether kstatus takes the object for Current, so that Flux and other tools take the content for applied.
	current func() bool
}

// verdictOf identifies a verdict.
type verdictOf struct {
	pod, container, source int
	files                  bool
}

// show returns what a server shows of a workload; nil: it does not know it.
func (s *server) show(m *manifest) (out *shown) {
	s.index.Read(func(known decide.Evaluator) {
		w := known.Graph.Workload(m.key())
		if w == nil {
			return
		}
		if s.planner != nil {
			known.Waves = s.planner
		}
		e, now := known.Evaluate(w), s.controller.Clock.Now()
		out = &shown{e.Decide(now), map[verdictOf]judge.SourceVerdict{}, s.rules(m), false, e.Hash, nil}
		object := render.ConfigDependency(kinds, e, out.Decision)
		out.current = sync.OnceValue(func() bool { return isCurrent(object) })
		begun := w.Marks.TemplateHash != "" && w.Marks.TemplateHash != e.Hash
		j := e.Judge(now)
		known.Graph.PodsOf(w, func(p *dependency.Pod) bool {
			of := s.view.pods[p.Name]
			out.kept = out.kept || p.Hash == e.Hash && p.Deleted.IsZero()
			begun = begun && (p.Hash != w.Marks.TemplateHash || j.IsOlder(p) || !p.Deleted.IsZero() || slices.ContainsFunc(p.Containers, func(c dependency.PodContainer) bool { return c.Waiting != "" }))
			for i := range p.Containers {
				var n int
				_, _ = fmt.Sscanf(p.Containers[i].Name, "container-%d", &n)
				j.Container(p, &p.Containers[i], func(v judge.SourceVerdict) {
					if of != nil && p.Deleted.IsZero() {
						out.verdicts[verdictOf{of.uid, n, slices.Index(sourceNames[:], v.Name), v.File}] = v
					}
				})
			}
			return true
		})
		out.kept = out.kept && begun
	})
	return out
}

// isCurrent reports whether kstatus takes an object for Current.
func isCurrent(o *v1alpha1.ConfigDependency) bool {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		panic(err)
	}
	result, err := status.Compute(&unstructured.Unstructured{Object: content})
	if err != nil {
		panic(err)
	}
	return result.Status == status.CurrentStatus
}

// hidden reports whether there is a doubt about what a container has read because of a record of other content.
func (got *shown) hidden() bool {
	for _, v := range got.verdicts {
		if v.Doubt && v.Recorded != nil && !v.Recorded.Same {
			return true
		}
	}
	return false
}

// check checks what servers show. Calm: nothing is due any longer.
func (o *oracle) check(calm bool) {
	for _, s := range o.world.servers {
		if !s.alive || !s.view.synced {
			continue
		}
		for slot := range o.world.workloads {
			if m := s.view.workloads[slot]; m != nil {
				o.checkShown(s, m, calm)
			}
		}
	}
}

func (o *oracle) checkShown(s *server, m *manifest, calm bool) {
	got := s.show(m)
	if got == nil {
		return
	}
	o.tally["states"]++
	stale := false // as servers see it, or in doubt
	for _, v := range got.verdicts {
		stale = stale || v.State == judge.Stale || v.Doubt || v.Reason == judge.ReasonNodeClock || v.Reason == judge.ReasonWrittenSinceStart // of which the record tells
		if got.rules.agent || v.State != judge.Stale && v.State != judge.Unknown {
			continue
		}
		if o.tally["verdicts that kstatus must know of"]++; got.current() {
			o.fail("%s: server %d shows %s (%s), which is Current for kstatus, although a container is Stale or Unknown", workloadName(m.slot), s.id, got.State, got.Message)
		}
	}
	if due := got.State == decide.Stale || got.State == decide.Settling || got.State == decide.Pending && got.Reason == decide.ReasonSourceChanged; due && !stale && !got.kept && !s.seesNone(m) {
		o.fail("%s: server %d shows %s (%s: %s), although no container is stale", workloadName(m.slot), s.id, got.State, got.Reason, got.Message)
	}
	o.checkAgents(s, m, got)
	o.checkNames(s, m, got)
	o.checkSynced(s, m, got)
	if d := o.world.workloads[m.slot]; d != nil {
		o.checkRefused(s, d, got)
	}
	s.eachReads(m, func(r *reads) {
		v, judged := got.verdicts[verdictOf{r.pod.uid, r.container, r.source, r.files}]
		if !judged && r.counts() && r.stale() && got.current() && !s.lags(jobs) { // by which pods of a CronJob are found
			o.fail("%v, and without a verdict, the workload is %s (%s), which is Current for kstatus", r, got.State, got.Message)
		}
		if !judged || r.keys == 0 || r.missing() || r.behind() {
			return
		}
		// What a container of an older template has read is judged as if it had the current one.
		wrong := v.State == judge.Current && r.stale() || v.State == judge.Stale && !r.stale() && r.pod.template.variant == m.template.variant
		if excuse := r.excuse(&v); wrong && excuse != "" {
			o.tally["false "+string(v.State)+", excused: "+excuse]++
		} else if wrong {
			o.fail("%v, and the verdict is %s (%s)", r, v.State, v.Reason)
		}
		if v.State == judge.Unknown {
			cause := r.cause(&v)
			if cause == "" {
				o.fail("%v, and without a cause, the verdict is %s (%s)", r, v.State, v.Reason)
			}
			what := "Unknown"
			if v.Doubt {
				what = "doubt"
			}
			o.tally[fmt.Sprintf("%s (%s): %s", what, v.Reason, cause)]++
		}
		if calm && s.leads {
			o.checkApplied(s, r, &v, got)
		}
	})
	if calm && s.leads {
		o.checkRest(s, m, got)
	}
}

// checkApplied checks, when nothing is due any longer, that a container of a workload that is restarted automatically has read the current content.
func (o *oracle) checkApplied(s *server, r *reads, v *judge.SourceVerdict, got *shown) {
	d := o.world.workloads[r.m.slot]
	if d == nil || !r.rules.managed() || r.rules.agent || !r.scope.triggers || !r.stale() || r.isAdopted() || d.exempt(s) || r.pod.identity != d.template.identity() {
		return
	}
	adoptedAt := o.adoptedAt[adoptedIn{d.uid, r.source}]
	switch {
	case o.world.waves != nil && got.State == decide.Pending: // see waits
	case got.State == decide.Blocked || got.State == decide.Failed || got.State == decide.RollingOut || got.Reason == decide.ReasonMinInterval:
		o.tally["not applied: "+string(got.State)+" "+got.Reason]++
	case r.m.mounts && isSecret(r.source) && !r.now().present:
		o.tally["not applied, a Secret is gone that new pods may bring"]++
	case o.world.changedAt(r.source, adoptedAt):
		o.tally["not applied, changed in the instant of the adoption"]++
	case r.updatedAround(adoptedAt):
		o.tally["not applied, updated as content was adopted"]++
	case v.State == judge.Unknown && adoptedAt.Sub(r.pod.containers[r.container].real).Abs() < r.margin():
		o.tally["not applied, started as content was adopted, or at a restart in place: "+v.Reason]++
	case o.lagged[d.uid] && (r.rules.inPlace || v.State == judge.Unknown && (r.rules.recreate || customKinds[d.kind] != nil)): // it is about the pods that are known
		o.tally["not applied, restarted before the pod was known: "+v.Reason]++
	case (r.rules.inPlace || v.State == judge.Unknown) && o.world.skews.wrong(r.pod.node()), v.Reason == judge.ReasonNodeClock && r.pod.containers[r.container].at.IsZero():
		o.tally["not applied, wrong clock of a node"]++
	case r.rules.inPlace && v.State == judge.Stale && r.isInit() && r.pod.containers[0].restarts > 0: // its restarter was started again for another reason
		o.tally["not applied, an init container of a pod that crashed as it was restarted in place"]++
	case v.State == judge.Unknown && r.recordedAfter():
		o.tally["not applied, changed soon after a restart by a server whose clock is ahead: "+v.Reason]++
	case o.undone[d.uid] && v.State == judge.Stale && (r.source == sourceCount || got.Reason == decide.ReasonOptedInStale): // as the message says
		o.tally["not applied, a restart was undone"]++
	case r.m.borrows && v.Reason == judge.ReasonWrittenSinceStart: // the lender was away, so that nothing used the source
		o.tally["not applied, changed while the lender was away"]++
	case v.State == judge.Current, v.State == judge.Unknown && r.unseen():
		o.tally["not applied, unseen: "+v.Reason]++
	default:
		o.fail("%v, and nothing will apply it: %s (%s), %s (%s)", r, v.State, v.Reason, got.State, got.Message)
	}
}

// exempt reports whether a workload is not restarted, whatever has changed, or its owner reverts that.
func (d *workload) exempt(s *server) bool {
	return d.deleting || s.view.terminating || d.paused || d.runs() || d.holder.fights() || d.stuck() || d.pdb
}

// checkRest checks that nothing seems to be due when nothing will happen.
func (o *oracle) checkRest(s *server, m *manifest, got *shown) {
	d := o.world.workloads[m.slot]
	if d != nil && !s.view.terminating {
		o.checkStuck(d, got)
		o.checkPauses(d, got)
	}
	if d == nil || d.exempt(s) || got.rules.agent {
		return
	}
	if o.waits(s, m, got) {
		return
	}
	if got.State == decide.Settling || got.State == decide.Pending {
		o.fail("%s: server %d shows %s (%s: %s) at rest", workloadName(m.slot), s.id, got.State, got.Reason, got.Message)
	}
	o.tally["at rest: "+string(got.State)]++
}

// checkAgents checks that no workload is shown as in sync of which an agent has not applied content that the server has read.
func (o *oracle) checkAgents(s *server, m *manifest, got *shown) {
	d := o.world.workloads[m.slot]
	if d == nil || d.uid != m.uid || !got.rules.agent || got.State != decide.InSync || got.Reason == decide.ReasonTerminating {
		return
	}
	if got.Reason == decide.ReasonNoPods {
		if i := slices.IndexFunc(s.podsOf(m.slot), func(p *pod) bool { return !p.terminating && !p.created.Before(m.created) }); i >= 0 {
			o.fail("%s: server %d shows InSync (%s), but there is pod %d", workloadName(m.slot), s.id, got.Message, s.podsOf(m.slot)[i].uid)
		}
		return
	}
	o.tally["workloads that agents keep in sync"]++
	for _, p := range s.podsOf(m.slot) {
		for source := range sourceCount {
			seen, applied := &s.view.sources[source], &p.agent.applied[source]
			// What an agent has applied and not reported yet can be newer. It is older if the source was absent before, too.
			same := applied.present == seen.present && applied.content == seen.content || applied.changed > seen.changed || (p.agent.saying || p.agent.told == nil || *p.agent.told != p.agent.said) && !seen.present
			former := p.created.Before(m.created) // of a workload of the same name, whose end is not yet known
			if p.agent.sources.has(source) && !p.terminating && !former && (!p.agent.has || !same) {
				o.fail("%s: server %d shows InSync (%s), but the agent of pod %d has not applied %s", workloadName(m.slot), s.id, got.Message, p.uid, sourceNames[source])
			}
		}
	}
}
