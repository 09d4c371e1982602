// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package documents

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/configdep/configdep/pkg/agent/options"
	"github.com/configdep/configdep/pkg/agent/restarter"
	"github.com/configdep/configdep/pkg/plugin"
)

// tableOf returns the flags of a program as a table.
func tableOf(program string, add func(*pflag.FlagSet)) string {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	add(f)
	var out strings.Builder
	fmt.Fprintf(&out, "| flag of `%s` | default | meaning |\n|---|---|---|\n", program)
	f.VisitAll(func(f *pflag.Flag) {
		value := ""
		if f.DefValue != "" && f.DefValue != "[]" {
			value = "`" + f.DefValue + "`"
		}
		fmt.Fprintf(&out, "| `--%s` | %s | %s |\n", f.Name, value, strings.ReplaceAll(f.Usage, "|", `\|`))
	})
	return out.String()
}

// The documents have all flags of the agent, and all commands of kubectl configdep: -update writes them.
func TestGenerated(t *testing.T) {
	agent := tableOf("configdep-agent", options.New().AddFlags) + "\n" + tableOf("configdep-agent restarter", restarter.NewOptions().AddFlags)
	for name, want := range map[string]string{"agent.md": agent, "plugin.md": plugin.Document()} {
		t.Run(name, func(t *testing.T) { generated(t, "../../docs/"+name, want) })
	}
}

// generated checks that a document has a text between two marks.
func generated(t *testing.T, name, what string) {
	t.Helper()
	const begin, end = "<!-- generated -->\n", "<!-- /generated -->\n"
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	before, after, found := strings.Cut(string(text), begin)
	_, rest, ends := strings.Cut(after, end)
	if !found || !ends {
		t.Fatalf("%s has no place for what is generated", name)
	}
	want := before + begin + what + end + rest
	if want == string(text) {
		return
	}
	if !*update {
		t.Fatalf("%s is not as generated: go test ./test/documents -run TestGenerated -update", name)
	}
	if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}
