// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// variants lists the changes of each variant, compared with another one.
var variants = map[string]struct{ than, changes string }{
	"cert-manager.yaml": {"default.yaml", `
+ Certificate configdep-ca
+ Certificate configdep-serving-cert
Deployment configdep-apiserver
  + spec.template.spec.containers[configdep-apiserver].args[--ca-bundle-file=/etc/configdep/tls/ca.crt]
  - spec.template.spec.containers[configdep-apiserver].args[--manage-serving-certificate]
  + spec.template.spec.containers[configdep-apiserver].args[--tls-cert-file=/etc/configdep/tls/tls.crt]
  + spec.template.spec.containers[configdep-apiserver].args[--tls-private-key-file=/etc/configdep/tls/tls.key]
  + spec.template.spec.containers[configdep-apiserver].volumeMounts[serving-certificate]: {"mountPath":"/etc/configdep/tls","name":"serving-certificate","readOnly":true}
  + spec.template.spec.volumes[serving-certificate]: {"name":"serving-certificate","secret":{"secretName":"configdep-serving-cert"}}
+ Issuer configdep-ca
+ Issuer configdep-selfsigned
- Role configdep-apiserver:certificates
- RoleBinding configdep-apiserver:certificates
- Secret configdep-serving-cert
`},
	"configmaps-only.yaml": {"default.yaml", `
ClusterRole configdep-apiserver
  - rules[{"apiGroups":[""],"resources":["configmaps","secrets"],"verbs":["list","watch"]}]
  + rules[{"apiGroups":[""],"resources":["configmaps"],"verbs":["list","watch"]}]
Deployment configdep-apiserver
  + spec.template.spec.containers[configdep-apiserver].args[--read-secrets=false]
Role configdep-apiserver
  + rules[{"apiGroups":[""],"resourceNames":["configdep-hmac-key"],"resources":["secrets"],"verbs":["list","watch"]}]
Role configdep-apiserver:certificates
  + rules[{"apiGroups":[""],"resourceNames":["configdep-serving-cert"],"resources":["secrets"],"verbs":["get","list","watch","update"]}]
  - rules[{"apiGroups":[""],"resourceNames":["configdep-serving-cert"],"resources":["secrets"],"verbs":["get","update"]}]
`},
	"existing-secret.yaml": {"default.yaml", `
Deployment configdep-apiserver
  + spec.template.spec.containers[configdep-apiserver].args[--ca-bundle-file=/etc/configdep/tls/ca.crt]
  - spec.template.spec.containers[configdep-apiserver].args[--manage-serving-certificate]
  + spec.template.spec.containers[configdep-apiserver].args[--tls-cert-file=/etc/configdep/tls/tls.crt]
  + spec.template.spec.containers[configdep-apiserver].args[--tls-private-key-file=/etc/configdep/tls/tls.key]
  + spec.template.spec.containers[configdep-apiserver].volumeMounts[serving-certificate]: {"mountPath":"/etc/configdep/tls","name":"serving-certificate","readOnly":true}
  + spec.template.spec.volumes[serving-certificate]: {"name":"serving-certificate","secret":{"secretName":"configdep-serving-cert"}}
- Role configdep-apiserver:certificates
- RoleBinding configdep-apiserver:certificates
- Secret configdep-serving-cert
`},
	"high-availability.yaml": {"default.yaml", `
Deployment configdep-apiserver
  ~ spec.replicas: 2 -> 3
  ~ spec.strategy.rollingUpdate.maxSurge: 1 -> 0
  ~ spec.strategy.rollingUpdate.maxUnavailable: 0 -> 1
  - spec.template.spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution
  + spec.template.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution: [{"labelSelector":{"matchLabels":{"app.kubernetes.io/name":"configdep-apiserver"}},"topologyKey":"kubernetes.io/hostname"}]
  + spec.template.spec.priorityClassName: system-cluster-critical
+ ResourceQuota configdep-critical-pods
`},
	"in-place.yaml": {"default.yaml", `
ClusterRole configdep-apiserver
  + rules[{"apiGroups":[""],"resources":["pods"],"verbs":["patch"]}]
  + rules[{"apiGroups":["policy"],"resources":["poddisruptionbudgets"],"verbs":["list"]}]
Deployment configdep-apiserver
  + spec.template.spec.containers[configdep-apiserver].args[--strategies=annotation,env-var,agent,notify,in-place]
+ ValidatingAdmissionPolicy configdep-apiserver-pods
+ ValidatingAdmissionPolicyBinding configdep-apiserver-pods
`},
	"network-policy.yaml": {"default.yaml", `
+ NetworkPolicy configdep-apiserver
`},
	"notifications.yaml": {"default.yaml", `
Deployment configdep-apiserver
  + spec.template.spec.containers[configdep-apiserver].args[--notifications-config=/etc/configdep/notifications/config.yaml]
  + spec.template.spec.containers[configdep-apiserver].volumeMounts[notifications]: {"mountPath":"/etc/configdep/notifications","name":"notifications","readOnly":true}
  + spec.template.spec.volumes[notifications]: {"name":"notifications","secret":{"secretName":"configdep-notifications"}}
`},
	"recreate.yaml": {"default.yaml", `
ClusterRole configdep-apiserver
  + rules[{"apiGroups":[""],"resources":["pods/eviction"],"verbs":["create"]}]
Deployment configdep-apiserver
  + spec.template.spec.containers[configdep-apiserver].args[--strategies=annotation,env-var,agent,notify,recreate]
+ ValidatingAdmissionPolicy configdep-apiserver-evictions
+ ValidatingAdmissionPolicyBinding configdep-apiserver-evictions
`},
	"reload-jobs.yaml": {"default.yaml", `
ClusterRole configdep-apiserver
  + rules[{"apiGroups":["batch"],"resources":["cronjobs"],"verbs":["get","patch"]}]
  + rules[{"apiGroups":["batch"],"resources":["jobs"],"verbs":["get","create","patch","delete"]}]
Deployment configdep-apiserver
  + spec.template.spec.containers[configdep-apiserver].args[--reload-jobs]
+ ValidatingAdmissionPolicy configdep-apiserver-jobs
+ ValidatingAdmissionPolicyBinding configdep-apiserver-jobs
`},
	"secrets-only.yaml": {"default.yaml", `
ClusterRole configdep-apiserver
  - rules[{"apiGroups":[""],"resources":["configmaps","secrets"],"verbs":["list","watch"]}]
  + rules[{"apiGroups":[""],"resources":["secrets"],"verbs":["list","watch"]}]
Deployment configdep-apiserver
  + spec.template.spec.containers[configdep-apiserver].args[--read-configmaps=false]
Role configdep-apiserver:ca
  + rules[{"apiGroups":[""],"resourceNames":["configdep-serving-ca"],"resources":["configmaps"],"verbs":["list","watch","patch"]}]
  - rules[{"apiGroups":[""],"resourceNames":["configdep-serving-ca"],"resources":["configmaps"],"verbs":["patch"]}]
`},
	"single-namespace.yaml": {"default.yaml", `
- ClusterRoleBinding configdep-apiserver
Deployment configdep-apiserver
  + spec.template.spec.containers[configdep-apiserver].args[--namespaces=shop]
Role configdep-apiserver
  + rules[{"apiGroups":[""],"resourceNames":["configdep-hmac-key"],"resources":["secrets"],"verbs":["list","watch"]}]
Role configdep-apiserver:ca
  + rules[{"apiGroups":[""],"resourceNames":["configdep-serving-ca"],"resources":["configmaps"],"verbs":["list","watch","patch"]}]
  - rules[{"apiGroups":[""],"resourceNames":["configdep-serving-ca"],"resources":["configmaps"],"verbs":["patch"]}]
Role configdep-apiserver:certificates
  + rules[{"apiGroups":[""],"resourceNames":["configdep-serving-cert"],"resources":["secrets"],"verbs":["get","list","watch","update"]}]
  - rules[{"apiGroups":[""],"resourceNames":["configdep-serving-cert"],"resources":["secrets"],"verbs":["get","update"]}]
+ RoleBinding shop/configdep-apiserver:workloads
`},
	"host-network.yaml": {"cert-manager.yaml", `
- Certificate configdep-ca
Certificate configdep-serving-cert
  - spec.issuerRef.group
  ~ spec.issuerRef.kind: Issuer -> ClusterIssuer
  ~ spec.issuerRef.name: configdep-ca -> platform
Deployment configdep-apiserver
  + spec.template.spec.containers[configdep-apiserver].args[--secure-port=10260]
  - spec.template.spec.containers[configdep-apiserver].args[--secure-port=6443]
  ~ spec.template.spec.containers[configdep-apiserver].ports[https].containerPort: 6443 -> 10260
  + spec.template.spec.dnsPolicy: ClusterFirstWithHostNet
  + spec.template.spec.hostNetwork: true
- Issuer configdep-ca
- Issuer configdep-selfsigned
`},
	"minimal.yaml": {"default.yaml", `
- ClusterRole configdep-apiserver
- ClusterRole configdep-apiserver:cluster
- ClusterRole configdep-apiserver:registration
- ClusterRole configdep-approve
- ClusterRole configdep-metrics
- ClusterRole configdep-pods
- ClusterRole configdep-reload
- ClusterRole configdep-view
- ClusterRoleBinding configdep-apiserver
- ClusterRoleBinding configdep-apiserver:cluster
- ClusterRoleBinding configdep-apiserver:registration
- ClusterRoleBinding configdep-apiserver:system:auth-delegator
Deployment configdep-apiserver
  ~ spec.replicas: 2 -> 1
  - spec.template.spec.affinity
  ~ spec.template.spec.serviceAccountName: configdep-apiserver -> configdep
  - spec.template.spec.topologySpreadConstraints
- FlowSchema configdep
- FlowSchema configdep-apiserver
- PodDisruptionBudget configdep-apiserver
- PriorityLevelConfiguration configdep
- Role configdep-apiserver
- Role configdep-apiserver:ca
- Role configdep-apiserver:certificates
- RoleBinding configdep-apiserver
- RoleBinding configdep-apiserver:ca
- RoleBinding configdep-apiserver:certificates
- RoleBinding kube-system/configdep-apiserver:extension-apiserver-authentication-reader
- ServiceAccount configdep-apiserver
- ValidatingAdmissionPolicy configdep-apiserver-custom-resources
- ValidatingAdmissionPolicy configdep-apiserver-own-namespace
- ValidatingAdmissionPolicy configdep-apiserver-registrations
- ValidatingAdmissionPolicy configdep-apiserver-workloads
- ValidatingAdmissionPolicyBinding configdep-apiserver-custom-resources
- ValidatingAdmissionPolicyBinding configdep-apiserver-own-namespace
- ValidatingAdmissionPolicyBinding configdep-apiserver-registrations
- ValidatingAdmissionPolicyBinding configdep-apiserver-workloads
`},
	"monitoring.yaml": {"default.yaml", `
+ ConfigMap configdep-dashboard
+ PrometheusRule configdep
+ ServiceMonitor configdep-apiserver
`},
	"reload-all.yaml": {"single-namespace.yaml", `
Deployment configdep-apiserver
  + spec.template.spec.containers[configdep-apiserver].args[--auto-reload-all]
  + spec.template.spec.containers[configdep-apiserver].args[--concurrent-reloads=4]
  + spec.template.spec.containers[configdep-apiserver].args[--default-reload=auto]
  + spec.template.spec.containers[configdep-apiserver].args[--min-interval=1m]
  - spec.template.spec.containers[configdep-apiserver].args[--namespaces=shop]
  + spec.template.spec.containers[configdep-apiserver].args[--namespaces=shop,shop-payments]
  + spec.template.spec.containers[configdep-apiserver].args[--settle=5s]
+ RoleBinding shop-payments/configdep-apiserver:workloads
`},
}

// A variant has the intended changes and no others.
func TestVariantsChangeWhatTheyAreFor(t *testing.T) {
	for file, variant := range variants {
		t.Run(file, func(t *testing.T) {
			got := differences(t, rendered(t, variant.than), rendered(t, file))
			if diff := cmp.Diff(lines(strings.TrimSpace(variant.changes)), got); diff != "" {
				t.Errorf("changes from %s (-want +got):\n%s", variant.than, diff)
			}
		})
	}
	for _, file := range renderedFiles(t) {
		// All values together, and those of kinds, have their own tests.
		if _, ok := variants[file]; !ok && !slices.Contains([]string{"default.yaml", "everything.yaml", "kinds.yaml"}, file) {
			t.Errorf("the changes of %s are not listed", file)
		}
	}
}

// differences lists the objects that were added or removed, and the changes of other objects. It ignores the order of
// lists, which has no meaning in the lists that variants change.
func differences(t *testing.T, from, to map[objectKey]*unstructured.Unstructured) (all []string) {
	t.Helper()
	keys := map[string]objectKey{}
	for key := range union(from, to) {
		name := key.name
		if key.namespace != "" && key.namespace != namespace {
			name = key.namespace + "/" + name
		}
		keys[key.kind+" "+name] = key
	}
	for _, object := range slices.Sorted(maps.Keys(keys)) {
		before, after := from[keys[object]], to[keys[object]]
		switch {
		case before == nil:
			all = append(all, "+ "+object)
		case after == nil:
			all = append(all, "- "+object)
		default:
			if changes := changed(t, "", before.Object, after.Object); len(changes) > 0 {
				all = append(append(all, object), changes...)
			}
		}
	}
	return all
}

// changed lists the fields and elements below a path that were added, removed and changed.
func changed(t *testing.T, path string, from, to any) (all []string) {
	t.Helper()
	format := func(key string) string { return strings.TrimPrefix(path+"."+key, ".") }
	before, areFields := from.(map[string]any)
	after, stayFields := to.(map[string]any)
	if list, ok := from.([]any); ok {
		format = func(key string) string { return path + "[" + key + "]" }
		before, areFields = byName(t, list), true
	}
	if list, ok := to.([]any); ok {
		after, stayFields = byName(t, list), true
	}
	if !areFields || !stayFields {
		if !cmp.Equal(from, to) {
			all = append(all, "  ~ "+path+": "+text(t, from)+" -> "+text(t, to))
		}
		return all
	}
	for _, key := range slices.Sorted(maps.Keys(union(before, after))) {
		field := format(key)
		old, was := before[key]
		value, is := after[key]
		switch {
		case !is:
			all = append(all, "  - "+field)
		case was:
			all = append(all, changed(t, field, old, value)...)
		case key == text(t, value): // an element without a name
			all = append(all, "  + "+field)
		default:
			all = append(all, "  + "+field+": "+text(t, value))
		}
	}
	return all
}

// byName returns the elements of a list by their names, or by their JSON if they have no name.
func byName(t *testing.T, list []any) map[string]any {
	t.Helper()
	elements := map[string]any{}
	for _, element := range list {
		key := text(t, element)
		if object, ok := element.(map[string]any); ok && object["name"] != nil {
			key = text(t, object["name"])
		}
		if _, ok := elements[key]; ok {
			t.Errorf("a list contains %s twice", key)
		}
		elements[key] = element
	}
	return elements
}

// text returns a string as it is, and any other value as JSON.
func text(t *testing.T, value any) string {
	t.Helper()
	if s, ok := value.(string); ok {
		return s
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out.String())
}

func union[K comparable, V any](some, others map[K]V) map[K]V {
	all := map[K]V{}
	maps.Copy(all, some)
	maps.Copy(all, others)
	return all
}
