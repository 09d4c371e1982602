// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/record"
)

// How a workload is restarted according to its policy.

// RestartsBy returns the strategy by which the workload is restarted. For a workload that has not opted in, or that is restarted on
// request only, it is one that needs no controller to continue it.
func (p *Policy) RestartsBy(w *dependency.Workload) record.Strategy {
	if p.Mode == Off || p.Strategy == nil || p.Strategy == record.Agent || p.Strategy == record.Notify || p.NotInPlace(w) != "" {
		return record.StrategyOfKind(&w.Traits)
	}
	return p.Strategy
}

// StrategyOf returns the strategy of one restart. It is not the strategy of the workload if there are too many pods for that, or one of
// them does not allow it.
func (p *Policy) StrategyOf(w *dependency.Workload, r *record.Restart) record.Strategy {
	if len(r.Pods) > record.MaxPods || r.Unfit != "" {
		return record.StrategyOfKind(&w.Traits)
	}
	return p.RestartsBy(w)
}

// RestartPatch returns the patch that restarts the pods of a workload according to the policy.
func (p *Policy) RestartPatch(w *dependency.Workload, r *record.Restart) ([]byte, error) {
	with := *r
	with.Strategy, with.OptedIn, with.Pause, with.ReportsSource = p.StrategyOf(w, r), p.Mode != Off, p.Pause, p.ReportsSource
	return with.Patch(w)
}

// OnlyReports reports whether nothing restarts a workload whose content has changed.
func (p *Policy) OnlyReports(w *dependency.Workload) bool { return record.OnlyReports(p.RestartsBy(w)) }

// NotInPlace says in a clause why a workload that asks for InPlace is restarted by a rollout; empty: it is restarted in place, or does not
// ask for that.
func (p *Policy) NotInPlace(w *dependency.Workload) string {
	if p.Strategy != record.InPlace || p.Mode == Off {
		return ""
	}
	if w.NotInPlace == "" && p.Immutable != "" {
		return p.Immutable + " is immutable, and the kubelet keeps its old content for pods that stay"
	}
	return w.NotInPlace
}

// fit adapts the strategy to what is possible for a kind. An annotation that asks for another one is a problem.
func (p *Policy) fit(t *dependency.Traits, asked bool) {
	if t.Restart == nil && !t.Custom && !p.Reruns {
		return
	}
	problem := ""
	switch {
	case record.IsOfKind(p.Strategy), p.Strategy == record.Notify:
		return
	case p.Strategy == record.Agent && !t.PodsByLabels && !t.UnknownPods && !p.Reruns:
		return
	case p.Reruns && p.Strategy != record.Annotate:
		problem = "it has no rollout"
	case p.Strategy == record.EnvVar:
		problem = "the variables of its containers cannot be set"
	case p.Strategy.NamesPods() && t.OnlyReported():
		problem = "its changes are only reported"
	case p.Strategy == record.Agent:
		problem = "it is not known which pods belong to it"
	case p.Strategy.NamesPods() && t.PodsByLabels: // which are chosen by those who write the workload
		problem = "it is not certain which pods belong to it"
	case p.Strategy.NamesPods() && t.UnknownPods:
		problem = "its pods cannot be looked up"
	case p.Strategy == record.InPlace && t.KeepsPods != "":
		problem = "pods without a restarter could not be restarted by a rollout, because " + t.KeepsPods
	case p.Strategy.NamesPods():
		return
	}
	if problem != "" {
		if asked {
			p.Problems = append(p.Problems, "annotation "+StrategyAnnotation+"=\""+p.Strategy.Name()+"\" is not possible for a workload of this kind: "+problem)
		}
		p.Strategy = record.Annotate
	}
	if t.Restart != nil || p.Reruns {
		p.Strategy = record.StrategyOfKind(t)
	}
	if p.Mode != Off && !p.StrategyNotAllowed && t.KeepsPods != "" && p.Strategy.MarksTemplate() {
		p.Problems = append(p.Problems, NoRollout(t))
	}
}

// NoRollout says why a workload of which Traits.KeepsPods is set is not restarted by its pod template, and what restarts it instead.
func NoRollout(t *dependency.Traits) string {
	message := "a change of its pod template would not replace its pods, because " + t.KeepsPods
	if !t.PodsByLabels && !t.UnknownPods {
		message += ": set the annotation " + StrategyAnnotation + "=\"" + record.Recreate.Name() + "\""
	}
	return message
}
