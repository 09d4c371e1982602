// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/validation"

	"github.com/configdep/configdep/pkg/ingest"
)

// addScopeFlags adds the flags that select which objects are read.
func (o *Options) addScopeFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.Namespaces, "namespaces", o.Namespaces,
		fmt.Sprintf("The namespaces to read, at most %d; empty: all. The server then needs no rights on workloads, ConfigMaps and Secrets in other namespaces.", maxNamespaces))
	fs.BoolVar(&o.ReadSecrets, "read-secrets", o.ReadSecrets,
		"Read Secrets. If false, the server reads only its own two, and changes of Secrets restart nothing.")
	fs.BoolVar(&o.ReadConfigMaps, "read-configmaps", o.ReadConfigMaps,
		"Read ConfigMaps. If false, the server reads only its own, and changes of ConfigMaps restart nothing.")
	fs.BoolVar(&o.ReadSecretProviderClasses, "read-secretproviderclasses", o.ReadSecretProviderClasses,
		"Read which versions of secrets pods have mounted by the Secrets Store CSI driver. If false, a rotation restarts nothing.")
	fs.StringSliceVar(&o.ExcludedSecretTypes, "exclude-secret-types", o.ExcludedSecretTypes,
		fmt.Sprintf("Types of Secrets of which only the metadata is read, at most %d. Their changes restart nothing. Empty: all Secrets are read.", maxExcludedTypes))
}

// helmRelease is the type of the Secrets in which Helm keeps releases: the largest in many clusters, which no pod reads.
const helmRelease = "helm.sh/release.v1"

// Scope returns which objects are read.
func (o *Options) Scope() ingest.Scope {
	s := ingest.Scope{
		Namespaces: o.Namespaces, WithoutSecrets: !o.ReadSecrets, WithoutConfigMaps: !o.ReadConfigMaps, UnreadTypes: o.ExcludedSecretTypes,
		PodStatuses: o.ReadSecretProviderClasses, Policies: true, Dialects: o.Reload.Dialects,
	}
	o.Reloader.applyTo(&s)
	return s
}

// maxNamespaces is how many namespaces may be read one by one. Each needs twelve watches, two of them for types of
// Secrets that are not read and one for pods with agents, and one more where the Secrets Store CSI driver is installed. Watches restart every --max-version-lag, each time with a request for the current revision.
// For 100 namespaces that is 120 requests a second, about a tenth of a CPU of kube-apiserver for each replica while
// nothing happens (see docs/install.md), and 1,200 initial lists at once.
const maxNamespaces = 100

// maxExcludedTypes is how many types of Secrets may be left out. Each needs a watch in each of those namespaces.
const maxExcludedTypes = 8

func (o *Options) validateScope() []error {
	errs := append(o.validateNamespaces(), o.validateExcludedTypes()...)
	if !o.ReadSecrets && !o.ReadConfigMaps {
		errs = append(errs, errors.New("--read-secrets=false and --read-configmaps=false together leave nothing that restarts a workload: set one of them"))
	}
	return errs
}

func (o *Options) validateNamespaces() (errs []error) {
	if n := len(o.Namespaces); n > maxNamespaces {
		errs = append(errs, fmt.Errorf("--namespaces names %d namespaces, but at most %d can be read one by one: "+
			"each costs kube-apiserver as many watches for each replica as all of them cost without the flag",
			n, maxNamespaces))
	}
	return append(errs, validateNames(cmp.Or(o.Reloader.namespaceFrom, "--namespaces"), o.Namespaces)...)
}

func validateNames(flag string, namespaces []string) (errs []error) {
	for i, namespace := range namespaces {
		if wrong := validation.ValidateNamespaceName(namespace, false); len(wrong) > 0 {
			errs = append(errs, fmt.Errorf("%s: %q is not the name of a namespace: %s", flag, namespace, strings.Join(wrong, "; ")))
		}
		if slices.Contains(namespaces[:i], namespace) {
			errs = append(errs, fmt.Errorf("%s names %q twice", flag, namespace))
		}
	}
	return errs
}

// secretType matches the types of Secrets that can be left out: DOMAIN/NAME, Opaque, or types with more than one slash,
// as some tools have. They are used in field selectors and metric labels without escaping.
var secretType = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(/[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)*$`)

// maxSecretType is the maximum length of such a type, in bytes.
const maxSecretType = 253

func (o *Options) validateExcludedTypes() (errs []error) {
	if !o.ReadSecrets && o.set("exclude-secret-types") {
		errs = append(errs, errors.New("--exclude-secret-types has no effect with --read-secrets=false: set one of them"))
	}
	if n := len(o.ExcludedSecretTypes); n > maxExcludedTypes {
		errs = append(errs, fmt.Errorf("--exclude-secret-types names %d types, but at most %d can be left out: each costs kube-apiserver a watch", n, maxExcludedTypes))
	}
	for i, typ := range o.ExcludedSecretTypes {
		if len(typ) > maxSecretType || !secretType.MatchString(typ) {
			errs = append(errs, fmt.Errorf("--exclude-secret-types: %q is not the type of a Secret, such as %s", typ, helmRelease))
		}
		if slices.Contains(o.ExcludedSecretTypes[:i], typ) {
			errs = append(errs, fmt.Errorf("--exclude-secret-types names %q twice", typ))
		}
	}
	return errs
}
