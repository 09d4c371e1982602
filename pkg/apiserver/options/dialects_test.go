// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"strings"
	"testing"

	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

func TestDialectFlags_Invalid(t *testing.T) {
	for flags, want := range map[string]string{
		"--dialects=reloader,kured":                                `--dialects: "kured" is no dialect: must be any of configdep, reloader, pod-reloader, wave`,
		"--reload-strategy=reboot":                                 "--reload-strategy must be one of annotation, annotations, env-var, env-vars, recreate, in-place",
		"--reload-strategy=agent":                                  "--reload-strategy must be one of annotation, annotations, env-var, env-vars, recreate, in-place: most workloads have no config agent",
		"--reload-strategy=recreate":                               "--reload-strategy is recreate, which --strategies must then contain",
		"--auto-annotation=":                                       `--auto-annotation: "" is not the name of an annotation`,
		"--secret-annotation=a/b/c":                                `--secret-annotation: "a/b/c" is not the name of an annotation`,
		"--ignore-annotation=configdep.io/x":                       `--ignore-annotation: "configdep.io/x" is an annotation of configdep`,
		"--auto-annotation=reloader.stakater.com/rollout-strategy": `--auto-annotation: "reloader.stakater.com/rollout-strategy" means something else already: choose another name`,
		"--secret-annotation=wave.pusher.com/extra-secrets":        `--secret-annotation: "wave.pusher.com/extra-secrets" means something else already: choose another name`,
		"--auto-annotation=reloader.stakater.com/search":           `--auto-annotation and --auto-search-annotation are both "reloader.stakater.com/search"`,
		"--reload-on-create=maybe":                                 "invalid argument",
	} {
		if _, err := parsed(strings.Fields(flags)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", flags, err, want)
		}
	}
}

func TestDialectFlags(t *testing.T) {
	c, err := parsed(strings.Fields("--dialects=wave,reloader --auto-annotation=example.com/auto --reload-strategy=env-vars --reload-on-create=true --reload-on-delete")...)
	if err != nil {
		t.Fatal(err)
	}
	if r := c.Reload; r.Strategy != record.EnvVar || !r.ReloadOnCreate || !r.ReloadOnDelete {
		t.Errorf("defaults = %+v, want the strategy env-var, and sources that appear and disappear to count", r)
	}
	for key, want := range map[string]string{
		"example.com/auto": "example.com/auto", "reloader.stakater.com/auto": policy.DeclaredByDefault,
		"wave.pusher.com/update-on-config-change": "wave.pusher.com/update-on-config-change", "pod-reloader.cs.sap.com/secrets": policy.DeclaredByDefault,
	} {
		if p := policy.NewPolicy(policy.Annotated{Workload: map[string]string{key: "true"}}, c.Reload); p.DeclaredBy != want {
			t.Errorf("%s: declared by %s, want %s", key, p.DeclaredBy, want)
		}
	}
	if scope := c.Scope(); len(scope.Dialects) != 3 {
		t.Errorf("annotations of %d dialects are read, want 3", len(scope.Dialects))
	}
	for flags, want := range map[string]record.Strategy{
		"": record.Annotate, "--reload-strategy=annotations": record.Annotate, "--reload-strategy=annotation": record.Annotate,
		"--reload-strategy=env-var": record.EnvVar, "--reload-strategy=recreate --strategies=annotation,recreate": record.Recreate,
	} {
		if c, err := parsed(strings.Fields(flags)...); err != nil || c.Reload.Strategy != want {
			t.Errorf("%s: strategy %v, %v; want %s", flags, c.Reload.Strategy, err, want.Name())
		}
	}
}

// Reloader's --webhook-url calls a URL instead of restarting anything.
func TestWebhookURL(t *testing.T) {
	c, err := parsed(strings.Fields("--webhook-url=http://127.0.0.1:1/hook")...)
	if err != nil || !c.Reload.Observe || len(c.Destinations()) != 1 {
		t.Errorf("observe = %t, %d destinations, %v; want one, instead of restarts", c.Reload.Observe, len(c.Destinations()), err)
	}
	if _, err := parsed(strings.Fields("--webhook-url=ftp://x")...); err == nil || !strings.Contains(err.Error(), "--webhook-url: must be ") {
		t.Errorf("another scheme: %v, want an error about --webhook-url", err)
	}
}
