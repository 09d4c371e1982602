// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"

	"github.com/configdep/configdep/pkg/dependency"
)

// prefix is that of all annotations of configdep.
const prefix = "configdep.io/"

// The annotations that users set on workloads, and on namespaces as defaults for the
// workloads in them.
const (
	ReloadAnnotation      = prefix + "reload"
	SourcesAnnotation     = prefix + "sources"
	ExcludeAnnotation     = prefix + "exclude"
	KindsAnnotation       = prefix + "kinds"
	LiveVolumesAnnotation = prefix + "live-volumes"
	SettleAnnotation      = prefix + "settle"
	MinIntervalAnnotation = prefix + "min-interval"
	StrategyAnnotation    = prefix + "strategy"
)

// The annotations that users set on ConfigMaps and Secrets, with the value "true".
const (
	IgnoreAnnotation = prefix + "ignore"
	MatchAnnotation  = prefix + "match"
)

// native is the dialect of configdep itself. Each annotation is looked up on the workload, then on its namespace, then
// in the defaults.
type native struct{}

// Owns implements Dialect.
func (native) Owns(key string) bool { return strings.HasPrefix(key, prefix) }

// Declares implements Dialect.
func (native) Declares(annotations map[string]string) bool {
	_, found := annotations[ReloadAnnotation]
	return found
}

// Own implements Dialect.
func (native) Own(annotations map[string]string) string { return annotations[ReloadAnnotation] }

// Scope implements Dialect.
func (native) Scope() []string {
	return []string{ReloadAnnotation, SourcesAnnotation, ExcludeAnnotation, KindsAnnotation, LiveVolumesAnnotation}
}

// Policy implements Dialect.
func (native) Policy(p *Policy, workload, namespace map[string]string, defaults *Defaults) {
	r := reader{workload: workload, namespace: namespace, problems: &p.Problems}
	p.DeclaredBy = parse(&r, ReloadAnnotation, ParseMode, &p.Mode, p.DeclaredBy)
	if p.Mode == Off && len(p.Problems) == 0 {
		return // the other annotations say nothing then
	}
	parse(&r, StrategyAnnotation, func(value string) (Strategy, error) {
		strategy, err := ParseStrategy(value)
		if err == nil && defaults.Strategies != nil && !slices.Contains(defaults.Strategies, strategy) {
			p.StrategyNotAllowed, err = true, errNotAllowed
		}
		return strategy, err
	}, &p.Strategy, "")
	parse(&r, SourcesAnnotation, parsePatterns, &p.Sources, "")
	parse(&r, ExcludeAnnotation, parsePatterns, &p.Exclude, "")
	parse(&r, KindsAnnotation, parseKinds, &p.Kinds, "")
	parse(&r, LiveVolumesAnnotation, parseBool, &p.LiveVolumes, "")
	if parse(&r, SettleAnnotation, parseDuration, &p.Settle, "") != "" {
		p.ReleaseSettle = 0
	}
	parse(&r, MinIntervalAnnotation, parseDuration, &p.MinInterval, "")
}

// Namespace implements Dialect. A label may declare the mode, because webhooks can select by labels only; if there
// are both, the annotation counts.
func (d native) Namespace(annotations, labels map[string]string) map[string]string {
	var out map[string]string
	set := func(key, value string) {
		if out == nil {
			out = map[string]string{}
		}
		out[key] = value
	}
	for key, value := range annotations {
		if d.Owns(key) {
			set(key, value)
		}
	}
	if mode, labelled := labels[ReloadAnnotation]; labelled && !d.Declares(annotations) {
		set(ReloadAnnotation, mode)
	}
	return out
}

// Source implements Dialect.
func (native) Source(annotations map[string]string) dependency.SourceMarks {
	return dependency.SourceMarks{Ignored: annotations[IgnoreAnnotation] == "true", Match: annotations[MatchAnnotation] == "true"}
}
