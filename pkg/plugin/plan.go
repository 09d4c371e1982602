// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/render"
)

func newPlan(p *plugin) *cobra.Command {
	form := ""
	c := &cobra.Command{
		Use:   "plan [SOURCE]",
		Short: "Lists which workloads will be restarted, in which order and about when",
		Long: `Lists the restarts that are in progress, those that will begin, in this order, and
those that wait for something that cannot be foreseen, such as an approval.

With a source, it lists what would happen if the content of that changed now. With -A,
that is the source of this name in every namespace.

Positions count all restarts of the cluster. A restart is taken to last as long as the
last one of the workload, or a minute if that is not known.`,
		Example: `  # What is due in all namespaces, and how long that will take
  kubectl configdep plan -A

  # What would happen if the Secret changed now
  kubectl configdep plan secret/db`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: once(p.completeSources),
		RunE:              func(c *cobra.Command, args []string) error { return p.plan(c.Context(), args, form) },
	}
	p.forms(c, &form, "With name, print the names of the workloads in the order of their restarts.")
	c.Flags().BoolVarP(&p.all, "all-namespaces", "A", false, "Look in all namespaces.")
	return c
}

// planned is a restart, and its namespace.
type planned struct {
	Namespace string `json:"namespace"`

	v1alpha1.PlannedRestart

	at time.Time // of the plan
}

func (r *planned) workload() string { return strings.Replace(r.Name, ".", "/", 1) }

// inTurn returns the restarts of the plans of several namespaces: those that have begun, those that will, in this order, and those on hold.
func inTurn(all []*v1alpha1.ConfigDependencyPlan) []planned {
	out := []planned{}
	for _, one := range all {
		for i := range one.Restarts {
			out = append(out, planned{one.Namespace, one.Restarts[i], one.Time.Time})
		}
	}
	rank := func(r *planned) int64 {
		if r.StartTime == nil {
			return math.MaxInt64
		}
		return r.Position
	}
	slices.SortStableFunc(out, func(a, b planned) int { return cmp.Compare(rank(&a), rank(&b)) })
	return out
}

func (p *plugin) plan(ctx context.Context, args []string, form string) error {
	var assume string
	var workloads []*v1alpha1.ConfigDependency
	var err error
	if len(args) > 0 {
		var source sourceName
		if source, workloads, err = p.users(ctx, args[0]); err != nil {
			return err
		}
		if assume = source.String(); len(workloads) == 0 {
			if err := p.exists(ctx, source); err != nil {
				return err
			}
		}
	} else if workloads, err = p.list(ctx, nil); err != nil {
		return err
	}
	all, err := p.plans(ctx, workloads, assume)
	if err != nil {
		return err
	}
	restarts, names := inTurn(all), []string{}
	for i := range restarts {
		names = append(names, restarts[i].workload())
	}
	if form != "" {
		return p.data(form, restarts, names)
	}
	if len(restarts) == 0 {
		what := "No restart is due"
		if assume != "" {
			what = "A change of " + assume + " would restart nothing"
		}
		fmt.Fprintf(p.ErrOut, "%s %s (%s).\n", what, p.where(), counted(len(workloads), "workload"))
		return nil
	}
	t := p.table("WORKLOAD", "POSITION", "STARTS", "TAKES", "STATE", "REASON", "WAITS FOR")
	for i := range restarts {
		r, position := &restarts[i], ""
		if r.Position > 0 {
			position = strconv.FormatInt(r.Position, 10)
		}
		t.row(r.Namespace, r.workload(), position, render.Starts(&r.PlannedRestart, r.at), render.Takes(&r.PlannedRestart), string(r.State), r.Reason, r.Message)
	}
	if err := t.end(); err != nil {
		return err
	}
	p.summary(all)
	return nil
}

// plans returns the plans of the namespaces of some workloads, but of those in which nothing is due.
func (p *plugin) plans(ctx context.Context, workloads []*v1alpha1.ConfigDependency, assume string) (out []*v1alpha1.ConfigDependencyPlan, err error) {
	client, err := p.configdep()
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, o := range workloads {
		switch s := o.Status.State; {
		case seen[o.Namespace]:
			continue
		case assume == "" && p.all && (s == v1alpha1.StateInSync || s == v1alpha1.StateUnknown):
			continue
		}
		seen[o.Namespace] = true
		one := &v1alpha1.ConfigDependencyPlan{}
		get := client.RESTClient().Get().Namespace(o.Namespace).Resource("configdependencies").Name(o.Name).SubResource("plan")
		if assume != "" {
			get = get.Param("assume", assume)
			if p.all {
				get = get.Param("allNamespaces", "true")
			}
		}
		err := get.Do(ctx).Into(one)
		switch {
		case apierrors.IsNotFound(err): // the workload has just been deleted
			seen[o.Namespace] = false
		case err != nil:
			return nil, explain(err)
		case len(one.Restarts) > 0:
			out = append(out, one)
		}
	}
	return out, nil
}

// summary says how far restarts are, and what is not shown.
func (p *plugin) summary(all []*v1alpha1.ConfigDependencyPlan) {
	var s v1alpha1.PlanSummary
	var more int64
	truncated := false
	for _, one := range all {
		s.InProgress += one.Summary.InProgress
		s.Planned += one.Summary.Planned
		s.Held += one.Summary.Held
		s.Failed += one.Summary.Failed
		if end := one.Summary.CompletionTime; end != nil && (s.CompletionTime == nil || s.CompletionTime.Before(end)) {
			s.CompletionTime = end
		}
		s.ClusterInProgress, s.ClusterFailed, s.ClusterPlanned = one.Summary.ClusterInProgress, one.Summary.ClusterFailed, one.Summary.ClusterPlanned
		more += one.MoreRestarts
		truncated = truncated || one.Truncated
	}
	fmt.Fprintf(p.ErrOut, "%d in progress, %d failed, %d planned, %d on hold", s.InProgress, s.Failed, s.Planned, s.Held)
	if others := s.ClusterInProgress + s.ClusterFailed + s.ClusterPlanned - s.InProgress - s.Failed - s.Planned; others > 0 {
		fmt.Fprintf(p.ErrOut, ", and %d in other namespaces", others)
	}
	if s.CompletionTime != nil {
		fmt.Fprintf(p.ErrOut, "; complete %s", until(s.CompletionTime))
	}
	fmt.Fprintln(p.ErrOut, ".")
	if more > 0 {
		fmt.Fprintf(p.ErrOut, "%d more are not listed.\n", more)
	}
	if truncated {
		fmt.Fprintln(p.ErrOut, "More will happen than was looked at, so that some times are not known.")
	}
}
