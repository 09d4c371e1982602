// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/kind"
)

// KindOptions are the options of workloads that are custom resources.
type KindOptions struct {
	// Presets are the names of the descriptions that come with configdep.
	Presets []string
	// ConfigFile describes other kinds; empty: none.
	ConfigFile string
}

func (o *Options) addKindFlags(fs *pflag.FlagSet) {
	k := &o.Kinds
	fs.StringSliceVar(&k.Presets, "kinds", k.Presets,
		"The kinds of custom resources that are treated as workloads; the default is all that configdep has a preset for. Empty: none.")
	fs.StringVar(&k.ConfigFile, "kinds-config", k.ConfigFile,
		"A file that describes other kinds of custom resources: a "+kind.FileKind+" of "+kind.FileAPIVersion+". It takes precedence over --kinds.")
}

// kinds are the kinds of workloads, or what is wrong with the options.
type kinds struct {
	table kind.Table
	errs  []error
}

// Scope returns which objects are read, if the options are valid.
func (o Completed) Scope() ingest.Scope {
	s := o.Options.Scope()
	s.Kinds = o.kinds.table
	if o.ReloadJobs {
		s.Kinds = s.Kinds.WithReruns()
	}
	return s
}

func (k *KindOptions) read() (out kinds) {
	var others []*kind.Kind
	if k.ConfigFile != "" {
		var errs []error
		others, errs = kind.ReadFile(k.ConfigFile)
		for _, err := range errs {
			out.errs = append(out.errs, fmt.Errorf("--kinds-config: %w", err))
		}
	}
	table, err := kind.NewTable(k.Presets, others)
	if err != nil {
		out.errs = append(out.errs, fmt.Errorf("--kinds: %w", err))
	}
	out.table = table
	return out
}
