// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

func newGraph(p *plugin) *cobra.Command {
	format, uses := "mermaid", ""
	c := &cobra.Command{
		Use:   "graph [WORKLOAD...]",
		Short: "Draws which workloads use which ConfigMaps and Secrets",
		Long: `Prints a graph of workloads and the ConfigMaps and Secrets that they use, with their
states: of those that are named, that use a source, or of the namespace. Documents and
code hosts draw Mermaid; Graphviz draws DOT.`,
		Example: `  # A picture of a namespace
  kubectl configdep graph -n shop -o dot | dot -Tsvg >shop.svg

  # Everything around one Secret, for a Markdown document
  kubectl configdep graph --uses secret/db`,
		ValidArgsFunction: p.completeWorkloads,
		RunE: func(c *cobra.Command, args []string) error {
			draw, known := graphs[format]
			if !known {
				return fmt.Errorf("--output=%s: want mermaid or dot", format)
			}
			if len(args) > 0 && (uses != "" || p.selector != "" || p.all) {
				return fmt.Errorf("name workloads, or select them, but not both")
			}
			var some []*v1alpha1.ConfigDependency
			var err error
			switch {
			case uses != "":
				_, some, err = p.users(c.Context(), uses)
			case len(args) == 0:
				some, err = p.list(c.Context(), nil)
			}
			for i := 0; i < len(args) && err == nil; i++ {
				var o *v1alpha1.ConfigDependency
				if o, err = p.get(c.Context(), args[i]); err == nil {
					some = append(some, o)
				}
			}
			if err != nil {
				return err
			}
			inOrder(some)
			return draw(p.Out, newPicture(some))
		},
	}
	c.Flags().StringVarP(&format, "output", "o", format, "The language of the graph: mermaid or dot.")
	c.Flags().StringVar(&uses, "uses", "", "The workloads that use this source, such as secret/db.")
	return p.lists(c)
}

// picture is a graph: nodes with a class each, and edges between them.
type picture struct {
	nodes []node
	edges []edge
}

type node struct{ label, class string }

type edge struct {
	from, to int // nodes
	label    string
}

// newPicture returns the graph of workloads and what they use.
func newPicture(some []*v1alpha1.ConfigDependency) *picture {
	out := &picture{}
	sources := map[inNamespace]int{}
	for _, o := range some {
		from := len(out.nodes)
		out.nodes = append(out.nodes, node{shown(o), strings.ToLower(string(o.Status.State))})
		for i := range o.Spec.Sources {
			s := &o.Spec.Sources[i]
			of := sourceName{s.Kind, s.Name}
			key := inNamespace{o.Namespace, of}
			_, status := of.of(o)
			to, is := sources[key]
			if !is {
				class := "source"
				if status != nil && status.Present != nil && !*status.Present && !s.Optional {
					class = "missing"
				}
				to = len(out.nodes)
				sources[key] = to
				out.nodes = append(out.nodes, node{of.String(), class})
			}
			label := usedAs(s)
			if status != nil && status.StalePods > 0 {
				label += ", stale"
			}
			out.edges = append(out.edges, edge{from, to, label})
		}
	}
	return out
}

// fills are the colours of classes.
var fills = map[string]string{
	"insync": "#d5f5d5", "stale": "#f8c8c8", "blocked": "#f8c8c8", "failed": "#f8c8c8", "unknown": "#eeeeee",
	"settling": "#fdf0c0", "pending": "#fdf0c0", "rollingout": "#fdf0c0", "source": "#dde8f8", "missing": "#f8c8c8",
}

var graphs = map[string]func(io.Writer, *picture) error{"mermaid": mermaid, "dot": dot}

func mermaid(w io.Writer, of *picture) error {
	var b strings.Builder
	b.WriteString("graph LR\n")
	for i, n := range of.nodes {
		fmt.Fprintf(&b, "  n%d[\"%s\"]:::%s\n", i, strings.ReplaceAll(n.label, `"`, "#quot;"), n.class)
	}
	for _, e := range of.edges {
		fmt.Fprintf(&b, "  n%d -->|%s| n%d\n", e.from, e.label, e.to)
	}
	for _, class := range of.classes() {
		fmt.Fprintf(&b, "  classDef %s fill:%s\n", class, fills[class])
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// classes returns the classes of the nodes, in order.
func (of *picture) classes() (out []string) {
	for _, n := range of.nodes {
		out = append(out, n.class)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func dot(w io.Writer, of *picture) error {
	var b strings.Builder
	b.WriteString("digraph configdep {\n  rankdir=LR\n  node [shape=box, style=filled]\n")
	for i, n := range of.nodes {
		fmt.Fprintf(&b, "  n%d [label=%s, fillcolor=%q]\n", i, strconv.Quote(n.label), fills[n.class])
	}
	for _, e := range of.edges {
		fmt.Fprintf(&b, "  n%d -> n%d [label=%s]\n", e.from, e.to, strconv.Quote(e.label))
	}
	b.WriteString("}\n")
	_, err := io.WriteString(w, b.String())
	return err
}
