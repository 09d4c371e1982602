// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package values

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// rule converts the value at a path. It checks of the value only what it relies on: the schema of configdep's chart checks what is
// passed on.
type rule func(c *conversion, path string, value any)

// typed is for values of a type.
func typed[T any](use func(c *conversion, path string, value T)) rule {
	return func(c *conversion, path string, value any) {
		if value, is := value.(T); is {
			use(c, path, value)
			return
		}
		var wanted T
		switch any(wanted).(type) {
		case bool:
			c.fail(path, "must be true or false")
		case int:
			c.fail(path, "must be a whole number")
		case string:
			c.fail(path, "must be text; put it in quotes")
		case []any:
			c.fail(path, "must be a list")
		default:
			c.fail(path, "must be a map")
		}
	}
}

// to sets a value of configdep's chart to the same.
func to(target string) rule {
	return func(c *conversion, _ string, value any) { c.set(target, value) }
}

// same is for values that have the same names below other paths of configdep's chart.
func same(from, target string, names ...string) map[string]rule {
	out := map[string]rule{}
	for _, name := range names {
		out[from+"."+name] = to(strings.TrimPrefix(target+"."+name, "."))
	}
	return out
}

// says makes a note.
func says(s section, text string) rule {
	return func(c *conversion, path string, _ any) { c.note(s, path, text) }
}

// ifTrue is for switches, which say nothing if they are off.
func ifTrue(then func(c *conversion, path string)) rule {
	return typed(func(c *conversion, path string, on bool) {
		if on {
			then(c, path)
		} else {
			c.unset = append(c.unset, path)
		}
	})
}

// ifTrueSays notes that a switch which is on needs no value here.
func ifTrueSays(text string) rule {
	return ifTrue(func(c *conversion, path string) { c.note(without, path, text) })
}

// ifTrueSets sets a value of configdep's chart to a truth value if a switch is on.
func ifTrueSets(target string, value bool) rule {
	return ifTrue(func(c *conversion, _ string) { c.set(target, value) })
}

// with converts a value if a switch is on. Otherwise, it has no effect.
func with(enabled string, convert rule) rule {
	return func(c *conversion, path string, value any) {
		if !c.is(enabled, true) {
			c.note(without, path, enabled+" is not true")
			return
		}
		convert(c, path, value)
	}
}

// globally converts a value that Reloader's chart ignores if not all namespaces are watched.
func globally(convert rule) rule {
	return func(c *conversion, path string, value any) {
		if c.is("reloader.watchGlobally", false) {
			c.note(without, path, "reloader.watchGlobally is false")
			return
		}
		convert(c, path, value)
	}
}

// names is for names in a list, or in a text with commas. Names that are repeated count once.
func names(use func(c *conversion, path string, all []any)) rule {
	return func(c *conversion, path string, value any) {
		list, isList := value.([]any)
		if text, is := value.(string); is {
			for name := range strings.SplitSeq(text, ",") {
				list, isList = append(list, strings.TrimSpace(name)), true
			}
		}
		all := []any{}
		for _, name := range list {
			if _, is := name.(string); !is {
				isList = false
			} else if name != "" && !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
		if !isList {
			c.fail(path, "must be a list of names, or names separated by commas")
			return
		}
		use(c, path, all)
	}
}

const (
	documents  = "https://github.com/configdep/configdep/blob/main/docs/"
	ownImage   = "this is the image of Reloader; set image.registry, image.repository and image.tag to that of configdep"
	oneName    = "all objects are named configdep-apiserver, because a cluster can have only one configdep; fullnameOverride sets another name"
	connection = "the monitor is given how to connect to the API's port"
)

// rules are those for all values of Reloader's chart.
var rules = merged(
	map[string]rule{ // what Reloader reads, and what it restarts
		"reloader.autoReloadAll": ifTrue(func(c *conversion, path string) {
			c.set("reload.autoReloadAll", true)
			if !c.is("reloader.isArgoRollouts", true) && !c.is("reloader.isOpenshift", true) {
				c.set("kinds.presets", []any{})
				c.note(look, path, "custom resources are not restarted, as with Reloader; kinds.presets names those that are")
			}
		}),
		"reloader.ignoreSecrets": ifTrue(func(c *conversion, path string) {
			if c.is("reloader.ignoreConfigMaps", true) {
				c.fail(path, "must not be true together with reloader.ignoreConfigMaps: nothing would restart a workload")
			}
			c.set("secrets.read", false)
		}),
		"reloader.ignoreConfigMaps":     ifTrueSets("configMaps.read", false),
		"reloader.ignoreJobs":           ifTrueSets("workloads.jobs", false),
		"reloader.ignoreCronJobs":       ifTrueSets("workloads.cronJobs", false),
		"reloader.reloadOnCreate":       ifTrueSets("reload.onCreate", true),
		"reloader.reloadOnDelete":       ifTrueSets("reload.onDelete", true),
		"reloader.syncAfterRestart":     ifTrueSays("changes that are made while no replica runs are always found"),
		"reloader.reloadStrategy":       strategy,
		"reloader.isArgoRollouts":       preset("argo-rollout"),
		"reloader.isOpenshift":          preset("openshift-deploymentconfig"),
		"reloader.enableCSIIntegration": ifTrueSays("rotations of SecretProviderClasses are seen by default (secretProviderClasses.read)"),

		"reloader.watchGlobally": typed(watchGlobally),
		"reloader.namespaces": func(c *conversion, path string, _ any) { // see watchGlobally
			if !c.is("reloader.watchGlobally", false) {
				c.fail(path, "needs reloader.watchGlobally: false, in Reloader's chart too")
			}
		},
		"reloader.ignoreNamespaces":      globally(names(func(c *conversion, _ string, all []any) { c.set("ignoredNamespaces", all) })),
		"reloader.namespaceSelector":     globally(selector("reload.namespaceSelector", "--namespace-selector")),
		"reloader.resourceLabelSelector": selector("sources.selector", "--resource-label-selector"),

		"reloader.custom_annotations.configmap":      to("reload.reloaderAnnotations.configMap"),
		"reloader.custom_annotations.configmap_auto": to("reload.reloaderAnnotations.configMapAuto"),
		"reloader.custom_annotations.secret_auto":    to("reload.reloaderAnnotations.secretAuto"),
		"reloader.custom_annotations.pauseTime":      to("reload.reloaderAnnotations.pausedAt"),
		"reloader.webhookUrl":                        webhook,
	},
	same("reloader.custom_annotations", "reload.reloaderAnnotations", "secret", "auto", "ignore", "search", "match", "pausePeriod"),

	map[string]rule{ // how Reloader's pods run
		"global.imageRegistry":                             to("global.imageRegistry"),
		"global.imagePullSecrets":                          typed(pullSecrets("global.imagePullSecrets")),
		"image.name":                                       says(byHand, ownImage),
		"image.repository":                                 says(byHand, ownImage),
		"image.tag":                                        says(byHand, ownImage),
		"image.digest":                                     says(byHand, ownImage),
		"image.pullPolicy":                                 to("image.pullPolicy"),
		"reloader.deployment.image.name":                   says(byHand, ownImage),
		"reloader.deployment.image.tag":                    says(byHand, ownImage),
		"reloader.deployment.image.pullPolicy":             to("image.pullPolicy"),
		"reloader.deployment.imagePullSecrets":             typed(pullSecrets("imagePullSecrets")),
		"reloader.enableHA":                                ifTrueSays("a leader is always elected; the chart runs two replicas"),
		"reloader.deployment.replicas":                     typed(replicas),
		"reloader.deployment.affinity":                     selecting("affinity"),
		"reloader.deployment.topologySpreadConstraints":    selecting("topologySpreadConstraints"),
		"reloader.deployment.securityContext":              podSecurity,
		"reloader.deployment.containerSecurityContext":     to("securityContext"),
		"reloader.deployment.automountServiceAccountToken": says(without, "the token has a volume of its own"),
		"reloader.readOnlyRootFileSystem":                  ifTrueSays("the file system of the container is always read-only"),
		"reloader.deployment.resources":                    says(byHand, "configdep needs other resources than Reloader; set resources, by "+documents+"operations.md#sizing"),
		"reloader.deployment.gomaxprocsOverride":           func(c *conversion, _ string, value any) { c.set("goMaxProcs", fmt.Sprint(value)) },
		"reloader.deployment.gomemlimitOverride":           says(byHand, "goMemLimit is nine tenths of the memory limit, unless you set it"),
		"reloader.deployment.volumes":                      typed(appendTo("extraVolumes")),
		"reloader.deployment.volumeMounts":                 typed(appendTo("extraVolumeMounts")),
		"reloader.volumes":                                 typed(appendTo("extraVolumes")),
		"reloader.volumeMounts":                            typed(appendTo("extraVolumeMounts")),
		"reloader.deployment.env.open":                     typed(openEnv),
		"reloader.deployment.env.secret":                   typed(secretEnv),
		"reloader.deployment.env.field":                    typed(fieldEnv),
		"reloader.deployment.env.existing":                 typed(existingEnv),
		"reloader.logFormat":                               to("logFormat"),
		"reloader.logLevel":                                typed(logLevel),
		"reloader.enablePProf":                             ifTrueSets("pprof.enabled", true),
		"reloader.pprofAddr":                               with("reloader.enablePProf", to("pprof.address")),
	},
	same("reloader.deployment", "", "revisionHistoryLimit", "nodeSelector", "tolerations", "priorityClassName", "runtimeClassName",
		"schedulerName", "dnsConfig", "hostUsers", "livenessProbe", "readinessProbe"),

	map[string]rule{ // the objects that Reloader's chart creates, and their names, labels and rights
		"kubernetes.host":  says(without, "the server finds kube-apiserver as every pod does"),
		"namespace":        says(without, "helm --namespace says where configdep is installed"),
		"nameOverride":     says(without, oneName),
		"fullnameOverride": says(without, oneName),

		"reloader.matchLabels":                typed(addLabels),
		"reloader.deployment.labels":          typed(deploymentLabels),
		"reloader.deployment.annotations":     to("deployment.annotations"),
		"reloader.deployment.pod.annotations": to("podAnnotations"),
		"reloader.service.port": says(byHand,
			"the metrics are on the port of the API, for authorized clients; monitoring.insecurePort serves them to all, at port 9090 of the Service"),
		"reloader.service.ipFamilies":     says(without, "the Service has the default of the cluster"),
		"reloader.service.ipFamilyPolicy": says(without, "the Service has the default of the cluster"),
		"reloader.legacy.rbac":            ifTrueSays("the roles are in the current version of their API"),
		"reloader.rbac.enabled":           to("rbac.create"),
		"reloader.rbac.labels":            says(byHand, "commonLabels sets labels on every object"),
		"reloader.serviceAccount.create":  typed(createServiceAccount),

		"reloader.podDisruptionBudget.enabled":        typed(disruptions),
		"reloader.podDisruptionBudget.minAvailable":   with("reloader.podDisruptionBudget.enabled", to("podDisruptionBudget.minAvailable")),
		"reloader.podDisruptionBudget.maxUnavailable": with("reloader.podDisruptionBudget.enabled", to("podDisruptionBudget.maxUnavailable")),
		"reloader.netpol.enabled": ifTrue(func(c *conversion, path string) {
			c.set("networkPolicy.enabled", true)
			c.note(look, path, "if the policy does not suit the cluster, the API is unavailable, which disturbs the whole cluster: "+documents+"install.md#network")
		}),
		"reloader.netpol.from": with("reloader.netpol.enabled", to("networkPolicy.metricsFrom")),
		"reloader.netpol.to":   with("reloader.netpol.enabled", to("networkPolicy.apiServerTo")),
		"reloader.verticalPodAutoscaler": func(c *conversion, path string, _ any) {
			if !c.is(path+".enabled", true) {
				c.unset = append(c.unset, path)
				return
			}
			c.note(byHand, path, "the chart has no VerticalPodAutoscaler; create one for Deployment configdep-apiserver")
		},
		"reloader.enableMetricsByNamespace": ifTrueSays("configdep_rollouts_total always has the label namespace"),
	},
	same("reloader.service", "service", "labels", "annotations"),
	same("reloader.serviceAccount", "serviceAccount", "name", "annotations", "labels"),
	monitor("serviceMonitor", "bearerTokenFile", "targetLabels"),
	monitor("podMonitor", "bearerTokenSecret", "podTargetLabels"),
)

func merged[T any](parts ...map[string]T) map[string]T {
	all := map[string]T{}
	for _, part := range parts {
		maps.Copy(all, part)
	}
	return all
}

// monitor returns the rules for a kind of monitor of the Prometheus operator, two of whose values have names of their own.
func monitor(kind, token, labels string) map[string]rule {
	from, target := "reloader."+kind, "monitoring."+kind
	out := merged(same(from, target, "interval", "scrapeTimeout", "labels", "annotations", "honorLabels", "relabelings", "metricRelabelings"), map[string]rule{
		from + ".namespace": says(byHand, "the monitor is in the namespace of the release, because the CA is there; Prometheus has to select it there"),
		from + ".timeout":   to(target + ".scrapeTimeout"),
		from + ".scheme":    says(without, connection),
		from + ".tlsConfig": says(without, connection),
		from + "." + token:  says(without, connection),
		from + "." + labels: says(byHand, "the chart has no value for this; relabelings can do the same"),
	})
	enabled := from + ".enabled"
	for path, convert := range out {
		out[path] = with(enabled, convert)
	}
	out[enabled] = ifTrue(func(c *conversion, path string) {
		c.set(target+".enabled", true)
		c.set("monitoring.token", true)
		c.note(look, path, "monitoring.token creates a ServiceAccount that may only read the metrics; Reloader's metrics have other names than those of configdep")
	})
	return out
}

// preset adds a kind of custom resources to the kinds that configdep reads. Without any such value, the default of configdep's chart applies.
func preset(name string) rule {
	return ifTrue(func(c *conversion, path string) {
		appendTo("kinds.presets")(c, path, []any{name})
		c.note(look, path, "only these kinds of custom resources are read; without kinds.presets, all that configdep knows are")
	})
}

func strategy(c *conversion, path string, value any) {
	switch value {
	case "env-vars":
		c.set("reload.strategy", "env-var")
	case "annotations":
		c.note(without, path, "this is the default")
	case "default":
		c.note(without, path, "a restart writes annotations, where Reloader's default is an environment variable; "+
			"if something reads the variables, set reload.strategy to env-var")
	default:
		c.fail(path, "must be one of default, env-vars, annotations")
	}
}

func watchGlobally(c *conversion, path string, on bool) {
	if on {
		c.unset = append(c.unset, path)
		return
	}
	if c.Namespace == "" {
		c.fail(path, "is false, so Reloader watches the namespace of its release: name it with --release-namespace")
		return
	}
	all := []any{c.Namespace}
	if listed := c.get("reloader.namespaces"); !empty(listed) {
		names(func(_ *conversion, _ string, listed []any) {
			all = append(all, slices.DeleteFunc(listed, func(name any) bool { return name == c.Namespace })...)
		})(c, "reloader.namespaces", listed)
	}
	c.set("namespaces", all)
}

// webhook converts a URL, which is in no message, because it may be a credential.
func webhook(c *conversion, path string, value any) {
	if empty(c.get("reloader.custom_annotations")) {
		c.note(without, path, "Reloader's chart ignores it without reloader.custom_annotations; "+
			"with reload.webhookURL, configdep restarts nothing and posts each change instead")
		return
	}
	c.set("reload.webhookURL", value)
	c.note(look, path, "with reload.webhookURL, nothing is restarted; each change that would restart a workload is posted as a CloudEvent; "+
		"if the URL is a credential, use reload.observe and notifications.existingSecret instead")
}

// pullSecrets sets a list of names to those of references to Secrets.
func pullSecrets(target string) func(c *conversion, path string, references []any) {
	return func(c *conversion, path string, references []any) {
		secrets := []any{}
		for _, reference := range references {
			m, _ := reference.(map[string]any)
			if _, is := m["name"].(string); !is {
				c.fail(path, "must be a list of {name: SECRET}")
				return
			}
			secrets = append(secrets, map[string]any{"name": m["name"]})
		}
		c.set(target, secrets)
	}
}

func replicas(c *conversion, path string, count int) {
	if count > 1 {
		c.set("replicas", count)
		return
	}
	c.note(without, path, "the chart runs two replicas, because an API that does not answer disturbs discovery in the whole cluster; replicas sets another number")
}

// selecting passes a value on that may select pods by the labels that Reloader has.
func selecting(target string) rule {
	return func(c *conversion, path string, value any) {
		c.set(target, value)
		if strings.Contains(fmt.Sprint(value), "labelSelector:") {
			c.note(look, path, "a labelSelector has to select the pods of configdep, which have app.kubernetes.io/name: configdep-apiserver")
		}
	}
}

func appendTo(target string) func(c *conversion, path string, more []any) {
	return func(c *conversion, _ string, more []any) {
		list, _ := at(c.out, target).([]any)
		c.set(target, append(list, more...))
	}
}

func podSecurity(c *conversion, path string, value any) {
	if reflect.DeepEqual(value, any(map[string]any{
		"runAsNonRoot": true, "runAsUser": 65534, "seccompProfile": map[string]any{"type": "RuntimeDefault"},
	})) {
		c.note(without, path, "this is the default of Reloader's chart, and that of configdep has a similar one")
		return
	}
	c.set("podSecurityContext", value)
}

// verbosities are the values of logLevel for the levels of Reloader. At 2, what matters is logged.
var verbosities = map[string]int{"panic": 0, "fatal": 0, "error": 0, "warn": 0, "warning": 0, "info": 2, "debug": 4, "trace": 6}

func logLevel(c *conversion, path, level string) {
	verbosity, known := verbosities[strings.ToLower(level)]
	if !known {
		c.fail(path, "must be one of trace, debug, info, warning, error, fatal, panic")
		return
	}
	c.set("logLevel", verbosity)
}

func addLabels(c *conversion, _ string, labels map[string]any) {
	for _, target := range []string{"deployment.labels", "podLabels"} {
		already, _ := at(c.out, target).(map[string]any)
		c.set(target, merged(already, labels))
	}
}

// deploymentLabels are also on the pods. Some are there by default, and say that the pods are Reloader's.
func deploymentLabels(c *conversion, path string, labels map[string]any) {
	labels = maps.Clone(labels)
	if labels["provider"] == "stakater" {
		for _, own := range []string{"provider", "group", "version"} {
			if labels[own] != nil {
				c.note(without, path+"."+own, "these labels say that the pods are Reloader's")
			}
			delete(labels, own)
		}
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
