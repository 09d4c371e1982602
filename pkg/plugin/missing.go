// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

func newMissing(p *plugin) *cobra.Command {
	c := &cobra.Command{
		Use:   "missing",
		Short: "Lists workloads whose new pods cannot start, because a ConfigMap, Secret or key is missing",
		Long: `Lists the workloads that need a ConfigMap, a Secret or a key that does not exist, so that
new pods cannot start. The command ends with code 2 if there is one.`,
		Example: `  # What would not start again, everywhere
  kubectl configdep missing -A`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := p.list(c.Context(), nil)
			if err != nil {
				return err
			}
			return p.missing(all)
		},
	}
	return p.prints(p.lists(c))
}

// missing prints which of some workloads need what does not exist.
func (p *plugin) missing(all []*v1alpha1.ConfigDependency) error {
	var some []*v1alpha1.ConfigDependency
	for _, o := range all {
		if missingOf(o) != "" {
			some = append(some, o)
		}
	}
	switch {
	case p.asked():
		if err := p.objects(some); err != nil {
			return err
		}
	case len(some) == 0:
		fmt.Fprintf(p.ErrOut, "Nothing is missing %s (%s).\n", p.where(), counted(len(all), "workload"))
	default:
		inOrder(some)
		t := p.table("WORKLOAD", "MISSING")
		for _, o := range some {
			t.row(o.Namespace, shown(o), missingOf(o))
		}
		if err := t.end(); err != nil {
			return err
		}
	}
	return found(len(some) > 0)
}

// missingOf says what is missing that new pods of a workload need; empty: nothing.
func missingOf(o *v1alpha1.ConfigDependency) string {
	if c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionSourcesResolved); c != nil && c.Status == metav1.ConditionFalse {
		return c.Message
	}
	return ""
}
