// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package documents

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/spf13/pflag"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/configdep/configdep/pkg/agent/options"
	"github.com/configdep/configdep/pkg/agent/restarter"
	serveroptions "github.com/configdep/configdep/pkg/apiserver/options"
	"github.com/configdep/configdep/pkg/metrics"
	"github.com/configdep/configdep/pkg/plugin"
)

// tableOf returns the flags of a program as a table.
func tableOf(program string, add func(*pflag.FlagSet)) string {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	add(f)
	var out strings.Builder
	fmt.Fprintf(&out, "| flag of `%s` | default | meaning |\n|---|---|---|\n", program)
	f.VisitAll(func(f *pflag.Flag) { out.WriteString(rowOf(f)) })
	return out.String()
}

// inCell escapes what Markdown would not print in a cell of a table as it is.
var inCell = strings.NewReplacer("|", `\|`, "*", `\*`, "<", `\<`)

// rowOf returns a flag as a row of a table.
func rowOf(f *pflag.Flag) string {
	value := f.DefValue
	if list, found := strings.CutPrefix(value, "["); found {
		value = strings.TrimSuffix(list, "]")
	}
	if value != "" {
		value = "`" + value + "`"
	}
	return fmt.Sprintf("| `--%s` | %s | %s |\n", f.Name, value, inCell.Replace(f.Usage))
}

// ours are the groups of flags of the server that are not those of every API server.
var ours = []string{
	"server", "scope", "restart", "kinds of workloads", "annotations of other tools", "notifications", "leader election", "serving certificate", "reloader",
}

// serverFlags returns the flags of the server: a table for each of our groups.
func serverFlags(t *testing.T) string {
	t.Helper()
	sets := serveroptions.NewOptions().Flags()
	title := func(group string) string { return strings.ToUpper(group[:1]) + group[1:] }
	var out strings.Builder
	for _, group := range ours {
		set := sets.FlagSets[group]
		if set == nil {
			t.Fatalf("the server has no flags of the group %q", group)
		}
		fmt.Fprintf(&out, "## %s\n\n| flag | default | meaning |\n|---|---|---|\n", title(group))
		set.VisitAll(func(f *pflag.Flag) { out.WriteString(rowOf(f)) })
		out.WriteByte('\n')
	}
	return out.String()
}

// server has one of everything that metrics count.
type server struct{}

func (server) WorkloadStates() map[string]int { return map[string]int{"InSync": 1} }
func (server) Waiting() map[string]int        { return map[string]int{"Budget": 1} }
func (server) StalePods() map[string]metrics.StalePods {
	return map[string]metrics.StalePods{"shop": {Pods: 1, Since: time.Now()}}
}
func (server) IndexSize() (workloads, sources int) { return 1, 1 }
func (server) LastProgress() map[string]time.Time  { return map[string]time.Time{"secrets": time.Now()} }
func (server) Revisions() (uint64, bool)           { return 1, true }
func (server) Watches() (open, events int)         { return 1, 1 }
func (server) CertificateExpiry() time.Time        { return time.Now() }
func (server) MissingSecrets() map[string]bool     { return map[string]bool{"key": true} }
func (server) Forbidden() map[string]bool          { return map[string]bool{"boats": true} }

// serverMetrics returns the metrics of configdep as a table. All that have a name in pkg/metrics must be in it.
func serverMetrics(t *testing.T) string {
	t.Helper()
	metrics.Register()
	metrics.Rollout("Deployment", "shop", metrics.Success, "Secret")
	metrics.Rewrites("shop", 1)
	metrics.Notifications("oncall", metrics.NotificationDelivered, 1)
	metrics.Observe(server{})
	all, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, f := range all {
		if name := f.GetName(); strings.HasPrefix(name, "configdep_") {
			rows[name] = metricRow(f)
		}
	}
	named := map[string]bool{}
	for _, file := range []string{"metrics.go", "state.go"} {
		for _, found := range regexp.MustCompile(`"(configdep_\w+)"`).FindAllStringSubmatch(read(t, "pkg/metrics/"+file), -1) {
			named[found[1]] = true
		}
	}
	names := slices.Sorted(maps.Keys(rows))
	if diff := cmp.Diff(slices.Sorted(maps.Keys(named)), names); diff != "" {
		t.Fatalf("metrics in pkg/metrics that the table lacks, or has in addition (-want +got):\n%s", diff)
	}
	var out strings.Builder
	out.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, name := range names {
		out.WriteString(rows[name])
	}
	return out.String()
}

func metricRow(f *dto.MetricFamily) string {
	var labels []string
	for _, l := range f.GetMetric()[0].GetLabel() {
		labels = append(labels, "`"+l.GetName()+"`")
	}
	return fmt.Sprintf("| %#q | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, ", "),
		inCell.Replace(strings.TrimPrefix(f.GetHelp(), "[ALPHA] ")))
}

// The documents have all flags of the programs, all commands of kubectl configdep, and all metrics: -update writes them.
func TestGenerated(t *testing.T) {
	agent := tableOf("configdep-agent", options.New().AddFlags) + "\n" + tableOf("configdep-agent restarter", restarter.NewOptions().AddFlags)
	for name, want := range map[string]string{
		"agent.md": agent, "plugin.md": plugin.Document(), "flags.md": serverFlags(t), "metrics.md": serverMetrics(t),
	} {
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
