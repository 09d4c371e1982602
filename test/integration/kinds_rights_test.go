// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// A user who may edit custom resources, but not read Secrets, gets no value that the owner of a Secret has not allowed, whatever the user
// writes on the object.
func TestFields_GiveNoWayToReadSecrets(t *testing.T) {
	t.Parallel()
	p, d := newKindShop(t), harborStores
	editor := p.editor(d)
	p.write("Secret/bucket", "key", marker+"-1")
	other := newKindShop(t)
	other.write("Secret/bucket", "key", marker+"-other")
	other.allow("bucket", "*/*#*")
	if _, err := kubernetes.NewForConfigOrDie(editor).CoreV1().Secrets(p.namespace).Get(t.Context(), "bucket", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("the user reads the Secret: %v", err)
	}
	objects := dynamic.NewForConfigOrDie(editor).Resource(d.resource("v1")).Namespace(p.namespace)
	annotate := func(annotations content) {
		t.Helper()
		change := asJSON(t, content{"metadata": content{"annotations": annotations}})
		if _, err := objects.Patch(t.Context(), "web", types.MergePatchType, change, metav1.PatchOptions{FieldManager: "kubectl-annotate"}); err != nil {
			t.Fatal(err)
		}
	}
	p.createObject(d, "v1", nil, content{})
	line := "spec.storage.s3.accessKey = secret/bucket#key"
	for _, tt := range []struct {
		name, reason string
		annotations  content
	}{
		{"without consent", decide.ReasonFieldsNotAllowed, content{policy.FieldsAnnotation: line}},
		{"consent of the object itself", decide.ReasonInvalidAnnotation, content{policy.AllowFieldsAnnotation: "*/*#*"}},
		{"another namespace", decide.ReasonInvalidAnnotation, content{policy.AllowFieldsAnnotation: nil, policy.FieldsAnnotation: "spec.storage.s3.accessKey = secret/" + other.namespace + "/bucket#key"}},
		{"another namespace in the key", decide.ReasonInvalidAnnotation, content{policy.FieldsAnnotation: "spec.storage.s3.accessKey = secret/../" + other.namespace + "/bucket#key"}},
		{"as a ConfigMap", decide.ReasonSourceMissing, content{policy.FieldsAnnotation: "spec.storage.s3.accessKey = configmap/bucket#key"}},
		{"a record of its own", decide.ReasonFieldsNotAllowed, content{policy.FieldsAnnotation: line, record.AppliedFieldsAnnotation: `{"hash":"x"}`}},
	} {
		annotate(tt.annotations)
		p.shown(d, is(v1alpha1.StateBlocked, tt.reason))
		if value := p.field(accessKey...); value != nil {
			t.Errorf("%s: value = %v", tt.name, value)
		}
	}
	// Consent for another object of the user, another kind or another key, or for no key, is none for this one.
	p.allow("bucket", "harborstore/other#key, harborcluster/web#key, harborstore/web/x#key, harborstore/WEB#key, harborstore/web#root, harborstore/web")
	p.shown(d, is(v1alpha1.StateBlocked, decide.ReasonFieldsNotAllowed))
	p.allow("bucket", "harborstore/web#key")
	shown := p.shown(d, recorded, is(v1alpha1.StateInSync, ""))
	if value := p.field(accessKey...); value != marker+"-1" {
		t.Errorf("value = %v", value)
	}
	// Once the consent is withdrawn, new values do not come.
	p.allow("bucket", "")
	p.shown(d, is(v1alpha1.StateBlocked, decide.ReasonFieldsNotAllowed))
	p.write("Secret/bucket", "key", marker+"-2")
	p.shown(d, newer(shown), is(v1alpha1.StateBlocked, decide.ReasonFieldsNotAllowed))
	annotate(content{policy.FieldsAnnotation: line + "\nspec.other = secret/bucket#key"})
	p.shown(d, newer(shown), is(v1alpha1.StateBlocked, decide.ReasonFieldsNotAllowed))
	if value := p.field(accessKey...); value != marker+"-1" || p.field("other") != nil {
		t.Errorf("values = %v, %v", value, p.field("other"))
	}
	for _, args := range [][]string{{"-o", "wide"}, {"-o", "yaml"}, {"-o", "json", "--show-managed-fields"}} {
		out, err := cluster.Kubectl(t.Context(), append([]string{"get", "cfgdep", "harborstore.web", "-n", p.namespace}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out, marker) || !strings.Contains(out, "harborstore.web") {
			t.Errorf("kubectl get %s shows:\n%s", args, out)
		}
	}
	p.checkSecrecy()
}

// editor is a user who may edit custom resources in the namespace, and nothing else.
func (p *kindShop) editor(d definition) *rest.Config {
	p.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "editor"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{d.group}, Resources: []string{d.plural}, Verbs: []string{"get", "list", "watch", "create", "update", "patch"},
	}}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "editor"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "editor"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "editor"}},
	}
	_, err := kube.RbacV1().Roles(p.namespace).Create(p.Context(), role, metav1.CreateOptions{})
	if err == nil {
		_, err = kube.RbacV1().RoleBindings(p.namespace).Create(p.Context(), binding, metav1.CreateOptions{})
	}
	if err != nil {
		p.Fatal(err)
	}
	config := rest.CopyConfig(cluster.RESTConfig())
	config.Impersonate.UserName = "editor"
	return config
}
