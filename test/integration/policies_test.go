// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
)

// writable are resources that the server writes, some of them only as far as admission policies allow.
var writable = map[string]schema.GroupVersionResource{
	"deployments":  {Group: "apps", Version: "v1", Resource: "deployments"},
	"statefulsets": {Group: "apps", Version: "v1", Resource: "statefulsets"},
	"daemonsets":   {Group: "apps", Version: "v1", Resource: "daemonsets"},
	"secrets":      {Version: "v1", Resource: "secrets"},
	"configmaps":   {Version: "v1", Resource: "configmaps"},
	"pods":         {Version: "v1", Resource: "pods"},
	"leases":       {Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
	"apiservices":  {Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"},
}

// newThief returns a client with the server's token.
func newThief(t *testing.T) dynamic.Interface {
	t.Helper()
	config := rest.AnonymousClientConfig(cluster.RESTConfig())
	config.BearerToken = tokenOf(t, install.Namespace, install.Name)
	return dynamic.NewForConfigOrDie(config)
}

// attempt is a request to write.
type attempt struct {
	resource        string
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
	resource := as.Resource(writable[a.resource]).Namespace(a.namespace)
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

	foreignAnnotation    = byWorkloads + "configdep may change no annotation of a workload but its own"
	foreignPodAnnotation = byWorkloads + "configdep may change no annotation of a pod template but its own, and remove none but those of other tools that restarted the pods"
	foreignMetadata      = byWorkloads + "configdep may change no metadata of a workload but its own annotations"
	foreignSpecification = byWorkloads + "configdep may change no specification of a workload but annotations and environment variables of its pod template, and pauses"
	foreignPodSpec       = byWorkloads + "configdep may change no specification of pods but variables STAKATER_*_CONFIGMAP, _SECRET and _SECRETPROVIDERCLASS, with plain values, of at most 256 containers"
	foreignPause         = byWorkloads + "configdep may pause a Deployment only with the annotation that says since when, and resume it only by removing both"

	ownNamespaceMetadata = byOwnNamespace + "configdep may change no metadata of what is in its namespace but annotations, and make nothing immutable"
	otherLease           = byOwnNamespace + "configdep may write no Lease but configdep-apiserver"

	ofAPIService   = byRegistrations + "configdep may change nothing of an APIService but its Service and the CA, and set no priorities but 100 and 15"
	metadataOfAPI  = byRegistrations + "configdep may change no metadata of an APIService but its owners"
	anotherService = byRegistrations + "configdep may write no APIService but v1alpha1.configdep.io, and let it lead to no Service but configdep-system/configdep-apiserver"

	noRight = `User "system:serviceaccount:configdep-system:configdep-apiserver" cannot ` // the error of RBAC, before any policy

	anyEviction = byEvictions + "configdep may evict no pod but by its UID, and not with another grace period than its own"
)

// tempting creates a namespace with a workload of each kind, without configdep's annotations, and returns it with a pod of one.
func tempting(t *testing.T) (namespace string, pod *corev1.Pod) {
	t.Helper()
	namespace = newNamespace(t)
	for _, kind := range []string{"Deployment", "StatefulSet", "DaemonSet"} {
		a := attempt{resource: strings.ToLower(kind) + "s", namespace: namespace, body: fmt.Sprintf(`
apiVersion: apps/v1
kind: %s
metadata: {name: web, annotations: {example.com/other: x}}
spec:
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}, annotations: {example.com/other: x, pod-reloader.cs.sap.com/config-hash: x, wave.pusher.com/config-hash: x}}
    spec: {containers: [{name: app, image: "app:1", env: [{name: A, value: a}, {name: STAKATER_OLD_SECRET, value: x}]}]}
`, kind)}
		if err := a.make(t.Context(), objects); err != nil {
			t.Fatal(err)
		}
	}
	await.Until(t, "a pod exists", func(ctx context.Context) error {
		found, err := kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=Deployment"})
		if err == nil && len(found.Items) == 0 {
			err = errors.New("no pod")
		}
		if err == nil {
			pod = &found.Items[0]
		}
		return err
	})
	return namespace, pod
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
func TestPolicies_ThiefOfTheToken(t *testing.T) {
	t.Parallel()
	thief := newThief(t)
	shop, running := tempting(t)
	pod := running.Name
	web := func(resource, body, refusal string) attempt {
		return attempt{resource, shop, "web", types.MergePatchType, body, "", refusal}
	}
	own := func(resource, body, refusal string) attempt {
		return attempt{resource: resource, namespace: install.Namespace, body: body, refusal: refusal}
	}
	secret := func(name, kind string) string {
		return fmt.Sprintf("{apiVersion: v1, kind: Secret, type: %q, metadata: {%s, annotations: {kubernetes.io/service-account.name: %s}}}", kind, name, install.Name)
	}
	apiService := func(patch, refusal string) attempt {
		return attempt{"apiservices", "", install.APIService, types.MergePatchType, patch, "", refusal}
	}
	evict := func(options string) attempt {
		return attempt{"pods", shop, pod, "", fmt.Sprintf("{apiVersion: policy/v1, kind: Eviction, metadata: {name: %s, namespace: %s}, deleteOptions: %s}", pod, shop, options), "eviction", anyEviction}
	}
	const token = "kubernetes.io/service-account-token"
	for name, a := range map[string]attempt{
		"another image":                                  web("deployments", `{spec: {template: {spec: {containers: [{name: app, image: mine}]}}}}`, foreignPodSpec),
		"another image, of a StatefulSet":                web("statefulsets", `{spec: {template: {spec: {containers: [{name: app, image: mine}]}}}}`, foreignPodSpec),
		"another image, of a DaemonSet":                  web("daemonsets", `{spec: {template: {spec: {containers: [{name: app, image: mine}]}}}}`, foreignPodSpec),
		"another image, with an annotation of configdep": web("deployments", `{metadata: {annotations: {configdep.io/config-hash: x}}, spec: {template: {spec: {containers: [{name: app, image: mine}]}}}}`, foreignPodSpec),
		"an account":                                     web("deployments", `{spec: {template: {spec: {serviceAccountName: admin}}}}`, foreignPodSpec),
		"a node":                                         web("deployments", `{spec: {template: {spec: {nodeName: node-0}}}}`, foreignPodSpec),
		"a host volume":                                  web("deployments", `{spec: {template: {spec: {volumes: [{name: host, hostPath: {path: /}}]}}}}`, foreignPodSpec),
		"no replicas":                                    web("deployments", `{spec: {replicas: 0}}`, foreignSpecification),
		"pausing":                                        web("deployments", `{spec: {paused: true}}`, foreignPause),
		"the annotation of a pause":                      web("deployments", `{metadata: {annotations: {deployment.reloader.stakater.com/paused-at: x}}}`, foreignPause),
		"the annotation of a pause, of a StatefulSet": web("statefulsets", `{metadata: {annotations: {deployment.reloader.stakater.com/paused-at: x}}}`, foreignAnnotation),
		"a hash of another tool":                      web("deployments", `{spec: {template: {metadata: {annotations: {wave.pusher.com/config-hash: "y"}}}}}`, foreignPodAnnotation),
		"another update strategy":                     web("daemonsets", `{spec: {updateStrategy: {type: OnDelete, rollingUpdate: null}}}`, foreignSpecification),
		"a label of pods":                             web("deployments", `{spec: {template: {metadata: {labels: {team: mine}}}}}`, foreignSpecification),
		"an annotation of pods":                       web("deployments", `{spec: {template: {metadata: {annotations: {sidecar.istio.io/inject: "true"}}}}}`, foreignPodAnnotation),
		"a changed annotation of pods":                web("statefulsets", `{spec: {template: {metadata: {annotations: {example.com/other: "y"}}}}}`, foreignPodAnnotation),
		"removing the annotations of pods":            web("daemonsets", `{spec: {template: {metadata: {annotations: null}}}}`, foreignPodAnnotation),
		"an annotation":                               web("deployments", `{metadata: {annotations: {example.com/mine: x}}}`, foreignAnnotation),
		"removing an annotation":                      web("deployments", `{metadata: {annotations: {example.com/other: null}}}`, foreignAnnotation),
		"opting in":                                   web("deployments", `{metadata: {annotations: {configdep.io/reload: auto}}}`, foreignAnnotation),
		"an annotation that contains a counter":       web("deployments", `{metadata: {annotations: {deprecated.daemonset.template.generation: "7"}}}`, foreignAnnotation),
		"a label":                                     web("deployments", `{metadata: {labels: {team: mine}}}`, foreignMetadata),
		"a finalizer":                                 web("deployments", `{metadata: {finalizers: [example.com/mine]}}`, foreignMetadata),
		"an owner":                                    web("deployments", `{metadata: {ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: x, uid: x}]}}`, foreignMetadata),
		"with a JSON patch": {"deployments", shop, "web", types.JSONPatchType,
			`[{op: replace, path: /spec/template/spec/containers/0/image, value: mine}]`, "", foreignPodSpec},
		"with a strategic merge patch": {"deployments", shop, "web", types.StrategicMergePatchType,
			`{spec: {template: {spec: {containers: [{name: mine, image: mine}]}}}}`, "", foreignPodSpec},
		"a variable": {"deployments", shop, "web", types.StrategicMergePatchType,
			`{spec: {template: {spec: {containers: [{name: app, env: [{name: LD_PRELOAD, value: x}]}]}}}}`, "", foreignPodSpec},
		"a variable from a Secret": {"deployments", shop, "web", types.StrategicMergePatchType,
			`{spec: {template: {spec: {containers: [{name: app, env: [{name: STAKATER_X_SECRET, valueFrom: {secretKeyRef: {name: x, key: x}}}]}]}}}}`, "", foreignPodSpec},
		"removing a variable": {"daemonsets", shop, "web", types.StrategicMergePatchType,
			`{spec: {template: {spec: {containers: [{name: app, env: [{name: A, $patch: delete}]}]}}}}`, "", foreignPodSpec},
		"with apply": {"deployments", shop, "web", types.ApplyPatchType,
			`{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {template: {spec: {hostNetwork: true}}}}`, "", foreignPodSpec},

		"another Secret":                     own("secrets", secret("name: mine", "Opaque"), noRight),
		"a token":                            own("secrets", secret("name: mine", token), noRight),
		"a token Secret in place of the key": {"secrets", install.Namespace, "configdep-hmac-key", types.MergePatchType, `{type: "` + token + `"}`, "", noRight},
		"another ConfigMap":                  {"configmaps", install.Namespace, "kube-root-ca.crt", types.MergePatchType, `{data: {ca.crt: x}}`, "", noRight},
		"an immutable key":                   {"secrets", install.Namespace, "configdep-hmac-key", update, `{immutable: true}`, "", ownNamespaceMetadata},
		"an owner for the CAs, with which they would be deleted": {"configmaps", install.Namespace, "configdep-serving-ca", types.MergePatchType,
			`{metadata: {ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: x, uid: x}]}}`, "", ownNamespaceMetadata},
		"another Lease": own("leases", `{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: mine}}`, otherLease),

		"an APIService for another Service":      apiService(`{spec: {service: {name: mine}}}`, anotherService),
		"an APIService for another namespace":    apiService(`{spec: {service: {namespace: default}}}`, anotherService),
		"an APIService without a Service":        apiService(`{spec: {service: null, caBundle: null}}`, anotherService),
		"an APIService without TLS verification": apiService(`{spec: {caBundle: null, insecureSkipTLSVerify: true}}`, ofAPIService),
		"an APIService with a high priority":     apiService(`{spec: {groupPriorityMinimum: 18000}}`, ofAPIService),
		"an annotation of the APIService":        apiService(`{metadata: {annotations: {cert-manager.io/inject-ca-from: mine/mine}}}`, metadataOfAPI),

		"another APIService": {resource: "apiservices", body: "{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.mine.io}, " +
			"spec: {group: mine.io, version: v1, groupPriorityMinimum: 100, versionPriority: 15}}", refusal: noRight},
		"the APIService, if not by apply": {resource: "apiservices", body: "{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1alpha1.configdep.io}, " +
			"spec: {group: configdep.io, version: v1alpha1, groupPriorityMinimum: 100, versionPriority: 15}}", refusal: noRight},

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
			before, _ := objects.Resource(writable[a.resource]).Namespace(a.namespace).Get(t.Context(), a.name, metav1.GetOptions{})
			if err := a.make(t.Context(), thief); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), a.refusal) {
				t.Errorf("error = %v", err)
			}
			after, _ := objects.Resource(writable[a.resource]).Namespace(a.namespace).Get(t.Context(), a.name, metav1.GetOptions{})
			if a.kind != "" && (before == nil || after == nil || !reflect.DeepEqual(said(before), said(after))) {
				t.Errorf("the object changed from %v to %v", before, after)
			}
			// The policies do not apply to other users.
			if err := a.make(t.Context(), objects, metav1.DryRunAll); err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
				t.Errorf("a policy rejects the request of another user: %v", err)
			}
		})
	}
}

// The types in the CEL expressions of the policies are correct: kube-controller-manager reports no warnings.
func TestPolicies_HaveNoWarnings(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"workloads", "own-namespace", "registrations", "evictions", "jobs", "pods"} {
		await.Until(t, name+" is checked", func(ctx context.Context) error {
			policy, err := kube.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, install.Name+"-"+name, metav1.GetOptions{})
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
