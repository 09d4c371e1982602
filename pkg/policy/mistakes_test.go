// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"slices"
	"testing"

	"github.com/configdep/configdep/pkg/policy"
)

// What has our prefix and says nothing is told, whether or not something opts the workload in, unless its owner has switched restarts off.
func TestNewPolicy_Mistakes(t *testing.T) {
	type m = map[string]string
	const names = "configdep.io/reload, configdep.io/sources, configdep.io/exclude, configdep.io/kinds, configdep.io/live-volumes, configdep.io/settle, configdep.io/min-interval, configdep.io/strategy, configdep.io/windows, configdep.io/hold, configdep.io/order, configdep.io/healthy-within, configdep.io/approval"
	for name, tt := range map[string]struct {
		policy.Annotated
		mode     policy.Mode
		problems []string
	}{
		"a misspelled name": {policy.Annotated{Workload: m{"configdep.io/relaod": "auto"}}, policy.Off,
			[]string{"unknown annotation configdep.io/relaod (did you mean configdep.io/reload?)"}},
		"in another case":                        {policy.Annotated{Workload: m{"configdep.io/Reload": "auto"}}, policy.Off, []string{"unknown annotation configdep.io/Reload (did you mean configdep.io/reload?)"}},
		"of a workload that has opted in":        {policy.Annotated{Workload: m{"configdep.io/setle": "5s", "configdep.io/reload": "auto"}}, policy.Auto, []string{"unknown annotation configdep.io/setle (did you mean configdep.io/settle?)"}},
		"far from any":                           {policy.Annotated{Workload: m{"configdep.io/on": "auto"}}, policy.Off, []string{"unknown annotation configdep.io/on: must be one of " + names + ", configdep.io/fields"}},
		"of several, the first":                  {policy.Annotated{Workload: m{"configdep.io/kind": "secret", "configdep.io/setle": "5s"}}, policy.Off, []string{"unknown annotation configdep.io/kind (did you mean configdep.io/kinds?)"}},
		"one of sources":                         {policy.Annotated{Workload: m{"configdep.io/match": "true"}}, policy.Off, []string{"unknown annotation configdep.io/match: it belongs on ConfigMaps and Secrets"}},
		"on the namespace":                       {policy.Annotated{Namespace: m{"configdep.io/relaod": "auto"}}, policy.Off, []string{"unknown annotation configdep.io/relaod on the Namespace (did you mean configdep.io/reload?)"}},
		"fields on the namespace":                {policy.Annotated{Namespace: m{"configdep.io/fields": "x"}}, policy.Off, []string{"unknown annotation configdep.io/fields on the Namespace: must be one of " + names}},
		"on the pod template":                    {policy.Annotated{Template: m{"configdep.io/reload": "auto"}}, policy.Off, []string{"annotation configdep.io/reload has no effect on the pod template: it must be on the workload itself"}},
		"of a Pod":                               {policy.Annotated{Workload: m{"configdep.io/reload": "auto"}, Template: m{"configdep.io/reload": "auto"}}, policy.Auto, nil},
		"a label":                                {policy.Annotated{Labels: m{"configdep.io/reload": "auto"}}, policy.Off, []string{"label configdep.io/reload has no effect: it must be an annotation"}},
		"sources, and nothing opts in":           {policy.Annotated{Workload: m{"configdep.io/sources": "secret/db"}}, policy.Off, []string{"annotation configdep.io/sources has no effect without configdep.io/reload"}},
		"other settings, and nothing opts in":    {policy.Annotated{Workload: m{"configdep.io/settle": "5s", "configdep.io/exclude": "secret/db"}}, policy.Off, nil},
		"sources, and the namespace opts in":     {policy.Annotated{Workload: m{"configdep.io/sources": "secret/db"}, Namespace: m{"configdep.io/reload": "auto"}}, policy.Auto, nil},
		"sources, and another tool opts in":      {policy.Annotated{Workload: m{"configdep.io/sources": "secret/db", reloaderAuto: "true"}}, policy.Auto, nil},
		"sources, switched off by the namespace": {policy.Annotated{Workload: m{"configdep.io/sources": "secret/db"}, Namespace: m{"configdep.io/reload": "off"}}, policy.Off, nil},
		"misspelled, and switched off":           {policy.Annotated{Workload: m{"configdep.io/setle": "5s", "configdep.io/reload": "off"}}, policy.Off, nil},
		"what configdep writes": {policy.Annotated{Workload: m{
			"configdep.io/config-hash": "h", "configdep.io/applied-sources": "{}", "configdep.io/last-reload": "{}", "configdep.io/recreating": "x", "configdep.io/applied-fields": "x",
			"configdep.io/copy-of": "x", "configdep.io/replaces": "x", "configdep.io/copy-labels": "{}",
		}}, policy.Off, nil},
		"what is written to a Pod, which may be a workload": {policy.Annotated{Workload: m{
			"configdep.io/agent-status": "{}", "configdep.io/restart": "x", "configdep.io/restarting": "{}", "configdep.io/config-hash": "h", "configdep.io/reloaded-at": "x",
		}}, policy.Off, nil},
		"another prefix":   {policy.Annotated{Workload: m{"configdep.io.example.com/relaod": "auto"}, Labels: m{"app": "configdep.io/reload"}}, policy.Off, nil},
		"an agent's label": {policy.Annotated{Labels: m{"configdep.io/agent": "true"}}, policy.Off, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := policy.NewPolicy(tt.Annotated, policy.Defaults{Mode: policy.Off})
			if p.Mode != tt.mode || !slices.Equal(p.Problems, tt.problems) {
				t.Errorf("mode = %s, problems = %q; want %s, %q", p.Mode, p.Problems, tt.mode, tt.problems)
			}
		})
	}
}

// A platform may set how workloads are restarted on all of them, also on those that nothing opts in: that is told, and no mistake.
func TestNewPolicy_SettingsWithoutReload(t *testing.T) {
	type m = map[string]string
	idle := []string{"annotation configdep.io/settle has no effect without configdep.io/reload"}
	for name, tt := range map[string]struct {
		policy.Annotated
		remarks []string
	}{
		"a setting":                        {policy.Annotated{Workload: m{"configdep.io/settle": "5s"}}, idle},
		"of several, the first":            {policy.Annotated{Workload: m{"configdep.io/settle": "5s", "configdep.io/strategy": "annotation"}}, idle},
		"an invalid one":                   {policy.Annotated{Workload: m{"configdep.io/settle": "x"}}, idle},
		"on the namespace":                 {policy.Annotated{Namespace: m{"configdep.io/settle": "5s"}}, nil},
		"the workload opts in":             {policy.Annotated{Workload: m{"configdep.io/settle": "5s", "configdep.io/reload": "auto"}}, nil},
		"switched off by the namespace":    {policy.Annotated{Workload: m{"configdep.io/settle": "5s"}, Namespace: m{"configdep.io/reload": "off"}}, nil},
		"switched off by the workload":     {policy.Annotated{Workload: m{"configdep.io/settle": "5s", "configdep.io/reload": "off"}}, nil},
		"of a namespace that is not meant": {policy.Annotated{Workload: m{"configdep.io/settle": "5s"}, Namespace: m{policy.DeclaredBySelector: ""}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := policy.NewPolicy(tt.Annotated, policy.Defaults{Mode: policy.Off})
			if !slices.Equal(p.Remarks, tt.remarks) || len(p.Problems) > 0 {
				t.Errorf("remarks = %q, problems = %q; want %q", p.Remarks, p.Problems, tt.remarks)
			}
		})
	}
}

// Parts of lists that can name nothing are left out, and told, in all dialects; the rest counts.
func TestNewPolicy_NamesOfNoObject(t *testing.T) {
	const (
		told                                         = "; names are separated by commas"
		podReloaderSecrets, waveRestart, waveSecrets = "pod-reloader.cs.sap.com/secrets", "wave.pusher.com/update-on-config-change", "wave.pusher.com/extra-secrets"
	)
	for name, tt := range map[string]struct {
		annotations
		sources int
		remarks []string
	}{
		"Reloader, without commas":           {annotations{secretList: "db web"}, 0, []string{`"db web" in ` + secretList + " can be the name of no object" + told}},
		"Reloader, lines":                    {annotations{secretList: "db\nweb"}, 0, []string{`"db\nweb" in ` + secretList + " can be the name of no object" + told}},
		"Reloader, another namespace":        {annotations{secretList: "shop/db,web"}, 1, []string{`"shop/db" in ` + secretList + " can be the name of no object" + told}},
		"Reloader, all of another":           {annotations{secretList: "shop/.*"}, 0, []string{`"shop/.*" in ` + secretList + " can be the name of no object" + told}},
		"Reloader, capitals":                 {annotations{configMapList: "App,Web"}, 0, []string{`"App" in ` + configMapList + " can be the name of no object" + told}},
		"Reloader, excluded":                 {annotations{reloaderAuto: "true", excludeSecret: "my_db"}, 0, []string{`"my_db" in ` + excludeSecret + " can be the name of no object" + told}},
		"pod-reloader":                       {annotations{podReloaderSecrets: "db web"}, 0, []string{`"db web" in ` + podReloaderSecrets + " can be the name of no object" + told}},
		"wave":                               {annotations{waveRestart: "true", waveSecrets: "db web"}, 0, []string{`"db web" in ` + waveSecrets + " can be the name of no object" + told}},
		"possible":                           {annotations{secretList: "db, app-.*,a?b,(x|Y)"}, 4, nil},
		"Reloader, of what has not opted in": {annotations{excludeSecret: "my_db"}, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := policy.NewPolicy(policy.Annotated{Workload: tt.annotations, InNamespace: "ns"}, policy.Defaults{Mode: policy.Off})
			if len(p.Sources) != tt.sources || !slices.Equal(p.Remarks, tt.remarks) || len(p.Problems) > 0 {
				t.Errorf("sources = %v, remarks = %q, problems = %q; want %d, %q", p.Sources, p.Remarks, p.Problems, tt.sources, tt.remarks)
			}
		})
	}
}
