// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

func newPods(p *plugin) *cobra.Command {
	c := &cobra.Command{
		Use:   "pods WORKLOAD",
		Short: "Lists the pods of a workload, with what their containers run with",
		Example: `  # Which pods have read the old Secret
  kubectl configdep pods deploy/web`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: once(p.completeWorkloads),
		RunE: func(c *cobra.Command, args []string) error {
			pods, err := p.pods(c.Context(), args[0])
			if err != nil {
				return err
			}
			if p.asked() {
				return p.object(pods)
			}
			return p.podTable(pods)
		},
	}
	return p.prints(c)
}

func (p *plugin) pods(ctx context.Context, workload string) (*v1alpha1.ConfigDependencyPods, error) {
	name, client, err := p.find(workload)
	if err != nil {
		return nil, err
	}
	pods, err := client.GetPods(ctx, name, metav1.GetOptions{})
	return pods, explain(err)
}

// podTable prints one row for each container, and first those that are stale.
func (p *plugin) podTable(pods *v1alpha1.ConfigDependencyPods) error {
	if len(pods.Pods) == 0 {
		fmt.Fprintln(p.ErrOut, safe(pods.Message))
		return nil
	}
	t := p.table("POD", "CONTAINER", "STATE", "STARTED", "REASON", "SOURCES")
	for i := range pods.Pods {
		pod := &pods.Pods[i]
		for j := range pod.Containers {
			c := &pod.Containers[j]
			state := string(c.State)
			if pod.DeletionTimestamp != nil {
				state = "Terminating"
			}
			t.row(pods.Namespace, pod.Name, c.Name, state, ago(c.StartedAt), c.Reason, evidence(c))
		}
	}
	if err := t.end(); err != nil {
		return err
	}
	if pods.Truncated {
		fmt.Fprintf(p.ErrOut, "There are more pods: only %d are shown.\n", len(pods.Pods))
	}
	return nil
}

// evidence returns the sources of a container whose current content it has not read, or may not have.
func evidence(c *v1alpha1.ContainerContent) string {
	var out []string
	for _, s := range c.Sources {
		if s.State != v1alpha1.ContentCurrent {
			out = append(out, fmt.Sprintf("%s/%s (%s)", s.Kind, s.Name, s.Reason))
		}
	}
	return strings.Join(out, ", ")
}
