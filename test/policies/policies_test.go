// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/configdep/configdep/pkg/policy"
)

// tries are requests of the server, with what they are refused for.
type tries map[string]struct {
	old, new runtime.Object
	refusal  string
}

// try tries them on objects as they are and as JSON. What the server is refused, others are not.
func (all tries) try(t *testing.T, name string, resource schema.GroupVersionResource) {
	t.Helper()
	compiled := compile(t, read(t)[name])
	for name, one := range all {
		t.Run(name, func(t *testing.T) {
			old, now := one.old, one.new
			for range 2 {
				if got := compiled.refusal(t, &request{resource: resource, user: account, old: old, new: now}); got != one.refusal {
					t.Errorf("%T: the refusal is %q, want %q", now, got, one.refusal)
				}
				for _, other := range []string{"system:serviceaccount:configdep-system:other", "system:serviceaccount:other:configdep-apiserver", "kim", ""} {
					if got := compiled.refusal(t, &request{resource: resource, user: other, old: old, new: now}); got != "" {
						t.Errorf("%s is refused: %q", other, got)
					}
				}
				now = asJSON(t, now)
				if old != nil {
					old = asJSON(t, old)
				}
			}
		})
	}
}

const (
	workloadAnnotations = "configdep may change no annotation of a workload but its own"
	templateAnnotations = "configdep may change no annotation of a pod template but its own"
	workloadMetadata    = "configdep may change no metadata of a workload but its own annotations"
	workloadSpec        = "configdep may change no specification of a workload but its own annotations on the pod template"
)

func TestWorkloads(t *testing.T) {
	web := func(change func(*appsv1.Deployment)) *appsv1.Deployment {
		d := &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}}
		d.Name, d.Namespace, d.ResourceVersion = "web", "shop", "7"
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Image: "app"}}
		if change != nil {
			change(d)
		}
		return d
	}
	recorded := func(d *appsv1.Deployment) {
		d.Annotations = map[string]string{policy.ConfigHashAnnotation: "x", policy.LastReloadAnnotation: "{}"}
		d.Spec.Template.Annotations = map[string]string{policy.ConfigHashAnnotation: "x", policy.ReloadedAtAnnotation: "now"}
	}
	tries{
		"the first restart, of one without annotations": {web(nil), web(recorded), ""},
		"the last annotations are taken away":           {web(recorded), web(nil), ""},
		"what kube-apiserver changes with it": {web(nil), web(func(d *appsv1.Deployment) {
			recorded(d)
			d.Generation, d.ResourceVersion = 2, "8"
			d.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "configdep"}}
		}), ""},
		"opting in": {web(nil), web(func(d *appsv1.Deployment) {
			d.Annotations = map[string]string{policy.ReloadAnnotation: "auto"}
		}), workloadAnnotations},
		"the counter of a DaemonSet": {web(nil), web(func(d *appsv1.Deployment) {
			d.Annotations = map[string]string{appsv1.DeprecatedTemplateGeneration: "2"}
		}), workloadAnnotations},
		"one of the workload, on the template": {web(nil), web(func(d *appsv1.Deployment) {
			d.Spec.Template.Annotations = map[string]string{policy.LastReloadAnnotation: "{}"}
		}), templateAnnotations},
		"an owner": {web(nil), web(func(d *appsv1.Deployment) {
			d.OwnerReferences = []metav1.OwnerReference{{Name: "x"}}
		}), workloadMetadata},
		"a finalizer": {web(nil), web(func(d *appsv1.Deployment) { d.Finalizers = []string{"example.com/x"} }), workloadMetadata},
		"a label":     {web(nil), web(func(d *appsv1.Deployment) { d.Labels = map[string]string{"app": "x"} }), workloadMetadata},
		"replicas":    {web(nil), web(func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(0)) }), workloadSpec},
		"an image":    {web(nil), web(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "mine" }), workloadSpec},
		"an account":  {web(nil), web(func(d *appsv1.Deployment) { d.Spec.Template.Spec.ServiceAccountName = "admin" }), workloadSpec},
		"a pod's label": {web(nil), web(func(d *appsv1.Deployment) {
			d.Spec.Template.Labels = map[string]string{"app": "x"}
		}), workloadSpec},
	}.try(t, "workloads", kinds["Deployment"].resource)
}

func TestOwnNamespace_Secrets(t *testing.T) {
	const anotherName = "configdep may write no Secret but configdep-hmac-key and configdep-serving-cert"
	const anotherType = "configdep may write no Secret of another type than Opaque and kubernetes.io/tls, and change no type"
	secret := func(name string, kind corev1.SecretType) *corev1.Secret {
		s := &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, Type: kind, Data: map[string][]byte{"key": []byte("x")}}
		s.Name, s.Namespace = name, "configdep-system"
		return s
	}
	const metadata = "configdep may change no metadata of what is in its namespace but annotations, and make nothing immutable"
	changed := func(s *corev1.Secret, change func(*corev1.Secret)) *corev1.Secret {
		s = s.DeepCopy()
		change(s)
		return s
	}
	key, cert := secret("configdep-hmac-key", corev1.SecretTypeOpaque), secret("configdep-serving-cert", corev1.SecretTypeTLS)
	tries{
		"makes the key":           {nil, key, ""},
		"fills in an empty key":   {secret(key.Name, corev1.SecretTypeOpaque), key, ""},
		"makes the certificate":   {nil, cert, ""},
		"renews it":               {cert, cert, ""},
		"a certificate of Opaque": {secret(cert.Name, corev1.SecretTypeOpaque), secret(cert.Name, corev1.SecretTypeOpaque), ""},
		"another Secret":          {nil, secret("mine", corev1.SecretTypeOpaque), anotherName},
		"another one's Secret":    {secret("mine", corev1.SecretTypeOpaque), secret("mine", corev1.SecretTypeOpaque), anotherName},
		"a token":                 {nil, secret("mine", corev1.SecretTypeServiceAccountToken), anotherName},
		"a token by that name":    {nil, secret(key.Name, corev1.SecretTypeServiceAccountToken), anotherType},
		"into a token":            {key, secret(key.Name, corev1.SecretTypeServiceAccountToken), anotherType},
		"a note of its own":       {cert, changed(cert, func(s *corev1.Secret) { s.Annotations = map[string]string{"configdep.io/ca-published": "x"} }), ""},
		"an owner that is gone":   {key, changed(key, func(s *corev1.Secret) { s.OwnerReferences = []metav1.OwnerReference{{Name: "x"}} }), metadata},
		"a finalizer":             {key, changed(key, func(s *corev1.Secret) { s.Finalizers = []string{"example.com/x"} }), metadata},
		"a label":                 {key, changed(key, func(s *corev1.Secret) { s.Labels = map[string]string{"x": "y"} }), metadata},
		"made immutable, where it says that it is not": {changed(key, func(s *corev1.Secret) { s.Immutable = new(false) }), changed(key, func(s *corev1.Secret) { s.Immutable = new(true) }), metadata},
		"no change any more":                           {key, changed(key, func(s *corev1.Secret) { s.Immutable = new(true) }), metadata},
		"another type":                                 {key, secret(key.Name, corev1.SecretTypeTLS), anotherType},
	}.try(t, "own-namespace", corev1.SchemeGroupVersion.WithResource("secrets"))
}

func TestOwnNamespace_ConfigMapsAndLeases(t *testing.T) {
	named := func(o metav1.Object, name string) { o.SetName(name); o.SetNamespace("configdep-system") }
	configMap := func(name string) *corev1.ConfigMap {
		o := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}}
		named(o, name)
		return o
	}
	lease := func(name string) *coordinationv1.Lease {
		o := &coordinationv1.Lease{TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}}
		named(o, name)
		return o
	}
	tries{
		"the CA":  {nil, configMap("configdep-serving-ca"), ""},
		"renewed": {configMap("configdep-serving-ca"), configMap("configdep-serving-ca"), ""},
		"another": {nil, configMap("kube-root-ca.crt"), "configdep may write no ConfigMap but configdep-serving-ca"},
	}.try(t, "own-namespace", corev1.SchemeGroupVersion.WithResource("configmaps"))
	tries{
		"its own": {nil, lease("configdep-apiserver"), ""},
		"another": {nil, lease("other"), "configdep may write no Lease but configdep-apiserver"},
	}.try(t, "own-namespace", coordinationv1.SchemeGroupVersion.WithResource("leases"))
}

func TestRegistrations_APIService(t *testing.T) {
	const more = "configdep may change nothing of an APIService but the CA"
	const other = "configdep may change nothing of an APIService or a webhook configuration but the CA and the path"
	apiService := func(change func(metadata, spec map[string]any)) *unstructured.Unstructured {
		spec := map[string]any{"group": "configdep.io", "version": "v1alpha1", "service": map[string]any{"name": "configdep-apiserver", "port": int64(443)}}
		metadata := map[string]any{"name": "v1alpha1.configdep.io", "resourceVersion": "1"}
		change(metadata, spec)
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": metadata, "spec": spec}}
	}
	as := apiService(func(_, _ map[string]any) {})
	bundled := apiService(func(metadata, spec map[string]any) { spec["caBundle"], metadata["managedFields"] = "eA==", []any{} })
	tries{
		"the first CA": {as, bundled, ""},
		"another CA":   {bundled, apiService(func(_, spec map[string]any) { spec["caBundle"] = "eQ==" }), ""},
		"no CA":        {bundled, as, ""},
		"leads elsewhere": {bundled, apiService(func(_, spec map[string]any) {
			spec["service"] = map[string]any{"name": "mine", "port": int64(443)}
		}), more},
		"trusts any certificate": {as, apiService(func(_, spec map[string]any) { spec["insecureSkipTLSVerify"] = true }), more},
		"comes first":            {as, apiService(func(_, spec map[string]any) { spec["groupPriorityMinimum"] = int64(20000) }), more},
		"loses a field":          {as, apiService(func(_, spec map[string]any) { delete(spec, "service") }), more},
		"has another annotation": {as, apiService(func(metadata, _ map[string]any) {
			metadata["annotations"] = map[string]any{"cert-manager.io/inject-ca-from": "x"}
		}), other},
	}.try(t, "registrations", schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"})
}

func TestRegistrations_Webhooks(t *testing.T) {
	const more = "configdep may change nothing of a webhook but the CA and the path"
	const other = "configdep may change nothing of an APIService or a webhook configuration but the CA and the path"
	configuration := func(change func(*admissionregistrationv1.MutatingWebhookConfiguration)) *admissionregistrationv1.MutatingWebhookConfiguration {
		c := &admissionregistrationv1.MutatingWebhookConfiguration{TypeMeta: metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingWebhookConfiguration"}}
		c.Name = "configdep-apiserver"
		for _, name := range []string{"workloads.configdep.io", "namespaces.configdep.io"} {
			w := admissionregistrationv1.MutatingWebhook{Name: name, Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{"CREATE"}, Rule: admissionregistrationv1.Rule{APIGroups: []string{"apps"}, Resources: []string{"deployments"}},
			}}}
			w.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "by-others", Expression: "true"}}
			w.ClientConfig.Service = &admissionregistrationv1.ServiceReference{Namespace: "configdep-system", Name: "configdep-apiserver", Port: new(int32(9443))}
			c.Webhooks = append(c.Webhooks, w)
		}
		if change != nil {
			change(c)
		}
		return c
	}
	type config = admissionregistrationv1.MutatingWebhookConfiguration
	bundled := func(c *config) {
		for i := range c.Webhooks {
			c.Webhooks[i].ClientConfig.CABundle = []byte("x")
		}
	}
	tries{
		"the first CA": {configuration(nil), configuration(bundled), ""},
		"no CA":        {configuration(bundled), configuration(nil), ""},
		"the first path": {configuration(nil), configuration(func(c *config) {
			for i := range c.Webhooks {
				c.Webhooks[i].ClientConfig.Service.Path = new("/mutate/secret")
			}
		}), ""},
		"another path": {configuration(func(c *config) { c.Webhooks[0].ClientConfig.Service.Path = new("/mutate/old") }),
			configuration(func(c *config) { c.Webhooks[0].ClientConfig.Service.Path = new("/mutate/new") }), ""},
		"a path, and leads elsewhere": {configuration(nil), configuration(func(c *config) {
			c.Webhooks[0].ClientConfig.Service.Path, c.Webhooks[0].ClientConfig.Service.Namespace = new("/mutate/new"), "mine"
		}), more},
		"another port": {configuration(nil), configuration(func(c *config) { c.Webhooks[1].ClientConfig.Service.Port = new(int32(1)) }), more},
		"no port":      {configuration(nil), configuration(func(c *config) { c.Webhooks[1].ClientConfig.Service.Port = nil }), more},
		"a service in place of a URL": {configuration(func(c *config) {
			c.Webhooks[0].ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: new("https://x")}
		}), configuration(nil), more},
		"all resources":   {configuration(nil), configuration(func(c *config) { c.Webhooks[1].Rules[0].Resources = []string{"*"} }), more},
		"leads elsewhere": {configuration(nil), configuration(func(c *config) { c.Webhooks[1].ClientConfig.Service.Name = "mine" }), more},
		"a URL":           {configuration(nil), configuration(func(c *config) { c.Webhooks[0].ClientConfig.URL = new("https://mine") }), more},
		"must answer":     {configuration(nil), configuration(func(c *config) { c.Webhooks[0].FailurePolicy = ptr.To(admissionregistrationv1.Fail) }), more},
		"no conditions":   {configuration(nil), configuration(func(c *config) { c.Webhooks[1].MatchConditions = nil }), more},
		"no service":      {configuration(nil), configuration(func(c *config) { c.Webhooks[1].ClientConfig.Service = nil }), more},
		"one more": {configuration(nil), configuration(func(c *config) {
			c.Webhooks = append(c.Webhooks, admissionregistrationv1.MutatingWebhook{Name: "x.y.z"})
		}), more},
		"one less":     {configuration(nil), configuration(func(c *config) { c.Webhooks = c.Webhooks[:1] }), more},
		"another name": {configuration(nil), configuration(func(c *config) { c.Webhooks[0].Name = "x.y.z" }), more},
		"a label":      {configuration(nil), configuration(func(c *config) { c.Labels = map[string]string{"x": "y"} }), other},
	}.try(t, "registrations", admissionregistrationv1.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations"))
}

func TestEvictions(t *testing.T) {
	const refusal = "configdep may evict no pod but by its UID, and not with another grace period than its own"
	eviction := func(options *metav1.DeleteOptions) *policyv1.Eviction {
		e := &policyv1.Eviction{TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "Eviction"}, DeleteOptions: options}
		e.Name, e.Namespace = "web-0", "shop"
		return e
	}
	byUID := &metav1.Preconditions{UID: new(types.UID("x"))}
	tries{
		"by its UID":      {nil, eviction(&metav1.DeleteOptions{Preconditions: byUID}), ""},
		"by its name":     {nil, eviction(nil), refusal},
		"by a version":    {nil, eviction(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: new("1")}}), refusal},
		"no condition":    {nil, eviction(&metav1.DeleteOptions{}), refusal},
		"without a grace": {nil, eviction(&metav1.DeleteOptions{Preconditions: byUID, GracePeriodSeconds: new(int64(0))}), refusal},
	}.try(t, "evictions", corev1.SchemeGroupVersion.WithResource("pods"))
}

// Only requests of the server are checked, and errors refuse them.
func TestEveryPolicyConcernsTheServerAlone(t *testing.T) {
	policies := read(t)
	if len(policies) != 4 {
		t.Errorf("there are %d", len(policies))
	}
	for name, p := range policies {
		want := []admissionregistrationv1.MatchCondition{{Name: "by-configdep", Expression: "has(request.userInfo.username) && request.userInfo.username == '" + account + "'"}}
		if !slices.Equal(p.Spec.MatchConditions, want) {
			t.Errorf("the conditions of %s are %v", name, p.Spec.MatchConditions)
		}
		if p.Spec.FailurePolicy == nil || *p.Spec.FailurePolicy != admissionregistrationv1.Fail {
			t.Errorf("the failure policy of %s is %v", name, p.Spec.FailurePolicy)
		}
	}
}
