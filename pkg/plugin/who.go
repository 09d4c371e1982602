// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

func newWho(p *plugin) *cobra.Command {
	c := &cobra.Command{
		Use:   "who SOURCE",
		Short: "Lists the workloads that use a ConfigMap or Secret, and how",
		Example: `  # Who uses the Secret, and which pods still have the old content
  kubectl configdep who secret/db`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.completeSources,
		RunE: func(c *cobra.Command, args []string) error {
			source, users, err := p.users(c.Context(), args[0])
			if err != nil {
				return err
			}
			if p.asked() {
				return p.objects(users)
			}
			if len(users) == 0 {
				fmt.Fprintf(p.ErrOut, "No workload %s names %s.\n", p.where(), source)
				return nil
			}
			t := p.table("WORKLOAD", "STATE", "STALE PODS", "KEYS", "USED AS", "RESTARTS")
			for _, o := range users {
				s, status := source.of(o)
				if s == nil {
					continue
				}
				var stale int32
				if status != nil {
					stale = status.StalePods
				}
				pods := fmt.Sprintf("%d/%d", stale, o.Status.Pods.Total)
				if unknown := o.Status.Pods.Unknown; unknown > 0 {
					pods += fmt.Sprintf(" (%d unknown)", unknown)
				}
				t.row(o.Namespace, shown(o), string(o.Status.State), pods, keysOf(s), usedAs(s), restarts(s))
			}
			return t.end()
		},
	}
	return p.prints(p.lists(c))
}

// keysOf returns the keys that a workload reads.
func keysOf(s *v1alpha1.Source) string {
	if len(s.Keys) == 0 {
		return "all"
	}
	out := strings.Join(s.Keys, ",")
	if s.MoreKeys > 0 {
		out += fmt.Sprintf(" and %d more", s.MoreKeys)
	}
	return out
}

// usedAs returns the ways in which a workload uses a source.
func usedAs(s *v1alpha1.Source) string {
	var out []string
	seen := map[v1alpha1.UsageType]bool{}
	for i := range s.Usages {
		if of := s.Usages[i].Type; !seen[of] {
			seen[of] = true
			out = append(out, string(of))
		}
	}
	return strings.Join(out, ",")
}

// restarts returns whether a change of a source restarts a workload, or why not.
func restarts(s *v1alpha1.Source) string {
	if s.TriggersReload {
		return "yes"
	}
	return "no: " + s.Reason
}
