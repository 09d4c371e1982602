// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/configdep/configdep/pkg/policy"
)

var nestedString = unstructured.NestedString

// arguments returns the arguments of the Deployment's container.
func arguments(t *testing.T, objects map[objectKey]*unstructured.Unstructured) []string {
	t.Helper()
	for key, o := range objects {
		if key.kind != "Deployment" {
			continue
		}
		containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		args, _, _ := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
		return args
	}
	t.Fatal("found no Deployment")
	return nil
}

// A value that is misspelt, has the wrong type or has no effect results in an error that names it, and is not
// ignored.
func TestBadValues(t *testing.T) {
	for set, want := range map[string]string{
		"image.digst=sha256:1":                 "at '/image': additional properties 'digst' not allowed",
		"readinessProbe.httpGet.path=/":        "at '/readinessProbe': additional properties",
		"replicas=two":                         "at '/replicas': got string, want integer",
		"replicas=0":                           "at '/replicas': minimum",
		"replicaCount=3":                       "replicaCount: there is no such value; replicas may be meant",
		"serviceMonitor.enabled=true":          "serviceMonitor: there is no such value; monitoring.serviceMonitor may be meant",
		"podLabel.a=b":                         "podLabel: there is no such value; podLabels may be meant",
		"Tolerations={}":                       "Tolerations: there is no such value; tolerations may be meant",
		"crds.enabled=true":                    "crds: there is no such value, only global, image, ",
		"xyz=1":                                "xyz: there is no such value, only global, image, ",
		"imagePullSecrets={regcred}":           "at '/imagePullSecrets/0': got string, want object",
		"podDisruptionBudget.maxUnavailable=0": "podDisruptionBudget: with replicas: 2, maxUnavailable: 0 blocks every drain of a node forever",
		"replicas=1,podDisruptionBudget.minAvailable=1":                                         "podDisruptionBudget: with replicas: 1, minAvailable: 1 blocks every drain of a node forever",
		"replicas=3,podDisruptionBudget.minAvailable=67%":                                       "podDisruptionBudget: with replicas: 3, minAvailable: 67% blocks every drain of a node forever",
		"monitoring.serviceMonitor.enabled=true,monitoring.serviceMonitor.namespace=monitoring": "monitoring.serviceMonitor.namespace: needs monitoring.insecurePort",
		"updateStrategy.rollingUpdate.maxSurge=0":                                               "updateStrategy.rollingUpdate: maxUnavailable and maxSurge cannot both be 0",
		"namespaces=shop":                           "at '/namespaces': got string, want array",
		"namespaces={shop,shop}":                    "at '/namespaces': items at 0 and 1 are equal",
		"namespaces={Shop}":                         "at '/namespaces/0'",
		"namespaces={shop},ignoredNamespaces={dev}": "ignoredNamespaces: has no effect with namespaces",
		"namespaces={shop},reload.namespaceSelector.matchLabels.env=test": "reload.namespaceSelector: has no effect with namespaces",
		"sources.selector.matchExpressions[0].key=a":                      "at '/sources/selector/matchExpressions/0': missing property 'operator'",
		"reload.jobs=true,workloads.jobs=false,workloads.cronJobs=false":  "reload.jobs: has no effect where workloads.jobs and workloads.cronJobs are both false",
		"configMaps.read=false,secrets.read=false":                        "configMaps.read and secrets.read: cannot both be false",
		"reload.settle=soon":                                                        "at '/reload/settle'",
		"reload.strategy=recreate":                                                  "reload.strategy: is recreate, which reload.strategies has to contain",
		"reload.autoReloadAll=true,reload.default=off":                              "reload.autoReloadAll: contradicts reload.default, which has to be auto or not set with it",
		"reload.onCreate=true,reload.dialects={wave}":                               "reload.onCreate and reload.onDelete: have no effect without reload.autoReloadAll",
		"reload.webhookURL=example.com/s3cret":                                      "reload.webhookURL: has to be https://HOST/PATH or http://HOST/PATH",
		"reload.webhookURL=https://example.com/s3 cret":                             "reload.webhookURL: has to be https://HOST/PATH or http://HOST/PATH",
		"tls.mode=existingSecret":                                                   "tls.existingSecret: has to be set where tls.mode is existingSecret",
		"tls.existingSecret=mine":                                                   "tls.existingSecret: has no effect unless tls.mode is existingSecret",
		"tls.certManager.issuerRef.name=x":                                          "tls.certManager.issuerRef: has no effect unless tls.mode is cert-manager",
		"image.digest=sha256:12":                                                    "at '/image/digest'",
		"fullnameOverride=1a":                                                       "at '/fullnameOverride'",
		"reload.reloaderAnnotations.secret=a/b,reload.reloaderAnnotations.auto=a/b": "reload.reloaderAnnotations.secret: has to differ from reload.reloaderAnnotations.auto: both are a/b",
		"reload.reloaderAnnotations.ignore=configdep.io/ignore":                     "reload.reloaderAnnotations.ignore: configdep.io/ignore is an annotation of configdep",
		"pprof.address=:6061":                                                       "pprof.address: has no effect where pprof.enabled is false",
		"pprof.enabled=true,pprof.address=localhost":                                "pprof.address: has to be HOST:PORT or :PORT, such as localhost:6060 or :6060, with a port from 1 to 65535",
		"pprof.enabled=true,pprof.address=:65536":                                   "pprof.address: has to be HOST:PORT or :PORT",
		"pprof.enabled=true,pprof.address=::1:6060":                                 "pprof.address: has to be HOST:PORT or :PORT",
		"pprof.enabled=true,securePort=6060":                                        "pprof.address: its port has to differ from securePort",
		"pprof.enabled=true,monitoring.insecurePort=6060":                           "pprof.address: its port has to differ from monitoring.insecurePort",
		"monitoring.insecurePort=65536":                                             "at '/monitoring/insecurePort': maximum: got 65,536, want 65,535",
		"extraArgs={oops}":                                                          "at '/extraArgs/0'",
		"extraEnv[0].nam=x":                                                         "at '/extraEnv/0'",
		"podDisruptionBudget.maxUnavailable=many":                                   "at '/podDisruptionBudget/maxUnavailable'",
		"monitoring.podMonitor.enabled=true":                                        "monitoring.podMonitor: needs monitoring.token, as a PodMonitor cannot use the token of Prometheus itself",
		"monitoring.serviceMonitor.interval=fast":                                   "at '/monitoring/serviceMonitor/interval'",
		"serviceAccount.create=false":                                               "serviceAccount.name: has to be set where serviceAccount.create is false",
		"networkPolicy.enabled=true,hostNetwork=true,securePort=10260":              "networkPolicy.enabled: has no effect with hostNetwork",
		"reload.strategies={recreate}":                                              "reload.strategies: has to contain annotation",
		"reload.strategies={annotation,reboot}":                                     "at '/reload/strategies/1': value must be one of",
		"admissionPolicies.validationActions={Deny,Warn}":                           "admissionPolicies.validationActions: Deny and Warn exclude each other",
		"notifications.clusterName=a/b":                                             "at '/notifications/clusterName'",
		"notifications.existingSecret=mine,notifications.config.kind=Notifications": "notifications.config: has no effect with notifications.existingSecret",
		"reload.reloaderAnnotations.auto=a'b":                                       "at '/reload/reloaderAnnotations/auto'",
	} {
		t.Run(set, func(t *testing.T) {
			out, err := template(t, "--set", set)
			if err == nil {
				t.Fatal("the value is accepted, want an error")
			}
			if !strings.Contains(out, want) {
				t.Errorf("helm printed\n%s\nwant it to contain %q", out, want)
			}
			if strings.Contains(out, "s3cret") {
				t.Errorf("helm printed a credential:\n%s", out)
			}
		})
	}
}

// The longest URL is that of the server. A longer one is not printed.
func TestWebhookURLIsBounded(t *testing.T) {
	const longest = 4096
	url := "https://example.com/"
	url += strings.Repeat("x", longest-len(url))
	if out, err := template(t, "--set", "reload.webhookURL="+url); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	out, err := template(t, "--set", "reload.webhookURL="+url+"x")
	if err == nil || !strings.Contains(out, "at '/reload/webhookURL': maxLength: got 4,097, want 4,096") || strings.Contains(out, "example.com") {
		t.Errorf("helm printed\n%s\nwant an error (%v) that says what is allowed", out, err)
	}
}

// Values have their documented effect, whatever the other values. Many charts ignore values such as these when some
// other value is set.
func TestValuesAreHeeded(t *testing.T) {
	const noPolicies = "admissionPolicies.enabled=false" // because policies contain the names that must not be rendered
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for name, test := range map[string]struct {
		set  []string
		want []string // in the rendered chart
		not  []string
	}{
		"a digest, with a registry for all charts": {
			set:  []string{"image.digest=" + digest, "image.tag=v1", "global.imageRegistry=registry.example"},
			want: []string{`image: "registry.example/configdep/configdep@` + digest + `"`},
		},
		"replicas without a PodDisruptionBudget": {
			set:  []string{"replicas=4", "podDisruptionBudget.enabled=false"},
			want: []string{"replicas: 4"},
			not:  []string{"kind: PodDisruptionBudget"},
		},
		"no caBundle, not even an empty one, because an upgrade would remove the server's": {
			set:  []string{"tls.mode=existingSecret", "tls.existingSecret=mine"},
			want: []string{"--ca-bundle-file=/etc/configdep/tls/ca.crt", "secretName: mine"},
			not:  []string{"caBundle:", "manage-serving-certificate", "name: configdep-apiserver:certificates\n  namespace"},
		},
		"a ServiceMonitor in another namespace uses the port that needs neither the CA nor a token": {
			set:  []string{"monitoring.serviceMonitor.enabled=true", "monitoring.serviceMonitor.namespace=prometheus", "monitoring.insecurePort=9090"},
			want: []string{"namespace: prometheus\n", "namespaceSelector:\n    matchNames: [" + namespace + "]", "path: /metrics\n    port: metrics\n    honorLabels: true"},
			not:  []string{"bearerTokenFile", "serverName"},
		},
		"more objects, as manifests and as texts": {
			set:  []string{"extraObjects[0].kind=Train", "extraObjects[1]=kind: Boat"},
			want: []string{"\nkind: Train\n", "\nkind: Boat\n"},
		},
		"the name of all objects, of which the full one takes precedence": {
			set:  []string{"nameOverride=ours"},
			want: []string{"kind: Deployment\nmetadata:\n  name: ours\n"},
		},
		"an existing Secret is not watched": {
			set:  []string{"namespaces={shop}", "tls.mode=existingSecret", "tls.existingSecret=mine", noPolicies},
			want: []string{"resourceNames: [configdep-hmac-key]\n  verbs: [list, watch]"},
			not:  []string{"configdep-serving-cert"},
		},
		"no Secrets but the server's own, also with namespaces": {
			set:  []string{"namespaces={shop}", "secrets.read=false"},
			want: []string{"--read-secrets=false", "resources: [configmaps]\n", "resourceNames: [configdep-hmac-key]\n  verbs: [list, watch]"},
			not:  []string{"configmaps, secrets", "--exclude-secret-types"},
		},
		"all types of Secrets": {
			set:  []string{"secrets.excludeTypes=null"},
			want: []string{"--exclude-secret-types=\n"},
		},
		"no SecretProviderClasses": {
			set:  []string{"secretProviderClasses.read=false"},
			want: []string{"- --read-secretproviderclasses=false"},
			not:  []string{"secretproviderclasspodstatuses"},
		},
		"no Jobs": {
			set:  []string{"workloads.jobs=false"},
			want: []string{"--ignored-workload-types=jobs\n", "resources: [cronjobs]\n"},
		},
		"neither Jobs nor CronJobs, also with namespaces": {
			set:  []string{"workloads.cronJobs=false", "workloads.jobs=false", "namespaces={shop}"},
			want: []string{"--ignored-workload-types=jobs,cronjobs\n"},
			not:  []string{"apiGroups: [batch]"},
		},
		"selectors of labels": {
			set:  []string{"reload.namespaceSelector.matchLabels.env=test", "sources.selector.matchExpressions[0].key=reload", "sources.selector.matchExpressions[0].operator=Exists"},
			want: []string{`"--namespace-selector=env=test"`, `"--resource-label-selector=reload"`},
		},
		"by default nothing is left out, workloads opt in, and nothing is served without TLS": {
			not: []string{
				"--namespaces-to-ignore", "--namespace-selector", "--resource-label-selector", "--ignored-workload-types", "--exclude-secret-types", "--read-",
				"--observe", "--webhook-url", "--auto-reload-all", "--reload-on-create", "--reload-on-delete", "--reload-strategy",
				"--insecure-metrics-bind-address", "--enable-pprof", "--pprof-addr", "name: metrics\n",
			},
		},
		"parts that other tools manage": {
			set:  []string{"admissionPolicies.enabled=false", "rbac.aggregateToDefaultRoles=false", "hostUsers=false", "reload.observe=true"},
			want: []string{"name: configdep-view", "hostUsers: false", "- --observe\n"},
			not:  []string{"kind: ValidatingAdmissionPolicy", "aggregate-to", "--webhook-url"},
		},
		"the annotations of Reloader alone": {
			set:  []string{"reload.dialects={reloader}"},
			want: []string{"--dialects=reloader\n"},
			not:  []string{"pod-reloader.cs.sap.com/configmaps", "wave.pusher.com/update-on-config-change"},
		},
		"no annotations of other tools": {
			set:  []string{"reload.dialects=null", noPolicies},
			want: []string{"--dialects=\n"},
			not:  []string{"stakater.com", "pusher.com", "sap.com", "exists(k, k in object.?spec.template.metadata.annotations"},
		},
		"other names of Reloader's annotations, for the server and the policies": {
			set:  []string{"reload.reloaderAnnotations.auto=example.com/auto", "reload.reloaderAnnotations.pausedAt=example.com/since"},
			want: []string{"--auto-annotation=example.com/auto\n", "--pause-deployment-time-annotation=example.com/since\n", `expression: "'example.com/since'"`},
			not:  []string{"'reloader.stakater.com/auto'", "deployment.reloader.stakater.com/paused-at", "--secret-annotation"},
		},
		"only CronJobs": {
			set:  []string{"reload.jobs=true", "workloads.jobs=false"},
			want: []string{"- --reload-jobs\n", "resources: [cronjobs]\n  verbs: [get, patch]", "resources: [jobs]\n  verbs: [get, create]\n"},
			not:  []string{"patch, delete]"},
		},
		"only Jobs": {
			set:  []string{"reload.jobs=true", "workloads.cronJobs=false"},
			want: []string{"- --reload-jobs\n", "resources: [jobs]\n  verbs: [get, create, patch, delete]"},
			not:  []string{"resources: [cronjobs]\n  verbs: [get, patch]"},
		},
		"a URL that is called instead of restarting workloads": {
			set:  []string{"reload.webhookURL=https://example.com/x?a=b#c"},
			want: []string{`- "--webhook-url=https://example.com/x?a=b#c"`},
		},
		"all workloads, but not for sources that appear": {
			set:  []string{"reload.autoReloadAll=true"},
			want: []string{"- --auto-reload-all\n"},
			not:  []string{"--default-reload"},
		},
		"sources that disappear, without annotations of other tools": {
			set:  []string{"reload.onDelete=true", "reload.autoReloadAll=true", "reload.dialects=null"},
			want: []string{"- --reload-on-delete\n"},
			not:  []string{"--reload-on-create"},
		},
		"evictions for workloads that ask for no strategy": {
			set:  []string{"reload.strategy=recreate", "reload.strategies={annotation,recreate}"},
			want: []string{"- --reload-strategy=recreate\n", "- --strategies=annotation,recreate\n"},
		},
		"policies without Deny": {
			set:  []string{"admissionPolicies.validationActions={Audit,Warn}"},
			want: []string{`validationActions: ["Audit","Warn"]`},
			not:  []string{"Deny"},
		},
		"policies for a ServiceAccount and a Lease with other names": {
			set:  []string{"serviceAccount.name=mine", "fullnameOverride=cfg"},
			want: []string{"request.userInfo.username == 'system:serviceaccount:configdep-system:mine'", "object.metadata.name == 'cfg'", "name: cfg-workloads", "policyName: cfg-workloads"},
			not:  []string{"system:serviceaccount:configdep-system:cfg", "name: configdep-apiserver-"},
		},
		"notifications from an existing Secret": {
			set:  []string{"notifications.existingSecret=mine"},
			want: []string{"--notifications-config=/etc/configdep/notifications/config.yaml", "secretName: mine\n", "mountPath: /etc/configdep/notifications\n          readOnly: true"},
			not:  []string{"configdep-notifications", "cluster-name"},
		},
		"no notifications, but a cluster with a name": {
			set:  []string{"notifications.clusterName=eu-1"},
			want: []string{"--cluster-name=eu-1"},
			not:  []string{"notifications"},
		},
		"annotations are kept where the cluster can": {
			set:  []string{"mutatingAdmissionPolicies.enabled=true"},
			want: []string{"kind: MutatingAdmissionPolicy\n", "kind: MutatingAdmissionPolicyBinding\n"},
		},
		"annotations are not kept where it is not known whether the cluster can": {
			not: []string{"MutatingAdmissionPolicy"},
		},
		"another name is used everywhere": {
			set: []string{"fullnameOverride=cfg", "tls.mode=managed"},
			want: []string{"--service-name=cfg",
				"resourceNames: [cfg]", "app.kubernetes.io/name: cfg"},
			not: []string{"name: configdep-apiserver:", "resourceNames: [configdep-apiserver]"},
		},
		"Prometheus verifies the certificate by the ConfigMap, which has no private key": {
			set:  []string{"monitoring.serviceMonitor.enabled=true", "tls.mode=cert-manager"},
			want: []string{"configMap:\n          name: configdep-serving-ca\n          key: ca.crt"},
		},
		"a network policy has no rule for empty peers": {
			set:  []string{"networkPolicy.enabled=true", "networkPolicy.metricsFrom=null", "networkPolicy.admissionTo=null"},
			want: []string{"kind: NetworkPolicy"},
			not:  []string{"from:\n    -", "to:\n    -", "- protocol: TCP"},
		},
		"a network policy has the configured port of kube-apiserver": {
			set:  []string{"networkPolicy.enabled=true", "networkPolicy.apiServerPorts={16443}"},
			want: []string{"port: 16443"},
			not:  []string{"port: 443\n      protocol"},
		},
		"metrics without TLS, in the pods and by the Service": {
			set:  []string{"monitoring.insecurePort=8080"},
			want: []string{"- --insecure-metrics-bind-address=:8080\n", "- name: metrics\n          containerPort: 8080\n", "- name: metrics\n    port: 9090\n    targetPort: metrics\n    appProtocol: http\n"},
			not:  []string{"kind: NetworkPolicy"},
		},
		"metrics without TLS, for those who may scrape": {
			set:  []string{"monitoring.insecurePort=8080", "networkPolicy.enabled=true"},
			want: []string{"- ports:\n    - port: 6443\n      protocol: TCP\n    - port: 8080\n      protocol: TCP\n    from:\n    - namespaceSelector:\n        matchLabels:\n          kubernetes.io/metadata.name: monitoring\n"},
		},
		"metrics without TLS, for no one": {
			set:  []string{"monitoring.insecurePort=8080", "networkPolicy.enabled=true", "networkPolicy.metricsFrom=null"},
			want: []string{"containerPort: 8080\n"},
			not:  []string{"- port: 8080"},
		},
		"profiles at another address": {
			set:  []string{"pprof.enabled=true", "pprof.address=[::]:6061"},
			want: []string{"- --enable-pprof\n", `- "--pprof-addr=[::]:6061"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := template(t, "--set", strings.Join(test.set, ","))
			if err != nil {
				t.Fatalf("%v:\n%s", err, out)
			}
			out += "\n"
			for _, want := range test.want {
				if !strings.Contains(out, want) {
					t.Errorf("%q is missing in the rendered chart", want)
				}
			}
			for _, not := range test.not {
				if strings.Contains(out, not) {
					t.Errorf("%q is in the rendered chart", not)
				}
			}
		})
	}
}

// Rendering is deterministic, so that tools that compare renderings, such as Argo CD, find no difference.
func TestRenderingIsStable(t *testing.T) {
	values := filepath.Join(mustAbs(t, chart), "ci", "everything.yaml")
	one, err := template(t, "--values", values)
	if err != nil {
		t.Fatalf("%v:\n%s", err, one)
	}
	two, err := template(t, "--values", values)
	if err != nil {
		t.Fatalf("%v:\n%s", err, two)
	}
	if one != two {
		t.Error("two renderings differ")
	}
	for _, file := range templates(t) {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		// These functions depend on the cluster or on randomness.
		// Where the cluster is not known, a value says whether it has this kind.
		content = bytes.ReplaceAll(content, []byte(`.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"`), nil)
		if found := regexp.MustCompile(`\{\{[^}]*(\b(lookup|rand\w+|gen\w*(CA|Cert|Key)\w*|uuidv4|now)\b|\.Capabilities)`).Find(content); found != nil {
			t.Errorf("%s uses %s", file, found)
		}
	}
}

// Every value is in the schema, in the table of the README with its default, and used by a template.
func TestEveryValueIsDocumented(t *testing.T) {
	defaults := map[string]any{}
	content := read(t, "values.yaml")
	if err := yaml.Unmarshal(content, &defaults); err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(read(t, "values.schema.json"), &schema); err != nil {
		t.Fatal(err)
	}
	readme := string(read(t, "README.md"))
	paths := leaves("", defaults, schema)
	if len(paths) < 100 {
		t.Errorf("found only %d values", len(paths))
	}
	rows := map[string]string{} // the documented defaults, by path
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| `([^`]+)` \\| .+ \\|$").FindAllStringSubmatch(readme, -1) {
		rows[row[1]] = row[2]
	}
	for _, path := range paths {
		said, ok := rows[path]
		if !ok {
			t.Errorf("%s is not in the table of README.md", path)
			continue
		}
		var told any
		value, _, _ := unstructured.NestedFieldNoCopy(defaults, strings.Split(path, ".")...)
		if err := json.Unmarshal([]byte(said), &told); err != nil || !cmp.Equal(told, value) {
			t.Errorf("README.md: default of %s = %s, want %v (%v)", path, said, value, err)
		}
		delete(rows, path)
	}
	for row := range rows {
		t.Errorf("README.md documents %s, which is not in values.yaml", row)
	}
	var all strings.Builder
	for _, file := range templates(t) {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(content)
	}
	for _, path := range paths {
		last := path[strings.LastIndex(path, ".")+1:]
		whole := strings.Contains(all.String(), ".Values."+path)
		parent, _, nested := strings.Cut(path, ".")
		passed := nested && (strings.Contains(all.String(), "toYaml .Values."+parent) || strings.Contains(all.String(), "with .Values."+parent+" }}"))
		part := nested && strings.Contains(all.String(), ".Values."+parent) && strings.Contains(all.String(), "."+last)
		if !whole && !passed && !part {
			t.Errorf("no template uses %s", path)
		}
	}
}

// The chart offers each dialect that the server reads besides configdep's own, and by default all of them, without a flag.
func TestDialectsOfTheChart(t *testing.T) {
	want := slices.DeleteFunc(policy.DialectNames(), func(name string) bool { return name == "configdep" })
	var values struct{ Reload struct{ Dialects []string } }
	if err := yaml.Unmarshal(read(t, "values.yaml"), &values); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, values.Reload.Dialects); diff != "" {
		t.Errorf("values.yaml (-server +chart):\n%s", diff)
	}
	var schema map[string]any
	if err := json.Unmarshal(read(t, "values.schema.json"), &schema); err != nil {
		t.Fatal(err)
	}
	allowed, _, err := unstructured.NestedStringSlice(schema, "properties", "reload", "properties", "dialects", "items", "enum")
	if diff := cmp.Diff(want, allowed); err != nil || diff != "" {
		t.Errorf("values.schema.json (-server +chart): %v\n%s", err, diff)
	}
	for _, arg := range arguments(t, rendered(t, "default.yaml")) {
		if strings.HasPrefix(arg, "--dialects=") {
			t.Errorf("the default is passed: %s", arg)
		}
	}
}

// leaves returns the paths of the values that users set: those for which the schema lists no further properties that
// values.yaml has.
func leaves(prefix string, values, schema map[string]any) (paths []string) {
	properties, _ := schema["properties"].(map[string]any)
	for key, value := range values {
		path := strings.TrimPrefix(prefix+"."+key, ".")
		of, known := properties[key].(map[string]any)
		if !known {
			paths = append(paths, path+" (not in the schema)")
			continue
		}
		below, isMap := value.(map[string]any)
		_, listed := of["properties"]
		if isMap && listed && len(below) > 0 {
			paths = append(paths, leaves(path, below, of)...)
			continue
		}
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(chart, file))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func templates(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	if err != nil || len(files) < 10 {
		t.Fatal(fmt.Errorf("found only %d templates: %w", len(files), err))
	}
	return files
}

func mustAbs(t *testing.T, path string) string {
	t.Helper()
	absolute, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return absolute
}
