// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/pkg/window"
)

// The annotations that users set on workloads, and on namespaces as defaults for the
// workloads in them.
const (
	ReloadAnnotation      = record.Prefix + "reload"
	SourcesAnnotation     = record.Prefix + "sources"
	ExcludeAnnotation     = record.Prefix + "exclude"
	KindsAnnotation       = record.Prefix + "kinds"
	LiveVolumesAnnotation = record.Prefix + "live-volumes"
	SettleAnnotation      = record.Prefix + "settle"
	MinIntervalAnnotation = record.Prefix + "min-interval"
	StrategyAnnotation    = record.Prefix + "strategy"
	// WindowsAnnotation says when restarts may begin, in the format of package window. HoldAnnotation says that none may, and why.
	WindowsAnnotation = record.Prefix + "windows"
	HoldAnnotation    = record.Prefix + "hold"
	// OrderAnnotation is a number: among workloads that are restarted because of the same source, lower ones come first. HealthyWithinAnnotation is how long
	// a new pod may take to become ready before it counts as failed. ApprovalAnnotation says that content has to be approved.
	OrderAnnotation         = record.Prefix + "order"
	HealthyWithinAnnotation = record.Prefix + "healthy-within"
	ApprovalAnnotation      = record.Prefix + "approval"
	// FieldsAnnotation, only on the workload itself, names fields that get their values from ConfigMaps and Secrets.
	FieldsAnnotation = record.Prefix + "fields"
)

// The annotations that users set on ConfigMaps and Secrets, with the value "true".
const (
	IgnoreAnnotation = record.Prefix + "ignore"
	MatchAnnotation  = record.Prefix + "match"
	// AllowFieldsAnnotation, on a Secret, lists KIND/NAME#KEY: the workloads that may have fields which are set from a key of it.
	AllowFieldsAnnotation = record.Prefix + "allow-fields"
)

// native is the dialect of configdep itself. Each annotation is looked up on the workload, then on its namespace, then
// in the defaults.
type native struct{ quiet }

// Name implements Dialect.
func (native) Name() string { return "configdep" }

// Owns implements Dialect.
func (native) Owns(key string) bool { return strings.HasPrefix(key, record.Prefix) }

// OwnsOnTemplate implements Dialect: there, they are a mistake.
func (native) OwnsOnTemplate(key string) bool { return isSetting(key) }

// Declare implements Dialect. A mode on the namespace is a default, like that of the server.
func (native) Declare(d *Declaration) {
	d.declareFields()
	r := reader{workload: d.Workload, namespace: d.Namespace, problems: &d.policy.Problems}
	mode := d.base.Mode
	switch by := parse(&r, ReloadAnnotation, ParseMode, &mode, d.base.DeclaredBy); {
	case by != ReloadAnnotation:
		d.base = KindMode{mode, by}
	case mode == Off && len(d.policy.Problems) == 0:
		d.Never(by)
	default:
		d.Restart(mode, by, observedKinds[:]...)
		d.Instead(by, observedKinds[:]...)
	}
	d.declareMistakes()
}

// settings reads the annotations that say how a workload is restarted, whichever dialect says that it is. It reports whether they
// name a strategy.
func (native) settings(p *Policy, d *Declaration) (strategy bool) {
	r := reader{workload: d.Workload, namespace: d.Namespace, problems: &p.Problems}
	strategy = parse(&r, StrategyAnnotation, func(value string) (record.Strategy, error) {
		strategy, err := record.ParseStrategy(value)
		if err == nil && d.defaults.Strategies != nil && !slices.Contains(d.defaults.Strategies, strategy) {
			p.StrategyNotAllowed, err = true, errNotAllowed
		}
		return strategy, err
	}, &p.Strategy, "") != ""
	p.addNative(&r, SourcesAnnotation, &p.Sources, p.NamedBy)
	p.addNative(&r, ExcludeAnnotation, &p.Exclude, p.ExcludedBy)
	parse(&r, KindsAnnotation, parseKinds, &p.Kinds, "")
	parse(&r, LiveVolumesAnnotation, parseBool, &p.LiveVolumes, "")
	if parse(&r, SettleAnnotation, parseDuration, &p.Settle, "") != "" {
		p.ReleaseSettle = 0
	}
	parse(&r, MinIntervalAnnotation, parseDuration, &p.MinInterval, "")
	parse(&r, WindowsAnnotation, window.Parse, &p.Windows, "")
	parse(&r, HoldAnnotation, parseHold, &p.Hold, "")
	parse(&r, OrderAnnotation, parseOrder, &p.Order, "")
	parse(&r, HealthyWithinAnnotation, parsePositive, &p.HealthyWithin, "")
	parse(&r, ApprovalAnnotation, parseApproval, &p.Approval, "")
	return strategy
}

// addNative adds the patterns of an annotation to those of other dialects.
func (p *Policy) addNative(r *reader, key string, to *[]dependency.Pattern, others Declarers) {
	var patterns []dependency.Pattern
	where := parse(r, key, parsePatterns, &patterns, "")
	if len(*to) == 0 {
		*to = patterns
		return
	}
	for _, x := range patterns {
		if by := others[x]; by != "" {
			others[x] = where + ", " + by
		} else {
			*to = append(*to, x)
		}
	}
}

// Namespace implements Dialect.
func (d native) Namespace(annotations map[string]string) map[string]string {
	var out map[string]string
	for key, value := range annotations {
		if d.Owns(key) {
			set(&out, key, value)
		}
	}
	return out
}

// maxAllowList limits AllowFieldsAnnotation, in bytes. A longer list allows nothing.
const maxAllowList = 4096

func boundedList(value string) string {
	if len(value) > maxAllowList {
		return ""
	}
	return value
}

// AllowFields returns the list of AllowFieldsAnnotation in the annotations of a Secret.
func AllowFields(annotations map[string]string) string {
	return boundedList(annotations[AllowFieldsAnnotation])
}

// Source implements Dialect.
func (native) Source(annotations map[string]string) dependency.SourceMarks {
	return dependency.SourceMarks{
		Ignored: annotations[IgnoreAnnotation] == "true", Match: annotations[MatchAnnotation] == "true",
		AllowFields: AllowFields(annotations),
	}
}
