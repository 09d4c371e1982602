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
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// Texts of messages. Every replica computes messages from what it has read. It
// does not know whether there is a leader, or what holds it up: so messages say what is due,
// not what is being done.
const (
	restartDue = "A restart is due."
	onHold     = "Automatic restarts are on hold until this is fixed."
)

// holds says that restarts are on hold, and whether one is due.
func holds(due bool) string {
	if due {
		return onHold + " Then, a restart is due."
	}
	return onHold
}

// onHold says why nothing is restarted, in the words of the user who holds it. They come last.
func (e *Evaluation) onHold() string {
	return "No restart begins while there is the annotation " + policy.HoldAnnotation + ". It says: " + e.Policy.Hold
}

// heldByInterval says until when the minimum interval delays a restart.
func (e *Evaluation) heldByInterval(at time.Time) string {
	due, minimum, last := at.UTC().Format(time.RFC3339), e.Policy.MinInterval, record.LastReloadOf(e.Workload)
	if wait := record.Interval(minimum, last.Streak); wait > minimum {
		return fmt.Sprintf("A restart is due at %s: the minimum interval of %v has grown to %v after %d restarts in close succession.",
			due, minimum, wait, last.Streak)
	}
	return fmt.Sprintf("A restart is due at %s: the minimum interval between automatic restarts is %v.", due, minimum)
}

// notSeen names the sources that would restart the workload but whose changes are not seen, and says why;
// empty if there are none.
func (e *Evaluation) notSeen() string {
	var leftOut, ofType []string // of a kind that is not read, and of a type
	why := ""
	note := func(kind dependency.SourceKind, name string) {
		if e.graph.Observes(kind) {
			ofType = append(ofType, idOf(kind, name))
			return
		}
		leftOut, why = append(leftOut, idOf(kind, name)), fmt.Sprintf("configdep reads no %ss (--read-%ss=false)", kind, strings.ToLower(string(kind)))
	}
	for i := range e.Sources {
		if s := &e.Sources[i]; s.unseen {
			note(s.Kind, s.Name)
		}
	}
	for i := range e.Globs {
		if g := &e.Globs[i]; !g.Observed {
			note(g.Kind, g.Name)
		}
	}
	var out string
	if len(leftOut) > 0 {
		out = fmt.Sprintf(" Changes of %s are not seen: %s.", enumerate(leftOut), why)
	}
	if len(ofType) > 0 {
		out += fmt.Sprintf(" Changes of %s are not seen: configdep does not read Secrets of that type (--exclude-secret-types).", enumerate(ofType))
	}
	return out
}

// onlyNamed reports whether annotations alone name a source, and it does not exist.
func (s *Source) onlyNamed() bool {
	return s.Triggers && s.Source == nil && s.Kind.Observed() && s.Observed && onlyAnnotated(s.Reference)
}

// nothingExists reports whether all sources that restart the workload are only named, and do not exist.
func (e *Evaluation) nothingExists() bool {
	for i := range e.Sources {
		if s := &e.Sources[i]; s.Triggers && !s.onlyNamed() {
			return false
		}
	}
	return true
}

// onlyNamed names the sources that annotations name in vain; empty if there are none.
func (e *Evaluation) onlyNamed() string {
	var ids []string
	for i := range e.Sources {
		if s := &e.Sources[i]; s.onlyNamed() {
			ids = append(ids, fmt.Sprintf("%s/%s (%s)", s.Kind, s.Name, s.DeclaredBy))
		}
	}
	switch len(ids) {
	case 0:
		return ""
	case 1:
		return " An annotation names a source that does not exist: " + ids[0] + "."
	default:
		return " Annotations name sources that do not exist: " + enumerate(ids) + "."
	}
}

// problems returns the problems of the policy as a sentence.
func (e *Evaluation) problems() string {
	return upperFirst(strings.Join(e.Policy.Problems, "; ")) + "."
}

// missingKeys names keys that a source lacks, in a clause.
func missingKeys(keys []string) string {
	if len(keys) == 1 {
		return "the key " + keys[0]
	}
	return "the keys " + enumerate(keys)
}

// maxNamed is how many items of a list a message names; it counts the rest.
const maxNamed = 10

// enumerate renders "a", "a and b", "a, b and c", or for many "a, b, c and 12 more".
func enumerate(names []string) string {
	last := len(names) - 1
	switch {
	case last < 1:
		return strings.Join(names, "")
	case len(names) > maxNamed:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
	default:
		return strings.Join(names[:last], ", ") + " and " + names[last]
	}
}

// nextChange says what the next change of content does.
func (e *Evaluation) nextChange(d *Decision) string {
	w := e.Workload
	switch kind := string(w.Kind); {
	case d.Reason == ReasonNotStarted, d.Reason == ReasonRecordRemoved, d.Reason == ReasonNothingTriggers, d.Reason == ReasonNextRunReadsContent && e.Policy.Mode == policy.Off:
		return ""
	case !w.Rollable || w.Reruns && !e.reruns():
		return "configdep does not restart a " + kind + "."
	case e.Policy.Mode == policy.Off:
		return "Automatic restarts are off."
	case e.Policy.OnlyReports(w):
		return "The next change is reported: configdep cannot restart a " + kind + "."
	case w.Reruns && w.Recurring:
		return "The next change starts a run at once."
	case w.Reruns:
		return "The next change replaces the " + kind + "."
	case w.UnknownPods:
		return "The " + kind + " has been told of the current content. The next change is passed on, too."
	case d.Reason == ReasonNoPods:
		return ""
	default:
		return "The next change restarts them."
	}
}

// notDue says why no restart is due although pods run with old content of a source that triggers.
func (t *tracked) notDue() string {
	entry, known := t.of.Record.Sources[t.id]
	switch p := &t.of.Policy; {
	case known && !t.isIgnored(&entry) && entry.Adopted.IsZero():
		return " The workload was restarted for it, and not all pods were replaced: the rollout may have been undone."
	case p.IgnoreCreated:
		return " It was old already when the workload opted in or the source began to count, or the source has appeared, which restarts nothing."
	default:
		return " It was old already when the workload opted in, or when the source began to count, which restarts nothing."
	}
}

// podsRun renders "1 of 3 pods runs with".
func podsRun(some, all int) string {
	if some == 1 || all == 1 {
		return dependency.Pods(some, all) + " runs with"
	}
	return dependency.Pods(some, all) + " run with"
}

// unknown says why it is not known whether the pods run with the current content.
func (e *Evaluation) unknown(j *Judgement) string {
	why := "it is not known with which content they were started"
	switch j.Reason {
	case judge.ReasonFilesChanged:
		text := fmt.Sprintf("Mounted files%s have changed since %s started: %s. It is not known whether the application has read them again.",
			e.unread(j), dependency.Pods(j.Unknown, j.Total), enumerate(j.Names))
		if e.Workload.Rollable {
			text += " Automatic restarts are off: opt in, with " + policy.LiveVolumesAnnotation + "=true if it does."
		}
		return text
	case judge.ReasonWrittenSinceStart:
		why = "a source was written after they started, before configdep began to read it" + e.written(j)
	case judge.ReasonClockMargin:
		why = "they started at about the time when content changed"
	case judge.ReasonNodeClock:
		why = "the clock of a node is wrong"
	case judge.ReasonSourceMissing:
		why = "a source is missing"
	case judge.ReasonOlderTemplate:
		why = "they have an older pod template"
	case judge.ReasonTooManyPods:
		why = fmt.Sprintf("at most %d containers and sources are compared, and the workload has more", maxJudged)
	}
	return fmt.Sprintf("It is not known whether %s the current content, because %s: %s. The subresource pods says more.", podsRun(j.Unknown, j.Total), why, enumerate(j.Names)) + e.endsDoubt(j.Reason)
}

// endsDoubt says what ends a doubt for a reason, if that is up to a user.
func (e *Evaluation) endsDoubt(reason string) string {
	w := e.Workload
	switch {
	case !slices.Contains([]string{judge.ReasonWrittenSinceStart, judge.ReasonClockMargin, judge.ReasonNodeClock}, reason):
		return ""
	case w.Recurring:
		return " The next run reads the current content."
	case !w.Rollable || w.Reruns && !e.Policy.Reruns:
		return " Create the " + string(w.Kind) + " again to be sure."
	default:
		return " Create a Reload to restart the workload if it matters."
	}
}

// written says when the sources that pods may not have read were last written.
func (e *Evaluation) written(j *Judgement) string {
	var all []string
	for i := range e.Sources {
		if s := &e.Sources[i]; s.Source != nil && s.tracked != nil && j.unread[s.tracked.id] && len(all) < maxPodNames {
			all = append(all, idOf(s.Kind, s.Name)+" at "+s.Source.LastChangeTime.UTC().Format(time.RFC3339))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return " (" + strings.Join(all, ", ") + ")"
}

// unread names the sources that pods may not have read: " of Secret/db".
func (e *Evaluation) unread(j *Judgement) string {
	var ids []string
	for i := range e.tracked {
		if id := e.tracked[i].id; j.unread[id] {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return ""
	}
	return " of " + enumerate(ids)
}

// because says in a clause for which content a restart is due.
func because(changes []*due) string {
	ids := make([]string, len(changes))
	for i := range changes {
		ids[i] = changes[i].id
	}
	if len(ids) == 1 {
		return ids[0] + " has changed"
	}
	return enumerate(ids) + " have changed"
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

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
