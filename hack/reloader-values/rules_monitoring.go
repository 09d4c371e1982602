// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

// monitoringRules are for how the metrics are read.
var monitoringRules = merged(
	map[string]rule{
		"reloader.enableMetricsByNamespace": ifTrueSays(without, "configdep_rollouts_total always has the label namespace"),
	},
	monitor("serviceMonitor", map[string]rule{
		"bearerTokenFile": says(without, text, ownConnection),
		"targetLabels":    says(byHand, list, "the chart has no value for this; relabelings can do the same"),
	}),
	monitor("podMonitor", map[string]rule{
		"bearerTokenSecret": says(without, mapping, ownConnection),
		"podTargetLabels":   says(byHand, list, "the chart has no value for this; relabelings can do the same"),
	}),
)

const ownConnection = "the monitor is given how to connect to the API's port"

// monitor returns the rules for a kind of monitor of the Prometheus operator.
func monitor(kind string, more map[string]rule) map[string]rule {
	target, enabled := "monitoring."+kind, "reloader."+kind+".enabled"
	out := map[string]rule{enabled: ifTrue(func(c *conversion, path string) {
		c.set(target+".enabled", true)
		c.set("monitoring.token", true)
		c.note(look, path, "monitoring.token creates a ServiceAccount that may only read the metrics; Reloader's metrics have other names than those of configdep")
	})}
	for key, convert := range merged(more, map[string]rule{
		"namespace": says(byHand, text,
			"the monitor is in the namespace of the release, because the CA is there; Prometheus has to select it there"),
		"interval":          to(target+".interval", text),
		"timeout":           to(target+".scrapeTimeout", text),
		"scrapeTimeout":     to(target+".scrapeTimeout", text),
		"labels":            to(target+".labels", texts),
		"annotations":       to(target+".annotations", texts),
		"honorLabels":       to(target+".honorLabels", boolean),
		"relabelings":       to(target+".relabelings", objects),
		"metricRelabelings": to(target+".metricRelabelings", objects),
		"scheme":            says(without, text, ownConnection),
		"tlsConfig":         says(without, mapping, ownConnection),
	}) {
		out["reloader."+kind+"."+key] = with(enabled, convert)
	}
	return out
}
