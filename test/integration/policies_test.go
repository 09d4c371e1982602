// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package policies tests the admission policies in the manifests of the server: with the server's own token, it
// tries writes that the policies must reject, and writes that the server needs.
package policies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
)

var (
	cluster *controlplane.ControlPlane
	client  kubernetes.Interface
	server  *install.Installation
	// admin and thief write objects: a user with all permissions, and one with the server's token.
	admin, thief dynamic.Interface
)

func TestMain(m *testing.M) {
	os.Exit(install.Run(m, controlplane.Options{Nodes: 1}, install.Options{
		Values: "recreate", ManagedCertificates: true, Race: install.RaceDetector, Args: []string{"--shutdown-delay-duration=0s"},
	}, func(c *controlplane.ControlPlane, i *install.Installation) {
		cluster, server, client = c, i, kubernetes.NewForConfigOrDie(c.RESTConfig())
		admin = dynamic.NewForConfigOrDie(c.RESTConfig())
		token, err := client.CoreV1().ServiceAccounts(install.Namespace).CreateToken(context.Background(), install.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			panic(err)
		}
		config := rest.AnonymousClientConfig(c.RESTConfig())
		config.BearerToken = token.Status.Token
		thief = dynamic.NewForConfigOrDie(config)
	}))
}

var (
	deployments  = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	statefulSets = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}
	daemonSets   = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}
	secrets      = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	configMaps   = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	pods         = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	leases       = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	apiServices  = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	webhooks     = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}
)

// attempt is a request to write.
type attempt struct {
	resource        schema.GroupVersionResource
	namespace, name string
	kind            types.PatchType // or update; empty: create
	body            string          // YAML or JSON; for an update, the fields that are set
	subresource     string
	refusal         string // the error of the policy; empty: allowed
}

// update is an update of the current object, not a patch.
const update types.PatchType = "update"

// make sends the request, possibly as a dry run.
func (a *attempt) make(ctx context.Context, as dynamic.Interface, dryRun ...string) error {
	body, err := yaml.YAMLToJSON([]byte(a.body))
	if err != nil {
		return err
	}
	resource := as.Resource(a.resource).Namespace(a.namespace)
	switch a.kind {
	case "":
	case update:
		o, err := resource.Get(ctx, a.name, metav1.GetOptions{})
		if err == nil {
			err = json.Unmarshal(body, &o.Object)
		}
		if err == nil {
			_, err = resource.Update(ctx, o, metav1.UpdateOptions{FieldManager: "configdep", DryRun: dryRun})
		}
		return err
	default:
		_, err = resource.Patch(ctx, a.name, a.kind, body, metav1.PatchOptions{FieldManager: "configdep", DryRun: dryRun}, subresources(a.subresource)...)
		return err
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(body); err != nil {
		return err
	}
	_, err = resource.Create(ctx, o, metav1.CreateOptions{DryRun: dryRun}, subresources(a.subresource)...)
	return err
}

func subresources(name string) []string {
	if name == "" {
		return nil
	}
	return []string{name}
}

const (
	byWorkloads     = "ValidatingAdmissionPolicy 'configdep-apiserver-workloads' with binding 'configdep-apiserver-workloads' denied request: "
	byOwnNamespace  = "ValidatingAdmissionPolicy 'configdep-apiserver-own-namespace' with binding 'configdep-apiserver-own-namespace' denied request: "
	byRegistrations = "ValidatingAdmissionPolicy 'configdep-apiserver-registrations' with binding 'configdep-apiserver-registrations' denied request: "
	byEvictions     = "ValidatingAdmissionPolicy 'configdep-apiserver-evictions' with binding 'configdep-apiserver-evictions' denied request: "

	annotations    = byWorkloads + "configdep may change no annotation of a workload but its own"
	podAnnotations = byWorkloads + "configdep may change no annotation of a pod template but its own, and remove none but those of other tools that restarted the pods"
	metadata       = byWorkloads + "configdep may change no metadata of a workload but its own annotations"
	specification  = byWorkloads + "configdep may change no specification of a workload but annotations and environment variables of its pod template, and pauses"
	podSpec        = byWorkloads + "configdep may change no specification of pods but variables STAKATER_*_CONFIGMAP, _SECRET and _SECRETPROVIDERCLASS, with plain values, of at most 256 containers"
	pauses         = byWorkloads + "configdep may pause a Deployment only with the annotation that says since when, and resume it only by removing both"

	ownMetadata = byOwnNamespace + "configdep may change no metadata of what is in its namespace but annotations, and make nothing immutable"
	leaseNames  = byOwnNamespace + "configdep may write no Lease but configdep-apiserver"

	ofAPIService = byRegistrations + "configdep may change nothing of an APIService but the CA"
	ofWebhooks   = byRegistrations + "configdep may change nothing of a webhook but the CA and the path"
	ofBoth       = byRegistrations + "configdep may change nothing of an APIService or a webhook configuration but the CA and the path"

	noRight = `User "system:serviceaccount:configdep-system:configdep-apiserver" cannot ` // the error of RBAC, before any policy

	eviction = byEvictions + "configdep may evict no pod but by its UID, and not with another grace period than its own"
)

const template = `
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}, annotations: {example.com/other: x, pod-reloader.cs.sap.com/config-hash: x, wave.pusher.com/config-hash: x}}
    spec: {containers: [{name: app, image: "app:1", env: [{name: A, value: a}, {name: STAKATER_OLD_SECRET, value: x}]}]}
`

// workloads creates one workload of each kind, without configdep's annotations.
func workloads(t *testing.T) {
	t.Helper()
	for kind, resource := range map[string]schema.GroupVersionResource{"Deployment": deployments, "StatefulSet": statefulSets, "DaemonSet": daemonSets} {
		a := attempt{resource: resource, namespace: "shop", body: fmt.Sprintf("apiVersion: apps/v1\nkind: %s\nmetadata: {name: web, annotations: {example.com/other: x}}\nspec:", kind) +
			fmt.Sprintf(template, strings.ToLower(kind))}
		if err := a.make(t.Context(), admin); err != nil {
			t.Fatal(err)
		}
	}
}

// shop creates a namespace with workloads, unless an earlier test has, and returns a pod of one.
func shop(t *testing.T) *corev1.Pod {
	t.Helper()
	namespace := attempt{resource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, body: "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}"}
	switch err := namespace.make(t.Context(), admin); {
	case err == nil:
		workloads(t)
	case !apierrors.IsAlreadyExists(err):
		t.Fatal(err)
	}
	var pod *corev1.Pod
	await.Until(t, "a pod exists", func(ctx context.Context) error {
		found, err := client.CoreV1().Pods("shop").List(ctx, metav1.ListOptions{LabelSelector: "app=deployment"})
		if err == nil && len(found.Items) == 0 {
			err = errors.New("no pod")
		}
		if err == nil {
			pod = &found.Items[0]
		}
		return err
	})
	return pod
}

// said returns the part of an object that users set: everything except what kube-apiserver and controllers add.
func said(o *unstructured.Unstructured) map[string]any {
	said := o.DeepCopy().Object
	delete(said, "status")
	for _, field := range []string{"managedFields", "resourceVersion"} {
		unstructured.RemoveNestedField(said, "metadata", field)
	}
	return said
}

// Whatever its roles allow, the server's token can only write what the server needs to write.
func TestThiefOfTheToken(t *testing.T) {
	pod := shop(t).Name
	await.Until(t, "the server has written the paths and the CA", func(ctx context.Context) error {
		found, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, install.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, w := range found.Webhooks {
			if w.ClientConfig.Service.Path == nil || len(w.ClientConfig.CABundle) == 0 {
				return fmt.Errorf("%s lacks the path or the CA", w.Name)
			}
		}
		return nil
	})
	web := func(resource schema.GroupVersionResource, body, refusal string) attempt {
		return attempt{resource, "shop", "web", types.MergePatchType, body, "", refusal}
	}
	own := func(resource schema.GroupVersionResource, body, refusal string) attempt {
		return attempt{resource: resource, namespace: install.Namespace, body: body, refusal: refusal}
	}
	secret := func(name, kind string) string {
		return fmt.Sprintf("{apiVersion: v1, kind: Secret, type: %q, metadata: {%s, annotations: {kubernetes.io/service-account.name: %s}}}", kind, name, install.Name)
	}
	apiService := func(patch, refusal string) attempt {
		return attempt{apiServices, "", install.APIService, types.MergePatchType, patch, "", refusal}
	}
	webhook := func(patch, refusal string) attempt {
		return attempt{webhooks, "", install.Name, types.JSONPatchType, patch, "", refusal}
	}
	evict := func(options string) attempt {
		return attempt{pods, "shop", pod, "", fmt.Sprintf("{apiVersion: policy/v1, kind: Eviction, metadata: {name: %s, namespace: shop}, deleteOptions: %s}", pod, options), "eviction", eviction}
	}
	const token = "kubernetes.io/service-account-token"
	for name, a := range map[string]attempt{
		"another image":                                  web(deployments, `{spec: {template: {spec: {containers: [{name: app, image: mine}]}}}}`, podSpec),
		"another image, of a StatefulSet":                web(statefulSets, `{spec: {template: {spec: {containers: [{name: app, image: mine}]}}}}`, podSpec),
		"another image, of a DaemonSet":                  web(daemonSets, `{spec: {template: {spec: {containers: [{name: app, image: mine}]}}}}`, podSpec),
		"another image, with an annotation of configdep": web(deployments, `{metadata: {annotations: {configdep.io/config-hash: x}}, spec: {template: {spec: {containers: [{name: app, image: mine}]}}}}`, podSpec),
		"an account":                                     web(deployments, `{spec: {template: {spec: {serviceAccountName: admin}}}}`, podSpec),
		"a node":                                         web(deployments, `{spec: {template: {spec: {nodeName: node-0}}}}`, podSpec),
		"a host volume":                                  web(deployments, `{spec: {template: {spec: {volumes: [{name: host, hostPath: {path: /}}]}}}}`, podSpec),
		"no replicas":                                    web(deployments, `{spec: {replicas: 0}}`, specification),
		"pausing":                                        web(deployments, `{spec: {paused: true}}`, pauses),
		"the annotation of a pause":                      web(deployments, `{metadata: {annotations: {deployment.reloader.stakater.com/paused-at: x}}}`, pauses),
		"the annotation of a pause, of a StatefulSet": web(statefulSets, `{metadata: {annotations: {deployment.reloader.stakater.com/paused-at: x}}}`, annotations),
		"a hash of another tool":                      web(deployments, `{spec: {template: {metadata: {annotations: {wave.pusher.com/config-hash: "y"}}}}}`, podAnnotations),
		"another update strategy":                     web(daemonSets, `{spec: {updateStrategy: {type: OnDelete, rollingUpdate: null}}}`, specification),
		"a label of pods":                             web(deployments, `{spec: {template: {metadata: {labels: {team: mine}}}}}`, specification),
		"an annotation of pods":                       web(deployments, `{spec: {template: {metadata: {annotations: {sidecar.istio.io/inject: "true"}}}}}`, podAnnotations),
		"a changed annotation of pods":                web(statefulSets, `{spec: {template: {metadata: {annotations: {example.com/other: "y"}}}}}`, podAnnotations),
		"removing the annotations of pods":            web(daemonSets, `{spec: {template: {metadata: {annotations: null}}}}`, podAnnotations),
		"an annotation":                               web(deployments, `{metadata: {annotations: {example.com/mine: x}}}`, annotations),
		"removing an annotation":                      web(deployments, `{metadata: {annotations: {example.com/other: null}}}`, annotations),
		"opting in":                                   web(deployments, `{metadata: {annotations: {configdep.io/reload: auto}}}`, annotations),
		"an annotation that contains a counter":       web(deployments, `{metadata: {annotations: {deprecated.daemonset.template.generation: "7"}}}`, annotations),
		"a label":                                     web(deployments, `{metadata: {labels: {team: mine}}}`, metadata),
		"a finalizer":                                 web(deployments, `{metadata: {finalizers: [example.com/mine]}}`, metadata),
		"an owner":                                    web(deployments, `{metadata: {ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: x, uid: x}]}}`, metadata),
		"with a JSON patch": {deployments, "shop", "web", types.JSONPatchType,
			`[{op: replace, path: /spec/template/spec/containers/0/image, value: mine}]`, "", podSpec},
		"with a strategic merge patch": {deployments, "shop", "web", types.StrategicMergePatchType,
			`{spec: {template: {spec: {containers: [{name: mine, image: mine}]}}}}`, "", podSpec},
		"a variable": {deployments, "shop", "web", types.StrategicMergePatchType,
			`{spec: {template: {spec: {containers: [{name: app, env: [{name: LD_PRELOAD, value: x}]}]}}}}`, "", podSpec},
		"a variable from a Secret": {deployments, "shop", "web", types.StrategicMergePatchType,
			`{spec: {template: {spec: {containers: [{name: app, env: [{name: STAKATER_X_SECRET, valueFrom: {secretKeyRef: {name: x, key: x}}}]}]}}}}`, "", podSpec},
		"removing a variable": {daemonSets, "shop", "web", types.StrategicMergePatchType,
			`{spec: {template: {spec: {containers: [{name: app, env: [{name: A, $patch: delete}]}]}}}}`, "", podSpec},
		"with apply": {deployments, "shop", "web", types.ApplyPatchType,
			`{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {template: {spec: {hostNetwork: true}}}}`, "", podSpec},

		"another Secret":                     own(secrets, secret("name: mine", "Opaque"), noRight),
		"a token":                            own(secrets, secret("name: mine", token), noRight),
		"a token Secret in place of the key": {secrets, install.Namespace, "configdep-hmac-key", types.MergePatchType, `{type: "` + token + `"}`, "", noRight},
		"another ConfigMap":                  {configMaps, install.Namespace, "kube-root-ca.crt", types.MergePatchType, `{data: {ca.crt: x}}`, "", noRight},
		"an immutable key":                   {secrets, install.Namespace, "configdep-hmac-key", update, `{immutable: true}`, "", ownMetadata},
		"an owner for the CAs, with which they would be deleted": {configMaps, install.Namespace, "configdep-serving-ca", types.MergePatchType,
			`{metadata: {ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: x, uid: x}]}}`, "", ownMetadata},
		"another Lease": own(leases, `{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: mine}}`, leaseNames),

		"an APIService for another Service":      apiService(`{spec: {service: {name: mine}}}`, ofAPIService),
		"an APIService without TLS verification": apiService(`{spec: {caBundle: null, insecureSkipTLSVerify: true}}`, ofAPIService),
		"an APIService with a high priority":     apiService(`{spec: {groupPriorityMinimum: 18000}}`, ofAPIService),
		"an annotation of the APIService":        apiService(`{metadata: {annotations: {cert-manager.io/inject-ca-from: mine/mine}}}`, ofBoth),
		"webhooks for all resources":             webhook(`[{op: replace, path: /webhooks/0/rules, value: [{operations: ["*"], apiGroups: ["*"], apiVersions: ["*"], resources: ["*"]}]}]`, ofWebhooks),
		"webhooks with another URL":              webhook(`[{op: replace, path: /webhooks/1/clientConfig, value: {url: "https://mine.example"}}]`, ofWebhooks),
		"webhooks that fail closed":              webhook(`[{op: replace, path: /webhooks/0/failurePolicy, value: Fail}]`, ofWebhooks),
		"webhooks without match conditions":      webhook(`[{op: remove, path: /webhooks/0/matchConditions}]`, ofWebhooks),
		"webhooks for all namespaces":            webhook(`[{op: remove, path: /webhooks/1/namespaceSelector}]`, ofWebhooks),
		"removing a webhook":                     webhook(`[{op: remove, path: /webhooks/1}]`, ofWebhooks),
		"a label of the webhooks":                webhook(`[{op: add, path: /metadata/labels/mine, value: x}]`, ofBoth),

		"an eviction without a UID":       evict("{}"),
		"an eviction with grace period 0": evict("{gracePeriodSeconds: 0, preconditions: {uid: x}}"),
	} {
		t.Run(name, func(t *testing.T) {
			// kube-apiserver enforces policies a moment after they are created.
			await.Until(t, "the request is rejected", func(ctx context.Context) error {
				err := a.make(ctx, thief, metav1.DryRunAll)
				if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), a.refusal) {
					return fmt.Errorf("error = %w, want %q", err, a.refusal)
				}
				return nil
			})
			before, _ := admin.Resource(a.resource).Namespace(a.namespace).Get(t.Context(), a.name, metav1.GetOptions{})
			if err := a.make(t.Context(), thief); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), a.refusal) {
				t.Errorf("error = %v", err)
			}
			after, _ := admin.Resource(a.resource).Namespace(a.namespace).Get(t.Context(), a.name, metav1.GetOptions{})
			if a.kind != "" && (before == nil || after == nil || !reflect.DeepEqual(said(before), said(after))) {
				t.Errorf("the object changed from %v to %v", before, after)
			}
			// The policies do not apply to other users.
			if err := a.make(t.Context(), admin, metav1.DryRunAll); err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
				t.Errorf("a policy rejects the request of another user: %v", err)
			}
		})
	}
}

// The policies allow the requests that the server makes.
func TestWhatTheServerNeeds(t *testing.T) {
	const restart = `{metadata: {annotations: {configdep.io/config-hash: x, configdep.io/applied-sources: "{}", configdep.io/last-reload: "{}", configdep.io/verified-at: x}},
		spec: {template: {metadata: {annotations: {configdep.io/config-hash: x, configdep.io/reloaded-at: x}}}}}`
	const record = `{metadata: {annotations: {configdep.io/config-hash: "y", configdep.io/recreating: none, configdep.io/verified-at: null}}}`
	const variables = `{metadata: {annotations: {configdep.io/config-hash: v}}, spec: {template: {
		metadata: {annotations: {reloader.stakater.com/last-reloaded-from: "{}", pod-reloader.cs.sap.com/config-hash: null, wave.pusher.com/config-hash: null}},
		spec: {containers: [{name: app, env: [{name: STAKATER_DB_SECRET, value: x}, {name: STAKATER_OLD_SECRET, $patch: delete}]}]}}}}`
	const pause = `{metadata: {annotations: {deployment.reloader.stakater.com/paused-at: "2026-03-01T12:00:00Z"}}, spec: {paused: true,
		template: {spec: {containers: [{name: app, env: [{name: STAKATER_DB_SECRET, value: "y"}]}]}}}}`
	const resume = `{metadata: {annotations: {deployment.reloader.stakater.com/paused-at: null}}, spec: {paused: false}}`
	bundle := `[{op: add, path: /spec/caBundle, value: eA==}]`
	both := `[{op: add, path: /webhooks/0/clientConfig/caBundle, value: eA==}, {op: add, path: /webhooks/1/clientConfig/caBundle, value: eA==},
		{op: add, path: /webhooks/0/clientConfig/service/path, value: /mutate/x}]`
	pod := shop(t)
	for _, a := range []attempt{
		{pods, "shop", pod.Name, "", fmt.Sprintf("{apiVersion: policy/v1, kind: Eviction, metadata: {name: %s, namespace: shop}, deleteOptions: {preconditions: {uid: %s}}}",
			pod.Name, pod.UID), "eviction", ""},
		{deployments, "shop", "web", types.MergePatchType, restart, "", ""},
		{statefulSets, "shop", "web", types.MergePatchType, restart, "", ""},
		{daemonSets, "shop", "web", types.MergePatchType, restart, "", ""},
		{deployments, "shop", "web", types.StrategicMergePatchType, variables, "", ""},
		{statefulSets, "shop", "web", types.StrategicMergePatchType, variables, "", ""},
		{daemonSets, "shop", "web", types.StrategicMergePatchType, variables, "", ""},
		{deployments, "shop", "web", types.StrategicMergePatchType, pause, "", ""},
		{deployments, "shop", "web", types.MergePatchType, resume, "", ""},
		{deployments, "shop", "web", types.MergePatchType, record, "", ""},
		{daemonSets, "shop", "web", types.MergePatchType, record, "", ""},
		{apiServices, "", install.APIService, types.JSONPatchType, bundle, "", ""},
		{webhooks, "", install.Name, types.JSONPatchType, both, "", ""},
		{configMaps, install.Namespace, "configdep-serving-ca", types.MergePatchType, `{data: {ca.crt: x}}`, "", ""},
		{secrets, install.Namespace, "configdep-serving-cert", update, "{}", "", ""},
	} {
		if err := a.make(t.Context(), thief, metav1.DryRunAll); err != nil {
			t.Errorf("%s of %s/%s, dry run: %v", a.kind, a.resource.Resource, a.name, err)
		}
		if a.resource.Group == "apps" {
			if err := a.make(t.Context(), thief); err != nil {
				t.Errorf("%s of %s/%s: %v", a.kind, a.resource.Resource, a.name, err)
			}
		}
	}
}

// The types in the CEL expressions of the policies are correct: kube-controller-manager reports no warnings.
func TestPoliciesHaveNoWarnings(t *testing.T) {
	for _, name := range []string{"workloads", "own-namespace", "registrations", "evictions"} {
		await.Until(t, name+" is checked", func(ctx context.Context) error {
			policy, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, install.Name+"-"+name, metav1.GetOptions{})
			switch {
			case err != nil:
				return err
			case policy.Status.ObservedGeneration != policy.Generation || policy.Status.TypeChecking == nil:
				return errors.New("not checked yet")
			}
			for _, w := range policy.Status.TypeChecking.ExpressionWarnings {
				t.Errorf("%s, %s: %s", name, w.FieldRef, w.Warning)
			}
			return nil
		})
	}
}
