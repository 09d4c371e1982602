// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/test/await"
)

// marker is part of all values, so that they can be looked for where they must not be.
const marker = "m4rk3r"

func lines(all ...string) map[string]string {
	return map[string]string{policy.FieldsAnnotation: strings.Join(all, "\n")}
}

// field returns the value of a field of the object named web.
func (p *kindShop) field(path ...string) any {
	p.Helper()
	value, _, err := unstructured.NestedFieldNoCopy(p.get(harborStores, "v1").Object, append([]string{"spec"}, path...)...)
	if err != nil {
		p.Fatal(err)
	}
	return value
}

func (p *kindShop) fieldManagers() (names []string) {
	p.Helper()
	for _, e := range p.get(harborStores, "v1").GetManagedFields() {
		names = append(names, e.Manager)
	}
	return names
}

var accessKey = []string{"storage", "s3", "accessKey"}

// Fields get their values from a Secret whose owner agrees: each with the type that the schema says, also in entries of lists, and from
// parts of values. They are set again when the content changes, and when another client removes them.
func TestFields(t *testing.T) {
	t.Parallel()
	p, d := newKindShop(t), harborStores
	p.write("Secret/bucket", "key", marker+"-1", "info", `{"spec":{"s3":{"keyID":"`+marker+`-id","insecure":true}}}`, "port", "5432\n", "encoded", "bTRyazNyLWI2NA==")
	p.createObject(d, "v1", lines(
		"spec.storage.s3.accessKey = secret/bucket#key",
		"spec.storage.s3.insecure = secret/bucket#info | json .spec.s3.insecure",
		"spec.database.port = secret/bucket#port",
		"spec.env[name=KEY].value = secret/bucket#info | json .spec.s3.keyID",
		"spec.env[name=B64].value = secret/bucket#encoded | base64",
		"spec.other['a.b/c'] = configmap/settings#x",
	), content{"env": []any{content{"name": "FIRST", "value": "1"}}})

	p.shown(d, is(v1alpha1.StateBlocked, decide.ReasonSourceMissing))
	p.write("ConfigMap/settings", "x", "plain")
	blocked := p.shown(d, is(v1alpha1.StateBlocked, decide.ReasonFieldsNotAllowed))
	if !strings.Contains(blocked.Status.Message, "Secret/bucket must list harborstore/web#") {
		t.Errorf("message = %s", blocked.Status.Message)
	}
	p.event(d, "ConfigFieldsNotAllowed")
	if p.field(accessKey...) != nil {
		t.Error("a field was set without consent")
	}

	p.allow("bucket", "deployment/x#key, harborstore/w*#*")
	shown := p.shown(d, recorded, is(v1alpha1.StateInSync, ""))
	want := content{
		"storage": content{"s3": content{"accessKey": marker + "-1", "insecure": true}}, "database": content{"port": int64(5432)},
		"env":   []any{content{"name": "FIRST", "value": "1"}, content{"name": "KEY", "value": marker + "-id"}, content{"name": "B64", "value": marker + "-b64"}},
		"other": content{"a.b/c": "plain"},
	}
	if diff := cmp.Diff(want, p.field().(content)); diff != "" {
		t.Errorf("specification (-want +got):\n%s", diff)
	}
	var usages []string
	for _, s := range shown.Spec.Sources {
		for _, u := range s.Usages {
			usages = append(usages, fmt.Sprintf("%s %s %v", u.Type, u.Path, u.Keys))
		}
	}
	if !slices.Contains(usages, "Field spec.storage.s3.accessKey [key]") {
		t.Errorf("usages = %q", usages)
	}

	p.write("Secret/bucket", "key", marker+"-2", "unused", "x")
	p.shown(d, newer(shown), recorded)
	if p.field(accessKey...) != marker+"-2" {
		t.Errorf("value = %v", p.field(accessKey...))
	}
	if message := p.event(d, "ConfigFieldsSet"); strings.Contains(message, marker) {
		t.Errorf("message = %s", message)
	}
	// A client that removes the field also takes it from its owner.
	p.patch(d, "v1", "kubectl-edit", content{"spec": content{"storage": content{"s3": content{"accessKey": nil}}}})
	await.Until(t, "the field is set again", func(context.Context) error {
		if value := p.field(accessKey...); value != marker+"-2" {
			return fmt.Errorf("it is %v", value)
		}
		return nil
	})
	p.checkSecrecy()
}

// A field that belongs to another manager is not taken from it. It is set once the other one gives it up.
func TestFields_OfOthers(t *testing.T) {
	t.Parallel()
	p, d := newKindShop(t), harborStores
	p.write("Secret/bucket", "key", marker+"-1")
	p.allow("bucket", "harborstore/web#*")
	owned := func(value any) {
		t.Helper()
		o := content{"apiVersion": d.group + "/v1", "kind": d.kind, "metadata": content{"name": "web"}, "spec": content{"theirs": true}}
		if value != nil {
			o["spec"] = content{"theirs": true, "storage": content{"s3": content{"accessKey": value}}}
		}
		if _, err := p.of(d, "v1").Patch(t.Context(), "web", types.ApplyPatchType, asJSON(t, o), metav1.PatchOptions{FieldManager: "argocd"}); err != nil {
			t.Fatal(err)
		}
	}
	owned("theirs")
	p.patch(d, "v1", "kubectl-annotate", content{"metadata": content{"annotations": lines("spec.storage.s3.accessKey = secret/bucket#key")}})
	blocked := p.shown(d, is(v1alpha1.StateBlocked, decide.ReasonFieldConflict))
	if !strings.Contains(blocked.Status.Message, `"argocd" owns it`) || strings.Contains(blocked.Status.Message, marker) {
		t.Errorf("message = %s", blocked.Status.Message)
	}
	if p.field(accessKey...) != "theirs" {
		t.Errorf("value = %v", p.field(accessKey...))
	}
	p.event(d, "ConfigFieldConflict")
	owned(nil)
	shown := p.shown(d, recorded, is(v1alpha1.StateInSync, ""))
	if p.field(accessKey...) != marker+"-1" {
		t.Errorf("value = %v", p.field(accessKey...))
	}
	// An update takes a field by force. That is another conflict, also for new content.
	p.patch(d, "v1", "kubectl-edit", content{"spec": content{"storage": content{"s3": content{"accessKey": "edited"}}}})
	p.shown(d, is(v1alpha1.StateBlocked, decide.ReasonFieldConflict))
	p.write("Secret/bucket", "key", marker+"-2")
	p.shown(d, newer(shown), is(v1alpha1.StateBlocked, decide.ReasonFieldConflict))
	p.patch(d, "v1", "kubectl-edit", content{"spec": content{"storage": content{"s3": content{"accessKey": nil}}}})
	p.shown(d, recorded, is(v1alpha1.StateInSync, ""))
	if p.field(accessKey...) != marker+"-2" {
		t.Errorf("value = %v", p.field(accessKey...))
	}
	p.checkSecrecy()
}

// Without the annotation, or without a line of it, a field keeps its value, and nothing owns it for configdep.
func TestFields_AreReleased(t *testing.T) {
	t.Parallel()
	p, d := newKindShop(t), harborStores
	p.write("Secret/bucket", "key", marker+"-1", "port", "80")
	p.allow("bucket", "*/*#*")
	annotate := func(annotations map[string]string) {
		p.patch(d, "v1", "kubectl-annotate", content{"metadata": content{"annotations": annotations}})
	}
	p.createObject(d, "v1", lines("spec.storage.s3.accessKey = secret/bucket#key", "spec.database.port = secret/bucket#port"), content{})
	p.shown(d, recorded, is(v1alpha1.StateInSync, ""))
	owns := func(path ...string) bool {
		for _, e := range p.get(d, "v1").GetManagedFields() {
			if e.Manager == record.FieldsManager && strings.Contains(string(e.FieldsV1.GetRawBytes()), `"f:`+path[len(path)-1]+`"`) {
				return true
			}
		}
		return false
	}
	if !owns(accessKey...) || !owns("port") {
		t.Fatalf("managers = %q", p.fieldManagers())
	}
	annotate(lines("spec.database.port = secret/bucket#port"))
	await.Until(t, "one field is released", func(context.Context) error {
		if owns(accessKey...) || !owns("port") {
			return errors.New("it is not")
		}
		return nil
	})
	p.shown(d, recorded, is(v1alpha1.StateInSync, ""))
	if p.field(accessKey...) != marker+"-1" {
		t.Errorf("value = %v", p.field(accessKey...))
	}
	p.patch(d, "v1", "kubectl-annotate", content{"metadata": content{"annotations": content{policy.FieldsAnnotation: nil}}})
	p.shown(d, optedOut)
	if message := p.event(d, "ConfigRestartsOff"); message != "Automatic restarts are now off (set by the server's defaults). Before, they were on (set by configdep.io/fields on the HarborStore)." {
		t.Errorf("message = %s", message)
	}
	if o := p.get(d, "v1"); slices.Contains(p.fieldManagers(), record.FieldsManager) || o.GetAnnotations()[record.AppliedFieldsAnnotation] != "" {
		t.Errorf("managers = %q, annotations = %v", p.fieldManagers(), o.GetAnnotations())
	}
	if p.field(accessKey...) != marker+"-1" || p.field("database", "port") != int64(80) {
		t.Errorf("specification = %v", p.field())
	}
}

// Fields that cannot be set are told, in words that contain no value.
func TestFields_Refused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ line, value, reason, want string }{
		"of another type":    {"spec.database.port = secret/bucket#key", marker, decide.ReasonFieldsRefused, "spec.database.port must be an integer"},
		"not by the schema":  {"spec.storage.s3.accessKey = secret/bucket#key", marker + strings.Repeat("x", 80), decide.ReasonFieldsRefused, "the API server refuses them (Invalid: spec.storage.s3.accessKey)"},
		"in a list":          {"spec.list[name=x].value = secret/bucket#key", marker, decide.ReasonFieldsRefused, "the list can only be set as a whole"},
		"not JSON":           {"spec.storage.s3.accessKey = secret/bucket#key | json .a", marker, decide.ReasonFieldsRefused, "the value is not JSON"},
		"a name of a Secret": {"spec.secretName = secret/bucket#key", marker, decide.ReasonFieldsRefused, "spec.secretName is a field that configdep itself uses"},
		"a key that is gone": {"spec.storage.s3.accessKey = secret/bucket#other", marker, decide.ReasonKeyMissing, "Secret bucket lacks the key other"},
		"of the metadata":    {"metadata.name = secret/bucket#key", marker, decide.ReasonInvalidAnnotation, "a field must be below spec"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newKindShop(t)
			p.write("Secret/bucket", "key", tt.value)
			p.allow("bucket", "harborstore/web#*")
			p.createObject(harborStores, "v1", lines(tt.line), content{})
			shown := p.shown(harborStores, is(v1alpha1.StateBlocked, tt.reason))
			if !strings.Contains(shown.Status.Message, tt.want) {
				t.Errorf("message = %s, want %s", shown.Status.Message, tt.want)
			}
			if len(p.field().(content)) > 0 {
				t.Errorf("specification = %v", p.field())
			}
			p.checkSecrecy()
		})
	}
}

// checkSecrecy checks that no value is where it must not be: in what the API says, in events, in the record, or in the log.
func (p *kindShop) checkSecrecy() {
	p.Helper()
	views, err := p.api().List(p.Context(), metav1.ListOptions{})
	if err != nil {
		p.Fatal(err)
	}
	events, err := kube.CoreV1().Events(p.namespace).List(p.Context(), metav1.ListOptions{})
	if err != nil {
		p.Fatal(err)
	}
	log, err := os.ReadFile(server.Replicas[0].Log())
	if err != nil {
		p.Fatal(err)
	}
	annotations := asJSON(p.T, p.get(harborStores, "v1").GetAnnotations())
	for what, data := range map[string][]byte{"views": asJSON(p.T, views), "events": asJSON(p.T, events), "log": log, "annotations": annotations} {
		if at := strings.Index(string(data), marker); at >= 0 {
			p.Errorf("the %s contain a value: %.200s", what, data[max(0, at-100):])
		}
	}
	if !json.Valid(annotations) || len(log) == 0 {
		p.Error("nothing was looked through")
	}
}

func optedOut(o *v1alpha1.ConfigDependency) error {
	if o.Spec.Reload.Mode != v1alpha1.ReloadOff {
		return fmt.Errorf("mode = %s", o.Spec.Reload.Mode)
	}
	return nil
}
