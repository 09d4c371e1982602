// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
)

func newApprove(p *plugin) *cobra.Command {
	return newDecision(p, "approve", "Approves the content of workloads, which are then restarted", v1alpha1.ApprovalApproved)
}

func newDeny(p *plugin) *cobra.Command {
	return newDecision(p, "deny", "Denies the content of workloads, which are not restarted for it", v1alpha1.ApprovalDenied)
}

func newDecision(p *plugin, verb, short string, decision v1alpha1.ApprovalDecision) *cobra.Command {
	spec, uses := v1alpha1.ApprovalSpec{Decision: decision}, ""
	c := &cobra.Command{
		Use:   verb + " WORKLOAD... | -l SELECTOR | --uses SOURCE",
		Short: short,
		Long: `Creates an Approval with the decision ` + string(decision) + ` for each of the workloads: those that are named, or
those of a selection that wait for one. It prints what has changed. The decision is about the
content that the workload has at this time, or that --hash names. The user needs the rights to
create configdependencies/approval, and to get or, with a selection, to list configdependencies.`,
		Example: `  # What has changed, and the hash of that content
  kubectl configdep why deploy/web

  kubectl configdep ` + verb + ` deploy/web --reason "see INC-4711"

  # All whose pods run with old content of this Secret
  kubectl configdep ` + verb + ` --uses secret/db -A`,
		ValidArgsFunction: p.completeWorkloads,
		RunE:              func(c *cobra.Command, args []string) error { return p.approve(c.Context(), args, uses, spec) },
	}
	c.Flags().StringVar(&uses, "uses", "", "The workloads that use this source, such as secret/db.")
	p.completes(c, "uses", p.completeSources)
	c.Flags().StringVar(&spec.Reason, "reason", "", "Why, for the event and the annotation; at most 256 characters.")
	c.Flags().StringVar(&spec.ConfigHash, "hash", "", "The hash of the content of one workload, as status.configHash and the message have it; the current one if empty.")
	return p.lists(c)
}

func (p *plugin) approve(ctx context.Context, args []string, uses string, spec v1alpha1.ApprovalSpec) error {
	if spec.ConfigHash != "" && len(args) != 1 {
		return errors.New("--hash applies to one workload: name it")
	}
	if len(args) == 0 && uses == "" && p.selector == "" {
		return errors.New("say which workloads: by name, with -l, or with --uses")
	}
	targets, source, err := p.choose(ctx, args, uses)
	if err != nil {
		return err
	}
	others := 0
	if len(args) == 0 {
		targets = slices.DeleteFunc(targets, func(o *v1alpha1.ConfigDependency) bool {
			waits, is := o.Status.Reason == decide.ReasonApproval, source == nil || isStaleBy(o, source)
			if waits && !is {
				others++
			}
			return !waits || !is
		})
	}
	if others > 0 {
		fmt.Fprintf(p.ErrOut, "Left out: %s that wait for an approval, but whose pods are not known to run with old content of %s.\n", counted(others, "workload"), source)
	}
	if len(targets) == 0 {
		fmt.Fprintf(p.ErrOut, "No workload waits for this approval %s.\n", p.where())
		return nil
	}
	client, err := p.configdep()
	if err != nil {
		return err
	}
	inOrder(targets)
	failed := 0
	for _, o := range targets {
		fmt.Fprintf(p.Out, "%s: %s\n", p.name(o), safe(o.Status.Message))
		one := spec
		one.ConfigHash = cmp.Or(spec.ConfigHash, o.Status.ConfigHash)
		answer, failure := client.ConfigDependencies(o.Namespace).Approve(ctx, o.Name, &v1alpha1.Approval{Spec: one}, metav1.CreateOptions{})
		switch {
		case ctx.Err() != nil:
			return &exit{exitInterrupted, errors.New("interrupted")}
		case failure != nil && len(targets) == 1:
			return explain(failure)
		case failure != nil:
			failed, err = failed+1, explain(failure)
			fmt.Fprintf(p.ErrOut, "%s: error: %s\n", p.name(o), safe(err.Error()))
		default:
			fmt.Fprintf(p.Out, "%s: %s\n", p.name(o), safe(answer.Status.Message))
		}
	}
	if failed > 0 && failed < len(targets) {
		return &exit{exitPartly, fmt.Errorf("%d of %s failed", failed, counted(len(targets), "Approval"))}
	}
	return err
}
