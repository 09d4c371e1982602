// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/record"
)

// What is wrong is said in terms of the flag, with what is allowed.
func TestWatchHistorySize(t *testing.T) {
	const wrong = "--watch-history-size must be a number of bytes from 8Mi to 1Ti"
	for text, want := range map[string]string{
		"8Mi": "", "1Ti": "", "33554432": "", "1e9": "",
		"8388607": wrong, "0": wrong, "-32Mi": wrong, "2Ti": wrong, "1e30": wrong,
		"much": "invalid argument", "": "invalid argument",
	} {
		o := NewOptions()
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		for _, set := range o.Flags().FlagSets {
			fs.AddFlagSet(set)
		}
		err := fs.Parse([]string{"--kubeconfig=x", "--namespace=configdep-system", "--watch-history-size=" + text})
		if err == nil {
			err = o.Complete().Validate()
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// Namespaces are read one by one, so that the server does not start with so many that it would be a burden
// to the API server.
func TestNamespaces(t *testing.T) {
	many := make([]string, maxNamespaces+1)
	for i := range many {
		many[i] = fmt.Sprint("tenant-", i)
	}
	for text, want := range map[string]string{
		"shop":                                  "",
		"shop,tools":                            "",
		"shop,Shop":                             `--namespaces: "Shop" is not the name of a namespace`,
		"shop,tools,shop":                       `--namespaces names "shop" twice`,
		strings.Join(many[:maxNamespaces], ","): "",
		strings.Join(many[:maxNamespaces+1], ","): "--namespaces names 101 namespaces, but at most 100 can be read one by one",
	} {
		o := NewOptions()
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		for _, set := range o.Flags().FlagSets {
			fs.AddFlagSet(set)
		}
		err := fs.Parse([]string{"--kubeconfig=x", "--namespace=configdep-system", "--namespaces=" + text})
		if err == nil {
			err = o.Complete().Validate()
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}

// Which Secrets are read: what is said, and what that means.
func TestSecretTypes(t *testing.T) {
	many := make([]string, maxExcludedTypes+1)
	for i := range many {
		many[i] = fmt.Sprint("example.com/type-", i)
	}
	const token, release = "kubernetes.io/service-account-token", "helm.sh/release.v1"
	for name, tt := range map[string]struct {
		flags string
		scope ingest.Scope
		wrong string
	}{
		"by default":        {"", ingest.Scope{UnreadTypes: []string{token, release}}, ""},
		"all":               {"--exclude-secret-types=", ingest.Scope{}, ""},
		"others":            {"--exclude-secret-types=Opaque,fleet.cattle.io/bundle-values/v1alpha1", ingest.Scope{UnreadTypes: []string{"Opaque", "fleet.cattle.io/bundle-values/v1alpha1"}}, ""},
		"several":           {"--exclude-secret-types=Opaque --exclude-secret-types=" + token, ingest.Scope{UnreadTypes: []string{"Opaque", token}}, ""},
		"types of none":     {"--read-secrets=false --exclude-secret-types=", ingest.Scope{}, "--exclude-secret-types has no effect with --read-secrets=false"},
		"none":              {"--read-secrets=false", ingest.Scope{WithoutSecrets: true, UnreadTypes: []string{token, release}}, ""},
		"as many as may be": {"--exclude-secret-types=" + strings.Join(many[1:], ","), ingest.Scope{UnreadTypes: many[1:]}, ""},
		"too many":          {"--exclude-secret-types=" + strings.Join(many, ","), ingest.Scope{}, "--exclude-secret-types names 9 types, but at most 8 can be left out"},
		"one twice":         {"--exclude-secret-types=Opaque,Opaque", ingest.Scope{}, `--exclude-secret-types names "Opaque" twice`},
		"an empty one":      {"--exclude-secret-types=Opaque,", ingest.Scope{}, `--exclude-secret-types: "" is not the type of a Secret`},
		"a selector":        {"--exclude-secret-types=a!=b", ingest.Scope{}, `--exclude-secret-types: "a!=b" is not the type of a Secret`},
		"a path":            {"--exclude-secret-types=a/../b", ingest.Scope{}, `--exclude-secret-types: "a/../b" is not the type of a Secret`},
		"a long one":        {"--exclude-secret-types=" + strings.Repeat("a", 254), ingest.Scope{}, "is not the type of a Secret"},
	} {
		o := NewOptions()
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		for _, set := range o.Flags().FlagSets {
			fs.AddFlagSet(set)
		}
		err := fs.Parse(append(strings.Fields(tt.flags), "--kubeconfig=x", "--namespace=configdep-system"))
		if err == nil {
			err = o.Complete().Validate()
		}
		if tt.wrong == "" && err != nil || tt.wrong != "" && (err == nil || !strings.Contains(err.Error(), tt.wrong)) {
			t.Errorf("%s: %v, want %q", name, err, tt.wrong)
		}
		tt.scope.PodStatuses, tt.scope.Policies = true, true // by default
		if diff := cmp.Diff(tt.scope, o.Scope(), cmpopts.EquateEmpty()); diff != "" && tt.wrong == "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestReloadJobs(t *testing.T) {
	const (
		needs   = "--reload-jobs has no effect without reloader in --dialects"
		neither = "--reload-jobs has no effect with --ignored-workload-types=jobs,cronjobs"
	)
	for _, tt := range []struct {
		args, want string
		reruns     bool
	}{
		{"", "", false},
		{"--reload-jobs", "", true},
		{"--reload-jobs --dialects=reloader", "", true},
		{"--reload-jobs --dialects=wave", needs, true},
		{"--dialects=wave", "", false},
		{"--reload-jobs --ignored-workload-types=jobs", "", true},
		{"--reload-jobs --ignored-workload-types=cronjobs", "", true},
		{"--reload-jobs --ignored-workload-types=jobs,cronjobs", neither, true},
		{"--reload-jobs --ignored-workload-types=cronjobs,jobs", neither, true},
		{"--ignored-workload-types=jobs,cronjobs", "", false},
	} {
		o := NewOptions()
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		for _, set := range o.Flags().FlagSets {
			fs.AddFlagSet(set)
		}
		err := fs.Parse(append([]string{"--kubeconfig=x", "--namespace=configdep-system"}, strings.Fields(tt.args)...))
		if err == nil {
			err = o.Complete().Validate()
		}
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.args, err, tt.want)
		}
		kinds := o.Complete().Scope().Kinds
		for _, name := range []dependency.WorkloadKind{kind.CronJob, kind.Job} {
			if k := kinds.Of(name); k.Traits.Reruns != tt.reruns || k.Traits.Rollable != tt.reruns || k.Restarted() {
				t.Errorf("%s: %s: traits = %+v", tt.args, name, k.Traits)
			}
		}
		if k := kinds.Of(kind.Deployment); !k.Restarted() || len(kinds) != len(kind.BuiltIn())+len(kind.Presets()) {
			t.Errorf("%s: other kinds have changed", tt.args)
		}
	}
}

func TestStrategies(t *testing.T) {
	const wrong = "--strategies must contain annotation"
	for text, want := range map[string]string{
		"annotation": "", "annotation,recreate": "", "recreate, annotation": "",
		"recreate": wrong, "": "must be one of annotation, env-var, agent, notify, recreate, in-place", "annotation,": "must be one of annotation, env-var, agent, notify, recreate, in-place", "reboot": "must be one of annotation, env-var, agent, notify, recreate, in-place",
	} {
		o := NewOptions()
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		for _, set := range o.Flags().FlagSets {
			fs.AddFlagSet(set)
		}
		err := fs.Parse([]string{"--kubeconfig=x", "--namespace=configdep-system", "--strategies=" + text})
		if err == nil {
			err = o.Complete().Validate()
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if got := NewOptions().Reload.Strategies; !slices.Equal(got, []record.Strategy{record.Annotate, record.EnvVar, record.Agent, record.Notify}) {
		t.Errorf("without the flag, workloads may ask for %v", got)
	}
}

// A server with the kubeconfig of a user belongs to an installation only if they say to which one; otherwise it only observes.
func TestStandalone(t *testing.T) {
	for args, tt := range map[string]struct {
		standalone bool
		wrong      string
	}{
		"--kubeconfig=x --observe --write-kubeconfig=y":         {true, ""},
		"--kubeconfig=x --namespace=configdep-system":           {false, ""},
		"--kubeconfig=x --namespace=configdep-system --observe": {false, ""},
		"--kubeconfig=x":           {true, "with --kubeconfig, set --observe"},
		"--kubeconfig=x --observe": {true, "--write-kubeconfig is needed without --namespace"},
		"--kubeconfig=x --namespace=configdep-system --write-kubeconfig=y":           {false, "--write-kubeconfig is for a server without --namespace"},
		"--kubeconfig=x --observe --write-kubeconfig=y --manage-serving-certificate": {true, "need --namespace"},
		"--kubeconfig=x --write-kubeconfig=y --webhook-url=https://example.com":      {true, "need --namespace"},
		"--observe --write-kubeconfig=y":                                             {false, "--kubeconfig is needed when the server does not run in a pod"},
	} {
		t.Setenv("POD_NAMESPACE", "ci") // where a user starts it says nothing about their kubeconfig
		t.Setenv("KUBERNETES_SERVICE_HOST", "")
		o := NewOptions()
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		for _, set := range o.Flags().FlagSets {
			fs.AddFlagSet(set)
		}
		err := fs.Parse(strings.Fields(args))
		if err == nil {
			err = o.Complete().Validate()
		}
		if tt.wrong == "" && err != nil || tt.wrong != "" && (err == nil || !strings.Contains(err.Error(), tt.wrong) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%s: %v, want %q", args, err, tt.wrong)
		}
		if o.Standalone() != tt.standalone {
			t.Errorf("%s: standalone = %t", args, !tt.standalone)
		}
	}
}
