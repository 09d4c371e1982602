// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/kubectl/pkg/util/term"
	"sigs.k8s.io/yaml"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/generated/clientset/versioned/scheme"
)

// prints adds the flag -o to a command that shows objects.
func (p *plugin) prints(c *cobra.Command) *cobra.Command {
	flags := genericclioptions.NewPrintFlags("").WithTypeSetter(scheme.Scheme)
	flags.AddFlags(c)
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		p.print = flags
		return run(c, args)
	}
	return c
}

// asked reports whether -o asks for another form than a table.
func (p *plugin) asked() bool { return *p.print.OutputFormat != "" }

// object prints an object in the form that -o asks for.
func (p *plugin) object(o runtime.Object) error {
	printer, err := p.print.ToPrinter()
	if err != nil {
		return err
	}
	return printer.PrintObj(o, p.Out)
}

// objects prints ConfigDependencies in the form that -o asks for.
func (p *plugin) objects(some []*v1alpha1.ConfigDependency) error {
	if *p.print.OutputFormat == "name" { // which cannot print typed lists
		for _, o := range some {
			if err := p.object(o); err != nil {
				return err
			}
		}
		return nil
	}
	list := v1alpha1.ConfigDependencyList{Items: make([]v1alpha1.ConfigDependency, len(some))}
	for i, o := range some {
		list.Items[i] = *o
		list.Items[i].SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("ConfigDependency"))
	}
	return p.object(&list)
}

// forms adds the flag -o to a command that shows what is no object of the API.
func (p *plugin) forms(c *cobra.Command, form *string, more string) {
	c.Flags().StringVarP(form, "output", "o", "", strings.TrimSpace("Print json, yaml or name instead of a table. "+more))
	p.completes(c, "output", cobra.FixedCompletions([]string{"json", "yaml", "name"}, cobra.ShellCompDirectiveNoFileComp))
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if !slices.Contains([]string{"", "json", "yaml", "name"}, *form) {
			return fmt.Errorf("--output=%s: want json, yaml or name", *form)
		}
		return run(c, args)
	}
}

// data prints what is no object of the API in one of the forms; none: it has been printed.
func (p *plugin) data(form string, of any, names []string) error {
	switch form {
	case "json":
		return indented(p.Out, of)
	case "yaml":
		text, err := yaml.Marshal(of)
		if err != nil {
			return err
		}
		_, err = p.Out.Write(text)
		return err
	case "name":
		for _, name := range names {
			fmt.Fprintln(p.Out, name)
		}
	}
	return nil
}

// table prints rows under their headings, and with the namespace if there are several.
type table struct {
	w io.Writer
	p *plugin
}

func (p *plugin) table(headings ...string) *table {
	t := &table{printers.GetNewTabWriter(p.Out), p}
	t.row("NAMESPACE", headings...)
	return t
}

func (t *table) row(namespace string, cells ...string) {
	if t.p.all {
		cells = append([]string{namespace}, cells...)
	}
	for i, c := range cells {
		if cells[i] = safe(c); c == "" {
			cells[i] = "-"
		}
	}
	fmt.Fprintln(t.w, strings.Join(cells, "\t"))
}

func (t *table) end() error {
	if f, ok := t.w.(interface{ Flush() error }); ok {
		return f.Flush()
	}
	return nil
}

// rows prints rows under their headings, also as Markdown.
func (p *plugin) rows(markdown bool, headings []string, rows [][]string) error {
	if !markdown {
		t := &table{printers.GetNewTabWriter(p.Out), p}
		for _, cells := range append([][]string{headings}, rows...) {
			for i := range cells {
				cells[i] = safe(cells[i])
			}
			fmt.Fprintln(t.w, strings.Join(cells, "\t"))
		}
		return t.end()
	}
	for i, cells := range append([][]string{headings}, rows...) {
		for j := range cells {
			cells[j] = strings.ReplaceAll(safe(cells[j]), "|", `\|`)
		}
		fmt.Fprintf(p.Out, "| %s |\n", strings.Join(cells, " | "))
		if i == 0 {
			fmt.Fprintf(p.Out, "|%s\n", strings.Repeat(" --- |", len(cells)))
		}
	}
	return nil
}

// safe returns a text that others may have written, such as the path of a volume, in one line, and without what a terminal acts upon or reorders.
func safe(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// colours of states, all of one length, so that they do not move columns.
const (
	plain  = "\x1b[39m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
)

// coloured returns a text in a colour if output goes to a terminal.
func (p *plugin) coloured(colour, text string) string {
	if os.Getenv("NO_COLOR") != "" || !term.IsTerminal(p.Out) {
		return text
	}
	return colour + text + plain
}

// state returns a state in its colour.
func (p *plugin) state(s v1alpha1.State) string {
	switch s {
	case v1alpha1.StateInSync:
		return p.coloured(green, string(s))
	case v1alpha1.StateStale, v1alpha1.StateBlocked, v1alpha1.StateFailed:
		return p.coloured(red, string(s))
	default:
		return p.coloured(yellow, string(s))
	}
}

// ago returns how long ago a time was; empty: it is not known.
func ago(t *metav1.Time) string {
	if t.IsZero() {
		return ""
	}
	return duration.HumanDuration(time.Since(t.Time))
}

// counted returns "1 workload" or "2 workloads".
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// inOrder sorts ConfigDependencies by namespace and name.
func inOrder(some []*v1alpha1.ConfigDependency) {
	slices.SortFunc(some, func(a, b *v1alpha1.ConfigDependency) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
}
