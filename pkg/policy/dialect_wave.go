// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"

	"github.com/configdep/configdep/pkg/dependency"
)

const (
	wavePrefix     = "wave.pusher.com/"
	waveRestart    = wavePrefix + "update-on-config-change"
	waveConfigMaps = wavePrefix + "extra-configmaps"
	waveSecrets    = wavePrefix + "extra-secrets"
	waveHash       = wavePrefix + "config-hash"
)

// waveLists are the annotations that name sources.
var waveLists = []sourceList{{waveConfigMaps, dependency.ConfigMap}, {waveSecrets, dependency.Secret}}

// wave is the dialect of wave: an annotation opts in all that the pods read, and others name more sources.
type wave struct{ quiet }

// Name implements Dialect.
func (wave) Name() string { return "wave" }

// Owns implements Dialect.
func (wave) Owns(key string) bool { return strings.HasPrefix(key, wavePrefix) }

// Declare implements Dialect.
func (wave) Declare(d *Declaration) {
	if d.Workload[waveRestart] != "true" {
		return
	}
	d.Restart(Auto, waveRestart, dependency.ConfigMap, dependency.Secret)
	d.nameAll(waveLists, func(kind dependency.SourceKind, value string) (list, error) {
		return waveNames(kind, value, d.InNamespace)
	})
}

// waveNames parses a comma-separated list of [NAMESPACE/]NAME. Sources of other namespaces are refused: a user who may edit a
// workload could find out when the Secrets of others change.
func waveNames(kind dependency.SourceKind, value, namespace string) (list, error) {
	return listOf(value, func(part string) (dependency.Pattern, error) {
		if of, name, found := strings.Cut(part, "/"); found {
			if of != namespace {
				return dependency.Pattern{}, fmt.Errorf("%q is in another namespace: only sources in the namespace of the workload restart it", abbreviate(part))
			}
			part = name
		}
		return named(kind, part), nil
	})
}

// MarksAnnotation implements Dialect.
func (wave) MarksAnnotation(key string) bool { return key == waveHash }
