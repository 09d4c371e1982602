// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"strings"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

// kinds are the kinds of workloads by the other names that kubectl has for them. Kinds that are described are named in the singular.
var kinds = map[string]string{
	"deploy": "deployment", "deployments": "deployment", "deployment.apps": "deployment", "deployments.apps": "deployment",
	"sts": "statefulset", "statefulsets": "statefulset", "statefulset.apps": "statefulset", "statefulsets.apps": "statefulset",
	"ds": "daemonset", "daemonsets": "daemonset", "daemonset.apps": "daemonset", "daemonsets.apps": "daemonset",
	"rs": "replicaset", "replicasets": "replicaset", "replicaset.apps": "replicaset", "replicasets.apps": "replicaset",
	"cj": "cronjob", "cronjobs": "cronjob", "cronjob.batch": "cronjob", "cronjobs.batch": "cronjob",
	"jobs": "job", "job.batch": "job", "jobs.batch": "job",
	"po": "pod", "pods": "pod",
}

// parseWorkload returns the name of the ConfigDependency of a workload, which is named as for kubectl or as its ConfigDependency.
func parseWorkload(arg string) (string, error) {
	arg = strings.TrimPrefix(arg, "configdependency.configdep.io/") // as -o name prints it
	kind, name, slash := strings.Cut(arg, "/")
	if !slash {
		kind, name, _ = strings.Cut(arg, ".")
	}
	if kind == "" || name == "" || strings.Contains(name, "/") {
		return "", fmt.Errorf("%q is no workload: want KIND/NAME, such as deploy/web", arg)
	}
	kind = strings.ToLower(kind)
	if singular, found := kinds[kind]; found {
		kind = singular
	}
	return kind + "." + name, nil
}

var sourceKinds = map[string]v1alpha1.SourceKind{
	"secret": v1alpha1.SourceSecret, "secrets": v1alpha1.SourceSecret,
	"cm": v1alpha1.SourceConfigMap, "configmap": v1alpha1.SourceConfigMap, "configmaps": v1alpha1.SourceConfigMap,
	"spc": v1alpha1.SourceSecretProviderClass, "secretproviderclass": v1alpha1.SourceSecretProviderClass, "secretproviderclasses": v1alpha1.SourceSecretProviderClass,
}

// sourceName names a source in the namespace of its workloads.
type sourceName struct {
	kind v1alpha1.SourceKind
	name string
}

func (s sourceName) String() string { return string(s.kind) + "/" + s.name }

// parseSource returns a source that is named as for kubectl.
func parseSource(arg string) (sourceName, error) {
	kind, name, _ := strings.Cut(arg, "/")
	known, found := sourceKinds[strings.ToLower(kind)]
	if !found || name == "" || strings.Contains(name, "/") {
		return sourceName{}, fmt.Errorf("%q is no source: want KIND/NAME, such as secret/db, of the kind secret, configmap or secretproviderclass", arg)
	}
	return sourceName{known, name}, nil
}

// of returns what a workload does with a source, or nil, and its status.
func (s sourceName) of(o *v1alpha1.ConfigDependency) (*v1alpha1.Source, *v1alpha1.SourceStatus) {
	var spec *v1alpha1.Source
	for i := range o.Spec.Sources {
		if at := &o.Spec.Sources[i]; at.Kind == s.kind && at.Name == s.name {
			spec = at
		}
	}
	for i := range o.Status.Sources {
		if at := &o.Status.Sources[i]; at.Kind == s.kind && at.Name == s.name {
			return spec, at
		}
	}
	return spec, nil
}

// shown returns the name of a workload as users of kubectl write it.
func shown(o *v1alpha1.ConfigDependency) string {
	return strings.ToLower(o.Spec.WorkloadRef.Kind) + "/" + o.Spec.WorkloadRef.Name
}
