// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// dialect has the annotations of a tool by which the workloads of a benchmark opt in. What Reloader has no annotations for
// is in those of configdep with either: the settle time, the minimum interval, and what is on namespaces.
type dialect struct {
	auto    map[string]string // whatever the pods read
	listed  map[string]string // only what named returns
	matched map[string]string // what the pods read, if it is marked
	mark    map[string]string // on sources
	// named names the sources that match a glob; empty: none of the kind.
	named func(secrets, configMaps string) map[string]string
	// except excludes a ConfigMap.
	except func(configMap string) map[string]string
}

// The names of dialects.
const (
	dialectNative   = "configdep"
	dialectReloader = "reloader"
)

var dialects = map[string]dialect{
	dialectNative: {
		auto:    map[string]string{"configdep.io/reload": "auto"},
		listed:  map[string]string{"configdep.io/reload": "listed"},
		matched: map[string]string{"configdep.io/reload": "matched"},
		mark:    map[string]string{"configdep.io/match": "true"},
		named: func(secrets, configMaps string) map[string]string {
			var all []string
			if secrets != "" {
				all = append(all, "secret/"+secrets)
			}
			if configMaps != "" {
				all = append(all, "configmap/"+configMaps)
			}
			return map[string]string{"configdep.io/sources": strings.Join(all, ", ")}
		},
		except: func(configMap string) map[string]string {
			return map[string]string{"configdep.io/exclude": "configmap/" + configMap}
		},
	},
	dialectReloader: {
		auto:    map[string]string{"reloader.stakater.com/auto": "true"},
		matched: map[string]string{"reloader.stakater.com/search": "true"},
		mark:    map[string]string{"reloader.stakater.com/match": "true"},
		named: func(secrets, configMaps string) map[string]string {
			all := map[string]string{}
			if secrets != "" {
				all["secret.reloader.stakater.com/reload"] = strings.ReplaceAll(secrets, "*", ".*")
			}
			if configMaps != "" {
				all["configmap.reloader.stakater.com/reload"] = strings.ReplaceAll(configMaps, "*", ".*")
			}
			return all
		},
		except: func(configMap string) map[string]string {
			return map[string]string{"configmaps.exclude.reloader.stakater.com/reload": configMap}
		},
	},
}

// parseDialect returns a name of a dialect.
func parseDialect(name string) (string, error) {
	switch _, found := dialects[name]; {
	case name == "":
		return dialectNative, nil
	case !found:
		return "", fmt.Errorf("%q must be one of %s", name, strings.Join(slices.Sorted(maps.Keys(dialects)), ", "))
	}
	return name, nil
}

// undelayed adds that a workload is restarted at once and without a minimum interval.
func undelayed(annotations ...map[string]string) map[string]string {
	return union(append(annotations, map[string]string{"configdep.io/settle": "0", "configdep.io/min-interval": "0"})...)
}

func union(annotations ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, some := range annotations {
		maps.Copy(all, some)
	}
	return all
}
