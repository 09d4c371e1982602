// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/record"
)

// ReloaderAnnotations are the annotations of Stakater Reloader whose names its users can change. An empty one has the usual
// name.
type ReloaderAnnotations struct {
	ConfigMap     string // names ConfigMaps
	Secret        string // names Secrets
	Auto          string
	ConfigMapAuto string
	SecretAuto    string
	Search        string
	PausePeriod   string
	PausedAt      string
	Ignore        string // on ConfigMaps and Secrets
	Match         string // the same
}

// WithDefaults returns the annotations with the usual names of those that are empty.
func (a ReloaderAnnotations) WithDefaults() ReloaderAnnotations {
	for name, usual := range map[*string]string{
		&a.ConfigMap:     "configmap.reloader.stakater.com/reload",
		&a.Secret:        "secret.reloader.stakater.com/reload",
		&a.Auto:          "reloader.stakater.com/auto",
		&a.ConfigMapAuto: "configmap.reloader.stakater.com/auto",
		&a.SecretAuto:    "secret.reloader.stakater.com/auto",
		&a.Search:        "reloader.stakater.com/search",
		&a.PausePeriod:   "deployment.reloader.stakater.com/pause-period",
		&a.PausedAt:      "deployment.reloader.stakater.com/paused-at",
		&a.Ignore:        "reloader.stakater.com/ignore",
		&a.Match:         "reloader.stakater.com/match",
	} {
		*name = cmp.Or(*name, usual)
	}
	return a
}

// rolloutStrategy, with the value restart, restarts a workload by spec.restartAt, if its kind has that.
const rolloutStrategy = "reloader.stakater.com/rollout-strategy"

// reloader is the dialect of Stakater Reloader. It reads annotations of the workload; if none of those that opt in is
// there, of the pod template.
type reloader struct {
	quiet
	names ReloaderAnnotations
	kinds []reloaderKind
}

// reloaderKind has the annotations for sources of one kind.
type reloaderKind struct {
	kind                dependency.SourceKind
	list, auto, exclude string
}

// NewReloader returns the dialect of Stakater Reloader, with the names of its annotations.
func NewReloader(names ReloaderAnnotations) Dialect {
	names = names.WithDefaults()
	return &reloader{names: names, kinds: []reloaderKind{
		{dependency.ConfigMap, names.ConfigMap, names.ConfigMapAuto, "configmaps.exclude.reloader.stakater.com/reload"},
		{dependency.Secret, names.Secret, names.SecretAuto, "secrets.exclude.reloader.stakater.com/reload"},
		{
			dependency.SecretProviderClass, "secretproviderclass.reloader.stakater.com/reload",
			"secretproviderclass.reloader.stakater.com/auto", "secretproviderclasses.exclude.reloader.stakater.com/reload",
		},
	}}
}

// Name implements Dialect.
func (*reloader) Name() string { return "reloader" }

// Owns implements Dialect.
func (r *reloader) Owns(key string) bool {
	n := &r.names
	return r.OwnsOnTemplate(key) || key == n.PausePeriod || key == n.PausedAt || key == rolloutStrategy || key == n.Ignore || key == n.Match ||
		slices.ContainsFunc(r.kinds, func(k reloaderKind) bool { return key == k.exclude })
}

// OwnsOnTemplate implements Dialect.
func (r *reloader) OwnsOnTemplate(key string) bool {
	return key == r.names.Auto || key == r.names.Search ||
		slices.ContainsFunc(r.kinds, func(k reloaderKind) bool { return key == k.list || key == k.auto })
}

// fixed reports whether an annotation of Reloader has a name that its users cannot change.
func (r *reloader) fixed(key string) bool {
	return key == rolloutStrategy || key == record.LastReloadedFrom || slices.ContainsFunc(r.kinds, func(k reloaderKind) bool {
		return key == k.exclude || k.kind == dependency.SecretProviderClass && (key == k.list || key == k.auto)
	})
}

// Declare implements Dialect.
func (r *reloader) Declare(d *Declaration) {
	for _, k := range r.kinds {
		r.declareKind(d, &k)
	}
	if d.Workload[rolloutStrategy] == "restart" && d.RestartsAt {
		d.policy.Strategy = record.OfRestart(dependency.RestartAt)
	}
	pause := &d.policy.Pause
	if pause.Since = d.Workload[r.names.PausedAt]; pause.Since != "" {
		pause.Key = r.names.PausedAt
	}
	if value := d.Workload[r.names.PausePeriod]; value != "" {
		period, err := time.ParseDuration(value)
		if err != nil || period < 0 {
			d.IdleProblem(r.names.PausePeriod, value, errors.New(`must be a duration that is not negative, such as "30s" or "5m"`))
			return
		}
		pause.Key, pause.Period = r.names.PausedAt, period
	}
}

// declareKind declares what the annotations say about sources of one kind. The pod template counts only if the workload
// has none of the four annotations that opt in, whatever their values.
func (r *reloader) declareKind(d *Declaration, k *reloaderKind) {
	from := d.Workload
	if !slices.ContainsFunc([]string{k.list, r.names.Search, r.names.Auto, k.auto}, func(key string) bool { _, found := from[key]; return found }) {
		from = d.Template
	}
	if value := d.Workload[k.exclude]; value != "" {
		names, err := namesOfKind(k.kind, value)
		if err != nil {
			d.IdleProblem(k.exclude, value, err)
		}
		d.exclude(names, k.exclude)
	}
	in := false
	if value := from[k.list]; value != "" {
		patterns, err := regexpsOfKind(k.kind, value)
		if err != nil {
			d.Problem(k.list, value, err)
		}
		d.name(patterns, k.list)
		in = true
	}
	if from[r.names.Search] == "true" {
		d.Restart(Matched, r.names.Search, k.kind)
		in = true
	}
	for _, key := range []string{r.names.Auto, k.auto} {
		value := from[key]
		if value == "" {
			continue
		}
		auto, err := strconv.ParseBool(value)
		if err != nil {
			d.Problem(key, value, errors.New(`must be "true" or "false"`))
		}
		d.Instead(key, k.kind)
		if auto {
			d.Restart(Auto, key, k.kind)
			in = true
		}
	}
	if in {
		d.IgnoreAppearing()
		d.policy.ReportsSource = true
	}
}

// Source implements Dialect.
func (r *reloader) Source(annotations map[string]string) dependency.SourceMarks {
	return dependency.SourceMarks{Ignored: annotations[r.names.Ignore] == "true", Match: annotations[r.names.Match] == "true"}
}

// MarksAnnotation implements Dialect.
func (*reloader) MarksAnnotation(key string) bool { return key == record.LastReloadedFrom }

// MarksVariable implements Dialect.
func (*reloader) MarksVariable(name string) bool { return record.MarksVariable(name) }
