// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
)

// Defaults apply where no annotation does. They are flags of the server.
type Defaults struct {
	Mode   Mode
	Settle time.Duration
	// ReleaseSettle is Settle for content that may belong to a release; see Policy. It is
	// ignored if it is shorter.
	ReleaseSettle time.Duration
	MinInterval   time.Duration
	// Strategies are those that workloads may ask for; nil: all. Some need rights that the server may lack.
	Strategies []Strategy
}

// Values of Policy.DeclaredBy: DeclaredByDefault if no annotation declares a mode, else the key of the annotation, which
// DeclaredByNamespace precedes if it is on the namespace.
const (
	DeclaredByDefault   = "Default"
	DeclaredByNamespace = "Namespace "
)

// Policy is the effective policy of one workload.
type Policy struct {
	Mode Mode
	// DeclaredBy says where the mode comes from.
	DeclaredBy string
	Strategy   Strategy
	// Sources trigger, whether or not the template consumes them. Exclude never do.
	Sources, Exclude []dependency.Pattern
	// Kinds limits the modes Auto and Matched; nil means all.
	Kinds []dependency.SourceKind
	// LiveVolumes: the application reloads mounted files, so only environment variables
	// and subPath mounts need a restart.
	LiveVolumes bool
	// Settle is how long content must have stayed unchanged before a restart.
	Settle time.Duration
	// ReleaseSettle applies instead to content that was changed by a client that writes the pod
	// template as well, and so may be in the middle of a release: it is how long that client must
	// have changed no source or template in the namespace. Zero: it makes no difference.
	ReleaseSettle time.Duration
	// MinInterval is the minimum time between two automatic restarts.
	MinInterval time.Duration
	// Problems are the invalid annotations, each in a sentence. While there are any,
	// automatic restarts are on hold.
	Problems []string
	// TooManyPatterns reports whether one of the problems is that there are too many patterns, each of which is
	// valid.
	TooManyPatterns bool
	// StrategyNotAllowed reports whether one of the problems is that the strategy, which is valid, may not be asked for.
	StrategyNotAllowed bool
}

// NewPolicy returns the policy of a workload, from its annotations and those of its namespace, in their dialect, and
// from the defaults.
func NewPolicy(workload, namespace map[string]string, defaults Defaults) Policy {
	p := Policy{
		Mode:        defaults.Mode,
		DeclaredBy:  DeclaredByDefault,
		Strategy:    Annotate,
		Settle:      defaults.Settle,
		MinInterval: defaults.MinInterval,
	}
	if defaults.ReleaseSettle > p.Settle {
		p.ReleaseSettle = defaults.ReleaseSettle
	}
	if len(workload) == 0 && len(namespace) == 0 {
		return p
	}
	dialectOf(workload, namespace).Policy(&p, workload, namespace, &defaults)
	return p
}

// errNotAllowed: a strategy is valid, but not enabled.
var errNotAllowed = errors.New("configdep is installed without this strategy (--strategies)")

// Patterns name sources in addition to the template, or exclude them.
func (p *Policy) Patterns() dependency.Patterns {
	return dependency.Patterns{Sources: p.Sources, Exclude: p.Exclude}
}

// bound adds a problem if there are too many globs for the number of sources that the template and the policy
// name.
func (p *Policy) bound(sources int) {
	globs, work := 0, 0
	for _, patterns := range [][]dependency.Pattern{p.Sources, p.Exclude} {
		for _, x := range patterns {
			if x.Glob() {
				globs, work = globs+1, work+x.Work()
			}
		}
	}
	for _, x := range p.Sources {
		if !x.Glob() {
			sources++
		}
	}
	if work*sources <= maxComparisons {
		return
	}
	p.refuse(fmt.Sprintf("too many patterns: %s and %s have %d, which count as %d (one with ? or [ ] counts as 1 plus its length); multiplied by the %d sources that the pod template and %[1]s name, this exceeds %[6]d",
		SourcesAnnotation, ExcludeAnnotation, globs, work, sources, maxComparisons))
}

// notAdmitted adds a problem for globs that the graph does not admit.
func (p *Policy) notAdmitted() {
	p.refuse(fmt.Sprintf("too many patterns in the namespace: the different patterns in %s of all its workloads may count as %d in total, and each as %d (one with * counts as 1, one with ? or [ ] as 1 plus its length, and each pattern in %s adds its own count); workloads that were created earlier leave no room for the patterns of this one",
		SourcesAnnotation, dependency.MaxGlobWork, dependency.MaxWorkOfGlob, ExcludeAnnotation))
}

func (p *Policy) refuse(problem string) {
	p.Problems, p.TooManyPatterns = append(p.Problems, problem), true
	p.Sources, p.Exclude = nil, nil
}

// reader looks annotations up.
type reader struct {
	workload, namespace map[string]string
	problems            *[]string
}

// parse sets out from an annotation, if there is one, and returns where it was found, or
// otherwise the given place. An annotation that cannot be parsed is a problem.
func parse[T any](r *reader, key string, parse func(string) (T, error), out *T, otherwise string) string {
	value, found := r.workload[key]
	where, what, on := key, "annotation", ""
	if !found {
		value, found = r.namespace[key]
		where, on = DeclaredByNamespace+key, " on the Namespace"
		if key == ReloadAnnotation { // a label says the same
			what = "annotation or label"
		}
	}
	if !found {
		return otherwise
	}
	var parsed T
	var err error
	if len(value) > maxValue {
		err = fmt.Errorf("must not have more than %d bytes", maxValue)
	} else {
		parsed, err = parse(strings.TrimSpace(value))
	}
	if err != nil {
		problem := fmt.Sprintf("invalid %s %s=%q%s: %v", what, key, abbreviate(value), on, err)
		if errors.Is(err, errNotAllowed) {
			problem = fmt.Sprintf("%s %s=%q%s is not allowed: %v", what, key, abbreviate(value), on, err)
		}
		*r.problems = append(*r.problems, problem)
		return where
	}
	*out = parsed
	return where
}

// abbreviate keeps a message readable; annotations can be long.
func abbreviate(value string) string {
	const most = 64
	if len(value) <= most {
		return value
	}
	return strings.ToValidUTF8(value[:most], "") + "…"
}

// matchers match many sources against the patterns of a policy.
type matchers struct {
	sources, exclude dependency.Matcher
}

func (p *Policy) matchers() matchers {
	return matchers{dependency.NewMatcher(p.Sources), dependency.NewMatcher(p.Exclude)}
}

// naming is what the patterns of a policy say about a source.
type naming struct {
	excluded bool
	byName   bool
	globs    []int // the numbers of those that name it; valid until the next source
}

func (n *naming) named() bool { return n.byName || len(n.globs) > 0 }

// of returns what they say about a source. Buffer is reused from the previous result.
func (m *matchers) of(kind dependency.SourceKind, name string, buffer naming) naming {
	return naming{
		excluded: m.exclude.Matches(kind, name),
		byName:   m.sources.Names(kind, name),
		globs:    m.sources.Globs(kind, name, buffer.globs[:0]),
	}
}

// verdict reports whether a change of a source restarts the workload, and if not, why. Remembered
// reports whether an absent source counted: it has no annotations any longer, but its deletion is a
// change for workloads in mode Matched.
func (p *Policy) verdict(n naming, r *dependency.Reference, source *dependency.Source, remembered bool) (triggers bool, reason string) {
	switch {
	case !r.Kind.Observed():
		return false, ReasonNotObserved
	case source != nil && source.Ignored:
		return false, ReasonIgnored
	case n.excluded:
		return false, ReasonExcluded
	case n.named():
		return true, ""
	case p.Mode == Listed:
		return false, ReasonNotListed
	case p.Mode == Matched && (source == nil && !remembered || source != nil && !source.Match):
		return false, ReasonNotMatched
	case p.Kinds != nil && !slices.Contains(p.Kinds, r.Kind):
		return false, ReasonKindNotWatched
	case !r.Reads() && r.Mountable():
		return false, ReasonNotMounted
	case !r.Reads():
		return false, ReasonNotRead
	case p.LiveVolumes && !slices.ContainsFunc(r.Uses, needsRestart):
		return false, ReasonLiveVolume
	default:
		return true, ""
	}
}

// Why a change of a source does not restart a workload by itself.
const (
	ReasonReloadOff      = "ReloadOff"
	ReasonNotObserved    = "NotObserved"
	ReasonIgnored        = "Ignored"
	ReasonExcluded       = "Excluded"
	ReasonNotListed      = "NotListed"
	ReasonNotMatched     = "NotMatched"
	ReasonKindNotWatched = "KindNotWatched"
	ReasonNotMounted     = "NotMounted"
	ReasonNotRead        = "NotRead"
	ReasonLiveVolume     = "LiveVolume"
)

// needsRestart reports whether a running container keeps the old content of a use.
func needsRestart(u dependency.Use) bool {
	return u.Reads() && (u.Type != dependency.Volume && u.Type != dependency.Projected || u.SubPath)
}

// effective narrows a reference to the uses whose content counts, and widens it to the
// whole source when the policy names it though nothing reads it.
func (p *Policy) effective(r *dependency.Reference) dependency.Reference {
	out := *r
	if p.LiveVolumes && slices.ContainsFunc(r.Uses, needsRestart) {
		out.Uses = slices.DeleteFunc(slices.Clone(r.Uses), func(u dependency.Use) bool { return !needsRestart(u) })
	}
	if !out.Reads() || p.LiveVolumes && !slices.ContainsFunc(out.Uses, needsRestart) {
		out.Uses = dependency.Wholly
	}
	return out
}
