// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"strings"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/record"
)

// Texts that several messages share. Every replica computes messages from what it has read. It
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
		return " An annotation names what does not exist: " + ids[0] + "."
	default:
		return " Annotations name what does not exist: " + enumerate(ids) + "."
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
