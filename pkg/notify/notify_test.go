// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/metrics"
)

var web = dependency.WorkloadKey{Kind: "Deployment", Namespace: "shop", Name: "web"}

// Each sink makes of an event what its readers need: users an Event, but of nothing that they need not know.
func TestKubernetesEvents(t *testing.T) {
	recorder := record.NewFakeRecorder(10)
	recorder.IncludeObject = true
	sinks := Sinks{KubernetesEvents{Recorder: recorder}, KubernetesEvents{Recorder: recorder}}
	sinks.Notify(Event{What: Restarted, Workload: web, Message: "Restarted because Secret/db has changed"})
	sinks.Notify(Event{What: RestartConflicted, Workload: web})
	KubernetesEvents{Recorder: recorder}.Notify(Event{What: RestartFailed, Workload: dependency.WorkloadKey{Kind: "Unknown"}, Message: "no"})
	close(recorder.Events)
	var got []string
	for e := range recorder.Events {
		got = append(got, e)
	}
	restarted := "Normal ConfigRestarted Restarted because Secret/db has changed involvedObject{kind=Deployment,apiVersion=apps/v1}"
	if diff := cmp.Diff([]string{restarted, restarted, "Warning ConfigRestartFailed no involvedObject{kind=Unknown,apiVersion=}"}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// What happens is told of in words, but for what users need not know.
func TestKubernetesEvents_OfAll(t *testing.T) {
	for _, what := range Whats() {
		if what == RestartConflicted { // decided again at once
			continue
		}
		if !strings.HasPrefix(reasons[what].reason, "Config") || reasons[what].eventType == "" {
			t.Errorf("no Event is left of %s", what)
		}
	}
}

// Names of sources are no labels, and only restarts are counted.
func TestMetrics(t *testing.T) {
	metrics.Register()
	due := time.Unix(1_000_000, 0)
	for _, e := range []Event{
		{What: Restarted, Workload: web, Trigger: "Secret/db", At: due.Add(time.Second), DueAt: due},
		{What: Restarted, Workload: web, Trigger: "Request", At: due},
		{What: RestartConflicted, Workload: web, Trigger: "Secret/db"},
		{What: RestartFailed, Workload: web, Trigger: "Secret/db"},
		{What: LookUpFailed, Workload: web},
	} {
		Metrics{}.Notify(e)
	}
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "configdep_") {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			switch {
			case m.GetCounter() != nil:
				got[f.GetName()+" "+strings.Join(labels, " ")] = m.GetCounter().GetValue()
			case m.GetHistogram() != nil:
				got[f.GetName()+" "+strings.Join(labels, " ")] = float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	for name, want := range map[string]float64{
		"configdep_rollouts_total Deployment shop success Secret":  1,
		"configdep_rollouts_total Deployment shop success Request": 1,
		"configdep_rollouts_total Deployment shop conflict Secret": 1,
		"configdep_rollouts_total Deployment shop error Secret":    1,
		"configdep_rollout_patch_delay_seconds ":                   1,
	} {
		if got[name] != want {
			t.Errorf("%s: %v, want %v; there are %v", name, got[name], want, got)
		}
	}
}

// Filters of sinks accept what Whats returns.
func TestWhats_AreAll(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "notify.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var want []What
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, is := n.(*ast.ValueSpec); is && len(spec.Values) == 1 {
			if value, is := spec.Values[0].(*ast.BasicLit); is {
				want = append(want, What(strings.Trim(value.Value, `"`)))
			}
		}
		return true
	})
	if diff := cmp.Diff(want, Whats()); diff != "" || len(want) < 10 {
		t.Errorf("Whats (-constants +got):\n%s", diff)
	}
}
