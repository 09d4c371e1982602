// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
)

func TestMain(m *testing.M) {
	utilruntime.Must(logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate)) // as the server does
	os.Exit(m.Run())
}

// parsed returns the options that arguments set, and what is wrong with them.
func parsed(args ...string) (Completed, error) {
	o := NewOptions()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, set := range o.Flags().FlagSets {
		fs.AddFlagSet(set)
	}
	if err := fs.Parse(append(args, "--kubeconfig=x", "--namespace=configdep-system")); err != nil {
		return Completed{}, err
	}
	completed := o.Complete()
	return completed, completed.Validate()
}

// sameSelector compares selectors by their text.
var sameSelector = cmp.Comparer(func(a, b labels.Selector) bool {
	return (a == nil) == (b == nil) && (a == nil || a.String() == b.String())
})

func selector(t *testing.T, text string) labels.Selector {
	t.Helper()
	s, err := labels.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What Reloader's flags of its scope mean. An error names the flag and what is allowed.
func TestReloaderFlags_Scope(t *testing.T) {
	many := make([]string, maxIgnoredNamespaces+1)
	for i := range many {
		many[i] = fmt.Sprint("tenant-", i)
	}
	unread := NewOptions().ExcludedSecretTypes
	with := func(change func(*ingest.Scope)) ingest.Scope {
		s := ingest.Scope{UnreadTypes: unread, PodStatuses: true, Policies: true}
		change(&s)
		return s
	}
	byNamespace := func(text string) ingest.Scope {
		return with(func(s *ingest.Scope) { s.NamespaceSelector = selector(t, text) })
	}
	bySource := func(text string) ingest.Scope {
		return with(func(s *ingest.Scope) { s.SourceSelector = selector(t, text) })
	}
	for name, tt := range map[string]struct {
		args  []string
		scope ingest.Scope
		wrong string
	}{
		"none":                                   {nil, with(func(*ingest.Scope) {}), ""},
		"ignored namespaces":                     {[]string{"--namespaces-to-ignore=dev,kube-system"}, with(func(s *ingest.Scope) { s.IgnoredNamespaces = []string{"dev", "kube-system"} }), ""},
		"as many ignored namespaces as may be":   {[]string{"--namespaces-to-ignore=" + strings.Join(many[1:], ",")}, with(func(s *ingest.Scope) { s.IgnoredNamespaces = many[1:] }), ""},
		"too many ignored namespaces":            {[]string{"--namespaces-to-ignore=" + strings.Join(many, ",")}, ingest.Scope{}, "--namespaces-to-ignore names 101 namespaces, but at most 100 can be left out"},
		"an ignored namespace that is no name":   {[]string{"--namespaces-to-ignore=dev,a!=b"}, ingest.Scope{}, `--namespaces-to-ignore: "a!=b" is not the name of a namespace`},
		"an ignored namespace twice":             {[]string{"--namespaces-to-ignore=dev,dev"}, ingest.Scope{}, `--namespaces-to-ignore names "dev" twice`},
		"ignored namespaces, and some are read":  {[]string{"--namespaces-to-ignore=dev", "--namespaces=shop"}, with(func(s *ingest.Scope) { s.Namespaces = []string{"shop"} }), ""},
		"a namespace selector":                   {[]string{"--namespace-selector=env=test"}, byNamespace("env=test"), ""},
		"a namespace selector in quotes":         {[]string{`--namespace-selector="env=test"`}, byNamespace("env=test"), ""},
		"a namespace selector in parts":          {[]string{"--namespace-selector=env=test, team", "--namespace-selector=!old"}, byNamespace("env=test,team,!old"), ""},
		"a set in a namespace selector":          {[]string{"--namespace-selector=env in (test,prod),team"}, byNamespace("env in (test,prod),team"), ""},
		"a namespace selector of earlier days":   {[]string{"--namespace-selector=env:test,team:*,tier=*"}, byNamespace("env=test,team,tier"), ""},
		"a namespace selector with inequalities": {[]string{"--namespace-selector=env!=test,tier==web,size>3"}, byNamespace("env!=test,tier==web,size>3"), ""},
		"no namespace selector":                  {[]string{"--namespace-selector="}, with(func(*ingest.Scope) {}), ""},
		"a wildcard that excludes":               {[]string{"--namespace-selector=env!=*"}, ingest.Scope{}, `--namespace-selector: "env!=*" is not a label selector, such as env=test,team`},
		"a namespace selector with a mistake":    {[]string{"--namespace-selector=env=te st"}, ingest.Scope{}, `--namespace-selector: "env=te st" is not a label selector`},
		"a namespace selector with two colons":   {[]string{"--namespace-selector=a:b:c"}, ingest.Scope{}, `--namespace-selector: "a=b:c" is not a label selector`},
		"an empty namespace selector":            {[]string{`--namespace-selector=""`}, ingest.Scope{}, "--namespace-selector: the label selector is empty"},
		"a namespace selector that is too long":  {[]string{"--namespace-selector=a in (" + strings.Repeat("b,", maxSelector/2) + "b)"}, ingest.Scope{}, "but at most 4096 are allowed"},
		"a namespace selector, and some are read": {
			[]string{"--namespace-selector=env=test", "--namespaces=shop"}, with(func(s *ingest.Scope) { s.Namespaces = []string{"shop"} }), "",
		},
		"a mistake that would have no effect": {[]string{"--namespace-selector=env=te st", "--namespaces=shop"}, ingest.Scope{}, "--namespace-selector: "},
		"a source selector":                   {[]string{"--resource-label-selector=reload:*", `--resource-label-selector="env=test"`}, bySource("env=test,reload"), ""},
		"a source selector with a mistake":    {[]string{"--resource-label-selector=reload="}, bySource("reload="), ""},
		"a source selector that is none":      {[]string{"--resource-label-selector==x"}, ingest.Scope{}, `--resource-label-selector: "=x" is not a label selector`},
		"Secrets ignored":                     {[]string{"--resources-to-ignore=Secrets"}, with(func(s *ingest.Scope) { s.WithoutSecrets = true }), ""},
		"ConfigMaps ignored":                  {[]string{"--resources-to-ignore=configMaps"}, with(func(s *ingest.Scope) { s.WithoutConfigMaps = true }), ""},
		"SecretProviderClasses not read":      {[]string{"--read-secretproviderclasses=false"}, with(func(s *ingest.Scope) { s.PodStatuses = false }), ""},
		"ConfigMaps not read":                 {[]string{"--read-configmaps=false"}, with(func(s *ingest.Scope) { s.WithoutConfigMaps = true }), ""},
		"Secrets ignored, said twice":         {[]string{"--resources-to-ignore=secrets", "--read-secrets=false"}, with(func(s *ingest.Scope) { s.WithoutSecrets = true }), ""},
		"ConfigMaps ignored, said twice":      {[]string{"--resources-to-ignore=configmaps", "--read-configmaps=false"}, with(func(s *ingest.Scope) { s.WithoutConfigMaps = true }), ""},
		"Secrets ignored and read":            {[]string{"--resources-to-ignore=secrets", "--read-secrets"}, ingest.Scope{}, "--resources-to-ignore=secrets contradicts --read-secrets=true"},
		"ConfigMaps ignored and read":         {[]string{"--resources-to-ignore=configmaps", "--read-configmaps=true"}, ingest.Scope{}, "--resources-to-ignore=configmaps contradicts --read-configmaps=true"},
		"both ignored":                        {[]string{"--resources-to-ignore=secrets,configmaps"}, ingest.Scope{}, "--resources-to-ignore must be one of secrets, configmaps"},
		"one ignored and the other not read":  {[]string{"--resources-to-ignore=secrets", "--read-configmaps=false"}, ingest.Scope{}, "together leave nothing that restarts a workload"},
		"neither read":                        {[]string{"--read-secrets=false", "--read-configmaps=false"}, ingest.Scope{}, "together leave nothing that restarts a workload"},
		"other resources ignored":             {[]string{"--resources-to-ignore=pods"}, ingest.Scope{}, `--resources-to-ignore: "pods" must be one of secrets, configmaps`},
		"types of Secrets, which are ignored": {[]string{"--resources-to-ignore=secrets", "--exclude-secret-types=Opaque"}, ingest.Scope{}, "--exclude-secret-types has no effect with --read-secrets=false"},
		"Jobs ignored":                        {[]string{"--ignored-workload-types=jobs"}, with(func(s *ingest.Scope) { s.IgnoredWorkloads = []dependency.WorkloadKind{kind.Job} }), ""},
		"Jobs and CronJobs ignored":           {[]string{"--ignored-workload-types=cronjobs,jobs"}, with(func(s *ingest.Scope) { s.IgnoredWorkloads = []dependency.WorkloadKind{kind.CronJob, kind.Job} }), ""},
		"Jobs ignored, in another case":       {[]string{"--ignored-workload-types=Jobs"}, ingest.Scope{}, `--ignored-workload-types: "Jobs" must be one of jobs, cronjobs`},
		"other workloads ignored":             {[]string{"--ignored-workload-types=jobs,pods"}, ingest.Scope{}, `--ignored-workload-types: "pods" must be one of jobs, cronjobs`},
		"Jobs ignored twice":                  {[]string{"--ignored-workload-types=jobs,jobs"}, ingest.Scope{}, `--ignored-workload-types names "jobs" twice`},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := parsed(tt.args...)
			if tt.wrong == "" && err != nil || tt.wrong != "" && (err == nil || !strings.Contains(err.Error(), tt.wrong)) {
				t.Fatalf("error %v, want %q", err, tt.wrong)
			}
			if tt.wrong != "" {
				return
			}
			if diff := cmp.Diff(tt.scope, o.Scope(), cmpopts.EquateEmpty(), cmpopts.IgnoreFields(ingest.Scope{}, "Kinds"), sameSelector); diff != "" {
				t.Errorf("scope (-want +got):\n%s", diff)
			}
		})
	}
}

// The variable of the environment names a namespace if the flag does not.
func TestReloaderFlags_NamespaceOfTheEnvironment(t *testing.T) {
	for name, tt := range map[string]struct {
		variable string
		args     []string
		want     []string
		wrong    string
	}{
		"the variable":       {"shop", nil, []string{"shop"}, ""},
		"neither":            {"", nil, nil, ""},
		"both":               {"shop", []string{"--namespaces=a,b"}, []string{"a", "b"}, ""},
		"an empty flag":      {"shop", []string{"--namespaces="}, []string{"shop"}, ""},
		"an invalid value":   {"Shop", nil, nil, `KUBERNETES_NAMESPACE: "Shop" is not the name of a namespace`},
		"several namespaces": {"a,b", nil, nil, `KUBERNETES_NAMESPACE: "a,b" is not the name of a namespace`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBERNETES_NAMESPACE", tt.variable)
			o, err := parsed(tt.args...)
			if tt.wrong == "" && err != nil || tt.wrong != "" && (err == nil || !strings.Contains(err.Error(), tt.wrong)) {
				t.Fatalf("error %v, want %q", err, tt.wrong)
			}
			if diff := cmp.Diff(tt.want, o.Scope().Namespaces, cmpopts.EquateEmpty()); diff != "" && tt.wrong == "" {
				t.Errorf("namespaces (-want +got):\n%s", diff)
			}
		})
	}
}

// running is what Reloader's flags of how it runs set.
type running struct {
	Mode           policy.Mode
	All            bool // with what Reloader ignores
	Format         string
	Verbosity      uint32
	Pprof, Metrics string // addresses; empty: they are not served
}

func TestReloaderFlags_Running(t *testing.T) {
	usual := func(change func(*running)) running {
		r := running{Mode: policy.Off, Format: "text"}
		if change != nil {
			change(&r)
		}
		return r
	}
	level := func(v uint32) running { return usual(func(r *running) { r.Verbosity = v }) }
	for args, tt := range map[string]struct {
		want  running
		wrong string
	}{
		"":                  {usual(nil), ""},
		"--auto-reload-all": {usual(func(r *running) { r.Mode, r.All = policy.Auto, true }), ""},
		"--auto-reload-all=true --default-reload=auto": {usual(func(r *running) { r.Mode, r.All = policy.Auto, true }), ""},
		"--default-reload=auto":                        {usual(func(r *running) { r.Mode = policy.Auto }), ""},
		"--auto-reload-all=false":                      {usual(nil), ""},
		"--auto-reload-all --default-reload=off":       {running{}, "--auto-reload-all contradicts --default-reload=off"},
		"--auto-reload-all --default-reload=listed":    {running{}, "--auto-reload-all contradicts --default-reload=listed"},
		"--log-format=json":                            {usual(func(r *running) { r.Format = "json" }), ""},
		"--log-format=":                                {usual(nil), ""},
		"--log-format= --logging-format=json":          {usual(func(r *running) { r.Format = "json" }), ""},
		"--log-format=json --logging-format=json":      {usual(func(r *running) { r.Format = "json" }), ""},
		"--log-format=json --logging-format=text":      {running{}, "--log-format=json contradicts --logging-format=text"},
		"--log-format=text":                            {running{}, `--log-format: "text" must be json or empty`},
		"--log-level=":                                 {level(0), ""},
		"--log-level=trace":                            {level(6), ""},
		"--log-level=debug":                            {level(4), ""},
		"--log-level=info":                             {level(2), ""},
		"--log-level=INFO":                             {level(2), ""},
		"--log-level=warning":                          {level(0), ""},
		"--log-level=warn":                             {level(0), ""},
		"--log-level=error":                            {level(0), ""},
		"--log-level=fatal":                            {level(0), ""},
		"--log-level=panic":                            {level(0), ""},
		"--log-level=debug -v=4":                       {level(4), ""},
		"--log-level=info -v=4":                        {running{}, "--log-level=info, which is -v=2, contradicts -v=4"},
		"--log-level=info --v=0":                       {running{}, "--log-level=info, which is -v=2, contradicts -v=0"},
		"--log-level=loud":                             {running{}, `--log-level: "loud" must be one of trace, debug, info, warning, error, fatal, panic`},
		"--enable-pprof":                               {usual(func(r *running) { r.Pprof = "localhost:6060" }), ""},
		"--enable-pprof --pprof-addr=:6060":            {usual(func(r *running) { r.Pprof = ":6060" }), ""},
		"--enable-pprof --pprof-addr=[::1]:6060":       {usual(func(r *running) { r.Pprof = "[::1]:6060" }), ""},
		"--pprof-addr=:6060":                           {usual(nil), ""},
		"--pprof-addr=6060":                            {running{}, `--pprof-addr: "6060" must be HOST:PORT or :PORT`},
		"--enable-pprof --pprof-addr=6060":             {running{}, `--pprof-addr: "6060" must be HOST:PORT or :PORT`},
		"--enable-pprof --pprof-addr=:http":            {running{}, `--pprof-addr: ":http" must be HOST:PORT or :PORT`},
		"--enable-pprof --pprof-addr=:65536":           {running{}, `--pprof-addr: ":65536" must be HOST:PORT or :PORT`},
		"--insecure-metrics-bind-address=:9090":        {usual(func(r *running) { r.Metrics = ":9090" }), ""},
		"--insecure-metrics-bind-address=":             {usual(nil), ""},
		"--insecure-metrics-bind-address=9090":         {running{}, `--insecure-metrics-bind-address: "9090" must be HOST:PORT or :PORT`},
		"--enable-ha --leader-elect=false":             {running{}, "--enable-ha contradicts --leader-elect=false"},
		"--is-Argo-Rollouts=yes":                       {running{}, `--is-Argo-Rollouts: "yes" must be true or false`},
		"--is-Argo-Rollouts=True":                      {running{}, `--is-Argo-Rollouts: "True" must be true or false`},
		"--sync-after-restart=maybe":                   {running{}, "invalid argument"},
	} {
		t.Run(args, func(t *testing.T) {
			o, err := parsed(strings.Fields(args)...)
			if tt.wrong == "" && err != nil || tt.wrong != "" && (err == nil || !strings.Contains(err.Error(), tt.wrong)) {
				t.Fatalf("error %v, want %q", err, tt.wrong)
			}
			if tt.wrong != "" {
				return
			}
			got := running{Mode: o.Reload.Mode, All: o.Reload.AutoReloadAll, Format: o.Logs.Format, Verbosity: uint32(o.Logs.Verbosity), Metrics: o.Reloader.MetricsBindAddress}
			if o.Reloader.EnablePprof {
				got.Pprof = o.Reloader.PprofAddr
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Flags without an effect are accepted, and the log says so, once for each.
func TestReloaderFlags_Notices(t *testing.T) {
	for args, want := range map[string][]string{
		"": nil,
		"--sync-after-restart=false --enable-ha=false --enable-csi-integration=false --is-Argo-Rollouts=false": nil,
		"--namespaces-to-ignore=dev --namespace-selector=env=test":                                             nil,
		"--enable-csi-integration --read-secretproviderclasses=false":                                          {"--enable-csi-integration has no effect with --read-secretproviderclasses=false"},
		"--sync-after-restart --enable-ha --enable-csi-integration --is-Argo-Rollouts=true": {
			"--sync-after-restart is not needed", "--enable-ha is not needed", "--enable-csi-integration is not needed", "--is-Argo-Rollouts has no effect: --kinds says whether Argo Rollouts are read",
		},
		"--namespaces=shop --namespaces-to-ignore=dev --namespace-selector=env=test": {
			"--namespaces-to-ignore has no effect with --namespaces", "--namespace-selector has no effect with --namespaces",
		},
	} {
		o, err := parsed(strings.Fields(args)...)
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		got := o.Notices()
		for i := range min(len(want), len(got)) {
			if strings.HasPrefix(got[i], want[i]) {
				got[i] = want[i]
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: notices (-want +got):\n%s", args, diff)
		}
	}
	t.Setenv("KUBERNETES_NAMESPACE", "shop")
	o, err := parsed("--namespaces-to-ignore=dev")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"Only namespace shop is read, because the environment variable KUBERNETES_NAMESPACE names it.",
		"--namespaces-to-ignore has no effect with the environment variable KUBERNETES_NAMESPACE: only the namespaces that are named there are read.",
	}
	if diff := cmp.Diff(want, o.Notices()); diff != "" {
		t.Errorf("notices (-want +got):\n%s", diff)
	}
}
