// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"bytes"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// webhooks returns the webhooks of manifests.
func webhooks(t *testing.T, manifests string) (all map[string]webhook.WebhookAccessor) {
	t.Helper()
	all = map[string]webhook.WebhookAccessor{}
	for _, document := range documents(t, manifests) {
		if !bytes.Contains(document, []byte("kind: MutatingWebhookConfiguration\n")) {
			continue
		}
		var c admissionregistrationv1.MutatingWebhookConfiguration
		if err := yaml.UnmarshalStrict(document, &c); err != nil {
			t.Fatal(err)
		}
		for i := range c.Webhooks {
			all[c.Webhooks[i].Name] = webhook.NewMutatingWebhookAccessor("", c.Name, &c.Webhooks[i])
		}
	}
	return all
}

// ofDeployments returns those that are called for Deployments.
func ofDeployments(all map[string]webhook.WebhookAccessor) map[string]webhook.WebhookAccessor {
	return called(all, kinds["Deployment"].resource)
}

// called returns the webhooks whose rules are for a resource.
func called(all map[string]webhook.WebhookAccessor, resource schema.GroupVersionResource) map[string]webhook.WebhookAccessor {
	some := map[string]webhook.WebhookAccessor{}
	for name, w := range all {
		if slices.ContainsFunc(w.GetRules(), func(r admissionregistrationv1.RuleWithOperations) bool {
			return slices.Contains(r.APIGroups, resource.Group) && slices.Contains(r.APIVersions, resource.Version) && slices.Contains(r.Resources, resource.Resource)
		}) {
			some[name] = w
		}
	}
	return some
}

// annotations are those of a workload and of its pod template; nil: it has no such map.
type annotations struct{ workload, template map[string]string }

func (a annotations) deployment() *appsv1.Deployment {
	d := &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}}
	d.Annotations, d.Spec.Template.Annotations = a.workload, a.template
	return d
}

// kube-apiserver calls one webhook for workloads that have opted in by any annotation, or are recorded, and the other one for
// all others, in namespaces that it selects. Neither is called for workloads whose template and annotations stay the same.
func TestWebhooks_AreCalledForWorkloadsThatOptedIn(t *testing.T) {
	on := func(pairs ...string) map[string]string {
		out := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			out[pairs[i]] = pairs[i+1]
		}
		return out
	}
	record := on(record.ConfigHashAnnotation, "v1.k.h")
	compiler := cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	all := webhooks(t, withPresets)
	for name, tt := range map[string]struct {
		written annotations
		before  *annotations // nil: it is created
		in      bool         // whether it has opted in, or is recorded
		same    bool         // the template and the annotations stay the same
	}{
		"no annotations":              {annotations{}, nil, false, false},
		"empty annotations":           {annotations{on(), on()}, nil, false, false},
		"annotations of others":       {annotations{on("example.com/x", "y"), on("example.com/x", "y")}, nil, false, false},
		"configdep.io/reload":         {annotations{on(policy.ReloadAnnotation, "auto"), nil}, nil, true, false},
		"auto of Reloader":            {annotations{on("reloader.stakater.com/auto", "true"), nil}, nil, true, false},
		"auto for ConfigMaps":         {annotations{on("configmap.reloader.stakater.com/auto", "true"), nil}, nil, true, false},
		"auto for Secrets":            {annotations{on("secret.reloader.stakater.com/auto", "true"), nil}, nil, true, false},
		"auto for secret providers":   {annotations{on("secretproviderclass.reloader.stakater.com/auto", "true"), nil}, nil, true, false},
		"ConfigMaps for Reloader":     {annotations{on("configmap.reloader.stakater.com/reload", "x"), nil}, nil, true, false},
		"Secrets for Reloader":        {annotations{on("secret.reloader.stakater.com/reload", "x"), nil}, nil, true, false},
		"secret providers":            {annotations{on("secretproviderclass.reloader.stakater.com/reload", "x"), nil}, nil, true, false},
		"search of Reloader":          {annotations{on("reloader.stakater.com/search", "true"), nil}, nil, true, false},
		"ConfigMaps for pod-reloader": {annotations{on("pod-reloader.cs.sap.com/configmaps", "x"), nil}, nil, true, false},
		"Secrets for pod-reloader":    {annotations{on("pod-reloader.cs.sap.com/secrets", "x"), nil}, nil, true, false},
		"wave":                        {annotations{on("wave.pusher.com/update-on-config-change", "true"), nil}, nil, true, false},

		"auto of Reloader on the template":          {annotations{nil, on("reloader.stakater.com/auto", "true")}, nil, true, false},
		"auto for ConfigMaps on the template":       {annotations{nil, on("configmap.reloader.stakater.com/auto", "true")}, nil, true, false},
		"auto for Secrets on the template":          {annotations{nil, on("secret.reloader.stakater.com/auto", "true")}, nil, true, false},
		"auto for secret providers on the template": {annotations{nil, on("secretproviderclass.reloader.stakater.com/auto", "true")}, nil, true, false},
		"ConfigMaps for Reloader on the template":   {annotations{nil, on("configmap.reloader.stakater.com/reload", "x")}, nil, true, false},
		"Secrets for Reloader on the template":      {annotations{nil, on("secret.reloader.stakater.com/reload", "x")}, nil, true, false},
		"secret providers on the template":          {annotations{nil, on("secretproviderclass.reloader.stakater.com/reload", "x")}, nil, true, false},
		"search of Reloader on the template":        {annotations{nil, on("reloader.stakater.com/search", "true")}, nil, true, false},

		"what opts in on the workload alone, on the template": {
			annotations{nil, on("pod-reloader.cs.sap.com/secrets", "x", "wave.pusher.com/update-on-config-change", "true")}, nil, false, false,
		},
		"what excludes alone": {
			annotations{on("configmaps.exclude.reloader.stakater.com/reload", "x", "deployment.reloader.stakater.com/pause-period", "1m"), nil}, nil, false, false,
		},
		"a mark of Reloader alone": {annotations{nil, on("reloader.stakater.com/last-reloaded-from", "{}")}, nil, false, false},

		"an update without annotations":             {annotations{}, &annotations{nil, on("example.com/x", "y")}, false, false},
		"an update that drops the record":           {annotations{}, &annotations{record, nil}, true, false},
		"an update that drops that of the template": {annotations{}, &annotations{nil, record}, true, false},
		"an update that annotates a template":       {annotations{nil, on("example.com/x", "y")}, &annotations{}, false, false},
		"an update that opts in on the template":    {annotations{nil, on("reloader.stakater.com/auto", "true")}, &annotations{}, true, false},
		"an update of neither":                      {annotations{on("reloader.stakater.com/auto", "true"), record}, &annotations{on("reloader.stakater.com/auto", "true"), record}, true, true},
		"an update of neither, without a record":    {annotations{}, &annotations{}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := tt.written.deployment()
			before := runtime.Object(nil)
			if tt.before != nil {
				before = tt.before.deployment()
			}
			if tt.before == nil {
				p := policy.NewPolicy(policy.Annotated{Workload: tt.written.workload, Template: tt.written.template}, policy.Defaults{Mode: policy.Off})
				if p.Mode != policy.Off != tt.in {
					t.Errorf("mode of the policy = %s, declared by %s", p.Mode, p.DeclaredBy)
				}
			}
			for what, r := range map[string]struct{ o, before runtime.Object }{
				"typed": {o, before}, "as JSON": {withoutEmptyMetadata(t, o), withoutEmptyMetadata(t, before)},
			} {
				attributes := (&request{resource: kinds["Deployment"].resource, user: "kim", old: r.before, new: r.o}).attributes()
				for called, want := range map[string]bool{"workloads.configdep.io": tt.in && !tt.same, "namespaces.configdep.io": !tt.in && !tt.same} {
					got := all[called].GetCompiledMatcher(compiler).Match(t.Context(), attributes, nil, nil)
					if got.Error != nil || got.Matches != want {
						t.Errorf("%s: %s is called = %t, want %t (error: %v)", what, called, got.Matches, want, got.Error)
					}
				}
			}
		})
	}
}

// withoutEmptyMetadata returns a Deployment as JSON, in which the metadata of the pod template may be absent; nil of nil.
func withoutEmptyMetadata(t *testing.T, o runtime.Object) runtime.Object {
	t.Helper()
	if o == nil {
		return nil
	}
	raw := asJSON(t, o)
	if template := o.(*appsv1.Deployment).Spec.Template; template.Annotations == nil {
		unstructured.RemoveNestedField(raw.Object, "spec", "template", "metadata")
	}
	return raw
}

// kube-apiserver does not call the webhooks for what the server itself writes.
func TestWebhooks_AreNotCalledForTheServer(t *testing.T) {
	compiler := cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	for called, o := range map[string]*appsv1.Deployment{
		"workloads.configdep.io":  annotations{map[string]string{policy.ReloadAnnotation: "auto"}, nil}.deployment(),
		"namespaces.configdep.io": annotations{map[string]string{"example.com/x": "y"}, nil}.deployment(),
	} {
		for manager, want := range map[string]bool{"": true, "kubectl": true, record.FieldManager: false} {
			a := admission.NewAttributesRecord(o, annotations{}.deployment(), o.GroupVersionKind(), "", "", kinds["Deployment"].resource, "",
				admission.Update, &metav1.PatchOptions{FieldManager: manager}, false, &user.DefaultInfo{Name: "kim"})
			attributes := &admission.VersionedAttributes{
				Attributes: a, VersionedKind: o.GroupVersionKind(), VersionedObject: admission.NewLazyObject(o), VersionedOldObject: admission.NewLazyObject(a.GetOldObject()),
			}
			for name, w := range ofDeployments(webhooks(t, withPresets)) {
				got := w.GetCompiledMatcher(compiler).Match(t.Context(), attributes, nil, nil)
				if got.Error != nil || got.Matches != (want && name == called) {
					t.Errorf("%s is called for the field manager %q = %t (error: %v)", name, manager, got.Matches, got.Error)
				}
			}
		}
	}
}
