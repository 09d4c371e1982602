// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
)

// byKind restarts a workload of a custom resource as the description of its kind says: it takes the place of Annotate. Where a kind has
// spec.restartAt besides, an annotation of Reloader chooses that.
type byKind struct{ *dependency.Restart }

// Name implements Strategy.
func (s byKind) Name() string {
	switch {
	case s.EventOnly:
		return "event"
	case s.Field != nil:
		return "field"
	case s.Template != nil:
		return Annotate.Name()
	default:
		return "object-annotation"
	}
}

// NamesPods implements Strategy.
func (byKind) NamesPods() bool { return false }

// MarksTemplate implements Strategy.
func (s byKind) MarksTemplate() bool { return s.Template != nil }

// Describe implements Strategy.
func (s byKind) Describe(caveat string) Description {
	switch {
	case s.Template != nil:
		return Annotate.Describe(caveat)
	case s.EventOnly:
		return Description{What: "content", Done: "has been recorded", Would: "would be recorded", Caveat: "nothing restarts the workload"}
	default:
		return Description{What: "controller", Done: "has been told to apply the current content", Would: "would be told to apply the current content", Caveat: caveat}
	}
}

// UnderWay implements Strategy: the controller of the workload does the rest.
func (byKind) UnderWay(*dependency.Workload) bool { return false }

// Progress implements Strategy.
func (byKind) Progress() Progress { return Progress{} }

func (s byKind) begin(w *dependency.Workload, r *Restart, out *restartPatch) {
	switch {
	case s.Template != nil:
		annotate{}.begin(w, r, out)
	case s.Field != nil:
		out.set(s.Field, out.second(w))
	case s.Annotation != "" && s.Value != "":
		out.workload[s.Annotation] = s.Value
	case s.Annotation != "":
		out.workload[s.Annotation] = out.second(w)
	}
}

// second returns the time of the restart, in whole seconds, as controllers read it. It is later than that of the last restart, so that the
// patch changes something, and the record says so. One that is recorded further in the future was not made by configdep.
func (out *restartPatch) second(w *dependency.Workload) string {
	at := out.last.Time.UTC().Truncate(time.Second)
	if before := LastReloadOf(w); before != nil {
		last := before.Time.UTC().Truncate(time.Second)
		if !last.Before(at) && last.Before(at.Add(dependency.MaxClockSkew)) {
			at = last.Add(time.Second)
			out.last.Time = metav1.NewMicroTime(at)
		}
	}
	return at.Format(time.RFC3339)
}

func (byKind) end(*dependency.Workload, object) {}

// OnlyReports reports whether nothing restarts a workload whose content has changed.
func (p *Policy) OnlyReports(w *dependency.Workload) bool {
	s, is := p.RestartsBy(w).(byKind)
	return is && s.EventOnly
}

// fit adapts the strategy to what is possible for a kind. An annotation that asks for another one is a problem.
func (p *Policy) fit(t *dependency.Traits, asked bool) {
	if t.Restart == nil && !t.Custom && !p.Reruns {
		return
	}
	problem := ""
	_, chosen := p.Strategy.(byKind)
	switch {
	case chosen:
		return
	case p.Strategy == Agent && !t.PodsByLabels && !t.UnknownPods && !p.Reruns:
		return
	case p.Reruns && p.Strategy != Annotate:
		problem = "it has no rollout"
	case p.Strategy == EnvVar:
		problem = "the variables of its containers cannot be set"
	case p.Strategy.NamesPods() && t.OnlyReported():
		problem = "its changes are only reported"
	case p.Strategy == Agent:
		problem = "it is not known which pods belong to it"
	case p.Strategy.NamesPods() && t.PodsByLabels: // which are chosen by those who write the workload
		problem = "it is not certain which pods belong to it"
	case p.Strategy.NamesPods() && t.UnknownPods:
		problem = "its pods cannot be looked up"
	case p.Strategy == InPlace && t.KeepsPods != "":
		problem = "pods without a restarter could not be restarted by a rollout, because " + t.KeepsPods
	case p.Strategy.NamesPods():
		return
	}
	if problem != "" {
		if asked {
			p.Problems = append(p.Problems, "annotation "+StrategyAnnotation+"=\""+p.Strategy.Name()+"\" is not possible for a workload of this kind: "+problem)
		}
		p.Strategy = Annotate
	}
	if t.Restart != nil || p.Reruns {
		p.Strategy = otherwise(t)
	}
	if p.Mode != Off && !p.StrategyNotAllowed && t.KeepsPods != "" && p.Strategy.MarksTemplate() {
		p.Problems = append(p.Problems, NoRollout(t))
	}
}

// NoRollout says why a workload of which Traits.KeepsPods is set is not restarted by its pod template, and what restarts it instead.
func NoRollout(t *dependency.Traits) string {
	message := "a change of its pod template would not replace its pods, because " + t.KeepsPods
	if !t.PodsByLabels && !t.UnknownPods {
		message += ": set the annotation " + StrategyAnnotation + "=\"" + Recreate.Name() + "\""
	}
	return message
}
