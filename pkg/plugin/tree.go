// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

func newTree(p *plugin) *cobra.Command {
	c := &cobra.Command{
		Use:   "tree WORKLOAD",
		Short: "Shows what a workload reads, and where in its pods",
		Example: `  # What the Deployment web reads
  kubectl configdep tree deploy/web`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: once(p.completeWorkloads),
		RunE: func(c *cobra.Command, args []string) error {
			o, err := p.get(c.Context(), args[0])
			if err != nil {
				return err
			}
			if p.asked() {
				return p.objects([]*v1alpha1.ConfigDependency{o})
			}
			fmt.Fprintf(p.Out, "%s  %s\n", safe(shown(o)), p.state(o.Status.State))
			for i := range o.Spec.Sources {
				last := i == len(o.Spec.Sources)-1
				p.branch(o, &o.Spec.Sources[i], last)
			}
			return nil
		},
	}
	return p.prints(c)
}

// branch prints one source of a workload, and where it is read.
func (p *plugin) branch(o *v1alpha1.ConfigDependency, s *v1alpha1.Source, last bool) {
	here, below := "├─ ", "│  "
	if last {
		here, below = "└─ ", "   "
	}
	of := sourceName{s.Kind, s.Name}
	_, status := of.of(o)
	fmt.Fprintf(p.Out, "%s%s%s\n", here, safe(of.String()), p.note(s, status))
	for i := range s.Usages {
		end := "├─ "
		if i == len(s.Usages)-1 && s.MoreUsages == 0 {
			end = "└─ "
		}
		fmt.Fprintf(p.Out, "%s%s%s\n", below, end, place(&s.Usages[i]))
	}
	if s.MoreUsages > 0 {
		fmt.Fprintf(p.Out, "%s└─ %d more\n", below, s.MoreUsages)
	}
}

// note says what is remarkable about a source.
func (p *plugin) note(s *v1alpha1.Source, status *v1alpha1.SourceStatus) string {
	var notes []string
	switch {
	case status == nil:
	case status.Present != nil && !*status.Present:
		text := "missing"
		if s.Optional {
			text = "absent, optional"
		}
		notes = append(notes, p.coloured(red, text))
	case len(status.MissingKeys) > 0:
		notes = append(notes, p.coloured(red, "missing keys: "+safe(strings.Join(status.MissingKeys, ", "))))
	}
	if status != nil && status.StalePods > 0 {
		notes = append(notes, p.coloured(red, counted(int(status.StalePods), "stale pod")))
	}
	if !s.TriggersReload {
		notes = append(notes, "restarts nothing: "+s.Reason)
	}
	if len(notes) == 0 {
		return ""
	}
	return "  (" + strings.Join(notes, "; ") + ")"
}

// place says where in a pod a source is used.
func place(u *v1alpha1.Usage) string {
	var out []string
	add := func(what, value string) {
		if value != "" {
			out = append(out, what+value)
		}
	}
	add("", string(u.Type))
	add("container ", u.Container)
	add("variable ", u.Env)
	add("prefix ", u.Prefix)
	add("volume ", u.Volume)
	add("at ", u.MountPath)
	add("", u.Path)
	if len(u.Keys) > 0 {
		add("keys ", strings.Join(u.Keys, ","))
	}
	if u.Optional {
		add("", "optional")
	}
	return safe(strings.Join(out, ", "))
}
