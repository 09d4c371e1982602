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

// docs/agent.md has all flags of the agent: -update writes them.
func TestFlagsOfTheAgent(t *testing.T) {
	const name, begin, end = "../../docs/agent.md", "<!-- flags -->\n", "<!-- /flags -->\n"
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	before, after, found := strings.Cut(string(text), begin)
	_, rest, ends := strings.Cut(after, end)
	if !found || !ends {
		t.Fatalf("%s has no place for the flags", name)
	}
	want := before + begin + tableOf("configdep-agent", options.New().AddFlags) + "\n" + tableOf("configdep-agent restarter", restarter.NewOptions().AddFlags) + end + rest
	if want == string(text) {
		return
	}
	if !*update {
		t.Fatalf("%s does not have the flags as they are: go test ./test/documents -run %s -update", name, t.Name())
	}
	if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}
