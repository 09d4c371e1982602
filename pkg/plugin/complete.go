// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// completeWorkloads completes the name of a workload.
func (p *plugin) completeWorkloads(c *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	all, err := p.list(c.Context(), nil)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var out []string
	for _, o := range all {
		out = append(out, shown(o))
	}
	return asBegun(out, begun, func(kind string) string { return cmp.Or(kinds[kind], kind) }), cobra.ShellCompDirectiveNoFileComp
}

// asBegun returns names as KIND/NAME with the word for the kind with which one was begun.
func asBegun(names []string, begun string, singular func(string) string) []string {
	word, _, slash := strings.Cut(begun, "/")
	if kind := singular(strings.ToLower(word)); slash && kind != word {
		for i := range names {
			if name, is := strings.CutPrefix(names[i], kind+"/"); is {
				names[i] = word + "/" + name
			}
		}
	}
	return names
}

// completeSources completes the name of a source that a workload uses.
func (p *plugin) completeSources(c *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	all, err := p.list(c.Context(), nil)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var out []string
	for _, o := range all {
		for i := range o.Spec.Sources {
			s := &o.Spec.Sources[i]
			out = append(out, strings.ToLower(string(s.Kind))+"/"+s.Name)
		}
	}
	slices.Sort(out)
	return asBegun(slices.Compact(out), begun, func(kind string) string { return strings.ToLower(string(sourceKinds[kind])) }), cobra.ShellCompDirectiveNoFileComp
}
