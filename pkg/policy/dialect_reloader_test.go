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

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// The annotations of Stakater Reloader, with their usual names.
const (
	configMapList    = "configmap.reloader.stakater.com/reload"
	secretList       = "secret.reloader.stakater.com/reload"
	reloaderAuto     = "reloader.stakater.com/auto"
	configMapAuto    = "configmap.reloader.stakater.com/auto"
	secretAuto       = "secret.reloader.stakater.com/auto"
	reloaderSearch   = "reloader.stakater.com/search"
	excludeConfigMap = "configmaps.exclude.reloader.stakater.com/reload"
	excludeSecret    = "secrets.exclude.reloader.stakater.com/reload"
	pausePeriod      = "deployment.reloader.stakater.com/pause-period"
	rolloutStrategy  = "reloader.stakater.com/rollout-strategy"
)

// restarts lists which of some sources restart a workload, and by which annotation. All are read by its pods, but for
// those whose names begin with "x".
func restarts(t *testing.T, a policy.Annotated, defaults policy.Defaults) (policy.Policy, map[string]string) {
	t.Helper()
	p := policy.NewPolicy(a, defaults)
	out := map[string]string{}
	names := []string{"app", "application-cfg", "app-config", "app.config", "my-web", "web", "marked", "ignored", "x-unused"}
	for _, kind := range []dependency.SourceKind{dependency.ConfigMap, dependency.Secret} {
		for _, name := range names {
			if triggers, by := p.Restarts(kind, name, !strings.HasPrefix(name, "x"), dependency.SourceMarks{Match: name == "marked", Ignored: name == "ignored"}); triggers {
				out[strings.ToLower(string(kind))+"/"+name] = by
			}
		}
	}
	return p, out
}

type annotations = map[string]string

// everything returns the sources of a kind that the pods read, without an ignored one, and without some others.
func everything(by string, kinds string, without ...string) map[string]string {
	out := map[string]string{}
	for kind := range strings.SplitSeq(kinds, ",") {
		for _, name := range []string{"app", "application-cfg", "app-config", "app.config", "my-web", "web", "marked"} {
			out[kind+"/"+name] = by
		}
	}
	for _, id := range without {
		delete(out, id)
	}
	return out
}

const bothKinds = "configmap,secret"

func TestReloader_WhatRestarts(t *testing.T) {
	none := map[string]string{}
	all := policy.Defaults{Mode: policy.Auto, AutoReloadAll: true}
	for name, tt := range map[string]struct {
		workload, template annotations
		defaults           policy.Defaults
		want               map[string]string
		mode               policy.Mode
	}{
		"no annotation":                      {nil, nil, policy.Defaults{}, none, policy.Off},
		"a name":                             {annotations{configMapList: "app"}, nil, policy.Defaults{}, map[string]string{"configmap/app": configMapList}, policy.Listed},
		"a name that no pod reads":           {annotations{secretList: "x-unused"}, nil, policy.Defaults{}, map[string]string{"secret/x-unused": secretList}, policy.Listed},
		"several names, trimmed":             {annotations{secretList: " app ,, web"}, nil, policy.Defaults{}, map[string]string{"secret/app": secretList, "secret/web": secretList}, policy.Listed},
		"a dot stands for itself":            {annotations{configMapList: "app.config"}, nil, policy.Defaults{}, map[string]string{"configmap/app.config": configMapList}, policy.Listed},
		"a regular expression":               {annotations{configMapList: "app-.*"}, nil, policy.Defaults{}, map[string]string{"configmap/app-config": configMapList}, policy.Listed},
		"a dot in a regular expression":      {annotations{configMapList: "app.conf[i]g"}, nil, policy.Defaults{}, map[string]string{"configmap/app-config": configMapList, "configmap/app.config": configMapList}, policy.Listed},
		"alternatives are grouped":           {annotations{configMapList: "app|web"}, nil, policy.Defaults{}, map[string]string{"configmap/app": configMapList, "configmap/web": configMapList}, policy.Listed},
		"a name that no object can have":     {annotations{configMapList: "Not_A_Name,web"}, nil, policy.Defaults{}, map[string]string{"configmap/web": configMapList}, policy.Listed},
		"ignored, though it is named":        {annotations{configMapList: "ignored"}, nil, policy.Defaults{}, none, policy.Listed},
		"auto":                               {annotations{reloaderAuto: "true"}, nil, policy.Defaults{}, everything(reloaderAuto, bothKinds), policy.Auto},
		"auto, written otherwise":            {annotations{reloaderAuto: "T"}, nil, policy.Defaults{}, everything(reloaderAuto, bothKinds), policy.Auto},
		"auto is false":                      {annotations{reloaderAuto: "false"}, nil, policy.Defaults{}, none, policy.Off},
		"auto is empty":                      {annotations{reloaderAuto: ""}, nil, policy.Defaults{}, none, policy.Off},
		"auto, and auto for a kind":          {annotations{reloaderAuto: "true", configMapAuto: "true"}, nil, policy.Defaults{}, everything(reloaderAuto, bothKinds), policy.Auto},
		"auto, and no pause":                 {annotations{reloaderAuto: "true", pausePeriod: "0s"}, nil, policy.Defaults{}, everything(reloaderAuto, bothKinds), policy.Auto},
		"auto for ConfigMaps":                {annotations{configMapAuto: "true"}, nil, policy.Defaults{}, everything(configMapAuto, "configmap"), policy.Auto},
		"auto for Secrets":                   {annotations{secretAuto: "1"}, nil, policy.Defaults{}, everything(secretAuto, "secret"), policy.Auto},
		"false for a kind subtracts nothing": {annotations{reloaderAuto: "true", secretAuto: "false"}, nil, policy.Defaults{}, everything(reloaderAuto, bothKinds), policy.Auto},
		"auto is false, and a name":          {annotations{reloaderAuto: "false", secretList: "app"}, nil, policy.Defaults{}, map[string]string{"secret/app": secretList}, policy.Listed},
		"auto and a name": {
			annotations{configMapAuto: "true", secretList: "x-unused"}, nil, policy.Defaults{},
			with(everything(configMapAuto, "configmap"), "secret/x-unused", secretList), policy.Auto,
		},
		"search":                     {annotations{reloaderSearch: "true"}, nil, policy.Defaults{}, map[string]string{"configmap/marked": reloaderSearch, "secret/marked": reloaderSearch}, policy.Matched},
		"search is not exactly true": {annotations{reloaderSearch: "True"}, nil, policy.Defaults{}, none, policy.Off},
		"search, and auto for a kind": {
			annotations{reloaderSearch: "true", secretAuto: "true"}, nil, policy.Defaults{},
			with(everything(secretAuto, "secret"), "configmap/marked", reloaderSearch), policy.Auto,
		},
		"excluded":                              {annotations{reloaderAuto: "true", excludeSecret: "app, web"}, nil, policy.Defaults{}, everything(reloaderAuto, bothKinds, "secret/app", "secret/web"), policy.Auto},
		"excluded, though it is named":          {annotations{configMapList: "app,web", excludeConfigMap: "app"}, nil, policy.Defaults{}, map[string]string{"configmap/web": configMapList}, policy.Listed},
		"exclusions are no regular expressions": {annotations{configMapList: "app", excludeConfigMap: "app.*"}, nil, policy.Defaults{}, map[string]string{"configmap/app": configMapList}, policy.Listed},

		"on the template":                        {nil, annotations{reloaderAuto: "true"}, policy.Defaults{}, everything(reloaderAuto, bothKinds), policy.Auto},
		"the workload hides the template":        {annotations{reloaderAuto: "false"}, annotations{reloaderAuto: "true"}, policy.Defaults{}, none, policy.Off},
		"an empty annotation hides the template": {annotations{reloaderSearch: ""}, annotations{reloaderAuto: "true"}, policy.Defaults{}, none, policy.Off},
		"the template counts for each kind alone": {
			annotations{secretList: "web"}, annotations{configMapList: "app", secretList: "app"}, policy.Defaults{},
			map[string]string{"secret/web": secretList, "configmap/app": configMapList}, policy.Listed,
		},
		"exclusions on the template say nothing": {nil, annotations{configMapList: "app", excludeConfigMap: "app"}, policy.Defaults{}, map[string]string{"configmap/app": configMapList}, policy.Listed},
		"exclusions do not hide the template":    {annotations{excludeConfigMap: "web"}, annotations{configMapList: "app,web"}, policy.Defaults{}, map[string]string{"configmap/app": configMapList}, policy.Listed},

		"--auto-reload-all":                       {nil, nil, all, everything("", bothKinds), policy.Auto},
		"--auto-reload-all, and auto is false":    {annotations{reloaderAuto: "false"}, nil, all, none, policy.Off},
		"--auto-reload-all, and auto is empty":    {annotations{reloaderAuto: ""}, nil, all, everything("", bothKinds), policy.Auto},
		"--auto-reload-all, and false for a kind": {annotations{secretAuto: "false"}, nil, all, everything(policy.DeclaredByDefault, "configmap"), policy.Auto},
		"--auto-reload-all, and a name": {annotations{secretList: "x-unused,app"}, nil, all,
			with(with(everything(policy.DeclaredByDefault, bothKinds), "secret/x-unused", secretList), "secret/app", secretList), policy.Auto},
		"--auto-reload-all, and search": {annotations{reloaderSearch: "true"}, nil, all, everything(policy.DeclaredByDefault, bothKinds), policy.Auto},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.defaults.Mode == "" {
				tt.defaults.Mode = policy.Off
			}
			p, got := restarts(t, policy.Annotated{Workload: tt.workload, Template: tt.template}, tt.defaults)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("what restarts the workload, and by which annotation (-want +got):\n%s", diff)
			}
			if p.Mode != tt.mode || len(p.Problems) > 0 {
				t.Errorf("mode = %s, problems = %q; want %s and none", p.Mode, p.Problems, tt.mode)
			}
		})
	}
}

func with(m map[string]string, key, value string) map[string]string {
	m[key] = value
	return m
}

func TestReloader_InvalidAnnotations(t *testing.T) {
	for name, tt := range map[string]struct {
		workload annotations
		want     string
	}{
		"auto":                            {annotations{reloaderAuto: "yes"}, `invalid annotation reloader.stakater.com/auto="yes": must be "true" or "false"`},
		"a regular expression":            {annotations{secretList: "app,app-("}, `invalid annotation secret.reloader.stakater.com/reload="app,app-(": "app-(" is not a regular expression: missing closing )`},
		"a comma in one":                  {annotations{secretList: "a{1,2}b("}, `invalid annotation secret.reloader.stakater.com/reload="a{1,2}b(": "2}b(" is not a regular expression: missing closing )`},
		"a long list":                     {annotations{configMapList: strings.Repeat("a", policy.MaxValue+1)}, "must not have more than 67584 bytes"},
		"many patterns":                   {annotations{configMapList: manyNames(33, ".*")}, "must not have more than 32 regular expressions"},
		"many patterns of one expression": {annotations{configMapList: "[a-z0-9]x.*"}, "must not have more than 32 patterns"},
		"many parts that name nothing":    {annotations{configMapList: strings.Repeat("a..b,", 257)}, "must not name more than 256 sources"},
		"many names":                      {annotations{excludeSecret: manyNames(257, ""), reloaderAuto: "true"}, "must not name more than 256 sources"},
		"a pause":                         {annotations{pausePeriod: "soon", reloaderAuto: "true"}, `invalid annotation deployment.reloader.stakater.com/pause-period="soon": must be a duration such as "30s" or "5m"`},
		"a negative pause":                {annotations{pausePeriod: "-1ns", reloaderAuto: "true"}, `must be a duration such as "30s" or "5m"`},
	} {
		t.Run(name, func(t *testing.T) {
			p := policy.NewPolicy(policy.Annotated{Workload: tt.workload}, policy.Defaults{Mode: policy.Off})
			if len(p.Problems) != 1 || !strings.Contains(p.Problems[0], tt.want) {
				t.Errorf("problems = %q, want one with %s", p.Problems, tt.want)
			}
		})
	}
}

// What is as large as it may be is valid. What is invalid stays so when it is read again: what was parsed is remembered.
func TestReloader_BoundsOfLists(t *testing.T) {
	expressions := func(n int) string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf("a%d.*", i)
		}
		return strings.Join(list, ",")
	}
	for name, tt := range map[string]struct {
		list  string
		valid bool
	}{
		"32 expressions": {expressions(32), true},
		"33 expressions": {expressions(33), false},
		"256 names":      {manyNames(256, ""), true},
		"257 names":      {manyNames(257, ""), false},
		"67,584 bytes":   {"app," + strings.Repeat("a", policy.MaxValue-4), true}, // the name is one that no object can have
		"67,585 bytes":   {"app," + strings.Repeat("a", policy.MaxValue-3), false},
	} {
		for range 2 {
			p := policy.NewPolicy(policy.Annotated{Workload: annotations{secretList: tt.list}}, policy.Defaults{Mode: policy.Off})
			if valid := len(p.Problems) == 0; valid != tt.valid || valid && len(p.Sources) == 0 {
				t.Errorf("%s: %d sources, problems = %.200q; want valid = %t", name, len(p.Sources), p.Problems, tt.valid)
			}
		}
	}
}

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

// An invalid setting of a workload that nothing opts in is nothing that its users need to correct. Their restarts are not on
// hold: there are none.
func TestNewPolicy_InvalidSettingsOfAWorkloadThatIsNotOptedIn(t *testing.T) {
	for name, invalid := range map[string]annotations{
		"exclusions": {excludeSecret: manyNames(257, "")},
		"a pause":    {pausePeriod: "soon"},
		"ours":       {policy.SettleAnnotation: "soon"},
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

func manyNames(n int, end string) string {
	names := make([]string, n)
	for i := range names {
		names[i] = strings.Repeat("a", i%200+1) + strings.Repeat("b", i/200) + end
	}
	return strings.Join(names, ",")
}

// All names that Reloader's flags can change are changed, and the usual ones then say nothing.
func TestReloader_OtherNamesOfAnnotations(t *testing.T) {
	names := policy.ReloaderAnnotations{
		ConfigMap: "example.com/configmap", Secret: "example.com/secret", Auto: "example.com/auto", ConfigMapAuto: "example.com/configmap-auto",
		SecretAuto: "example.com/secret-auto", Search: "example.com/search", PausePeriod: "example.com/pause", PausedAt: "example.com/paused",
		Ignore: "example.com/ignore", Match: "example.com/match",
	}
	dialects, err := policy.NewDialects([]string{"reloader"}, names)
	if err != nil {
		t.Fatal(err)
	}
	defaults := policy.Defaults{Mode: policy.Off, Dialects: dialects}
	for key, want := range map[string]map[string]string{
		names.ConfigMap: {"configmap/app": names.ConfigMap}, names.Secret: {"secret/app": names.Secret}, configMapList: {}, secretList: {},
	} {
		if _, got := restarts(t, policy.Annotated{Workload: annotations{key: "app"}}, defaults); !cmp.Equal(want, got) {
			t.Errorf("%s: %v, want %v", key, got, want)
		}
	}
	for key, want := range map[string]map[string]string{
		names.Auto: everything(names.Auto, bothKinds), names.ConfigMapAuto: everything(names.ConfigMapAuto, "configmap"), names.SecretAuto: everything(names.SecretAuto, "secret"),
		names.Search: {"configmap/marked": names.Search, "secret/marked": names.Search}, reloaderAuto: {}, configMapAuto: {}, secretAuto: {}, reloaderSearch: {},
	} {
		if _, got := restarts(t, policy.Annotated{Workload: annotations{key: "true"}}, defaults); !cmp.Equal(want, got) {
			t.Errorf("%s: %v, want %v", key, got, want)
		}
	}
	if p, _ := restarts(t, policy.Annotated{Workload: annotations{names.Auto: "true", names.PausePeriod: "10s", pausePeriod: "20s"}}, defaults); p.Pause.Period != 10*time.Second {
		t.Errorf("pause = %v, want 10s", p.Pause.Period)
	}
	got := dialects.ReadSource(annotations{names.Ignore: "true", names.Match: "true"})
	if usual := dialects.ReadSource(annotations{"reloader.stakater.com/ignore": "true", "reloader.stakater.com/match": "true"}); got != (dependency.SourceMarks{Ignored: true, Match: true}) || usual != (dependency.SourceMarks{}) {
		t.Errorf("marks = %+v, by the usual annotations %+v", got, usual)
	}
	for _, key := range []string{names.Auto, names.PausePeriod, names.PausedAt, names.Ignore, names.Match, excludeSecret, rolloutStrategy} {
		if !dialects.Owns(key) {
			t.Errorf("%s is not kept", key)
		}
	}
	if dialects.Owns(reloaderAuto) {
		t.Error("the usual annotation is kept")
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

func TestPodReloader_WhatRestarts(t *testing.T) {
	const configMaps, secrets = "pod-reloader.cs.sap.com/configmaps", "pod-reloader.cs.sap.com/secrets"
	for name, tt := range map[string]struct {
		workload, labels annotations
		want             map[string]string
	}{
		"names":              {annotations{configMaps: "web, app,app", secrets: "x-unused"}, nil, map[string]string{"configmap/app": configMaps, "configmap/web": configMaps, "secret/x-unused": secrets}},
		"no patterns":        {annotations{configMaps: "a*,app-.*"}, nil, map[string]string{}},
		"the label ignored":  {annotations{configMaps: "app"}, annotations{"pod-reloader.cs.sap.com/ignored": "true"}, map[string]string{}},
		"the label disabled": {annotations{configMaps: "app"}, annotations{"pod-reloader.cs.sap.com/disabled": "true"}, map[string]string{}},
		"another value":      {annotations{configMaps: "app"}, annotations{"pod-reloader.cs.sap.com/disabled": "false"}, map[string]string{"configmap/app": configMaps}},
		"a name that Reloader's annotation also says": {
			annotations{configMaps: "web", configMapList: "web"}, nil, map[string]string{"configmap/web": configMapList + ", " + configMaps},
		},
		"labels say nothing about other dialects": {
			annotations{configMaps: "app", secretList: "web"}, annotations{"pod-reloader.cs.sap.com/disabled": "true"}, map[string]string{"secret/web": secretList},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, got := restarts(t, policy.Annotated{Workload: tt.workload, Labels: tt.labels}, policy.Defaults{Mode: policy.Off})
			if diff := cmp.Diff(tt.want, got); diff != "" || len(p.Problems) > 0 {
				t.Errorf("problems = %q; what restarts the workload, and by which annotation (-want +got):\n%s", p.Problems, diff)
			}
		})
	}
}

func TestWave_WhatRestarts(t *testing.T) {
	const in, configMaps, secrets = "wave.pusher.com/update-on-config-change", "wave.pusher.com/extra-configmaps", "wave.pusher.com/extra-secrets"
	for name, tt := range map[string]struct {
		workload annotations
		want     map[string]string
		problem  string
	}{
		"all that is read":       {annotations{in: "true"}, everything(in, bothKinds), ""},
		"not exactly true":       {annotations{in: "True"}, map[string]string{}, ""},
		"more":                   {annotations{in: "true", configMaps: "x-unused", secrets: " shop/x-unused"}, with(with(everything(in, bothKinds), "configmap/x-unused", configMaps), "secret/x-unused", secrets), ""},
		"more, but not opted in": {annotations{configMaps: "x-unused"}, map[string]string{}, ""},
		"of another namespace":   {annotations{in: "true", secrets: "bank/x-unused"}, everything(in, bothKinds), `invalid annotation wave.pusher.com/extra-secrets="bank/x-unused": "bank/x-unused" is in another namespace: only sources in the namespace of the workload restart it`},
	} {
		t.Run(name, func(t *testing.T) {
			p, got := restarts(t, policy.Annotated{Workload: tt.workload, InNamespace: "shop"}, policy.Defaults{Mode: policy.Off})
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("what restarts the workload, and by which annotation (-want +got):\n%s", diff)
			}
			if problems := strings.Join(p.Problems, "; "); problems != tt.problem {
				t.Errorf("problems = %s, want %s", problems, tt.problem)
			}
		})
	}
}

// Reloader's annotation for Argo Rollouts says nothing on workloads that have no spec.restartAt, nor with another value.
func TestReloader_RolloutStrategy(t *testing.T) {
	restartable := dependency.Traits{Rollable: true, RestartsAt: true}
	for name, tt := range map[string]struct {
		value  string
		traits dependency.Traits
		want   policy.Strategy
	}{
		"a Rollout that is to be restarted":     {"restart", restartable, policy.RestartAt},
		"a Rollout that is to be rolled out":    {"rollout", restartable, policy.Annotate},
		"a Rollout without the annotation":      {"", restartable, policy.Annotate},
		"a workload that has no spec.restartAt": {"restart", dependency.Traits{Rollable: true}, policy.Annotate},
	} {
		a := policy.Annotated{Workload: annotations{reloaderAuto: "true", rolloutStrategy: tt.value}, Traits: tt.traits}
		if p := policy.NewPolicy(a, policy.Defaults{Mode: policy.Off}); p.RestartsBy() != tt.want || len(p.Problems) > 0 {
			t.Errorf("%s: strategy %s, problems = %q; want %s and none", name, p.RestartsBy().Name(), p.Problems, tt.want.Name())
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

// Reloader ignores that sources appear and disappear, unless flags say otherwise.
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
		if p := policy.NewPolicy(policy.Annotated{Workload: tt.workload}, tt.defaults); p.IgnoreCreated != tt.created || p.IgnoreDeleted != tt.deleted {
			t.Errorf("%s: ignores created %t, deleted %t; want %t, %t", name, p.IgnoreCreated, p.IgnoreDeleted, tt.created, tt.deleted)
		}
	}
}

// The text that stands for which sources count restores the same policy.
func TestScope_RestoresWhatCounts(t *testing.T) {
	for name, a := range map[string]policy.Annotated{
		"nothing":        {},
		"ours":           {Workload: annotations{policy.ReloadAnnotation: "auto", policy.ExcludeAnnotation: "secret/app", policy.SettleAnnotation: "1s"}},
		"a default":      {Namespace: annotations{policy.ReloadAnnotation: "listed", policy.SourcesAnnotation: "secret/app"}},
		"Reloader's":     {Workload: annotations{secretList: "app,web=1"}, Template: annotations{configMapList: "web", reloaderAuto: "true"}},
		"a template's":   {Template: annotations{reloaderAuto: "true"}},
		"pod-reloader's": {Workload: annotations{"pod-reloader.cs.sap.com/configmaps": "app", "pod-reloader.cs.sap.com/secrets": "x-unused"}},
		"pod-reloader's, off": {
			Workload: annotations{"pod-reloader.cs.sap.com/secrets": "app"}, Labels: annotations{"pod-reloader.cs.sap.com/disabled": "true", "app": "web"},
		},
		"wave's": {Workload: annotations{"wave.pusher.com/update-on-config-change": "true", "wave.pusher.com/extra-secrets": "shop/x-unused"}},
		"all": {
			Workload: annotations{reloaderSearch: "true", policy.KindsAnnotation: "secret"}, Template: annotations{secretList: "app"},
			Namespace: annotations{policy.ReloadAnnotation: "auto"}, Labels: annotations{"pod-reloader.cs.sap.com/ignored": "true"},
		},
	} {
		a.InNamespace = "shop"
		defaults := policy.Defaults{Mode: policy.Off}
		restored := policy.ScopeFrom(policy.Dialects(nil).Scope(a))
		restored.InNamespace = "shop"
		_, want := restarts(t, a, defaults)
		if _, got := restarts(t, restored, defaults); !cmp.Equal(want, got) {
			t.Errorf("%s: what restarts the workload (-want +got):\n%s", name, cmp.Diff(want, got))
		}
		if again := policy.Dialects(nil).Scope(restored); again != policy.Dialects(nil).Scope(a) {
			t.Errorf("%s: the text differs from that of what it restores", name)
		}
	}
}

// Annotations and labels that restart nothing are not part of that text, so that edits of them are no change of what counts.
func TestScope_LeavesOutWhatSelectsNothing(t *testing.T) {
	for name, a := range map[string]policy.Annotated{
		"a setting":                    {Workload: annotations{policy.SettleAnnotation: "1s", pausePeriod: "1m"}},
		"wave's list without its mark": {Workload: annotations{"wave.pusher.com/extra-secrets": "app"}},
		"pod-reloader's label alone":   {Workload: annotations{policy.SettleAnnotation: "1s"}, Labels: annotations{"pod-reloader.cs.sap.com/disabled": "true"}},
	} {
		if scope := policy.Dialects(nil).Scope(a); scope != "" {
			t.Errorf("%s: the text is %q, want none", name, scope)
		}
	}
}
