// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/fields"
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
	// Strategy is that of workloads that ask for none; nil: Annotate.
	Strategy Strategy
	// Observe: nothing is written to workloads; what would be done is only shown.
	Observe bool
	// Dialects are those that are read.
	Dialects Dialects
	// AutoReloadAll: Mode is that of Reloader's flag of this name, with what it ignores.
	AutoReloadAll bool
	// ReloadOnCreate and ReloadOnDelete: for workloads that only annotations of Reloader opt in, a source that appears
	// where there was none, or disappears, is a change.
	ReloadOnCreate, ReloadOnDelete bool
}

// Values of Policy.DeclaredBy: DeclaredByDefault if no annotation declares a mode, else the key of the annotation, which
// DeclaredByNamespace precedes if it is on the namespace. DeclaredBySelector: the flag does not select the namespace. That is
// also the key by which ReadNamespace says so, because no annotation can have it.
const (
	DeclaredByDefault   = "Default"
	DeclaredByNamespace = "Namespace "
	DeclaredBySelector  = "--namespace-selector"
)

// Policy is the effective policy of one workload.
type Policy struct {
	// Mode is the broadest of the modes for sources of each kind.
	Mode Mode
	// DeclaredBy says where the mode comes from: the annotations that opt the workload in, separated by commas.
	DeclaredBy string
	// Modes are those for sources of each kind; nil: each is Mode, declared by DeclaredBy.
	Modes    map[dependency.SourceKind]KindMode
	Strategy Strategy
	// Sources trigger, whether or not the template consumes them. Exclude never do.
	Sources, Exclude []dependency.Pattern
	// NamedBy and ExcludedBy are the annotations of other dialects that name Sources and Exclude; of the sources that
	// they name all keys count.
	NamedBy, ExcludedBy Declarers
	// Kinds limits the modes Auto and Matched; nil means all.
	Kinds []dependency.SourceKind
	// IgnoreCreated: a source that appears where there was none is no change. IgnoreDeleted: nor is one that
	// disappears; it is compared with what it was when it is there again.
	IgnoreCreated, IgnoreDeleted bool
	// Reruns: the workload is run again when content changes; see Rerun.
	Reruns bool
	// Pause is for how long a Deployment is paused when it is restarted.
	Pause Pause
	// ReportsSource: a restart leaves on the pod template which source caused it, as Reloader does.
	ReportsSource bool
	// Fields are the fields of the workload that get their values from sources.
	Fields []fields.Assignment
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

// NewPolicy returns the policy of a workload, from what it and its namespace are annotated with, in all dialects, and from
// the defaults. In a namespace that is not selected, it is Off, whatever they say.
func NewPolicy(a Annotated, defaults Defaults) Policy {
	if defaults.suffice(&a) { // before declare, whose arguments are allocated
		p := defaults.policy()
		p.fit(&a.Traits, false)
		return p
	}
	p, shared := Policy{}, defaults
	p.declare(a, &shared)
	return p
}

// declare sets the policy to NewPolicy.
func (p *Policy) declare(a Annotated, defaults *Defaults) {
	*p = defaults.policy()
	if defaults.suffice(&a) {
		p.fit(&a.Traits, false)
		return
	}
	if p.rerunnable(&a, defaults) {
		return
	}
	d := Declaration{Annotated: a, defaults: defaults, policy: p, base: KindMode{defaults.Mode, DeclaredByDefault}}
	for _, dialect := range defaults.Dialects.of(&a) {
		d.of(dialect)
	}
	if _, unselected := a.Namespace[DeclaredBySelector]; unselected {
		d.off, p.Problems = DeclaredBySelector, nil
	}
	d.finish()
	if p.Mode != Off {
		p.Problems = append(p.Problems, d.idle...)
	}
	if p.Mode == Off && len(p.Problems) == 0 { // other annotations say nothing then
		p.Sources, p.Exclude, p.NamedBy, p.ExcludedBy, p.Pause.Period, p.ReportsSource, p.Fields = nil, nil, nil, nil, 0, false, nil
		p.fit(&a.Traits, false)
		return
	}
	asked := native{}.settings(p, &d)
	p.fit(&a.Traits, asked)
	p.boundNames()
}

// policy is that of workloads without annotations.
func (d *Defaults) policy() Policy {
	p := Policy{
		Mode:        d.Mode,
		DeclaredBy:  DeclaredByDefault,
		Strategy:    d.strategy(),
		Settle:      d.Settle,
		MinInterval: d.MinInterval,
	}
	if d.ReleaseSettle > p.Settle {
		p.ReleaseSettle = d.ReleaseSettle
	}
	return p
}

// suffice reports whether nothing is annotated, as on most workloads, so that the policy is that of the defaults.
func (d *Defaults) suffice(a *Annotated) bool { return a.empty() && !d.AutoReloadAll }

// modeOf returns the mode for sources of a kind.
func (p *Policy) modeOf(kind dependency.SourceKind) Mode {
	if p.Modes == nil {
		return p.Mode
	}
	return p.Modes[kind].Mode
}

func (d *Defaults) strategy() Strategy {
	if d.Strategy == nil {
		return Annotate
	}
	return d.Strategy
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

// maxNames and maxNameBytes limit what annotations of all tools name, because the record has an entry for each source, and all
// annotations of an object must not have more than 256 KiB. Each list is limited by itself, too.
const (
	maxNames     = 2 * maxPatterns
	maxNameBytes = maxValue
)

// boundNames adds a problem if annotations name more than can be recorded.
func (p *Policy) boundNames() {
	bytes := 0
	for _, x := range p.Sources {
		bytes += len(x.Name)
	}
	if n := len(p.Sources); n > maxNames || bytes > maxNameBytes {
		p.refuse(fmt.Sprintf("too many sources: annotations name %d with %d bytes in total, and not more than %d with %d bytes can be recorded",
			n, bytes, maxNames, maxNameBytes))
	}
}

// notAdmitted adds a problem for globs that the graph does not admit.
func (p *Policy) notAdmitted() {
	p.refuse(fmt.Sprintf("too many patterns in the namespace: the different patterns in %s of all its workloads may count as %d in total, and each as %d (one with * counts as 1, one with ? or [ ] as 1 plus its length, and each pattern in %s adds its own count); workloads that were created earlier leave no room for the patterns of this one",
		SourcesAnnotation, dependency.MaxGlobWork, dependency.MaxWorkOfGlob, ExcludeAnnotation))
}

func (p *Policy) refuse(problem string) {
	p.Problems, p.TooManyPatterns = append(p.Problems, problem), true
	p.Sources, p.Exclude, p.NamedBy, p.ExcludedBy = nil, nil, nil, nil
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
		if value, found = r.namespace[key]; !found {
			return otherwise
		}
		where, on = DeclaredByNamespace+key, " on the Namespace"
		if key == ReloadAnnotation { // a label says the same
			what = "annotation or label"
		}
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
	policy           *Policy
	globs            []dependency.Pattern // of the sources, if other dialects name any
}

func (p *Policy) matchers() matchers {
	m := matchers{sources: dependency.NewMatcher(p.Sources), exclude: dependency.NewMatcher(p.Exclude), policy: p}
	if p.NamedBy != nil {
		m.globs = slices.DeleteFunc(slices.Clone(p.Sources), func(x dependency.Pattern) bool { return !x.Glob() })
	}
	return m
}

// naming is what the patterns of a policy say about a source.
type naming struct {
	excluded bool
	byName   bool
	globs    []int // the numbers of those that name it; valid until the next source
	whole    bool  // all its keys count, because of the dialect that names it
}

func (n *naming) named() bool { return n.byName || len(n.globs) > 0 }

// of returns what they say about a source. Buffer is reused from the previous result.
func (m *matchers) of(kind dependency.SourceKind, name string, buffer naming) naming {
	n := naming{
		excluded: m.exclude.Matches(kind, name),
		byName:   m.sources.Names(kind, name),
		globs:    m.sources.Globs(kind, name, buffer.globs[:0]),
	}
	n.whole = m.policy.NamedBy != nil && m.namedBy(kind, name, &n) != ""
	return n
}

// namedBy returns the annotation of another dialect that names a source.
func (m *matchers) namedBy(kind dependency.SourceKind, name string, n *naming) string {
	if by := m.policy.NamedBy[dependency.Pattern{Kind: kind, Name: name}]; by != "" || m.policy.NamedBy == nil {
		return by
	}
	for _, i := range n.globs {
		if by := m.policy.NamedBy[m.globs[i]]; by != "" {
			return by
		}
	}
	return ""
}

// declaredBy returns the annotation that excludes or names a source, or selects the sources of its kind; empty: it is
// Policy.DeclaredBy.
func (m *matchers) declaredBy(kind dependency.SourceKind, name string, n *naming) string {
	p := m.policy
	switch {
	case n.excluded:
		return cmp.Or(p.ExcludedBy[dependency.Pattern{Kind: kind, Name: name}], ExcludeAnnotation)
	case n.named():
		return cmp.Or(m.namedBy(kind, name, n), SourcesAnnotation)
	case p.Modes != nil:
		return p.Modes[kind].DeclaredBy
	default:
		return ""
	}
}

// verdict reports whether a change of a source restarts the workload, and if not, why. Remembered
// reports whether an absent source counted: it has no annotations any longer, but its deletion is a
// change for workloads in mode Matched.
func (p *Policy) verdict(n naming, r *dependency.Reference, source *dependency.Source, remembered bool) (triggers bool, reason string) {
	mode := p.modeOf(r.Kind)
	switch {
	case source != nil && source.Ignored:
		return false, ReasonIgnored
	case n.excluded:
		return false, ReasonExcluded
	case n.named():
		return true, ""
	case p.Mode == Listed:
		return false, ReasonNotListed
	case p.Modes != nil && breadth[mode] <= breadth[Listed]:
		return false, ReasonKindNotWatched
	case mode == Matched && (source == nil && !remembered || source != nil && !source.Match):
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
	file := u.Type == dependency.Volume || u.Type == dependency.Projected || u.Type == dependency.CSI
	return u.Reads() && (!file || u.SubPath)
}

// effective narrows a reference to the uses whose content counts, and widens it to the
// whole source when the policy names it though nothing reads it, or in a dialect in which all keys count.
func (p *Policy) effective(r *dependency.Reference, n naming) dependency.Reference {
	out := *r
	if n.whole {
		out.Uses = dependency.Wholly
		return out
	}
	if p.LiveVolumes && slices.ContainsFunc(r.Uses, needsRestart) {
		out.Uses = slices.DeleteFunc(slices.Clone(r.Uses), func(u dependency.Use) bool { return !needsRestart(u) })
	}
	if !out.Reads() || p.LiveVolumes && !slices.ContainsFunc(out.Uses, needsRestart) {
		out.Uses = dependency.Wholly
	}
	return out
}
