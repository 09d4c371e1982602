// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

func newApprove(p *plugin) *cobra.Command {
	return newDecision(p, "approve", "Approves the content of a workload, which is then restarted", v1alpha1.ApprovalApproved)
}

func newDeny(p *plugin) *cobra.Command {
	return newDecision(p, "deny", "Denies the content of a workload, which is not restarted for it", v1alpha1.ApprovalDenied)
}

func newDecision(p *plugin, verb, short string, decision v1alpha1.ApprovalDecision) *cobra.Command {
	spec := v1alpha1.ApprovalSpec{Decision: decision}
	c := &cobra.Command{
		Use:   verb + " WORKLOAD",
		Short: short,
		Long: `Creates an Approval with the decision ` + string(decision) + ` for a workload that needs one before it is restarted,
and prints what has changed. It is about the content that the workload has at this time, or that --hash names.
The user needs the rights to get configdependencies and to create configdependencies/approval.`,
		Example: `  # What has changed, and the hash of that content
  kubectl configdep why deploy/web

  kubectl configdep ` + verb + ` deploy/web --reason "see INC-4711"`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: once(p.completeWorkloads),
		RunE:              func(c *cobra.Command, args []string) error { return p.approve(c.Context(), args[0], spec) },
	}
	c.Flags().StringVar(&spec.Reason, "reason", "", "Why, for the event and the annotation; at most 256 characters.")
	c.Flags().StringVar(&spec.ConfigHash, "hash", "", "The hash of the content, as status.configHash and the message have it; the current one if empty.")
	return c
}

func (p *plugin) approve(ctx context.Context, workload string, spec v1alpha1.ApprovalSpec) error {
	o, err := p.get(ctx, workload)
	if err != nil {
		return err
	}
	client, err := p.configdep()
	if err != nil {
		return err
	}
	fmt.Fprintf(p.Out, "%s: %s\n", p.name(o), safe(o.Status.Message))
	spec.ConfigHash = cmp.Or(spec.ConfigHash, o.Status.ConfigHash)
	answer, err := client.ConfigDependencies(o.Namespace).Approve(ctx, o.Name, &v1alpha1.Approval{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return explain(err)
	}
	fmt.Fprintf(p.Out, "%s: %s\n", p.name(o), safe(answer.Status.Message))
	return nil
}
