// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/install"
	"github.com/configdep/configdep/test/search"
)

// Values of fields are in memory only while they are applied or arrive. Afterwards they are nowhere: not in memory, logs, metrics, events,
// records or answers, also if the API server or its policies quote them.
func TestFields_AreNotKept(t *testing.T) {
	t.Parallel()
	binary, err := install.Build(t.Context(), "./test/integration/heapserver", false)
	if err != nil {
		t.Fatal(err)
	}
	p, d, secret, round := &kindShop{newOwnShop(t)}, harborStores, rand.Text(), 0
	value := func(size int) string { // with the secret at its start and at its end
		round++
		return secret + strings.Repeat(fmt.Sprintf("%06d ", round), size/7) + secret
	}
	large := func() string { return `{"id":"` + value(7) + `","rest":"` + value(100<<10) + `"}` }
	p.write("Secret/bucket", "key", value(7), "info", large(), "text", value(100<<10))
	p.allow("bucket", "harborstore/*#*")
	declared := lines("spec.storage.s3.accessKey = secret/bucket#key", "spec.env[name=ID].value = secret/bucket#info | json .id", "spec.other = secret/bucket#text")
	p.createObject(d, "v1", declared, content{})
	dump := filepath.Join(t.TempDir(), "heap")
	replica := p.serve(install.ReplicaOptions{ // which reads values in its first list
		Binary: binary, Args: []string{"-v=10"},
		Env: []string{"HEAP_DUMP=" + dump, "GODEBUG=clobberfree=1", "GOMAXPROCS=1"}, // as freed memory is reused for stacks, and each CPU has buffers of its own
	})
	direct := replica.AdminConfig()
	answers := &bytes.Buffer{}
	ask := func() {
		all := resourcePath(p.namespace)
		for _, path := range []string{all, all + "/harborstore.web", all + "/harborstore.web/pods", "/metrics", "/readyz?verbose=1", "/openapi/v2"} {
			got := send(t, direct, request{path: path})
			fmt.Fprintf(answers, "%s: %d\n%s\n", path, got.code, got.body)
		}
		got := send(t, direct, request{http.MethodPost, all + "/harborstore.web/reload", inJSON, "{}"})
		fmt.Fprintf(answers, "reload: %d\n%s\n", got.code, got.body)
	}
	shown := p.shown(d, recorded, is(v1alpha1.StateInSync, ""))
	ask()
	for range 3 { // rotated
		p.write("Secret/bucket", "key", value(7), "info", large(), "text", value(100<<10))
		shown = p.shown(d, newer(shown), recorded)
	}
	if got, _ := p.field(accessKey...).(string); !strings.Contains(got, secret) {
		t.Fatalf("value = %q", got)
	}
	p.patch(d, "v1", "kubectl-edit", content{"spec": content{"other": nil}}) // drift
	await.Until(t, "the field is set again", func(context.Context) error {
		if p.field("other") == nil {
			return errors.New("it is not")
		}
		return nil
	})
	p.write("Secret/bucket", "key", value(700)) // refused by the schema
	p.shown(d, is(v1alpha1.StateBlocked, decide.ReasonFieldsRefused))
	p.write("Secret/bucket", "key", value(7), "info", secret) // not JSON
	p.shown(d, is(v1alpha1.StateBlocked, decide.ReasonFieldsRefused))
	p.write("Secret/bucket", "info", large())
	shown = p.shown(d, recorded, is(v1alpha1.StateInSync, ""))
	ask()
	// Policies of others that quote values, in warnings and in denials. The record of the fields cannot be written either.
	p.quotes(d, admissionv1.Warn, quoted)
	p.write("Secret/bucket", "key", value(7))
	shown = p.shown(d, newer(shown), recorded)
	p.quotes(d, admissionv1.Deny, quoted)
	ask()
	p.write("Secret/bucket", "key", value(7))
	p.shown(d, newer(shown))
	p.event(d, "ConfigRestartFailed")
	ask()
	// Buffers that live as long as a connection, and those for headers, contain the last data. This replaces them with other and longer
	// content.
	p.quotes(d, admissionv1.Warn, "'a long message is weak"+strings.Repeat(" and long", 15)+"'")
	p.write("Secret/bucket", "key", "plain", "info", `{"id":"x"}`, "text", "plain")
	shown = p.shown(d, newer(shown), recorded)
	for i := range 8 {
		p.write("Secret/bucket", "text", strings.Repeat(fmt.Sprintf("%07d ", i), 400<<10/8))
		shown = p.shown(d, newer(shown), recorded)
	}
	ask()

	if err := syscall.Kill(replica.PID(), syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the heap is dumped", func(context.Context) error {
		_, err := os.Stat(dump)
		return err
	})
	heap, err := os.ReadFile(dump)
	if err != nil {
		t.Fatal(err)
	}
	if err := replica.Terminate(); err != nil {
		t.Error(err)
	}
	log, err := os.ReadFile(replica.Log())
	if err != nil {
		t.Fatal(err)
	}
	events, err := kube.CoreV1().Events(p.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	places := map[string][]byte{
		"the heap": heap, "the log": log, "a body in the log": search.Bodies(log), "the answers": answers.Bytes(), "the events": asJSON(t, events),
		"the annotations": asJSON(t, p.get(d, "v1").GetAnnotations()),
	}
	for place, where := range places {
		for _, form := range search.Forms(secret) {
			for _, at := range search.Find(where, form) {
				t.Errorf("%s (%d bytes) contains a value at %d:\n%q", place, len(where), at, search.Around(where, at))
			}
		}
	}
	for place, wants := range map[string][]string{ // otherwise the search proves nothing
		"the heap":        {"harborstore/*", "spec.storage.s3.accessKey", p.namespace},
		"the log":         {p.namespace, "harborstores"},
		"the answers":     {"harborstore.web", "spec.storage.s3.accessKey", "changing a HarborStore failed"},
		"the events":      {"ConfigFieldsSet", "ConfigFieldsRefused"},
		"the annotations": {record.AppliedFieldsAnnotation},
	} {
		for _, want := range wants {
			if len(search.Find(places[place], want)) == 0 {
				t.Errorf("%s (%d bytes) lacks %q", place, len(places[place]), want)
			}
		}
	}
}

const quoted = "'the key ' + object.spec.storage.s3.accessKey + ' is weak'" // a CEL expression of a message

// quotes makes the API server add a message to its answer to each change of an object, and waits until it does.
func (p *kindShop) quotes(d definition, action admissionv1.ValidationAction, message string) {
	p.Helper()
	p.unquotes()
	policies, bindings := kube.AdmissionregistrationV1().ValidatingAdmissionPolicies(), kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	_, err := policies.Create(p.Context(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: p.namespace},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Update},
				Rule:       admissionv1.Rule{APIGroups: []string{d.group}, APIVersions: []string{"*"}, Resources: []string{d.plural}},
			}}}},
			Validations: []admissionv1.Validation{{Expression: "false", MessageExpression: message}},
		},
	}, metav1.CreateOptions{})
	if err == nil {
		_, err = bindings.Create(p.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: p.namespace},
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: p.namespace, ValidationActions: []admissionv1.ValidationAction{action},
				MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
					MatchLabels: map[string]string{corev1.LabelMetadataName: p.namespace}}},
			},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(p.unquotes)
	await.Until(p.T, "values are quoted", func(context.Context) error {
		if got := p.quoted(d); got != action {
			return fmt.Errorf("the answer is %q", got)
		}
		return nil
	})
}

// quoted returns how the API server quotes a value in its answer to a change; "": it does not.
func (p *kindShop) quoted(d definition) admissionv1.ValidationAction {
	p.Helper()
	heard := &heardWarnings{}
	config := rest.CopyConfig(cluster.RESTConfig())
	config.WarningHandler = heard
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		p.Fatal(err)
	}
	change := []byte(`{"metadata":{"labels":{"x":"y"}}}`)
	_, err = c.Resource(d.resource("v1")).Namespace(p.namespace).Patch(p.Context(), "web", types.MergePatchType, change, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case err != nil && strings.Contains(err.Error(), "is weak"):
		return admissionv1.Deny
	case strings.Contains(heard.text, "is weak"):
		return admissionv1.Warn
	default:
		return ""
	}
}

// heardWarnings are those of the API server.
type heardWarnings struct{ text string }

// HandleWarningHeader implements rest.WarningHandler.
func (h *heardWarnings) HandleWarningHeader(_ int, _, text string) { h.text += text }

// unquotes ends that.
func (p *kindShop) unquotes() {
	p.Helper()
	ctx := context.WithoutCancel(p.Context())
	_ = kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(ctx, p.namespace, metav1.DeleteOptions{}) // it may not exist
	_ = kube.AdmissionregistrationV1().ValidatingAdmissionPolicies().Delete(ctx, p.namespace, metav1.DeleteOptions{})
}
