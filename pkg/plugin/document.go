// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// ofKubectl are flags that print as those of "kubectl get" do, which the reference leaves out.
var ofKubectl = []string{"allow-missing-template-keys", "show-managed-fields", "template"}

// Document returns the reference of the commands in Markdown: what their help says, and the exit codes.
func Document() string {
	var b strings.Builder
	b.WriteString("| exit code | meaning |\n|---|---|\n")
	for _, c := range exitCodes {
		fmt.Fprintf(&b, "| %d | %s |\n", c.code, c.meaning)
	}
	root := New(genericiooptions.IOStreams{})
	for _, c := range root.Commands() {
		document(&b, c)
	}
	return b.String()
}

func document(b *strings.Builder, c *cobra.Command) {
	fmt.Fprintf(b, "\n### %s\n\n%s\n\n", c.Name(), text(c))
	fmt.Fprintf(b, "```console\nkubectl configdep %s\n```\n", c.UseLine()[len("kubectl configdep "):])
	if c.HasExample() {
		fmt.Fprintf(b, "\n```console\n%s\n```\n", unindented(c.Example))
	}
	if c.LocalNonPersistentFlags().HasFlags() {
		b.WriteString("\n| flag | default | meaning |\n|---|---|---|\n")
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden || f.Name == "help" || slices.Contains(ofKubectl, f.Name) {
				return
			}
			name, value := "--"+f.Name, ""
			if f.Shorthand != "" {
				name = "-" + f.Shorthand + ", " + name
			}
			if f.DefValue != "" && f.DefValue != "[]" {
				value = "`" + f.DefValue + "`"
			}
			fmt.Fprintf(b, "| `%s` | %s | %s |\n", name, value, strings.ReplaceAll(f.Usage, "|", `\|`))
		})
	}
}

// text returns what a command does.
func text(c *cobra.Command) string {
	if c.Long != "" {
		return c.Long
	}
	return c.Short + "."
}

func unindented(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}
