// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// DialectOptions are which annotations of other tools are read.
type DialectOptions struct {
	// Names are the dialects that are read, besides that of configdep itself.
	Names []string
	// Reloader are the names of Reloader's annotations.
	Reloader policy.ReloaderAnnotations
	// Strategy is the name of the strategy of workloads that ask for none, ours or Reloader's.
	Strategy string
}

func newDialectOptions() DialectOptions {
	return DialectOptions{
		Names: policy.DialectNames(), Strategy: record.Annotate.Name(), Reloader: policy.ReloaderAnnotations{}.WithDefaults(),
	}
}

// addDialectFlags adds the flags for annotations of other tools. Those for names have the names that they have in Reloader.
func (o *Options) addDialectFlags(fs *pflag.FlagSet) {
	d := &o.Dialects
	fs.StringSliceVar(&d.Names, "dialects", d.Names,
		"The tools whose annotations are read: any of "+strings.Join(policy.DialectNames(), ", ")+". Annotations of configdep are always read.")
	fs.StringVar(&d.Strategy, "reload-strategy", d.Strategy,
		"The strategy of workloads that ask for none: annotation or env-var, or recreate or in-place if --strategies contains it. "+
			"Reloader's names annotations and env-vars are also accepted.")
	fs.BoolVar(&o.Reload.ReloadOnCreate, "reload-on-create", o.Reload.ReloadOnCreate,
		"Restart workloads when a source is created, even if only annotations of Reloader opt them in.")
	fs.BoolVar(&o.Reload.ReloadOnDelete, "reload-on-delete", o.Reload.ReloadOnDelete,
		"Restart workloads when a source is deleted, even if only annotations of Reloader opt them in.")
	for _, n := range d.names() {
		fs.StringVar(n.value, n.flag, *n.value, n.usage)
	}
}

// annotationName is a flag for the name of an annotation.
type annotationName struct {
	flag, usage string
	value       *string
}

func (d *DialectOptions) names() []annotationName {
	r := &d.Reloader
	return []annotationName{
		{"configmap-annotation", "The annotation of Reloader that names ConfigMaps.", &r.ConfigMap},
		{"secret-annotation", "The annotation of Reloader that names Secrets.", &r.Secret},
		{"auto-annotation", "The annotation of Reloader for all ConfigMaps and Secrets that the pods read.", &r.Auto},
		{"configmap-auto-annotation", "The annotation of Reloader for all ConfigMaps that the pods read.", &r.ConfigMapAuto},
		{"secret-auto-annotation", "The annotation of Reloader for all Secrets that the pods read.", &r.SecretAuto},
		{"auto-search-annotation", "The annotation of Reloader for all ConfigMaps and Secrets with --search-match-annotation.", &r.Search},
		{"search-match-annotation", "The annotation of Reloader that marks ConfigMaps and Secrets.", &r.Match},
		{"ignore-annotation", "The annotation of Reloader on ConfigMaps and Secrets that restart nothing.", &r.Ignore},
		{"pause-deployment-annotation", "The annotation of Reloader for how long a Deployment stays paused when it is restarted.", &r.PausePeriod},
		{"pause-deployment-time-annotation", "The annotation for when a Deployment was paused. It is written, and needs to be allowed by the admission policies.", &r.PausedAt},
	}
}

// completeDialects derives the policy's dialects and strategy. What is wrong is found by validateDialects.
func (o *Options) completeDialects() {
	if d, usual := o.Dialects, newDialectOptions(); !slices.Equal(d.Names, usual.Names) || d.Reloader != usual.Reloader {
		if dialects, err := policy.NewDialects(d.Names, d.Reloader); err == nil {
			o.Reload.Dialects = dialects
		}
	}
	if s, err := o.Dialects.strategy(); err == nil {
		o.Reload.Strategy = s
	}
}

// strategy returns the strategy of workloads that ask for none. Reloader's names are plural.
func (d *DialectOptions) strategy() (record.Strategy, error) {
	switch d.Strategy {
	case "annotations":
		return record.Annotate, nil
	case "env-vars":
		return record.EnvVar, nil
	}
	return record.ParseStrategy(d.Strategy)
}

// allowedStrategies are the values of --reload-strategy, with Reloader's names of the first two.
const allowedStrategies = "must be one of annotation, annotations, env-var, env-vars, recreate, in-place"

func (o *Options) validateDialects() (errs []error) {
	if _, err := policy.NewDialects(o.Dialects.Names, o.Dialects.Reloader); err != nil {
		errs = append(errs, fmt.Errorf("--dialects: %w", err))
	}
	switch s, err := o.Dialects.strategy(); {
	case err != nil:
		errs = append(errs, errors.New("--reload-strategy "+allowedStrategies))
	case s == record.Agent:
		errs = append(errs, errors.New("--reload-strategy "+allowedStrategies+": most workloads have no config agent"))
	case s == record.Notify:
		errs = append(errs, errors.New("--reload-strategy "+allowedStrategies+": to restart nothing, use --observe"))
	case !slices.Contains(o.Reload.Strategies, s):
		errs = append(errs, fmt.Errorf("--reload-strategy is %s, which --strategies must then contain", s.Name()))
	}
	keys := map[string]string{}
	for _, n := range o.Dialects.names() {
		key := *n.value
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			errs = append(errs, fmt.Errorf("--%s: %q is not the name of an annotation: %s", n.flag, key, strings.Join(problems, "; ")))
		} else if strings.HasPrefix(key, record.Prefix) {
			errs = append(errs, fmt.Errorf("--%s: %q is an annotation of configdep", n.flag, key))
		} else if policy.Fixed(key) {
			errs = append(errs, fmt.Errorf("--%s: %q means something else already: choose another name", n.flag, key))
		} else if other := keys[key]; other != "" {
			errs = append(errs, fmt.Errorf("--%s and --%s are both %q", other, n.flag, key))
		}
		keys[key] = n.flag
	}
	return errs
}
