// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/fields"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/pkg/window"
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
	Strategies []record.Strategy
	// Strategy is that of workloads that ask for none; nil: Annotate.
	Strategy record.Strategy
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

// Values of Policy.DeclaredBy: DeclaredByDefault if no annotation declares a mode, else the key of the annotation, with the
// prefix DeclaredByNamespace if it is on the namespace. DeclaredBySelector: the flag does not select the namespace.
// ReadNamespace uses this as a key to say so, because no annotation can have it.
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
	Strategy record.Strategy
	// Sources trigger, whether or not the template consumes them. Exclude never do.
	Sources, Exclude []dependency.Pattern
	// NamedBy and ExcludedBy are the annotations of other dialects that name Sources and Exclude; of the sources that
	// they name all keys count.
	NamedBy, ExcludedBy Declarers
	// Kinds limits the modes Auto and Matched; nil means all.
	Kinds []dependency.SourceKind
	// IgnoreCreated: a source that appears where there was none is no change. IgnoreDeleted: neither is a source
	// that disappears; if it appears again, it is compared with its content before.
	IgnoreCreated, IgnoreDeleted bool
	// Immutable is a source that counts and is immutable; empty: none is.
	Immutable string
	// Reruns: the workload is run again when content changes; see Rerun.
	Reruns bool
	// Pause is for how long a Deployment is paused when it is restarted.
	Pause record.Pause
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
	// Windows say when automatic restarts may begin; nil: at any time.
	Windows *window.Windows
	// Hold says why none may begin; empty: they may.
	Hold string
	// Order: of the workloads that read the same source, those with a lower one are restarted earlier.
	Order int
	// HealthyWithin is how long a new pod may take to become ready before it counts as failed; 0: it never does.
	HealthyWithin time.Duration
	// Approval: a user has to approve content before the workload is restarted for it.
	Approval bool
	// Problems are the invalid annotations, each in a sentence. While there are any,
	// automatic restarts are on hold.
	Problems []string
	// Idle: the only problem is a setting that nothing opts in, so the workload has not tried to.
	Idle bool
	// Remarks, each a clause, are about annotations that are valid, and do not say what their users seem to mean.
	Remarks []string
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
	p.Declare(a, &shared)
	return p
}

// Declare sets the policy to what NewPolicy returns.
func (p *Policy) Declare(a Annotated, defaults *Defaults) {
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
	d.declareIdle()
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
func (d *Defaults) suffice(a *Annotated) bool {
	return a.empty() && !d.AutoReloadAll && !a.labelled()
}

// ModeOf returns the mode for sources of a kind.
func (p *Policy) ModeOf(kind dependency.SourceKind) Mode {
	if p.Modes == nil {
		return p.Mode
	}
	return p.Modes[kind].Mode
}

func (d *Defaults) strategy() record.Strategy {
	if d.Strategy == nil {
		return record.Annotate
	}
	return d.Strategy
}

// errNotAllowed: a strategy is valid, but not enabled.
var errNotAllowed = errors.New("configdep is installed without this strategy (--strategies)")

// Patterns name sources in addition to the template, or exclude them.
func (p *Policy) Patterns() dependency.Patterns {
	return dependency.Patterns{Sources: p.Sources, Exclude: p.Exclude}
}

// Bound adds a problem if there are too many globs for the number of sources that the template and the policy
// name.
func (p *Policy) Bound(sources int) {
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
	p.refuse(fmt.Sprintf("too many patterns: %s and %s have %d, which count as %d (a regular expression counts as 1 plus its length); multiplied by the %d sources that the pod template and %[1]s name, this exceeds %[6]d",
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

// RefuseGlobs adds a problem for globs that the graph does not admit.
func (p *Policy) RefuseGlobs() {
	p.refuse(fmt.Sprintf("too many patterns in the namespace: the different patterns in %s of all its workloads may count as %d in total, and each as %d (one with * counts as 1, a regular expression as 1 plus its length, and each pattern in %s adds its own count)",
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
	where, on := key, ""
	if !found {
		if value, found = r.namespace[key]; !found {
			return otherwise
		}
		where, on = DeclaredByNamespace+key, " on the Namespace"
	}
	var parsed T
	var err error
	if len(value) > maxValue {
		err = fmt.Errorf("must not have more than %d bytes", maxValue)
	} else {
		parsed, err = parse(strings.TrimSpace(value))
	}
	if err != nil {
		problem := fmt.Sprintf("invalid annotation %s=%q%s: %v", key, abbreviate(value), on, err)
		if errors.Is(err, errNotAllowed) {
			problem = fmt.Sprintf("annotation %s=%q%s is not allowed: %v", key, abbreviate(value), on, err)
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
