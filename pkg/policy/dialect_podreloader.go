// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"

	"github.com/configdep/configdep/pkg/dependency"
)

const (
	podReloaderPrefix     = "pod-reloader.cs.sap.com/"
	podReloaderConfigMaps = podReloaderPrefix + "configmaps"
	podReloaderSecrets    = podReloaderPrefix + "secrets"
	podReloaderHash       = podReloaderPrefix + "config-hash"
)

// podReloaderLists are the annotations that name sources.
var podReloaderLists = []sourceList{{podReloaderConfigMaps, dependency.ConfigMap}, {podReloaderSecrets, dependency.Secret}}

// podReloaderOff are labels of a workload that turn pod-reloader off.
var podReloaderOff = []string{podReloaderPrefix + "ignored", podReloaderPrefix + "disabled"}

// podReloader is the dialect of SAP pod-reloader: annotations of workloads name sources.
type podReloader struct{ quiet }

// Name implements Dialect.
func (podReloader) Name() string { return "pod-reloader" }

// Owns implements Dialect.
func (podReloader) Owns(key string) bool { return strings.HasPrefix(key, podReloaderPrefix) }

// Declare implements Dialect.
func (podReloader) Declare(d *Declaration) {
	for _, label := range podReloaderOff {
		if d.Labels[label] == "true" {
			return
		}
	}
	d.nameAll(podReloaderLists, namesOfKind)
}

// MarksAnnotation implements Dialect.
func (podReloader) MarksAnnotation(key string) bool { return key == podReloaderHash }
