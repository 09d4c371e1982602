// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
)

func newStale(p *plugin) *cobra.Command {
	var olderThan time.Duration
	c := &cobra.Command{
		Use:   "stale",
		Short: "Lists what runs with old content",
		Long: `Lists the workloads whose pods run with old content of ConfigMaps and Secrets: since
when, of which sources, how many pods, and what will happen.

Workloads of which it cannot be known are listed apart. The command ends with code 2
if a workload is stale.`,
		Example: `  # What runs with old content, everywhere
  kubectl configdep stale -A

  # What has run with old content for more than a day, as names
  kubectl configdep stale --older-than 24h -o name`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := p.list(c.Context(), nil)
			if err != nil {
				return err
			}
			return p.stale(all, olderThan)
		},
	}
	c.Flags().DurationVar(&olderThan, "older-than", 0, "Only what has run with old content for longer than this.")
	return p.prints(p.lists(c))
}

// stale prints which of some workloads are stale.
func (p *plugin) stale(all []*v1alpha1.ConfigDependency, olderThan time.Duration) error {
	var stale, possibly []*v1alpha1.ConfigDependency
	for _, o := range all {
		switch {
		case o.Status.Pods.Stale > 0 && (o.Status.StaleSince.IsZero() || time.Since(o.Status.StaleSince.Time) >= olderThan):
			stale = append(stale, o)
		case o.Status.Pods.Stale == 0 && o.Status.Pods.Unknown > 0 && olderThan == 0:
			possibly = append(possibly, o)
		}
	}
	if p.asked() {
		if err := p.objects(stale); err != nil {
			return err
		}
		return found(len(stale) > 0)
	}
	inOrder(stale)
	inOrder(possibly)
	if len(stale) > 0 {
		t := p.table("WORKLOAD", "SINCE", "STALE PODS", "SOURCES", "STATE", "NEXT")
		for _, o := range stale {
			pods := o.Status.Pods
			t.row(o.Namespace, shown(o), ago(o.Status.StaleSince), fmt.Sprintf("%d/%d", pods.Stale, pods.Total), staleSources(o), string(o.Status.State), next(o))
		}
		if err := t.end(); err != nil {
			return err
		}
	}
	if len(possibly) > 0 {
		if len(stale) > 0 {
			fmt.Fprintln(p.Out)
		}
		fmt.Fprintf(p.Out, "Possibly stale: %s of which it is not known.\n", counted(len(possibly), "workload"))
		t := p.table("WORKLOAD", "UNKNOWN PODS", "REASON")
		for _, o := range possibly {
			t.row(o.Namespace, shown(o), fmt.Sprintf("%d/%d", o.Status.Pods.Unknown, o.Status.Pods.Total), o.Status.Reason)
		}
		if err := t.end(); err != nil {
			return err
		}
	}
	if len(stale)+len(possibly) == 0 {
		fmt.Fprintf(p.ErrOut, "Nothing runs with old content %s (%s).\n", p.where(), counted(len(all), "workload"))
	}
	return found(len(stale) > 0)
}

// staleSources returns the sources of which pods have old content.
func staleSources(o *v1alpha1.ConfigDependency) string {
	var out []string
	for _, s := range o.Status.Sources {
		if s.StalePods > 0 {
			out = append(out, string(s.Kind)+"/"+s.Name)
		}
	}
	return strings.Join(out, ",")
}

// next returns what will happen to a workload whose pods are stale, and when.
func next(o *v1alpha1.ConfigDependency) string {
	switch s := &o.Status; s.State {
	case v1alpha1.StateSettling, v1alpha1.StatePending:
		switch changed := s.Reason == decide.ReasonSourceChanged; {
		case s.RestartTime == nil && changed:
			return "a restart"
		case s.RestartTime == nil:
			return "waits: " + s.Reason
		case changed:
			return "a restart " + until(s.RestartTime)
		default:
			return "a restart " + until(s.RestartTime) + ": " + s.Reason
		}
	case v1alpha1.StateRollingOut:
		return "a rollout is in progress"
	case v1alpha1.StateBlocked, v1alpha1.StateFailed:
		return "on hold: " + s.Reason
	default:
		return "nothing: " + s.Reason
	}
}

// until returns in how long a time is.
func until(t *metav1.Time) string {
	in := time.Until(t.Time).Round(time.Second)
	if in <= 0 {
		return "now"
	}
	return "in " + in.String()
}
