// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package values

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// conversions are values of Reloader's chart, what they become, and a part of what is said of them in the comment. In the
// output, only what differs from nothing is named. Each rule has a case at least.
var conversions = map[string]struct {
	in, out string
	says    string
}{
	"nothing":        {"{}", "{}", ""},
	"an empty value": {"reloader: {logFormat: ''}", "{}", "Not set, or set to what makes no difference: - reloader.logFormat"},
	"empty maps":     {"reloader: {podMonitor: {}, deployment: null}", "{}", "- reloader.deployment, reloader.podMonitor"},

	"all workloads":                   {"reloader: {autoReloadAll: true}", "{reload: {autoReloadAll: true}, kinds: {presets: []}}", "look at these: - reloader.autoReloadAll: custom resources are not restarted"},
	"all workloads and Argo Rollouts": {"reloader: {autoReloadAll: true, isArgoRollouts: true}", "{reload: {autoReloadAll: true}, kinds: {presets: [argo-rollout]}}", ""},
	"not all workloads":               {"reloader: {autoReloadAll: false}", "{}", "- reloader.autoReloadAll"},
	"switches": {
		"reloader: {ignoreConfigMaps: true, ignoreJobs: true, ignoreCronJobs: true, reloadOnCreate: true, reloadOnDelete: true}",
		"{configMaps: {read: false}, workloads: {jobs: false, cronJobs: false}, reload: {onCreate: true, onDelete: true}}", "",
	},
	"no Secrets": {"reloader: {ignoreSecrets: true}", "secrets: {read: false}", ""},
	"what needs no conversion": {
		"{kubernetes: {host: 'https://kubernetes.default'}, nameOverride: a, fullnameOverride: b, namespace: c, reloader: {syncAfterRestart: true, enableCSIIntegration: true, enableHA: true, " +
			"readOnlyRootFileSystem: true, reloadStrategy: annotations, deployment: {automountServiceAccountToken: true}, legacy: {rbac: true}, enableMetricsByNamespace: true, " +
			"service: {ipFamilies: [IPv6], ipFamilyPolicy: SingleStack}}}", "{}", "has no effect: - fullnameOverride, nameOverride: all objects",
	},
	"what is set by hand": {
		"reloader: {deployment: {resources: {limits: {memory: 512Mi}}, gomemlimitOverride: 200MiB}, service: {port: 9090}}", "{}",
		"set these yourself: - reloader.deployment.gomemlimitOverride: goMemLimit",
	},
	"the default strategy":            {"reloader: {reloadStrategy: default}", "{}", "has no effect: - reloader.reloadStrategy: a restart writes annotations"},
	"the strategy env-vars":           {"reloader: {reloadStrategy: env-vars}", "reload: {strategy: env-var}", ""},
	"neither":                         {"reloader: {isArgoRollouts: false, isOpenshift: false}", "{}", "- reloader.isArgoRollouts, reloader.isOpenshift"},
	"both":                            {"reloader: {isArgoRollouts: true, isOpenshift: true}", "kinds: {presets: [argo-rollout, openshift-deploymentconfig]}", "- reloader.isArgoRollouts, reloader.isOpenshift: only these kinds"},
	"all namespaces":                  {"reloader: {watchGlobally: true}", "{}", "- reloader.watchGlobally"},
	"the namespace of the release":    {"reloader: {watchGlobally: false}", "namespaces: [tools]", ""},
	"some namespaces":                 {"reloader: {watchGlobally: false, namespaces: 'shop, tools, bank,shop'}", "namespaces: [tools, shop, bank]", ""},
	"ignored namespaces":              {"reloader: {ignoreNamespaces: 'dev, kube-system'}", "ignoredNamespaces: [dev, kube-system]", ""},
	"ignored namespaces, one is read": {"reloader: {ignoreNamespaces: dev, watchGlobally: false}", "namespaces: [tools]", "has no effect: - reloader.ignoreNamespaces: reloader.watchGlobally is false"},
	"a namespace selector":            {"reloader: {namespaceSelector: 'env=test,team in (a,b)'}", "reload: {namespaceSelector: {matchLabels: {env: test}, matchExpressions: [{key: team, operator: In, values: [a, b]}]}}", ""},
	"a namespace selector of any kind": {
		"reloader: {namespaceSelector: 'a==1, c notin (u,z),d,!e,f=,g in (h)'}",
		"reload: {namespaceSelector: {matchLabels: {a: '1', f: ''}, matchExpressions: [{key: c, operator: NotIn, values: [u, z]}, {key: d, operator: Exists}, {key: e, operator: DoesNotExist}, " +
			"{key: g, operator: In, values: [h]}]}}", "",
	},
	"a namespace selector of earlier days":   {"reloader: {namespaceSelector: 'env:test,team:*,tier=*'}", "reload: {namespaceSelector: {matchLabels: {env: test}, matchExpressions: [{key: team, operator: Exists}, {key: tier, operator: Exists}]}}", ""},
	"a namespace selector with a comparison": {"reloader: {namespaceSelector: 'env!=test,size>3'}", "extraArgs: ['--namespace-selector=env!=test,size>3']", ""},
	"a namespace selector, one is read":      {"reloader: {namespaceSelector: env=test, watchGlobally: false}", "namespaces: [tools]", "- reloader.namespaceSelector: reloader.watchGlobally is false"},
	"a selector of sources":                  {"reloader: {resourceLabelSelector: 'reload:*'}", "sources: {selector: {matchExpressions: [{key: reload, operator: Exists}]}}", ""},
	"names of annotations": {
		"reloader: {custom_annotations: {configmap: a/1, secret: a/2, auto: a/3, configmap_auto: a/4, secret_auto: a/5, ignore: a/6, search: a/7, match: a/8, pausePeriod: a/9, pauseTime: a/10}}",
		"reload: {reloaderAnnotations: {configMap: a/1, secret: a/2, auto: a/3, configMapAuto: a/4, secretAuto: a/5, ignore: a/6, search: a/7, match: a/8, pausePeriod: a/9, pausedAt: a/10}}", "",
	},
	"a webhook": {
		"reloader: {webhookUrl: 'https://example.com/x', custom_annotations: {auto: a/b}}",
		"reload: {reloaderAnnotations: {auto: a/b}, webhookURL: 'https://example.com/x'}", "look at these: - reloader.webhookUrl: with reload.webhookURL, nothing is restarted",
	},
	"a webhook that Reloader's chart ignores": {"reloader: {webhookUrl: 'https://example.com/x', custom_annotations: {}}", "{}", "has no effect: - reloader.webhookUrl: Reloader's chart ignores it"},

	"Secrets of registries":        {"global: {imagePullSecrets: [{name: a}, {name: b}]}", "global: {imagePullSecrets: [{name: a}, {name: b}]}", ""},
	"Secrets of registries, older": {"reloader: {deployment: {imagePullSecrets: [{name: a}]}}", "imagePullSecrets: [{name: a}]", ""},
	"an image":                     {"image: {name: stakater/reloader, repository: ghcr.io/stakater/reloader, tag: v1, digest: 'sha256:1', pullPolicy: Never}", "image: {pullPolicy: Never}", "set these yourself: - image.digest, image.name, image.repository, image.tag: this is the image of Reloader"},
	"an image, older":              {"reloader: {deployment: {image: {name: stakater/reloader, tag: v1, pullPolicy: Always}}}", "image: {pullPolicy: Always}", "- reloader.deployment.image.name, reloader.deployment.image.tag: this"},
	"replicas":                     {"reloader: {deployment: {replicas: 3}}", "replicas: 3", ""},
	"one replica":                  {"reloader: {deployment: {replicas: 1}}", "{}", "has no effect: - reloader.deployment.replicas: the chart runs two"},
	"what is the same": {
		"{global: {imageRegistry: registry.example}, reloader: {logFormat: json, service: {labels: {a: b}, annotations: {c: d}}, deployment: {annotations: {a: b}, pod: {annotations: {c: d}}, " +
			"containerSecurityContext: {privileged: false}, revisionHistoryLimit: 0, nodeSelector: {a: b}, tolerations: [{key: a}], priorityClassName: high, runtimeClassName: gvisor, schedulerName: other, dnsConfig: {searches: [a]}, hostUsers: false, " +
			"affinity: {nodeAffinity: {a: b}}, topologySpreadConstraints: [{maxSkew: 1}]}}}",
		"{global: {imageRegistry: registry.example}, logFormat: json, service: {labels: {a: b}, annotations: {c: d}}, deployment: {annotations: {a: b}}, podAnnotations: {c: d}, " +
			"securityContext: {privileged: false}, revisionHistoryLimit: 0, nodeSelector: {a: b}, tolerations: [{key: a}], priorityClassName: high, runtimeClassName: gvisor, schedulerName: other, dnsConfig: {searches: [a]}, hostUsers: false, " +
			"affinity: {nodeAffinity: {a: b}}, topologySpreadConstraints: [{maxSkew: 1}]}", "",
	},
	"affinity of pods": {
		"reloader: {deployment: {affinity: {podAntiAffinity: {x: [{labelSelector: {}}]}}}}", "affinity: {podAntiAffinity: {x: [{labelSelector: {}}]}}",
		"look at these: - reloader.deployment.affinity: a labelSelector has to select",
	},
	"a security context":           {"reloader: {deployment: {securityContext: {runAsUser: null, fsGroup: 1000650000}}}", "podSecurityContext: {runAsUser: null, fsGroup: 1000650000}", ""},
	"the default security context": {"reloader: {deployment: {securityContext: {runAsNonRoot: true, runAsUser: 65534, seccompProfile: {type: RuntimeDefault}}}}", "{}", "- reloader.deployment.securityContext: this is the default"},
	"processors":                   {"reloader: {deployment: {gomaxprocsOverride: 2}}", "goMaxProcs: '2'", ""},
	"volumes": {
		"reloader: {volumes: [{name: a}], volumeMounts: [{name: a, mountPath: /a}], deployment: {volumes: [{name: b}], volumeMounts: [{name: b, mountPath: /b}]}}",
		"{extraVolumes: [{name: b}, {name: a}], extraVolumeMounts: [{name: b, mountPath: /b}, {name: a, mountPath: /a}]}", "",
	},
	"a level of logs": {"reloader: {logLevel: Debug}", "logLevel: 4", ""},
	"profiles":        {"reloader: {enablePProf: true, pprofAddr: ':6060'}", "pprof: {enabled: true, address: ':6060'}", ""},
	"probes": {
		`reloader: {deployment: {livenessProbe: {initialDelaySeconds: 1, timeoutSeconds: 2, failureThreshold: 3, periodSeconds: 4, successThreshold: 1},
			readinessProbe: {initialDelaySeconds: 5, timeoutSeconds: 6, failureThreshold: 7, periodSeconds: 8, successThreshold: 9}}}`,
		`{livenessProbe: {initialDelaySeconds: 1, timeoutSeconds: 2, failureThreshold: 3, periodSeconds: 4, successThreshold: 1},
			readinessProbe: {initialDelaySeconds: 5, timeoutSeconds: 6, failureThreshold: 7, periodSeconds: 8, successThreshold: 9}}`, "",
	},

	"variables": {
		"reloader: {deployment: {env: {open: {B: 1, ALERT_ON_RELOAD: true, C: ''}, field: {NODE: spec.nodeName}}}}",
		"extraEnv: [{name: ALERT_ON_RELOAD, value: 'true'}, {name: B, value: '1'}, {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]",
		"no difference: - reloader.deployment.env.open.C",
	},
	"variables with secrets": {
		"reloader: {deployment: {env: {secret: {ALERT_WEBHOOK_URL: 'https://s3cret.example.com', ALERT_SINK: slack}}}}",
		"extraEnv: [{name: ALERT_SINK, valueFrom: {secretKeyRef: {name: configdep-env, key: ALERT_SINK}}}, {name: ALERT_WEBHOOK_URL, valueFrom: {secretKeyRef: {name: configdep-env, key: ALERT_WEBHOOK_URL}}}]",
		"set these yourself: - reloader.deployment.env.secret: create a Secret configdep-env in the namespace of configdep, with these values by the keys ALERT_SINK, ALERT_WEBHOOK_URL",
	},
	"secrets without a value": {"reloader: {deployment: {env: {secret: {ALERT_SINK: null}}}}", "{}", "no difference: - reloader.deployment.env.secret.ALERT_SINK"},
	"variables of Secrets": {
		"reloader: {deployment: {env: {existing: {alerts: {ALERT_WEBHOOK_URL: url}, none: null}}}}",
		"extraEnv: [{name: ALERT_WEBHOOK_URL, valueFrom: {secretKeyRef: {name: alerts, key: url}}}]",
		"set these yourself: - reloader.deployment.env.existing.alerts: copy this Secret",
	},

	"labels": {
		"reloader: {matchLabels: {a: b}, deployment: {labels: {c: d, provider: stakater, version: v1}}}",
		"{deployment: {labels: {a: b, c: d}}, podLabels: {a: b, c: d}}", "has no effect: - reloader.deployment.labels.provider, reloader.deployment.labels.version: these labels",
	},
	"labels of others":     {"reloader: {deployment: {labels: {version: v1}}}", "{deployment: {labels: {version: v1}}, podLabels: {version: v1}}", ""},
	"no RBAC":              {"reloader: {rbac: {enabled: false, labels: {a: b}}}", "rbac: {create: false}", "set these yourself: - reloader.rbac.labels: commonLabels"},
	"a ServiceAccount":     {"reloader: {serviceAccount: {create: false, name: mine, labels: {a: b}, annotations: {c: d}}}", "serviceAccount: {create: false, name: mine, labels: {a: b}, annotations: {c: d}}", ""},
	"the namespace's own":  {"reloader: {serviceAccount: {create: false, name: null}}", "serviceAccount: {create: false, name: default}", "look at these: - reloader.serviceAccount.create: without a name"},
	"disruptions":          {"reloader: {podDisruptionBudget: {enabled: true, minAvailable: 1, maxUnavailable: 50%}}", "podDisruptionBudget: {enabled: true, minAvailable: 1, maxUnavailable: 50%}", ""},
	"no disruption budget": {"reloader: {podDisruptionBudget: {enabled: false, minAvailable: 1}}", "{}", "- reloader.podDisruptionBudget.minAvailable: reloader.podDisruptionBudget.enabled is not true"},
	"a network policy":     {"reloader: {netpol: {enabled: true, from: [{podSelector: {}}], to: [{ipBlock: {cidr: 10.0.0.1/32}}]}}", "networkPolicy: {enabled: true, metricsFrom: [{podSelector: {}}], apiServerTo: [{ipBlock: {cidr: 10.0.0.1/32}}]}", "look at these: - reloader.netpol.enabled: if the policy"},
	"an autoscaler":        {"reloader: {verticalPodAutoscaler: {enabled: true, updatePolicy: {updateMode: Auto}}}", "{}", "set these yourself: - reloader.verticalPodAutoscaler: the chart has no VerticalPodAutoscaler"},

	"a ServiceMonitor": {
		`reloader: {serviceMonitor: {enabled: true, namespace: monitoring, interval: 10s, timeout: 5s, labels: {a: b}, annotations: {c: d}, honorLabels: false,
			relabelings: [{action: drop}], metricRelabelings: [{action: keep}], scheme: http, tlsConfig: {ca: {}}, bearerTokenFile: /a, targetLabels: [a]}}`,
		"monitoring: {token: true, serviceMonitor: {enabled: true, interval: 10s, scrapeTimeout: 5s, labels: {a: b}, annotations: {c: d}, honorLabels: false, relabelings: [{action: drop}], metricRelabelings: [{action: keep}]}}",
		"- reloader.serviceMonitor.bearerTokenFile, reloader.serviceMonitor.scheme, reloader.serviceMonitor.tlsConfig: the monitor is given",
	},
	"a PodMonitor": {
		`reloader: {podMonitor: {enabled: true, namespace: monitoring, interval: 10s, scrapeTimeout: 5s, labels: {a: b}, annotations: {c: d}, honorLabels: false,
			relabelings: [{action: drop}], metricRelabelings: [{action: keep}], scheme: http, tlsConfig: {ca: {}}, bearerTokenSecret: {name: a}, podTargetLabels: [a]}}`,
		"monitoring: {token: true, podMonitor: {enabled: true, interval: 10s, scrapeTimeout: 5s, labels: {a: b}, annotations: {c: d}, honorLabels: false, relabelings: [{action: drop}], metricRelabelings: [{action: keep}]}}",
		"set these yourself: - reloader.podMonitor.namespace: the monitor is in the namespace of the release",
	},
	"timeouts by the other names": {
		"reloader: {serviceMonitor: {enabled: true, scrapeTimeout: 5s}, podMonitor: {enabled: true, timeout: 5s}}",
		"monitoring: {token: true, serviceMonitor: {enabled: true, scrapeTimeout: 5s}, podMonitor: {enabled: true, scrapeTimeout: 5s}}", "",
	},
	"what Reloader's chart does not have": {
		"{reloader: {autoReload: true, deployment: {env: {}, replica: 1}}, reloader.logFormat: json, other: {a: b}}", "{}",
		"Reloader's chart has no such values: - other, reloader.autoReload, reloader.deployment.replica, reloader.logFormat",
	},
	"no monitor": {"reloader: {podMonitor: {enabled: false, interval: 10s}}", "{}", "has no effect: - reloader.podMonitor.interval: reloader.podMonitor.enabled is not true"},
}

var testOptions = Options{Namespace: "tools"}

func parsedValues(t *testing.T, text string) map[string]any {
	t.Helper()
	values, err := parse([]byte(strings.ReplaceAll(text, "\t", " ")))
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// split returns the values of an output, and the text of its comment without line ends.
func split(t *testing.T, output string) (values any, comment string) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(output), &values); err != nil {
		t.Fatalf("%v:\n%s", err, output)
	}
	for line := range strings.Lines(output) {
		if of, found := strings.CutPrefix(line, "#"); found {
			comment += of
		}
	}
	return values, strings.Join(strings.Fields(comment), " ")
}

func TestConvert(t *testing.T) {
	for name, tt := range conversions {
		t.Run(name, func(t *testing.T) {
			output, err := convert(parsedValues(t, tt.in), testOptions)
			if err != nil {
				t.Fatal(err)
			}
			got, comment := split(t, output)
			want, _ := split(t, strings.ReplaceAll(tt.out, "\t", " "))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("values (-want +got):\n%s", diff)
			}
			if !strings.Contains(comment, tt.says) {
				t.Errorf("comment = %s\nwant it to contain %s", comment, tt.says)
			}
			if strings.Contains(output, "s3cret") {
				t.Errorf("the output contains a secret:\n%s", output)
			}
		})
	}
}

// A date is a text for helm.
func TestParse_KeepsDates(t *testing.T) {
	values, err := parse([]byte("a: {since: 2024-01-01, n: 1}"))
	if diff := cmp.Diff(map[string]any{"a": map[string]any{"since": "2024-01-01", "n": 1}}, values); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// CronJobs and Jobs are run again, unless the values ignore both, and observe is set.
func TestConvert_Options(t *testing.T) {
	for in, want := range map[string]string{
		"{}":                               "reload: {observe: true, jobs: true}",
		"reloader: {ignoreJobs: true}":     "{reload: {observe: true, jobs: true}, workloads: {jobs: false}}",
		"reloader: {ignoreCronJobs: true}": "{reload: {observe: true, jobs: true}, workloads: {cronJobs: false}}",
		"reloader: {ignoreCronJobs: true, ignoreJobs: true}": "{reload: {observe: true}, workloads: {jobs: false, cronJobs: false}}",
	} {
		output, err := convert(parsedValues(t, in), Options{Jobs: true, Observe: true})
		if err != nil {
			t.Fatal(err)
		}
		got, comment := split(t, output)
		values, _ := split(t, want)
		if diff := cmp.Diff(values, got); diff != "" {
			t.Errorf("%s: values (-want +got):\n%s", in, diff)
		}
		if said := strings.Contains(comment, "look at these: - reload.jobs: grants the rights"); said != strings.Contains(want, "jobs: true") {
			t.Errorf("%s: comment = %s", in, comment)
		}
	}
}

// paths returns the paths in values for which there are rules.
func paths(prefix string, values map[string]any) (all []string) {
	for key, value := range values {
		path := strings.TrimPrefix(prefix+"."+key, ".")
		if rules[path] != nil {
			all = append(all, path)
		} else if below, is := value.(map[string]any); is {
			all = append(all, paths(path, below)...)
		}
	}
	return all
}

// No rule is without a case above, which has a value for it. Each value leads to a value of the output, or is named in the
// comment.
func TestConvert_DropsNothing(t *testing.T) {
	tested := map[string]bool{}
	for name, tt := range conversions {
		in := parsedValues(t, tt.in)
		for _, path := range paths("", in) {
			if !empty(at(in, path)) {
				tested[path] = true
			}
		}
		output, err := convert(in, testOptions)
		if err != nil {
			t.Fatal(err)
		}
		_, comment := split(t, output)
		// Without one of the values, the output is another one, unless it is converted along with others.
		for _, path := range paths("", in) {
			if strings.Contains(comment, path) || path == "reloader.namespaces" {
				continue
			}
			less := parsedValues(t, tt.in)
			keys := strings.Split(path, ".")
			parent := less
			for _, key := range keys[:len(keys)-1] {
				parent = parent[key].(map[string]any)
			}
			delete(parent, keys[len(keys)-1])
			if without, err := convert(less, testOptions); err == nil && without == output {
				t.Errorf("%s: %s makes no difference, and the comment does not name it", name, path)
			}
		}
	}
	for path := range rules {
		if !tested[path] {
			t.Errorf("%s has no case", path)
		}
	}
}

func TestConvert_RefusesInvalidValues(t *testing.T) {
	for in, want := range map[string]string{
		"reloader: {autoReloadAll: 'true'}":                             "reloader.autoReloadAll: must be true or false",
		"reloader: {logLevel: loud}":                                    "reloader.logLevel: must be one of trace, debug, info",
		"reloader: {reloadStrategy: annotation}":                        "reloader.reloadStrategy: must be one of default, env-vars, annotations",
		"reloader: {deployment: {replicas: '3'}}":                       "reloader.deployment.replicas: must be a whole number",
		"reloader: {deployment: 1}":                                     "reloader.deployment: must be a map",
		"reloader: {deployment: {labels: [a]}}":                         "reloader.deployment.labels: must be a map",
		"reloader: {deployment: {volumes: {a: b}}}":                     "reloader.deployment.volumes: must be a list",
		"reloader: {deployment: {env: {existing: {a: b}}}}":             "reloader.deployment.env.existing.a: must be a map",
		"reloader: {deployment: {env: {open: {A: 1}, secret: {A: 2}}}}": "reloader.deployment.env.secret: sets A, which is also set elsewhere",
		"reloader: {namespaceSelector: 1}":                              "reloader.namespaceSelector: must be text; put it in quotes",
		"reloader: {namespaceSelector: 'env=te st'}":                    "reloader.namespaceSelector: must be a label selector, such as env=test,team: ",
		"reloader: {resourceLabelSelector: 'env!=*'}":                   "reloader.resourceLabelSelector: must be a label selector",
		"reloader: {ignoreNamespaces: 1}":                               "reloader.ignoreNamespaces: must be a list of names, or names separated by commas",
		"reloader: {namespaces: [a]}":                                   "reloader.namespaces: needs reloader.watchGlobally: false",
		"reloader: {watchGlobally: false, namespaces: [1]}":             "reloader.namespaces: must be a list of names",
		"reloader: {ignoreSecrets: true, ignoreConfigMaps: true}":       "reloader.ignoreSecrets: must not be true together with reloader.ignoreConfigMaps",
		"global: {imagePullSecrets: [a]}":                               "global.imagePullSecrets: must be a list of {name: SECRET}",
	} {
		if _, err := convert(parsedValues(t, in), testOptions); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", in, err, want)
		}
	}
	in := parsedValues(t, "reloader: {watchGlobally: false}")
	if _, err := convert(in, Options{}); err == nil || !strings.Contains(err.Error(), "name it with --release-namespace") {
		t.Errorf("without the namespace of the release: %v", err)
	}
}

func TestConvert_ReadsOneDocument(t *testing.T) {
	for name, tt := range map[string]struct {
		in    string
		wrong string
	}{
		"values":        {"reloader: {autoReloadAll: true}", ""},
		"nothing":       {" \n", "reading the values: there are none"},
		"null":          {"null\n", ""},
		"a list":        {"[a]", "reading the values: "},
		"no YAML":       {"a: b: c", "reading the values: "},
		"a key twice":   {"reloader: {}\nreloader: {}", "already defined"},
		"two documents": {"reloader: {}\n---\nreloader: {}\n", "there must be one document"},
		"too much":      {strings.Repeat("#", maxInput+1), "more than 1048576 bytes"},
		"invalid":       {"reloader: {autoReloadAll: 1}", "reloader.autoReloadAll"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			err := Convert(strings.NewReader(tt.in), &out, Options{})
			if tt.wrong == "" {
				if err != nil || !strings.HasPrefix(out.String(), "# Values of the chart configdep") {
					t.Errorf("%v; output:\n%s", err, out.String())
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.wrong) || out.Len() > 0 {
				t.Errorf("error = %v, output = %q; want %s and no output", err, out.String(), tt.wrong)
			}
		})
	}
}

// defaults returns the values of Reloader's chart without any set.
func defaults(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile("testdata/defaults.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// With the defaults of Reloader's chart, as "helm get values --all" prints them, little is left to do.
func TestConvert_Defaults(t *testing.T) {
	output, err := convert(parsedValues(t, defaults(t)), Options{})
	if err != nil {
		t.Fatal(err)
	}
	got, comment := split(t, output)
	want, _ := split(t, "{image: {pullPolicy: IfNotPresent}, logLevel: 2, rbac: {create: true}, revisionHistoryLimit: 2, serviceAccount: {create: true}}")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
	if strings.Contains(comment, headings[look]) {
		t.Errorf("comment = %s", comment)
	}
}
