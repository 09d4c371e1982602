// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/render"
)

func newReport(p *plugin) *cobra.Command {
	format := "table"
	c := &cobra.Command{
		Use:   "report",
		Short: "Reports what is stale, missing and unused, without an installation",
		Long: `Reads a namespace, or with -A the cluster, once with the rights of the user, and reports which
workloads run with old content, or may, what they need and is missing, and which
ConfigMaps and Secrets no workload uses. Nothing is installed and nothing is written.

The contents of ConfigMaps and Secrets are read, digested with a key in memory, and
dropped; they are never printed. What was written after a container had started is
possibly stale, because nothing tells what the content was before.

Without the right to list Secrets, the report is about ConfigMaps alone, says so, and the
command ends with code 3.`,
		Example: `  # A first look at a cluster
  kubectl configdep report -A

  # In CI, as a comment
  kubectl configdep report -n shop -o markdown`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !slices.Contains([]string{"table", "json", "markdown"}, format) {
				return fmt.Errorf("--output=%s: want table, json or markdown", format)
			}
			r, err := p.report(c.Context())
			if err != nil {
				return err
			}
			if err := r.print(p, format); err != nil {
				return err
			}
			if len(r.NotRead) > 0 {
				return &exit{exitPartly, nil}
			}
			return found(len(r.Stale)+len(r.PossiblyStale)+len(r.Missing) > 0)
		},
	}
	c.Flags().BoolVarP(&p.all, "all-namespaces", "A", false, "Read all namespaces.")
	c.Flags().StringVarP(&format, "output", "o", format, "The form of the report: table, json or markdown.")
	return c
}

// report is what is found in a cluster. Its JSON is the output.
type report struct {
	Workloads     int      `json:"workloads"`
	Stale         []line   `json:"stale"`
	PossiblyStale []line   `json:"possiblyStale"`
	Missing       []line   `json:"missing"`
	Unused        []line   `json:"unused"`
	NotRead       []string `json:"notRead"` // resources
}

// line is one finding.
type line struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"` // of a workload or a source, as KIND/NAME
	Pods      string `json:"pods,omitempty"`
	Sources   string `json:"sources,omitempty"`
	Text      string `json:"text"`
}

// report reads what the flags select.
func (p *plugin) report(ctx context.Context) (*report, error) {
	namespace, err := p.namespace()
	if err != nil {
		return nil, err
	}
	scope := ingest.Scope{Kinds: kind.BuiltIn(), UnreadTypes: []string{string(corev1.SecretTypeServiceAccountToken), "helm.sh/release.v1"}}
	if namespace != "" {
		scope.Namespaces = []string{namespace}
	}
	r := &report{Stale: []line{}, PossiblyStale: []line{}, Missing: []line{}, Unused: []line{}, NotRead: []string{}}
	if scope.WithoutSecrets, err = p.mayNot(ctx, "secrets", namespace); err != nil {
		return nil, err
	}
	if scope.WithoutConfigMaps, err = p.mayNot(ctx, "configmaps", namespace); err != nil {
		return nil, err
	}
	switch {
	case scope.WithoutSecrets && scope.WithoutConfigMaps:
		return nil, &exit{exitForbidden, errors.New("you may list neither ConfigMaps nor Secrets")}
	case scope.WithoutSecrets:
		r.NotRead = append(r.NotRead, "secrets")
	case scope.WithoutConfigMaps:
		r.NotRead = append(r.NotRead, "configmaps")
	}
	x, denied, err := p.read(ctx, scope)
	if err != nil {
		return nil, err
	}
	for _, needed := range []string{"pods", "replicasets"} {
		if slices.Contains(denied, needed) {
			return nil, &exit{exitForbidden, fmt.Errorf("you may not list %s, without which nothing is known of what runs", needed)}
		}
	}
	r.NotRead = append(r.NotRead, slices.DeleteFunc(denied, func(resource string) bool { return resource == "namespaces" })...) // whose annotations are defaults
	return r, p.fill(ctx, r, scope, x)
}

// mayNot reports whether the user may not list a resource.
func (p *plugin) mayNot(ctx context.Context, resource, namespace string) (bool, error) {
	kube, err := p.kube()
	if err != nil {
		return false, err
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: resource, Namespace: namespace},
	}}
	answer, err := kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return !answer.Status.Allowed, nil
}

// read reads the cluster once.
func (p *plugin) read(ctx context.Context, scope ingest.Scope) (*ingest.Index, []string, error) {
	config, err := p.config.ToRESTConfig()
	if err != nil {
		return nil, nil, err
	}
	reader, err := ingest.NewReader(config, time.Minute)
	if err != nil {
		return nil, nil, err
	}
	x := ingest.NewIndex(clock.RealClock{})
	x.Within(scope)
	denied, err := x.ReadOnce(ctx, reader, newDigester())
	return x, denied, err
}

// newDigester returns a digester whose key is nowhere but in memory.
func newDigester() *dependency.Digester {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	return dependency.NewDigester(key)
}

// views returns the ConfigDependencies of an index.
func views(x *ingest.Index, kinds kind.Table) (out []*v1alpha1.ConfigDependency) {
	now := time.Now()
	x.Read(func(v decide.Evaluator) {
		v.Graph.EachWorkload(func(w *dependency.Workload) {
			e := v.Evaluate(w)
			out = append(out, render.ConfigDependency(kinds, e, e.Decide(now)))
		})
	})
	inOrder(out)
	return out
}

// fill adds what was found.
func (p *plugin) fill(ctx context.Context, r *report, scope ingest.Scope, x *ingest.Index) error {
	all := views(x, scope.Kinds)
	r.Workloads = len(all)
	for _, o := range all {
		of := line{Namespace: o.Namespace, Name: shown(o), Pods: fmt.Sprintf("%d/%d", o.Status.Pods.Current, o.Status.Pods.Total), Sources: changed(o)}
		switch {
		case o.Status.Pods.Stale > 0:
			of.Text = "its pods have read other content"
			r.Stale = append(r.Stale, of)
		case o.Status.Pods.Unknown > 0 && o.Status.Reason != v1alpha1.ReasonSourceMissing:
			of.Text = o.Status.Reason
			r.PossiblyStale = append(r.PossiblyStale, of)
		}
		if text := missingOf(o); text != "" {
			r.Missing = append(r.Missing, line{Namespace: o.Namespace, Name: shown(o), Text: text})
		}
	}
	unused, err := p.unusedBy(ctx, all, resourcesIn(scope))
	switch {
	case apierrors.IsForbidden(err):
	case err != nil:
		return err
	}
	for i := range unused {
		u := &unused[i]
		text := u.Why
		if u.Used == unknown {
			text = "perhaps: " + text
		}
		r.Unused = append(r.Unused, line{Namespace: u.Namespace, Name: u.Source, Text: text})
	}
	return nil
}

// changed returns the sources that were written after a pod had started, the last one first.
func changed(o *v1alpha1.ConfigDependency) string {
	some := slices.Clone(o.Status.Sources)
	some = slices.DeleteFunc(some, func(s v1alpha1.SourceStatus) bool { return s.LastChangeTime.IsZero() })
	slices.SortStableFunc(some, func(a, b v1alpha1.SourceStatus) int {
		return cmp.Or(cmp.Compare(b.StalePods, a.StalePods), b.LastChangeTime.Compare(a.LastChangeTime.Time))
	})
	var out []string
	for i := range min(len(some), 3) {
		out = append(out, fmt.Sprintf("%s/%s (%s ago)", some[i].Kind, some[i].Name, ago(some[i].LastChangeTime)))
	}
	return strings.Join(out, ", ")
}

// print prints a report.
func (r *report) print(p *plugin, format string) error {
	if format == "json" {
		return indented(p.Out, r)
	}
	if len(r.NotRead) > 0 {
		fmt.Fprintf(p.Out, "Not read, because you may not list them: %s. The report says nothing about them.\n\n", strings.Join(r.NotRead, ", "))
	}
	parts := []struct {
		title    string
		lines    []line
		headings []string
	}{
		{"Stale", r.Stale, []string{"WORKLOAD", "CURRENT PODS", "SOURCES", "WHY"}},
		{"Possibly stale", r.PossiblyStale, []string{"WORKLOAD", "CURRENT PODS", "LAST CHANGES", "WHY"}},
		{"Missing", r.Missing, []string{"WORKLOAD", "WHAT"}},
		{"Used by no workload", r.Unused, []string{"SOURCE", "WHY"}},
	}
	for _, part := range parts {
		title := fmt.Sprintf("%s: %d", part.title, len(part.lines))
		if format == "markdown" {
			fmt.Fprintf(p.Out, "### %s\n\n", title)
		} else {
			fmt.Fprintln(p.Out, title)
		}
		if len(part.lines) == 0 {
			fmt.Fprintln(p.Out)
			continue
		}
		var rows [][]string
		for _, l := range part.lines {
			cells := []string{l.Namespace, l.Name}
			if len(part.headings) == 4 {
				cells = append(cells, l.Pods, l.Sources)
			}
			rows = append(rows, append(cells, l.Text))
		}
		if err := p.rows(format == "markdown", append([]string{"NAMESPACE"}, part.headings...), rows); err != nil {
			return err
		}
		fmt.Fprintln(p.Out)
	}
	_, err := fmt.Fprintf(p.Out, "%s read.\n", counted(r.Workloads, "workload"))
	return err
}
