// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

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
code hosts draw Mermaid; Graphviz draws DOT; browsers draw SVG. HTML is one page for
thousands of workloads, with search and keyboard navigation. It needs no network.`,
		Example: `  # A picture of a namespace
  kubectl configdep graph -n shop -o svg >shop.svg

  # A page with all workloads of the cluster, to search in
  kubectl configdep graph -A -o html >cluster.html

  # Everything around one Secret, for a Markdown document
  kubectl configdep graph --uses secret/db`,
		ValidArgsFunction: p.completeWorkloads,
		RunE: func(c *cobra.Command, args []string) error {
			draw, known := graphs[format]
			if !known {
				return fmt.Errorf("--output=%s: want mermaid, dot, svg or html", format)
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
			drawn := newPicture(some)
			drawn.title, drawn.at = p.heading(args, uses), time.Now()
			return draw(p.Out, drawn)
		},
	}
	c.Flags().StringVarP(&format, "output", "o", format, "The language of the graph: mermaid, dot, svg or html.")
	c.Flags().StringVar(&uses, "uses", "", "The workloads that use this source, such as secret/db.")
	return p.lists(c)
}

// heading says what the graph is about.
func (p *plugin) heading(workloads []string, uses string) string {
	switch {
	case uses != "":
		return "Users of " + uses + " " + p.where()
	case len(workloads) > 0:
		return strings.Join(workloads, ", ") + " " + p.where()
	case p.all:
		return "All namespaces"
	default:
		namespace, _ := p.namespace() // an error has been returned earlier
		return "Namespace " + namespace
	}
}

// picture is a graph: nodes with a class each, and edges from workloads to sources.
type picture struct {
	title string
	at    time.Time
	nodes []node
	edges []edge
}

type node struct {
	label, class string
	source       bool
	state        string // in words; empty: of a source that is there
}

// text returns the label with the state, for languages that have but colours for that.
func (n *node) text() string {
	if n.state == "" {
		return n.label
	}
	return n.label + ": " + n.state
}

type edge struct {
	from, to int // nodes
	label    string
	stale    bool // pods run with old content
}

// newPicture returns the graph of workloads and what they use. Names have their namespace if there are several.
func newPicture(some []*v1alpha1.ConfigDependency) *picture {
	out := &picture{}
	sources := map[inNamespace]int{}
	several := slices.ContainsFunc(some, func(o *v1alpha1.ConfigDependency) bool { return o.Namespace != some[0].Namespace })
	label := func(o *v1alpha1.ConfigDependency, name string) string {
		if several {
			name = o.Namespace + "/" + name
		}
		return safe(name)
	}
	for _, o := range some {
		from := len(out.nodes)
		state := string(o.Status.State)
		out.nodes = append(out.nodes, node{label(o, shown(o)), strings.ToLower(state), false, state})
		for i := range o.Spec.Sources {
			s := &o.Spec.Sources[i]
			of := sourceName{s.Kind, s.Name}
			key := inNamespace{o.Namespace, of}
			_, status := of.of(o)
			to, is := sources[key]
			if !is {
				to = len(out.nodes)
				sources[key] = to
				out.nodes = append(out.nodes, node{label(o, of.String()), "source", true, ""})
			}
			if status != nil && status.Present != nil && !*status.Present && !s.Optional {
				out.nodes[to].class, out.nodes[to].state = "missing", "missing"
			}
			e := edge{from, to, usedAs(s), status != nil && status.StalePods > 0}
			if e.stale {
				e.label += ", stale"
			}
			out.edges = append(out.edges, e)
		}
	}
	return out
}

// fills are the colours of classes.
var fills = map[string]string{
	"insync": "#d5f5d5", "stale": "#f8c8c8", "blocked": "#f8c8c8", "failed": "#f8c8c8", "unknown": "#eeeeee",
	"settling": "#fdf0c0", "pending": "#fdf0c0", "rollingout": "#fdf0c0", "source": "#dde8f8", "missing": "#f8c8c8",
}

var graphs = map[string]func(io.Writer, *picture) error{"mermaid": mermaid, "dot": dot, "svg": svg, "html": html}

// inMermaid is what stands for itself in a text of Mermaid, which has directives and HTML.
var inMermaid = regexp.MustCompile(`[^\w./ :,*-]`)

func ofMermaid(text string) string {
	return inMermaid.ReplaceAllStringFunc(text, func(c string) string { return fmt.Sprintf("#%d;", []rune(c)[0]) })
}

func mermaid(w io.Writer, of *picture) error {
	var b strings.Builder
	b.WriteString("graph LR\n")
	for i, n := range of.nodes {
		fmt.Fprintf(&b, "  n%d[\"%s\"]:::%s\n", i, ofMermaid(n.text()), n.class)
	}
	for _, e := range of.edges {
		fmt.Fprintf(&b, "  n%d -->|%s| n%d\n", e.from, ofMermaid(e.label), e.to)
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
		fmt.Fprintf(&b, "  n%d [label=%s, fillcolor=%q]\n", i, strconv.Quote(n.text()), fills[n.class])
	}
	for _, e := range of.edges {
		fmt.Fprintf(&b, "  n%d -> n%d [label=%s]\n", e.from, e.to, strconv.Quote(e.label))
	}
	b.WriteString("}\n")
	_, err := io.WriteString(w, b.String())
	return err
}
