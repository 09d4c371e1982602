// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

// kubectl runs kubectl with all permissions and returns its output.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := cluster.Kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// kubectlFails runs kubectl, which must fail, and returns its output.
func kubectlFails(t *testing.T, args ...string) string {
	t.Helper()
	out, err := cluster.Kubectl(t.Context(), args...)
	if err == nil {
		t.Fatalf("kubectl %s succeeded:\n%s", strings.Join(args, " "), out)
	}
	return err.Error()
}

// shown returns the lines that kubectl prints, with variable parts replaced by names.
func shown(namespace, out string) []string {
	replacements := []struct {
		pattern *regexp.Regexp
		name    string
	}{
		{regexp.MustCompile(`\b` + namespace + `\b`), "NS"},
		{regexp.MustCompile(`v1\.[0-9a-f]{8}\.[0-9a-f]{32}`), "HASH"},
		{regexp.MustCompile(`\b(\d+h)?(\d+m)?\d+s\b|\b\d+m\b`), "1s"},
		{regexp.MustCompile(` {2,}`), " | "},
	}
	lines := strings.Split(strings.TrimRight(out, "\n"), "\n")
	for i := range lines {
		for _, r := range replacements {
			lines[i] = r.pattern.ReplaceAllString(lines[i], r.name)
		}
		lines[i] = strings.TrimRight(lines[i], " |")
	}
	return lines
}

// sharing creates a namespace with five workloads that share sources.
func sharing(t *testing.T) string {
	t.Helper()
	namespace := newNamespace(t)
	core, apps, batch := kube.CoreV1(), kube.AppsV1(), kube.BatchV1()
	write(t, namespace, "Secret/db", "password", "x")
	write(t, namespace, "ConfigMap/settings", "a", "b")
	write(t, namespace, "ConfigMap/db", "a", "b")
	create(t, apps.Deployments(namespace).Create, asleep("api", envFromSecret("db"), envFromConfigMap("settings")))
	create(t, apps.Deployments(namespace).Create, asleep("web", envFromConfigMap("settings"), envFromConfigMap("db"), envSecretKey("cert", "tls.crt")))
	db := statefulSet("db", envSecretKey("db", "root"))
	db.Spec.Replicas = new(int32(0))
	create(t, apps.StatefulSets(namespace).Create, db)
	create(t, batch.CronJobs(namespace).Create, cronJob("report", envFromSecret("db")))
	create(t, core.Pods(namespace).Create, pod("toolbox"))
	for _, name := range []string{"deployment.api", "deployment.web", "statefulset.db", "cronjob.report", "pod.toolbox"} {
		view(t, namespace, name)
	}
	return namespace
}

func TestKubectlGet(t *testing.T) {
	t.Parallel()
	ns := sharing(t)
	const (
		header  = "NAME | STATE | REASON | PODS | SOURCES | MODE | LAST RELOAD | AGE"
		wide    = header + " | USES | MISSING | TRIGGER"
		cronJob = "cronjob.report | InSync | NextRunReadsContent | - | 1 Secret | Off | <none> | 1s"
		api     = "deployment.api | InSync | NoPods | - | 1 ConfigMap, 1 Secret | Off | <none> | 1s"
		web     = "deployment.web | InSync | NoPods | - | 2 ConfigMaps, 1 Secret | Off | <none> | 1s"
		toolbox = "pod.toolbox | InSync | NothingRead | - | <none> | Off | <none> | 1s"
		db      = "statefulset.db | InSync | NoPods | - | 1 Secret | Off | <none> | 1s"
	)
	all := []string{header, cronJob, api, web, toolbox, db}
	for args, want := range map[string][]string{
		"get configdependencies":                       all,
		"get configdependency":                         all,
		"get cfgdep":                                   all,
		"get configdep":                                all, // the category
		"get cfgdep.configdep.io":                      all,
		"get configdependencies.v1alpha1.configdep.io": all,
		"get cfgdep deployment.web":                    {header, web},
		"get cfgdep deployment.web pod.toolbox":        {header, web, toolbox},
		"get cfgdep/deployment.web --no-headers":       {web},
		"get cfgdep --chunk-size=2":                    all,
		"get cfgdep --sort-by=.spec.workloadRef.kind":  {header, cronJob, api, web, toolbox, db},
		"get cfgdep -o wide": {
			wide,
			cronJob + " | Secret/db | <none> | <none>",
			api + " | ConfigMap/settings, Secret/db | <none> | <none>",
			web + " | ConfigMap/db, ConfigMap/settings, Secret/cert | Secret/cert | <none>",
			toolbox + " | <none> | <none> | <none>",
			db + " | Secret/db | Secret/db:root | <none>",
		},
		"get cfgdep -o name": {
			"configdependency.configdep.io/cronjob.report", "configdependency.configdep.io/deployment.api",
			"configdependency.configdep.io/deployment.web", "configdependency.configdep.io/pod.toolbox", "configdependency.configdep.io/statefulset.db",
		},
		"get cfgdep -l app=web":                                                                    {header, web},
		"get cfgdep -l app!=web,app":                                                               {header, cronJob, api, toolbox, db},
		"get cfgdep -l app=web -L app":                                                             {header + " | APP", web + " | web"},
		"get cfgdep -l app=nobody -o name":                                                         {""},
		"get cfgdep deployment.web -o jsonpath={.status.state}":                                    {"InSync"},
		"get cfgdep --field-selector metadata.name=deployment.web":                                 {header, web},
		"get cfgdep --field-selector metadata.namespace=" + ns:                                     all,
		"get cfgdep --field-selector metadata.namespace=x -o name":                                 {""},
		"get cfgdep --field-selector status.state=InSync":                                          all,
		"get cfgdep --field-selector status.state!=InSync -o name":                                 {""},
		"get cfgdep --field-selector spec.workloadRef.kind=CronJob":                                {header, cronJob},
		"get cfgdep --field-selector spec.workloadRef.kind!=Deployment":                            {header, cronJob, toolbox, db},
		"get cfgdep --field-selector spec.workloadRef.name=db":                                     {header, db},
		"get cfgdep --field-selector source=Secret/db":                                             {header, cronJob, api, db},
		"get cfgdep --field-selector source=secret/db":                                             {header, cronJob, api, db},
		"get cfgdep --field-selector source=SECRET/db":                                             {header, cronJob, api, db},
		"get cfgdep --field-selector source=ConfigMap/db":                                          {header, web},
		"get cfgdep --field-selector source=configmap/settings":                                    {header, api, web},
		"get cfgdep --field-selector source=secret/db,source=configmap/settings":                   {header, api},
		"get cfgdep --field-selector source!=Secret/db":                                            {header, web, toolbox},
		"get cfgdep --field-selector source=Secret/db,spec.workloadRef.kind=Deployment -l app=api": {header, api},
		"get cfgdep -A --field-selector source=Secret/db,metadata.namespace=" + ns: {
			"NAMESPACE | " + header, "NS | " + cronJob, "NS | " + api, "NS | " + db,
		},
		"get cfgdep -A --chunk-size=2 --field-selector metadata.namespace=" + ns: {
			"NAMESPACE | " + header, "NS | " + cronJob, "NS | " + api, "NS | " + web, "NS | " + toolbox, "NS | " + db,
		},
	} {
		t.Run(strings.ReplaceAll(args, ns, "NS"), func(t *testing.T) {
			t.Parallel()
			got := shown(ns, kubectl(t, append([]string{"-n", ns}, strings.Fields(args)...)...))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("kubectl %s (-want +got):\n%s", args, diff)
			}
		})
	}
	for args, want := range map[string]string{
		"get cfgdep deployment.nobody":                        `configdependencies.configdep.io "deployment.nobody" not found`,
		"get cfgdep --field-selector source=Secret/x,foo=bar": `field label "foo" is not supported; use one of metadata.name, metadata.namespace, status.state, status.reason, spec.reload.mode, spec.workloadRef.kind, spec.workloadRef.name, source`,
		"get cfgdep --field-selector source=db":               `field label "source" has the value "db", which is not of the form ConfigMap/NAME, Secret/NAME or SecretProviderClass/NAME`,
		"delete cfgdep deployment.web":                        "MethodNotAllowed",
		"annotate cfgdep deployment.web a=b":                  "MethodNotAllowed",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			if got := kubectlFails(t, append([]string{"-n", ns}, strings.Fields(args)...)...); !strings.Contains(got, want) {
				t.Errorf("kubectl %s: error lacks %q: %s", args, want, got)
			}
		})
	}
	t.Run("all namespaces", func(t *testing.T) {
		t.Parallel()
		out := kubectl(t, "get", "cfgdep", "-A", "--no-headers")
		for _, want := range []string{ns, "configdep-system"} { // the Deployment of the server
			if !strings.Contains(out, "\n"+want+" ") && !strings.HasPrefix(out, want+" ") {
				t.Errorf("no workload of %s in\n%s", want, out)
			}
		}
	})
	t.Run("all fields, in JSON and in YAML", func(t *testing.T) {
		t.Parallel()
		want, err := configdep.ConfigDependencies(ns).Get(t.Context(), "deployment.web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want.TypeMeta = metav1.TypeMeta{Kind: "ConfigDependency", APIVersion: "configdep.io/v1alpha1"}
		for format, decode := range map[string]func([]byte, any) error{
			"json": json.Unmarshal,
			"yaml": yaml.UnmarshalStrict,
		} {
			var got v1alpha1.ConfigDependency
			if err := decode([]byte(kubectl(t, "-n", ns, "get", "cfgdep", "deployment.web", "-o", format)), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, &got); diff != "" {
				t.Errorf("-o %s (-API +kubectl):\n%s", format, diff)
			}
		}
	})
	t.Run("describe", func(t *testing.T) {
		t.Parallel()
		out := kubectl(t, "-n", ns, "describe", "cfgdep", "deployment.web")
		for _, want := range []string{
			"Name:         deployment.web", "Namespace:    " + ns, "Labels:       app=web", "Workload Ref:",
			"Env:        SECRET", "Secret cert is missing: new pods cannot start.", "SourceMissing", "Config Hash:", "Events:",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("describe lacks %q:\n%s", want, out)
			}
		}
	})
}

func TestKubectlExplainAndAPIResources(t *testing.T) {
	t.Parallel()
	for args, wants := range map[string][]string{
		"explain configdependency": {"GROUP:      configdep.io", "VERSION:    v1alpha1", "which ConfigMaps and Secrets a workload consumes", "spec\t<ConfigDependencySpec>"},
		"explain configdependency.spec.sources": {
			"FIELD: sources <[]Source>", "sources are the ConfigMaps and Secrets that the pod template of the workload",
			"enum: ConfigMap, Secret, SecretProviderClass", "usages\t<[]Usage>",
		},
		"explain cfgdep.status.conditions": {"FIELD: conditions <[]Condition>", "SourcesResolved"},
		"explain cfgdep --recursive":       {"recordedHash\t<string>", "mountPath\t<string>", "lastReload\t<LastReload>"},
		"api-resources --api-group=configdep.io --no-headers -o wide": {
			"configdependencies   cfgdep   configdep.io/v1alpha1   true   ConfigDependency   get,list,watch   configdep"},
		"api-resources --categories=configdep -o name": {"configdependencies.configdep.io"},
		"api-versions": {"configdep.io/v1alpha1"},
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			out := kubectl(t, strings.Fields(args)...)
			for _, want := range wants {
				if !strings.Contains(out, want) {
					t.Errorf("kubectl %s lacks %q:\n%s", args, want, out)
				}
			}
		})
	}
}
