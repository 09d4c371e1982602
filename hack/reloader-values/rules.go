// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// rules are those for all values of Reloader's chart.
var rules = merged(restartRules, podRules, objectRules, monitoringRules)

func merged(parts ...map[string]rule) map[string]rule {
	all := map[string]rule{}
	for _, part := range parts {
		maps.Copy(all, part)
	}
	return all
}

// parsed calls use with a value that is what it must be.
func parsed(k kind, use func(c *conversion, path string, value any)) rule {
	return func(c *conversion, path string, value any) {
		converted, allowed := k(value)
		if allowed != "" {
			c.fail(path, allowed)
			return
		}
		use(c, path, converted)
	}
}

// to sets a value of configdep's chart to the same.
func to(target string, k kind) rule {
	return parsed(k, func(c *conversion, _ string, value any) { c.set(target, value) })
}

// says makes a note.
func says(s section, k kind, text string) rule {
	return parsed(k, func(c *conversion, path string, _ any) { c.note(s, path, text) })
}

// switched is for values that are true or false.
func switched(use func(c *conversion, path string, on bool)) rule {
	return parsed(boolean, func(c *conversion, path string, value any) { use(c, path, value.(bool)) })
}

// ifTrue is for switches, which say nothing if they are off.
func ifTrue(then func(c *conversion, path string)) rule {
	return switched(func(c *conversion, path string, on bool) {
		if on {
			then(c, path)
		} else {
			c.unset = append(c.unset, path)
		}
	})
}

// ifTrueSays makes a note if a switch is on.
func ifTrueSays(s section, text string) rule {
	return ifTrue(func(c *conversion, path string) { c.note(s, path, text) })
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

const documents = "https://github.com/configdep/configdep/blob/main/docs/"

// restartRules are for what Reloader reads, and what it restarts.
var restartRules = map[string]rule{
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
	"reloader.ignoreConfigMaps": ifTrueSets("configMaps.read", false),
	"reloader.ignoreJobs":       ifTrueSets("workloads.jobs", false),
	"reloader.ignoreCronJobs":   ifTrueSets("workloads.cronJobs", false),
	"reloader.reloadOnCreate":   ifTrueSets("reload.onCreate", true),
	"reloader.reloadOnDelete":   ifTrueSets("reload.onDelete", true),
	"reloader.syncAfterRestart": ifTrueSays(without, "changes that are made while no replica runs are always found"),
	"reloader.reloadStrategy":   parsed(oneOf("default", "env-vars", "annotations"), strategy),
	"reloader.isArgoRollouts":   ifTrue(func(c *conversion, path string) { c.preset(path, "argo-rollout") }),
	"reloader.isOpenshift":      ifTrue(func(c *conversion, path string) { c.preset(path, "openshift-deploymentconfig") }),
	"reloader.enableCSIIntegration": ifTrueSays(without,
		"rotations of SecretProviderClasses are seen by default (secretProviderClasses.read)"),

	"reloader.watchGlobally": switched(watchGlobally),
	"reloader.namespaces": parsed(names, func(c *conversion, path string, _ any) {
		if !c.is("reloader.watchGlobally", false) {
			c.fail(path, "needs reloader.watchGlobally: false, in Reloader's chart too")
		}
	}),
	"reloader.ignoreNamespaces":      globally(parsed(names, func(c *conversion, path string, value any) { c.setNamespaces("ignoredNamespaces", path, value.([]any)) })),
	"reloader.namespaceSelector":     globally(selector("reload.namespaceSelector", "--namespace-selector")),
	"reloader.resourceLabelSelector": selector("sources.selector", "--resource-label-selector"),

	"reloader.custom_annotations.configmap":      to("reload.reloaderAnnotations.configMap", text),
	"reloader.custom_annotations.secret":         to("reload.reloaderAnnotations.secret", text),
	"reloader.custom_annotations.auto":           to("reload.reloaderAnnotations.auto", text),
	"reloader.custom_annotations.configmap_auto": to("reload.reloaderAnnotations.configMapAuto", text),
	"reloader.custom_annotations.secret_auto":    to("reload.reloaderAnnotations.secretAuto", text),
	"reloader.custom_annotations.ignore":         to("reload.reloaderAnnotations.ignore", text),
	"reloader.custom_annotations.search":         to("reload.reloaderAnnotations.search", text),
	"reloader.custom_annotations.match":          to("reload.reloaderAnnotations.match", text),
	"reloader.custom_annotations.pausePeriod":    to("reload.reloaderAnnotations.pausePeriod", text),
	"reloader.custom_annotations.pauseTime":      to("reload.reloaderAnnotations.pausedAt", text),

	"reloader.webhookUrl": parsed(text, webhook),
}

// preset adds a kind of custom resources to those that are read. Without any such value, the default of configdep's chart applies.
func (c *conversion) preset(path, name string) {
	presets, _ := at(c.out, "kinds.presets").([]any)
	c.set("kinds.presets", append(presets, name))
	c.note(look, path, "only these kinds of custom resources are read; without kinds.presets, all that configdep knows are")
}

func strategy(c *conversion, path string, value any) {
	switch value {
	case "env-vars":
		c.set("reload.strategy", "env-var")
	case "annotations":
		c.note(without, path, "this is the default")
	default:
		c.note(without, path, "a restart writes annotations, where Reloader's default is an environment variable; "+
			"if something reads the variables, set reload.strategy to env-var")
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

// maxNamespaces is how many namespaces configdep reads, or leaves out, one by one.
const maxNamespaces = 100

func watchGlobally(c *conversion, path string, on bool) {
	if on {
		c.unset = append(c.unset, path)
		return
	}
	if c.namespace == "" {
		c.fail(path, "is false, so Reloader watches the namespace of its release: name it with -namespace")
		return
	}
	listed, _ := names(c.get("reloader.namespaces")) // another rule says what is wrong with it
	list, _ := listed.([]any)
	all := []any{c.namespace}
	for _, name := range list {
		if name != c.namespace {
			all = append(all, name)
		}
	}
	c.setNamespaces("namespaces", "reloader.namespaces", all)
}

// setNamespaces sets a value of the output to names of namespaces.
func (c *conversion) setNamespaces(target, path string, all []any) {
	for _, name := range all {
		if wrong := validation.IsDNS1123Label(name.(string)); len(wrong) > 0 {
			c.fail(path, "must be names of namespaces: "+name.(string)+" is none")
		}
	}
	if len(all) > maxNamespaces {
		c.fail(path, fmt.Sprintf("has %d namespaces, with that of the release if that is read, but at most %d are possible", len(all), maxNamespaces))
	}
	c.set(target, all)
}

// webhookURL is what configdep's chart accepts, in at most maxWebhookURL bytes.
var webhookURL = regexp.MustCompile(`^https?://[^/?#\s]+\S*$`)

const maxWebhookURL = 4096

// webhook converts a URL, which is in no message, because it may be a credential.
func webhook(c *conversion, path string, value any) {
	if custom, _ := c.get("reloader.custom_annotations").(map[string]any); len(custom) == 0 {
		c.note(without, path, "Reloader's chart ignores it without reloader.custom_annotations; "+
			"with reload.webhookURL, configdep restarts nothing and posts each change instead")
		return
	}
	if url := value.(string); len(url) > maxWebhookURL || !webhookURL.MatchString(url) {
		c.fail(path, fmt.Sprintf("must be https://HOST/PATH or http://HOST/PATH, at most %d bytes, without spaces and line ends", maxWebhookURL))
		return
	}
	c.set("reload.webhookURL", value)
	c.note(look, path, "with reload.webhookURL, nothing is restarted; each change that would restart a workload is posted as a CloudEvent; "+
		"if the URL is a credential, use reload.observe and notifications.existingSecret instead")
}

// address is what configdep's chart accepts.
var address = regexp.MustCompile(`^([A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\]):([1-9][0-9]{0,4})$`)

func pprofAddress(c *conversion, path string, value any) {
	parts := address.FindStringSubmatch(value.(string))
	if parts != nil {
		if _, err := strconv.ParseUint(parts[2], 10, 16); err == nil {
			c.set("pprof.address", value)
			return
		}
	}
	c.fail(path, "must be HOST:PORT or :PORT, such as localhost:6060 or :6060, with a port from 1 to 65535")
}

// podRules are for how Reloader's pods run.
var podRules = map[string]rule{
	"global.imageRegistry":                             to("global.imageRegistry", text),
	"global.imagePullSecrets":                          to("global.imagePullSecrets", secretNames),
	"image.name":                                       says(byHand, text, ownImage),
	"image.repository":                                 says(byHand, text, ownImage),
	"image.tag":                                        says(byHand, text, ownImage),
	"image.digest":                                     says(byHand, text, ownImage),
	"image.pullPolicy":                                 to("image.pullPolicy", pullPolicy),
	"reloader.deployment.image.name":                   says(byHand, text, ownImage),
	"reloader.deployment.image.tag":                    says(byHand, text, ownImage),
	"reloader.deployment.image.pullPolicy":             to("image.pullPolicy", pullPolicy),
	"reloader.deployment.imagePullSecrets":             to("imagePullSecrets", secretNames),
	"reloader.enableHA":                                ifTrueSays(without, "a leader is always elected; the chart runs two replicas"),
	"reloader.deployment.replicas":                     parsed(whole, replicas),
	"reloader.deployment.revisionHistoryLimit":         to("revisionHistoryLimit", whole),
	"reloader.deployment.nodeSelector":                 to("nodeSelector", texts),
	"reloader.deployment.affinity":                     selecting("affinity", mapping),
	"reloader.deployment.tolerations":                  to("tolerations", objects),
	"reloader.deployment.topologySpreadConstraints":    selecting("topologySpreadConstraints", objects),
	"reloader.deployment.priorityClassName":            to("priorityClassName", text),
	"reloader.deployment.runtimeClassName":             to("runtimeClassName", text),
	"reloader.deployment.schedulerName":                to("schedulerName", text),
	"reloader.deployment.dnsConfig":                    to("dnsConfig", mapping),
	"reloader.deployment.hostUsers":                    to("hostUsers", boolean),
	"reloader.deployment.securityContext":              parsed(mapping, podSecurity),
	"reloader.deployment.containerSecurityContext":     to("securityContext", mapping),
	"reloader.deployment.automountServiceAccountToken": says(without, boolean, "the token has a volume of its own"),
	"reloader.readOnlyRootFileSystem":                  ifTrueSays(without, "the file system of the container is always read-only"),
	"reloader.deployment.resources": says(byHand, mapping,
		"configdep needs other resources than Reloader; set resources, by "+documents+"operations.md#sizing"),
	"reloader.deployment.gomaxprocsOverride": parsed(numberOrText, func(c *conversion, _ string, value any) { c.set("goMaxProcs", asText(value)) }),
	"reloader.deployment.gomemlimitOverride": says(byHand, numberOrText,
		"goMemLimit is nine tenths of the memory limit, unless you set it"),
	"reloader.deployment.volumes":      parsed(objects, appendTo("extraVolumes")),
	"reloader.deployment.volumeMounts": parsed(objects, appendTo("extraVolumeMounts")),
	"reloader.volumes":                 parsed(objects, appendTo("extraVolumes")),
	"reloader.volumeMounts":            parsed(objects, appendTo("extraVolumeMounts")),

	"reloader.deployment.env.open":     parsed(scalars, openEnv),
	"reloader.deployment.env.secret":   parsed(scalars, secretEnv),
	"reloader.deployment.env.field":    parsed(texts, fieldEnv),
	"reloader.deployment.env.existing": parsed(mapping, existingEnv),

	"reloader.logFormat": to("logging.format", oneOf("json")),
	"reloader.logLevel":  parsed(text, logLevel),

	"reloader.enablePProf": ifTrueSets("pprof.enabled", true),
	"reloader.pprofAddr":   with("reloader.enablePProf", parsed(text, pprofAddress)),

	"reloader.deployment.livenessProbe.initialDelaySeconds":  to("livenessProbe.initialDelaySeconds", whole),
	"reloader.deployment.livenessProbe.timeoutSeconds":       to("livenessProbe.timeoutSeconds", whole),
	"reloader.deployment.livenessProbe.failureThreshold":     to("livenessProbe.failureThreshold", whole),
	"reloader.deployment.livenessProbe.periodSeconds":        to("livenessProbe.periodSeconds", whole),
	"reloader.deployment.livenessProbe.successThreshold":     to("livenessProbe.successThreshold", whole),
	"reloader.deployment.readinessProbe.initialDelaySeconds": to("readinessProbe.initialDelaySeconds", whole),
	"reloader.deployment.readinessProbe.timeoutSeconds":      to("readinessProbe.timeoutSeconds", whole),
	"reloader.deployment.readinessProbe.failureThreshold":    to("readinessProbe.failureThreshold", whole),
	"reloader.deployment.readinessProbe.periodSeconds":       to("readinessProbe.periodSeconds", whole),
	"reloader.deployment.readinessProbe.successThreshold":    to("readinessProbe.successThreshold", whole),
}

const ownImage = "this is the image of Reloader; set image.registry, image.repository and image.tag to that of configdep"

var pullPolicy = oneOf("Always", "IfNotPresent", "Never")

func replicas(c *conversion, path string, value any) {
	if value.(int) > 1 {
		c.set("replicas", value)
		return
	}
	c.note(without, path, "the chart runs two replicas, because an API that does not answer disturbs discovery in the whole cluster; replicas sets another number")
}

// selecting passes a value on that may select pods by the labels that Reloader has.
func selecting(target string, k kind) rule {
	return parsed(k, func(c *conversion, path string, value any) {
		c.set(target, value)
		if hasKey(value, "labelSelector") {
			c.note(look, path, "a labelSelector has to select the pods of configdep, which have app.kubernetes.io/name: configdep-apiserver")
		}
	})
}

// hasKey reports whether there is a key in a value, at any depth.
func hasKey(value any, key string) bool {
	switch value := value.(type) {
	case map[string]any:
		for k, v := range value {
			if k == key || hasKey(v, key) {
				return true
			}
		}
	case []any:
		for _, v := range value {
			if hasKey(v, key) {
				return true
			}
		}
	}
	return false
}

func appendTo(target string) func(c *conversion, path string, value any) {
	return func(c *conversion, _ string, value any) {
		list, _ := at(c.out, target).([]any)
		c.set(target, append(list, value.([]any)...))
	}
}

// defaultPodSecurity is that of Reloader's chart.
var defaultPodSecurity = map[string]any{
	"runAsNonRoot": true, "runAsUser": 65534, "seccompProfile": map[string]any{"type": "RuntimeDefault"},
}

func podSecurity(c *conversion, path string, value any) {
	if reflect.DeepEqual(value, any(defaultPodSecurity)) {
		c.note(without, path, "this is the default of Reloader's chart, and that of configdep has a similar one")
		return
	}
	c.set("podSecurityContext", value)
}

// verbosities are the values of logging.verbosity for the levels of Reloader. At 2, what matters is logged.
var verbosities = map[string]int{"panic": 0, "fatal": 0, "error": 0, "warn": 0, "warning": 0, "info": 2, "debug": 4, "trace": 6}

func logLevel(c *conversion, path string, value any) {
	verbosity, known := verbosities[strings.ToLower(value.(string))]
	if !known {
		c.fail(path, "must be one of trace, debug, info, warning, error, fatal, panic")
		return
	}
	c.set("logging.verbosity", verbosity)
}
