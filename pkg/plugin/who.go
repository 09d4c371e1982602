// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

func newWho(p *plugin) *cobra.Command {
	pods := false
	c := &cobra.Command{
		Use:   "who SOURCE",
		Short: "Lists the workloads that use a ConfigMap or Secret, and how",
		Long: `Lists the workloads that use a ConfigMap or Secret, and how.

With --pods, it lists the containers that run without its current content, or may. The
command ends with code 2 if there is one: until then, the old content is in use.`,
		Example: `  # Who uses the Secret
  kubectl configdep who secret/db

  # Which pods still have the old Secret, before it is revoked
  kubectl configdep who secret/db --pods`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: once(p.completeSources),
		RunE: func(c *cobra.Command, args []string) error {
			source, users, err := p.users(c.Context(), args[0])
			if err != nil {
				return err
			}
			inOrder(users)
			if pods && p.asked() {
				return errors.New("--pods lists containers, which -o cannot print: leave out one of them")
			}
			if len(users) == 0 {
				if err := p.exists(c.Context(), source); err != nil {
					return err
				}
				fmt.Fprintf(p.ErrOut, "No workload %s names %s.\n", p.where(), source)
			}
			switch {
			case p.asked():
				return p.objects(users)
			case len(users) == 0 && pods: // a rollout that removes it may have just begun
				return &exit{exitError, nil}
			case len(users) == 0:
				return nil
			case pods:
				return p.behind(c.Context(), source, users)
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
	c.Flags().BoolVar(&pods, "pods", false, "List containers that run without its current content, or may.")
	return p.prints(p.lists(c))
}

// exists returns an error if it is known that there is no source of the name in the namespace.
func (p *plugin) exists(ctx context.Context, s sourceName) error {
	resource, found := resources[s.kind]
	namespace, err := p.namespace()
	if err != nil || !found || namespace == "" {
		return err
	}
	client, err := p.metadata()
	if err != nil {
		return err
	}
	if _, err = client.Resource(resource).Namespace(namespace).Get(ctx, s.name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no %s in namespace %s, and no workload names it", s, namespace)
	}
	return nil // it is there, or the user may not know
}

// behind prints the containers that have not read the current content of a source, or may not have.
func (p *plugin) behind(ctx context.Context, source sourceName, users []*v1alpha1.ConfigDependency) error {
	t := p.table("WORKLOAD", "POD", "CONTAINER", "STATE", "STARTED", "REASON")
	some := false
	for _, o := range users {
		client, err := p.configdep()
		if err != nil {
			return err
		}
		pods, err := client.ConfigDependencies(o.Namespace).GetPods(ctx, o.Name, metav1.GetOptions{})
		if err != nil {
			return explain(err)
		}
		more := pods.Truncated
		for i := range pods.Pods {
			pod := &pods.Pods[i]
			for j := range pod.Containers {
				c := &pod.Containers[j]
				more = more || c.MoreSources > 0
				for _, s := range c.Sources { // those that are not current
					if s.Kind == source.kind && s.Name == source.name {
						some = true
						t.row(o.Namespace, shown(o), pod.Name, c.Name, string(s.State), ago(c.StartedAt), s.Reason)
					}
				}
			}
		}
		if more {
			some = true
			t.row(o.Namespace, shown(o), "others", "", string(v1alpha1.ContentUnknown), "", "the answer of the server is cut")
		}
	}
	if !some {
		fmt.Fprintf(p.ErrOut, "All containers that read %s %s have its current content.\n", source, p.where())
		return nil
	}
	return errors.Join(t.end(), found(true))
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
