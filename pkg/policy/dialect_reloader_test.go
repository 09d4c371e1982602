// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
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
		"auto":                         {annotations{reloaderAuto: "yes"}, `invalid annotation reloader.stakater.com/auto="yes": must be "true" or "false"`},
		"a regular expression":         {annotations{secretList: "app,app-("}, `invalid annotation secret.reloader.stakater.com/reload="app,app-(": "app-(" is not a regular expression: missing closing )`},
		"a comma in one":               {annotations{secretList: "(a,b)"}, `invalid annotation secret.reloader.stakater.com/reload="(a,b)": "(a" is not a regular expression: missing closing )`},
		"a repetition by a number":     {annotations{secretList: "app-[0-9]{4}"}, `invalid annotation secret.reloader.stakater.com/reload="app-[0-9]{4}": "app-[0-9]{4}" must not have a {: write out what is repeated, or use * or +`},
		"a long expression":            {annotations{secretList: "app|" + strings.Repeat("a", 96)}, "must not have more than 99 bytes"},
		"a long list":                  {annotations{configMapList: strings.Repeat("a", policy.MaxValue+1)}, "must not have more than 67584 bytes"},
		"many patterns":                {annotations{configMapList: manyNames(33, ".*")}, "must not have more than 32 patterns"},
		"many parts that name nothing": {annotations{configMapList: manyNames(257, "..b")}, "must not name more than 256 sources"},
		"many names":                   {annotations{excludeSecret: manyNames(257, ""), reloaderAuto: "true"}, "must not name more than 256 sources"},
		"a pause":                      {annotations{pausePeriod: "soon", reloaderAuto: "true"}, `invalid annotation deployment.reloader.stakater.com/pause-period="soon": must be a duration that is not negative, such as "30s" or "5m"`},
		"a negative pause":             {annotations{pausePeriod: "-1ns", reloaderAuto: "true"}, `must be a duration that is not negative, such as "30s" or "5m"`},
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

// Reloader's annotation for Argo Rollouts says nothing on workloads that have no spec.restartAt, nor with another value.
func TestReloader_RolloutStrategy(t *testing.T) {
	restartable := dependency.Traits{Rollable: true, Custom: true, RestartsAt: true}
	for name, tt := range map[string]struct {
		value  string
		traits dependency.Traits
		want   string
	}{
		"a Rollout that is to be restarted":     {"restart", restartable, "field"},
		"a Rollout that is to be rolled out":    {"rollout", restartable, "annotation"},
		"a Rollout without the annotation":      {"", restartable, "annotation"},
		"a workload that has no spec.restartAt": {"restart", dependency.Traits{Rollable: true}, "annotation"},
	} {
		a := policy.Annotated{Workload: annotations{reloaderAuto: "true", rolloutStrategy: tt.value}, Traits: tt.traits}
		if p := policy.NewPolicy(a, policy.Defaults{Mode: policy.Off}); p.RestartsBy(&dependency.Workload{}).Name() != tt.want || len(p.Problems) > 0 {
			t.Errorf("%s: strategy %s, problems = %q; want %s and none", name, p.RestartsBy(&dependency.Workload{}).Name(), p.Problems, tt.want)
		}
	}
}
