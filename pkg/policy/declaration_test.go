// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/policy"
)

// A workload that is switched off reports nothing about the annotations of other tools either.
func TestNewPolicy_OffIgnoresInvalidAnnotationsOfOtherDialects(t *testing.T) {
	for name, invalid := range map[string]annotations{
		"auto":                 {reloaderAuto: "yes"},
		"a regular expression": {secretList: "app-("},
		"exclusions":           {excludeSecret: manyNames(257, ""), reloaderAuto: "true"},
		"a pause":              {pausePeriod: "soon", reloaderAuto: "true"},
		"pod-reloader's":       {"pod-reloader.cs.sap.com/secrets": manyNames(257, "")},
		"wave's":               {"wave.pusher.com/update-on-config-change": "true", "wave.pusher.com/extra-secrets": "bank/db"},
	} {
		a := policy.Annotated{Workload: maps.Clone(invalid), InNamespace: "shop"}
		if p := policy.NewPolicy(a, policy.Defaults{Mode: policy.Off}); len(p.Problems) == 0 {
			t.Errorf("%s: no problems, want one where the workload is not switched off", name)
		}
		a.Workload[policy.ReloadAnnotation] = "off"
		if p := policy.NewPolicy(a, policy.Defaults{Mode: policy.Auto}); p.Mode != policy.Off || p.DeclaredBy != policy.ReloadAnnotation || len(p.Problems) > 0 {
			t.Errorf("%s: mode = %s, declared by %s, problems = %q; want off without problems", name, p.Mode, p.DeclaredBy, p.Problems)
		}
	}
}

// An invalid setting of another tool on a workload that nothing opts in is nothing that its users need to correct. Their restarts are not on
// hold: there are none.
func TestNewPolicy_InvalidSettingsOfAWorkloadThatIsNotOptedIn(t *testing.T) {
	for name, invalid := range map[string]annotations{
		"exclusions": {excludeSecret: manyNames(257, "")},
		"a pause":    {pausePeriod: "soon"},
	} {
		for mode, problems := range map[policy.Mode]int{policy.Off: 0, policy.Auto: 1} {
			if p := policy.NewPolicy(policy.Annotated{Workload: invalid}, policy.Defaults{Mode: mode}); p.Mode != mode || len(p.Problems) != problems {
				t.Errorf("%s, with the default %s: mode = %s, problems = %q; want %d problems", name, mode, p.Mode, p.Problems, problems)
			}
		}
	}
}

// All that annotations of all tools name has to fit into the record, which is an annotation too.
func TestNewPolicy_BoundsNamesOfAllTools(t *testing.T) {
	list := func(n, length int) string {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("a%0*d", length-1, i)
		}
		return strings.Join(names, ",")
	}
	lists := func(n, length int) annotations {
		return annotations{
			configMapList: list(n, length), secretList: list(n, length), "pod-reloader.cs.sap.com/configmaps": list(n, length),
			"pod-reloader.cs.sap.com/secrets": list(n, length),
		}
	}
	for name, tt := range map[string]struct {
		workload annotations
		problem  string
	}{
		"512 names":            {lists(128, 20), ""},
		"516 names":            {lists(129, 20), "annotations name 516 with 10320 bytes in total, and not more than 512 with 67584 bytes can be recorded"},
		"67,584 bytes of them": {lists(128, 132), ""},
		"68,096 bytes of them": {lists(128, 133), "annotations name 512 with 68096 bytes in total"},
	} {
		p := policy.NewPolicy(policy.Annotated{Workload: tt.workload}, policy.Defaults{Mode: policy.Off})
		if problems := strings.Join(p.Problems, "; "); (problems == "") != (tt.problem == "") || !strings.Contains(problems, tt.problem) {
			t.Errorf("%s: problems = %.300q, want %q", name, problems, tt.problem)
		}
		if (len(p.Sources) > 0) != (tt.problem == "") {
			t.Errorf("%s: %d sources remain", name, len(p.Sources))
		}
	}
}

// The settings of configdep apply to workloads that other dialects opt in.
func TestNewPolicy_SettingsApplyToAllDialects(t *testing.T) {
	p, got := restarts(t, policy.Annotated{Workload: annotations{
		reloaderAuto: "true", secretList: "web", policy.SettleAnnotation: "3s", policy.KindsAnnotation: "secret",
		policy.SourcesAnnotation: "configmap/x-unused,secret/web", policy.ExcludeAnnotation: "secret/app",
	}}, policy.Defaults{Mode: policy.Off})
	want := with(with(everything(reloaderAuto, "secret", "secret/app"), "configmap/x-unused", policy.SourcesAnnotation), "secret/web", policy.SourcesAnnotation+", "+secretList)
	if diff := cmp.Diff(want, got); diff != "" || p.Settle != 3*time.Second {
		t.Errorf("settle = %v; what restarts the workload, and by which annotation (-want +got):\n%s", p.Settle, diff)
	}
}

// Reloader ignores that sources appear and disappear, unless flags say otherwise, and reports which source caused a restart.
func TestNewPolicy_IgnoresSourcesThatAppear(t *testing.T) {
	const ours, wave, podReloaderSecrets = policy.ReloadAnnotation, "wave.pusher.com/update-on-config-change", "pod-reloader.cs.sap.com/secrets"
	for name, tt := range map[string]struct {
		workload         annotations
		defaults         policy.Defaults
		created, deleted bool
	}{
		"ours":                           {annotations{ours: "auto"}, policy.Defaults{}, false, false},
		"Reloader's":                     {annotations{reloaderAuto: "true"}, policy.Defaults{}, true, true},
		"Reloader's search":              {annotations{reloaderSearch: "true"}, policy.Defaults{}, true, true},
		"Reloader's, --reload-on-create": {annotations{reloaderAuto: "true"}, policy.Defaults{ReloadOnCreate: true}, false, true},
		"Reloader's, --reload-on-delete": {annotations{secretList: "app"}, policy.Defaults{ReloadOnDelete: true}, true, false},
		"Reloader's and ours":            {annotations{reloaderAuto: "true", ours: "listed"}, policy.Defaults{}, false, false},
		"Reloader's and wave's":          {annotations{reloaderAuto: "true", wave: "true"}, policy.Defaults{}, false, false},
		"Reloader's and pod-reloader's":  {annotations{reloaderAuto: "true", podReloaderSecrets: "db"}, policy.Defaults{}, false, false},
		"Reloader's and a default":       {annotations{secretList: "app"}, policy.Defaults{Mode: policy.Auto}, false, false},
		"--auto-reload-all":              {nil, policy.Defaults{Mode: policy.Auto, AutoReloadAll: true}, true, true},
		"a default":                      {nil, policy.Defaults{Mode: policy.Auto}, false, false},
		"--auto-reload-all, other kinds": {annotations{configMapAuto: "false"}, policy.Defaults{Mode: policy.Auto, AutoReloadAll: true}, true, true},
		"--auto-reload-all and a name":   {annotations{secretList: "app"}, policy.Defaults{Mode: policy.Auto, AutoReloadAll: true}, true, true},
	} {
		p := policy.NewPolicy(policy.Annotated{Workload: tt.workload}, tt.defaults)
		if p.IgnoreCreated != tt.created || p.IgnoreDeleted != tt.deleted {
			t.Errorf("%s: ignores created %t, deleted %t; want %t, %t", name, p.IgnoreCreated, p.IgnoreDeleted, tt.created, tt.deleted)
		}
		if want := name != "ours" && name != "a default"; p.ReportsSource != want { // as Reloader does
			t.Errorf("%s: reports the source on the template %t, want %t", name, p.ReportsSource, want)
		}
	}
}

func TestNewDialects(t *testing.T) {
	workload := annotations{reloaderAuto: "true", "pod-reloader.cs.sap.com/secrets": "x-unused", "wave.pusher.com/update-on-config-change": "true", policy.SourcesAnnotation: "configmap/x-unused"}
	for names, by := range map[string]string{
		"":              "Default",
		"configdep":     "Default",
		"reloader":      reloaderAuto,
		"pod-reloader":  "pod-reloader.cs.sap.com/secrets",
		"wave":          "wave.pusher.com/update-on-config-change",
		"wave,reloader": reloaderAuto + ", wave.pusher.com/update-on-config-change",
	} {
		dialects, err := policy.NewDialects(strings.FieldsFunc(names, func(r rune) bool { return r == ',' }), policy.ReloaderAnnotations{})
		if err != nil {
			t.Fatal(err)
		}
		if p := policy.NewPolicy(policy.Annotated{Workload: workload}, policy.Defaults{Mode: policy.Off, Dialects: dialects}); p.DeclaredBy != by {
			t.Errorf("%s: declared by %s, want %s", names, p.DeclaredBy, by)
		}
	}
	if _, err := policy.NewDialects([]string{"reloader", "kured"}, policy.ReloaderAnnotations{}); err == nil || err.Error() != `"kured" is no dialect: must be any of configdep, reloader, pod-reloader, wave` {
		t.Errorf("an unknown dialect: %v", err)
	}
}
