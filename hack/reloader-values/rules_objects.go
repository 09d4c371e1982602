// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import "maps"

const oneName = "all objects are named configdep-apiserver, because a cluster can have only one configdep; fullnameOverride sets another name"

// objectRules are for the objects that Reloader's chart creates, and their names, labels and rights.
var objectRules = map[string]rule{
	"kubernetes.host":  says(without, text, "the server finds kube-apiserver as every pod does"),
	"namespace":        says(without, text, "helm --namespace says where configdep is installed"),
	"nameOverride":     says(without, text, oneName),
	"fullnameOverride": says(without, text, oneName),

	"reloader.matchLabels":                parsed(texts, addLabels),
	"reloader.deployment.labels":          parsed(mapping, deploymentLabels),
	"reloader.deployment.annotations":     to("deployment.annotations", texts),
	"reloader.deployment.pod.annotations": to("pod.annotations", texts),

	"reloader.service.labels":      to("service.labels", texts),
	"reloader.service.annotations": to("service.annotations", texts),
	"reloader.service.port": says(byHand, whole,
		"the metrics are on the port of the API, for authorized clients; monitoring.insecurePort serves them to all, at port 9090 of the Service"),
	"reloader.service.ipFamilies":     says(without, list, "the Service has the default of the cluster"),
	"reloader.service.ipFamilyPolicy": says(without, text, "the Service has the default of the cluster"),

	"reloader.legacy.rbac":  ifTrueSays(without, "the roles are in the current version of their API"),
	"reloader.rbac.enabled": to("rbac.create", boolean),
	"reloader.rbac.labels":  says(byHand, texts, "commonLabels sets labels on every object"),

	"reloader.serviceAccount.create":      switched(createServiceAccount),
	"reloader.serviceAccount.name":        to("serviceAccount.name", text),
	"reloader.serviceAccount.annotations": to("serviceAccount.annotations", texts),
	"reloader.serviceAccount.labels":      to("serviceAccount.labels", texts),

	"reloader.podDisruptionBudget.enabled":        switched(disruptions),
	"reloader.podDisruptionBudget.minAvailable":   with("reloader.podDisruptionBudget.enabled", to("podDisruptionBudget.minAvailable", numberOrText)),
	"reloader.podDisruptionBudget.maxUnavailable": with("reloader.podDisruptionBudget.enabled", to("podDisruptionBudget.maxUnavailable", numberOrText)),

	"reloader.netpol.enabled": ifTrue(func(c *conversion, path string) {
		c.set("networkPolicy.enabled", true)
		c.note(look, path, "if the policy does not suit the cluster, the API is unavailable, which disturbs the whole cluster: "+documents+"install.md#network")
	}),
	"reloader.netpol.from": with("reloader.netpol.enabled", to("networkPolicy.metricsFrom", objects)),
	"reloader.netpol.to":   with("reloader.netpol.enabled", to("networkPolicy.apiServerTo", objects)),

	"reloader.verticalPodAutoscaler.enabled": ifTrueSays(byHand,
		"the chart has no VerticalPodAutoscaler; create one for Deployment configdep-apiserver"),
	"reloader.verticalPodAutoscaler.recommenders":        autoscaler(objects),
	"reloader.verticalPodAutoscaler.controlledResources": autoscaler(list),
	"reloader.verticalPodAutoscaler.controlledValues":    autoscaler(text),
	"reloader.verticalPodAutoscaler.maxAllowed":          autoscaler(mapping),
	"reloader.verticalPodAutoscaler.minAllowed":          autoscaler(mapping),
	"reloader.verticalPodAutoscaler.updatePolicy":        autoscaler(mapping),
}

func list(value any) (any, string) {
	if _, is := value.([]any); !is {
		return nil, "must be a list"
	}
	return value, ""
}

func autoscaler(k kind) rule {
	return with("reloader.verticalPodAutoscaler.enabled", says(byHand, k, "the chart has no VerticalPodAutoscaler"))
}

func addLabels(c *conversion, _ string, value any) {
	c.add("deployment.labels", value.(map[string]any))
	c.add("pod.labels", value.(map[string]any))
}

// deploymentLabels are also on the pods. Some are there by default, and say that the pods are Reloader's.
func deploymentLabels(c *conversion, path string, value any) {
	labels := maps.Clone(value.(map[string]any))
	if labels["provider"] == "stakater" {
		for _, own := range []string{"provider", "group", "version"} {
			if labels[own] != nil {
				c.note(without, path+"."+own, "these labels say that the pods are Reloader's")
			}
			delete(labels, own)
		}
	}
	if _, allowed := texts(labels); allowed != "" {
		c.fail(path, allowed)
		return
	}
	if len(labels) > 0 {
		addLabels(c, path, labels)
	}
}

func createServiceAccount(c *conversion, path string, on bool) {
	c.set("serviceAccount.create", on)
	if !on && empty(c.get("reloader.serviceAccount.name")) {
		c.set("serviceAccount.name", "default") // as in Reloader's chart
		c.note(look, path, "without a name, the rights are granted to the ServiceAccount default of the namespace; better set serviceAccount.name to another one")
	}
}

func disruptions(c *conversion, path string, on bool) {
	if on {
		c.set("podDisruptionBudget.enabled", true)
		return
	}
	c.note(without, path, "the PodDisruptionBudget lets drains take one replica at a time; podDisruptionBudget.enabled: false leaves it out")
}
