// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
)

// ReloaderOptions are options that Stakater Reloader has, by the same names and with the same meaning, and options for what its
// users have around it. Complete turns those for which configdep has an option of its own into that.
type ReloaderOptions struct {
	// NamespacesToIgnore are namespaces of which nothing is read, unless namespaces are read one by one.
	NamespacesToIgnore []string
	// NamespaceSelector selects the namespaces whose workloads are restarted automatically, and ResourceLabelSelector the
	// ConfigMaps and Secrets that are read. Both are parts of a label selector.
	NamespaceSelector, ResourceLabelSelector []string
	// ResourcesToIgnore is secrets or configmaps, which are not read.
	ResourcesToIgnore []string
	// IgnoredWorkloadTypes are some of jobs and cronjobs, which are not read.
	IgnoredWorkloadTypes []string
	// AutoReloadAll is the mode auto for workloads without annotations.
	AutoReloadAll bool
	// LogFormat is json or empty, and LogLevel a level of logrus or empty.
	LogFormat, LogLevel string
	// EnablePprof serves profiles on PprofAddr, by plain HTTP.
	EnablePprof bool
	PprofAddr   string
	// MetricsBindAddress is where the metrics are served by plain HTTP; empty: nowhere.
	MetricsBindAddress string

	// These are accepted, and have no effect.
	syncAfterRestart, enableHA, enableCSIIntegration bool
	isArgoRollouts                                   string

	// What was derived by Complete: the variable of the environment that named the namespace, and the selectors.
	namespaceFrom                     string
	namespaceSelector, sourceSelector labels.Selector
	selectorErrors                    []error
}

func newReloaderOptions() ReloaderOptions {
	return ReloaderOptions{PprofAddr: "localhost:6060", isArgoRollouts: "false"}
}

// namespaceVariable is the variable of the environment by which Reloader is limited to one namespace.
const namespaceVariable = "KUBERNETES_NAMESPACE"

func (o *Options) addReloaderFlags(fs *pflag.FlagSet) {
	r := &o.Reloader
	fs.StringSliceVar(&r.NamespacesToIgnore, "namespaces-to-ignore", r.NamespacesToIgnore,
		fmt.Sprintf("Namespaces whose workloads, ConfigMaps and Secrets are neither read nor shown, at most %d. It has no effect with --namespaces.", maxIgnoredNamespaces))
	fs.StringSliceVar(&r.NamespaceSelector, "namespace-selector", r.NamespaceSelector,
		"A label selector: only workloads in namespaces that it selects are restarted automatically. "+
			"KEY:VALUE stands for KEY=VALUE, and KEY:* for KEY. It has no effect with --namespaces.")
	fs.StringSliceVar(&r.ResourceLabelSelector, "resource-label-selector", r.ResourceLabelSelector,
		"A label selector, in the format of --namespace-selector: only ConfigMaps and Secrets that it selects are read. Changes of others restart nothing.")
	fs.StringSliceVar(&r.ResourcesToIgnore, "resources-to-ignore", r.ResourcesToIgnore,
		"secrets, the same as --read-secrets=false, or configmaps, the same as --read-configmaps=false.")
	fs.StringSliceVar(&r.IgnoredWorkloadTypes, "ignored-workload-types", r.IgnoredWorkloadTypes,
		"Kinds of workloads that are neither read nor shown, and on which the server needs no rights: jobs, cronjobs or both.")
	fs.BoolVar(&r.AutoReloadAll, "auto-reload-all", r.AutoReloadAll,
		"The same as --default-reload=auto, except that creating or deleting a source restarts nothing without --reload-on-create or --reload-on-delete.")
	fs.StringVar(&r.LogFormat, "log-format", r.LogFormat,
		"json, the same as --logging-format=json, or empty.")
	fs.StringVar(&r.LogLevel, "log-level", r.LogLevel,
		"The same as a value of -v: trace is 6, debug 4, info 2, and warning, error, fatal and panic are 0.")
	fs.BoolVar(&r.EnablePprof, "enable-pprof", r.EnablePprof,
		"Serve profiles at --pprof-addr, by HTTP and without authentication.")
	fs.StringVar(&r.PprofAddr, "pprof-addr", r.PprofAddr,
		"The address of --enable-pprof, HOST:PORT. The default can be reached only from within the pod, as with kubectl port-forward.")
	fs.StringVar(&r.MetricsBindAddress, "insecure-metrics-bind-address", r.MetricsBindAddress,
		"An address, such as :9090, at which /metrics is also served by HTTP and without authentication. "+
			"Empty: only at the port of the API, to authorized clients.")
	fs.BoolVar(&r.syncAfterRestart, "sync-after-restart", false,
		"Not needed: changes that were made while no server ran are always found.")
	fs.BoolVar(&r.enableHA, "enable-ha", false,
		"Not needed: --leader-elect is on by default.")
	fs.BoolVar(&r.enableCSIIntegration, "enable-csi-integration", false,
		"Not needed: --read-secretproviderclasses is on by default.")
	fs.StringVar(&r.isArgoRollouts, "is-Argo-Rollouts", r.isArgoRollouts,
		"true or false. Not needed: --kinds contains Argo Rollouts by default.")
}

// completeReloader turns options of Reloader into ours. Those that contradict ours are left to the validation.
func (o *Options) completeReloader() {
	r := &o.Reloader
	if namespace := os.Getenv(namespaceVariable); namespace != "" && len(o.Namespaces) == 0 {
		o.Namespaces, r.namespaceFrom = []string{namespace}, namespaceVariable
	}
	if len(r.ResourcesToIgnore) == 1 {
		switch resource := r.ResourcesToIgnore[0]; {
		case strings.EqualFold(resource, ignoreSecrets) && !o.set("read-secrets"):
			o.ReadSecrets = false
		case strings.EqualFold(resource, ignoreConfigMaps) && !o.set("read-configmaps"):
			o.ReadConfigMaps = false
		}
	}
	if r.AutoReloadAll && !o.set("default-reload") {
		o.Reload.Mode = policy.Auto
	}
	// Both may be set, if they agree.
	o.Reload.AutoReloadAll = r.AutoReloadAll && o.Reload.Mode == policy.Auto
	if r.LogFormat == logsapi.JSONLogFormat && !o.set("logging-format") {
		o.Logs.Format = r.LogFormat
	}
	if verbosity, known := verbosities[strings.ToLower(r.LogLevel)]; known && !o.set("v") {
		o.Logs.Verbosity = verbosity
	}
	r.selectorErrors = nil
	parse := func(flag string, parts []string) labels.Selector {
		selector, err := parseSelector(parts)
		if err != nil {
			r.selectorErrors = append(r.selectorErrors, fmt.Errorf("--%s: %w", flag, err))
		}
		return selector
	}
	r.namespaceSelector = parse("namespace-selector", r.NamespaceSelector)
	r.sourceSelector = parse("resource-label-selector", r.ResourceLabelSelector)
}

// The values of ResourcesToIgnore and of IgnoredWorkloadTypes.
const (
	ignoreSecrets    = "secrets"
	ignoreConfigMaps = "configmaps"
)

var workloadTypes = map[string]dependency.WorkloadKind{"cronjobs": kind.CronJob, "jobs": kind.Job}

// verbosities are the values of -v for the levels of logrus. At 2, restarts are logged. client-go logs no bodies below 8.
var verbosities = map[string]logsapi.VerbosityLevel{
	"panic": 0, "fatal": 0, "error": 0, "warning": 0, "warn": 0, "info": 2, "debug": 4, "trace": 6,
}

// maxSelector is the maximum length of a label selector, in bytes: it is matched with each object, and is part of the URLs of
// requests.
const maxSelector = 4096

// parseSelector parses a label selector from its parts, as Reloader does; nil: there is none.
func parseSelector(parts []string) (labels.Selector, error) {
	if len(parts) == 0 {
		return nil, nil //nolint:nilnil // no selector, and no error
	}
	terms := make([]string, len(parts))
	for i, part := range parts {
		term := strings.TrimSpace(part)
		if key, value, legacy := strings.Cut(term, ":"); legacy {
			term = key + "=" + value
		}
		if key, found := strings.CutSuffix(term, "=*"); found && !strings.HasSuffix(key, "!") {
			term = key
		}
		terms[i] = term
	}
	text := strings.Join(terms, ",")
	if len(text) > maxSelector {
		return nil, fmt.Errorf("a label selector of %d bytes, but at most %d are allowed", len(text), maxSelector)
	}
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%q is not a label selector, such as env=test,team: %w", text, err)
	}
	if selector.Empty() {
		return nil, errors.New("the label selector is empty: leave the flag out to select everything")
	}
	return selector, nil
}

// applyTo narrows a scope. Reloader selects no namespaces by their labels or names where it reads them one by one.
func (r *ReloaderOptions) applyTo(s *ingest.Scope) {
	if len(s.Namespaces) == 0 {
		s.IgnoredNamespaces, s.NamespaceSelector = r.NamespacesToIgnore, r.namespaceSelector
	}
	s.SourceSelector = r.sourceSelector
	for _, name := range r.IgnoredWorkloadTypes {
		s.IgnoredWorkloads = append(s.IgnoredWorkloads, workloadTypes[name])
	}
}

// maxIgnoredNamespaces is how many namespaces may be ignored: each costs kube-apiserver a comparison for each object and event.
const maxIgnoredNamespaces = 100

func (o *Options) validateReloader() (errs []error) {
	r := &o.Reloader
	if n := len(r.NamespacesToIgnore); n > maxIgnoredNamespaces {
		errs = append(errs, fmt.Errorf("--namespaces-to-ignore names %d namespaces, but at most %d can be left out: each costs kube-apiserver a comparison for each object",
			n, maxIgnoredNamespaces))
	}
	errs = append(errs, validateNames("--namespaces-to-ignore", r.NamespacesToIgnore)...)
	errs = append(errs, r.selectorErrors...)
	errs = append(errs, o.validateResourcesToIgnore()...)
	for i, name := range r.IgnoredWorkloadTypes {
		if workloadTypes[name] == "" {
			errs = append(errs, fmt.Errorf("--ignored-workload-types: %q must be one of jobs, cronjobs", name))
		} else if slices.Contains(r.IgnoredWorkloadTypes[:i], name) {
			errs = append(errs, fmt.Errorf("--ignored-workload-types names %q twice", name))
		}
	}
	if r.AutoReloadAll && o.Reload.Mode != policy.Auto {
		errs = append(errs, fmt.Errorf("--auto-reload-all contradicts --default-reload=%s: set one of them", o.Reload.Mode))
	}
	if r.enableHA && !o.LeaderElection.LeaderElect {
		errs = append(errs, errors.New("--enable-ha contradicts --leader-elect=false: set one of them"))
	}
	if value := r.isArgoRollouts; value != "true" && value != "false" {
		errs = append(errs, fmt.Errorf("--is-Argo-Rollouts: %q must be true or false", value))
	}
	errs = append(errs, o.validateLogFlags()...)
	errs = append(errs, validateAddress("--pprof-addr", r.PprofAddr)...)
	if r.MetricsBindAddress != "" {
		errs = append(errs, validateAddress("--insecure-metrics-bind-address", r.MetricsBindAddress)...)
	}
	return errs
}

func (o *Options) validateResourcesToIgnore() []error {
	ignored := o.Reloader.ResourcesToIgnore
	wrong := func(format string, args ...any) []error {
		return []error{fmt.Errorf("--resources-to-ignore"+format, args...)}
	}
	switch {
	case len(ignored) == 0:
		return nil
	case len(ignored) > 1:
		return wrong(" must be one of secrets, configmaps, and not several: without both, nothing would restart a workload")
	case strings.EqualFold(ignored[0], ignoreSecrets):
		if o.ReadSecrets {
			return wrong("=secrets contradicts --read-secrets=true: set one of them")
		}
	case strings.EqualFold(ignored[0], ignoreConfigMaps):
		if o.ReadConfigMaps {
			return wrong("=configmaps contradicts --read-configmaps=true: set one of them")
		}
	default:
		return wrong(": %q must be one of secrets, configmaps", ignored[0])
	}
	return nil
}

func (o *Options) validateLogFlags() (errs []error) {
	r := &o.Reloader
	switch {
	case r.LogFormat != "" && r.LogFormat != logsapi.JSONLogFormat:
		errs = append(errs, fmt.Errorf("--log-format: %q must be json or empty", r.LogFormat))
	case r.LogFormat != "" && o.Logs.Format != r.LogFormat:
		errs = append(errs, fmt.Errorf("--log-format=%s contradicts --logging-format=%s: set one of them", r.LogFormat, o.Logs.Format))
	}
	if r.LogLevel == "" {
		return errs
	}
	verbosity, known := verbosities[strings.ToLower(r.LogLevel)]
	switch {
	case !known:
		errs = append(errs, fmt.Errorf("--log-level: %q must be one of trace, debug, info, warning, error, fatal, panic", r.LogLevel))
	case o.Logs.Verbosity != verbosity:
		errs = append(errs, fmt.Errorf("--log-level=%s, which is -v=%d, contradicts -v=%d: set one of them", r.LogLevel, verbosity, o.Logs.Verbosity))
	}
	return errs
}

func validateAddress(flag, address string) []error {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return []error{fmt.Errorf("%s: %q must be HOST:PORT or :PORT, such as localhost:6060 or :9090", flag, address)}
	}
	return nil
}

// Notices returns what users may not expect of their options, such as that one has no effect, one sentence for each.
func (o Completed) Notices() (notices []string) {
	r := &o.Reloader
	add := func(applies bool, notice string) {
		if applies {
			notices = append(notices, notice)
		}
	}
	from := "--namespaces"
	if r.namespaceFrom != "" {
		from = "the environment variable " + r.namespaceFrom
	}
	some := len(o.Namespaces) > 0
	if r.namespaceFrom != "" {
		add(true, fmt.Sprintf("Only namespace %s is read, because the environment variable %s names it.", o.Namespaces[0], r.namespaceFrom))
	}
	add(some && len(r.NamespacesToIgnore) > 0, "--namespaces-to-ignore has no effect with "+from+": only the namespaces that are named there are read.")
	add(some && len(r.NamespaceSelector) > 0, "--namespace-selector has no effect with "+from+": the workloads of all namespaces that are named there are restarted.")
	add(r.syncAfterRestart, "--sync-after-restart is not needed: changes that were made while the server was down are always found.")
	add(r.enableHA, "--enable-ha is not needed: --leader-elect is on by default.")
	add(r.enableCSIIntegration && o.ReadSecretProviderClasses, "--enable-csi-integration is not needed: --read-secretproviderclasses is on by default.")
	add(r.enableCSIIntegration && !o.ReadSecretProviderClasses, "--enable-csi-integration has no effect with --read-secretproviderclasses=false.")
	add(r.isArgoRollouts == "true", "--is-Argo-Rollouts has no effect: --kinds says whether Argo Rollouts are read.")
	return notices
}
