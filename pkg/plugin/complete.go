// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// completeWorkloads completes the name of a workload.
func (p *plugin) completeWorkloads(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	all, err := p.list(c.Context(), nil)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var out []string
	for _, o := range all {
		out = append(out, shown(o))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeSources completes the name of a source that a workload uses.
func (p *plugin) completeSources(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
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
	return slices.Compact(out), cobra.ShellCompDirectiveNoFileComp
}
