// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
)

// byKind restarts a custom resource as the description of its kind says, instead of Annotate. If the kind also has spec.restartAt, an
// annotation of Reloader can select that.
type byKind struct {
	annotate
	*dependency.Restart
}

// OfRestart returns the strategy that a description of a kind names.
func OfRestart(r *dependency.Restart) Strategy { return byKind{Restart: r} }

// Name implements Strategy.
func (s byKind) Name() string {
	switch {
	case s.EventOnly:
		return Notify.Name()
	case s.Field != nil:
		return "field"
	case s.Template != nil:
		return Annotate.Name()
	default:
		return "object-annotation"
	}
}

// MarksTemplate implements Strategy.
func (s byKind) MarksTemplate() bool { return s.Template != nil }

// Describe implements Strategy.
func (s byKind) Describe(caveat string) Description {
	switch {
	case s.Template != nil:
		return s.annotate.Describe(caveat)
	case s.EventOnly:
		return Description{What: "content", Done: "has been recorded", Would: "would be recorded", Caveat: "nothing restarts the workload"}
	default:
		return Description{What: "controller", Done: "has been told to apply the current content", Would: "would be told to apply the current content", Caveat: caveat}
	}
}

func (s byKind) begin(w *dependency.Workload, r *Restart, out *restartPatch) {
	switch {
	case s.Template != nil:
		s.annotate.begin(w, r, out)
	case s.Field != nil:
		out.set(s.Field, out.second(w))
	case s.Annotation != "" && s.Value != "":
		out.workload[s.Annotation] = s.Value
	case s.Annotation != "":
		out.workload[s.Annotation] = out.second(w)
	}
}

// second returns the time of the restart in whole seconds, as controllers read it. It is rounded up, because a controller that compares in whole seconds
// would spare pods of the same second. It is later than the time of the last restart, so that the patch changes something, and the record has the same
// time. A recorded time further in the future was not written by configdep.
func (out *restartPatch) second(w *dependency.Workload) string {
	at := ceil(out.last.Time.Time)
	if before := LastReloadOf(w); before != nil {
		if last := ceil(before.Time.Time); !last.Before(at) && last.Before(at.Add(dependency.MaxClockSkew)) {
			at = last.Add(time.Second)
			out.last.Time = metav1.NewMicroTime(at)
		}
	}
	return at.Format(time.RFC3339)
}

func ceil(t time.Time) time.Time { return t.UTC().Add(time.Second - 1).Truncate(time.Second) }

// OnlyReports reports whether nothing restarts a workload by a strategy.
func OnlyReports(s Strategy) bool {
	of, is := s.(byKind)
	return is && of.EventOnly
}

// IsOfKind reports whether a strategy is that of a description of a kind.
func IsOfKind(s Strategy) bool {
	_, is := s.(byKind)
	return is
}
