// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// completes sets what completes the values of a flag.
func (p *plugin) completes(c *cobra.Command, flag string, f cobra.CompletionFunc) {
	utilruntime.Must(c.RegisterFlagCompletionFunc(flag, f)) // it is not registered twice
}

// completeNamespaces completes the name of a namespace.
func (p *plugin) completeNamespaces(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	some, err := p.listMetadata(c.Context(), corev1.SchemeGroupVersion.WithResource("namespaces"), "", "")
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var out []string
	for i := range some {
		out = append(out, some[i].Name)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// once completes the first argument alone.
func once(f cobra.CompletionFunc) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return f(c, args, begun)
	}
}

// completeWorkloads completes the name of a workload.
func (p *plugin) completeWorkloads(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	all, err := p.list(c.Context(), nil)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var out []string
	for _, o := range all {
		if name := shown(o); !slices.Contains(args, name) {
			out = append(out, name)
		}
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
