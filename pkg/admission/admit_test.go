// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/record"
)

// written returns a Deployment that reads the key "password" of Secret db, with annotations on it
// and on its template, and with fields that our libraries do not know. An image of its own
// makes its template different.
func deployment(image, annotations, templateAnnotations string) string {
	return fmt.Sprintf(`{
		"apiVersion": "apps/v1", "kind": "Deployment", "inventedLater": {"a": [1, 2.50, 12345678901234567890]},
		"metadata": {"name": "web", "uid": "u", "annotations": {%s}, "inventedLater": "x"},
		"spec": {"replicas": 2, "inventedLater": true, "template": {
			"inventedLater": 18446744073709551615,
			"metadata": {"creationTimestamp": null, "labels": {"app": "web"}, "annotations": {%s}},
			"spec": {"inventedLater": {}, "containers": [{"name": "app", "image": %q, "inventedLater": [], "env": [
				{"name": "P", "valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}}}
			]}]}
		}}}`, annotations, templateAnnotations, image)
}

const optedIn = `"configdep.io/reload": "auto"`

// tracked returns the record that the handler writes for a new workload.
func (c *cluster) tracked(t *testing.T) (onWorkload, onTemplate string) {
	t.Helper()
	return recordOn(t, c.admit(t, parse(t, deployment("app:1", optedIn, "")), nil))
}

// adopted returns the record that the handler writes for a workload that opts in: its pods may have read other content.
func (c *cluster) adopted(t *testing.T) string {
	t.Helper()
	onWorkload, _ := recordOn(t, c.admit(t, parse(t, deployment("app:1", optedIn, "")), parse(t, deployment("app:1", "", ""))))
	if want := fmt.Sprint("@", admittedAt.Unix()); !strings.Contains(onWorkload, want) {
		t.Fatalf("record %s, want it with %s", onWorkload, want)
	}
	return onWorkload
}

func recordOn(t *testing.T, made object) (onWorkload, onTemplate string) {
	t.Helper()
	marks := annotationsAt(made, "metadata")
	hash, sources := marks[record.ConfigHashAnnotation], marks[record.AppliedSourcesAnnotation]
	if hash == "" || sources == "" {
		t.Fatalf("annotations = %v", marks)
	}
	return fmt.Sprintf(`"configdep.io/config-hash": %q, "configdep.io/applied-sources": %q`, hash, sources), fmt.Sprintf(`"configdep.io/config-hash": %q`, hash)
}

// The annotations on a Deployment and on its template after admission.
func TestAdmission(t *testing.T) {
	old := newCluster(t, secret("db", "password", "old"))
	record, mark := old.tracked(t)
	reloaded := record + `, "configdep.io/last-reload": "{}"`
	c := newCluster(t, secret("db", "password", "new"))
	fresh, freshMark := c.tracked(t)
	adopted := c.adopted(t)
	const note = `"owner": "mine"`
	restarted := mark + `, "configdep.io/reloaded-at": "noon"`
	join := func(parts ...string) string { return strings.Join(parts, ", ") }

	for name, tt := range map[string]struct {
		object, before         string
		onWorkload, onTemplate string
	}{
		"a new workload is stamped":                             {deployment("app:1", optedIn, note), "", join(optedIn, fresh), join(note, freshMark)},
		"a copy of an old workload is stamped":                  {deployment("app:1", join(optedIn, record), restarted), "", join(optedIn, fresh), join(freshMark, `"configdep.io/reloaded-at": "noon"`)},
		"a workload that has not opted in is not stamped":       {deployment("app:1", note, note), "", note, note},
		"a workload that is off is not stamped":                 {deployment("app:1", `"configdep.io/reload": "off"`, ""), "", `"configdep.io/reload": "off"`, ""},
		"a workload with an invalid mode is not stamped":        {deployment("app:1", `"configdep.io/reload": "yes"`, ""), "", `"configdep.io/reload": "yes"`, ""},
		"a template with the strategy recreate is not stamped":  {deployment("app:1", join(optedIn, `"configdep.io/strategy": "recreate"`), ""), "", join(optedIn, `"configdep.io/strategy": "recreate"`, adopted), ""},
		"annotations that the owner removed are restored":       {deployment("app:1", join(optedIn, note), note), deployment("app:1", join(optedIn, reloaded), join(note, restarted)), join(optedIn, note, reloaded), join(note, restarted)},
		"annotations from a copy are replaced":                  {deployment("app:1", join(optedIn, fresh), freshMark), deployment("app:1", join(optedIn, reloaded), restarted), join(optedIn, reloaded), restarted},
		"annotations that did not exist are removed":            {deployment("app:1", join(optedIn, fresh), freshMark), deployment("app:1", join(optedIn, note), ""), optedIn, ""},
		"a new template is stamped":                             {deployment("app:2", optedIn, ""), deployment("app:1", join(optedIn, reloaded), restarted), join(optedIn, fresh, `"configdep.io/last-reload": "{}"`), freshMark},
		"opting in alone records the current content":           {deployment("app:1", optedIn, ""), deployment("app:1", note, ""), join(optedIn, adopted), ""},
		"opting in keeps an existing record":                    {deployment("app:1", optedIn, mark), deployment("app:1", record, mark), join(optedIn, record), mark},
		"no record for a workload that had already opted in":    {deployment("app:1", join(optedIn, note), ""), deployment("app:1", optedIn, ""), join(optedIn, note), ""},
		"opting in with a new template stamps":                  {deployment("app:2", optedIn, ""), deployment("app:1", note, ""), join(optedIn, fresh), freshMark},
		"opting out restarts nothing":                           {deployment("app:1", note, ""), deployment("app:1", join(optedIn, reloaded), restarted), note, restarted},
		"opting out leaves no mark on the next template":        {deployment("app:2", note, ""), deployment("app:1", note, restarted), note, ""},
		"an invalid mode keeps the record":                      {deployment("app:1", `"configdep.io/reload": "yes"`, ""), deployment("app:1", join(optedIn, reloaded), restarted), join(`"configdep.io/reload": "yes"`, reloaded), restarted},
		"an invalid mode with a new template keeps the record":  {deployment("app:2", `"configdep.io/reload": "yes"`, ""), deployment("app:1", join(optedIn, reloaded), restarted), join(`"configdep.io/reload": "yes"`, reloaded), ""},
		"the template of a workload that is off keeps its hash": {deployment("app:1", note, ""), deployment("app:1", join(note, reloaded), restarted), note, restarted},
	} {
		t.Run(name, func(t *testing.T) {
			var before object
			if tt.before != "" {
				before = parse(t, tt.before)
			}
			got := c.admit(t, parse(t, tt.object), before)
			want := parse(t, deployment("", tt.onWorkload, tt.onTemplate))
			if diff := cmp.Diff(onWorkload(want), onWorkload(got)); diff != "" {
				t.Errorf("on the workload (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(onTemplate(want), onTemplate(got)); diff != "" {
				t.Errorf("on the template (-want +got):\n%s", diff)
			}
			if again := c.post(t, asked(t, got, before)); again.Patch != nil {
				t.Errorf("patch of a second request = %s, want none", again.Patch)
			}
		})
	}
}

// Pods of a paused Deployment are started when it is resumed, with content that is not known yet.
func TestPausedDeploymentIsNotStamped(t *testing.T) {
	c := newCluster(t, secret("db", "password", "new"))
	o := parse(t, deployment("app:2", optedIn, ""))
	o["spec"].(object)["paused"] = true
	before := parse(t, deployment("app:1", optedIn+`, "configdep.io/config-hash": "v1.x.y"`, ""))
	got := c.admit(t, o, before)
	if diff := cmp.Diff(onWorkload(before), onWorkload(got)); diff != "" || len(onTemplate(got)) != 0 {
		t.Errorf("on the workload (-want +got):\n%s\non the template: %v", diff, onTemplate(got))
	}
}

// Sources that the index does not have may have been created a moment ago.
func TestAbsentSourcesAreLookedUp(t *testing.T) {
	o := parse(t, deployment("app:1", optedIn, ""))
	there := newCluster(t, secret("db", "password", "x"))
	want := there.admit(t, o, nil)
	if there.finds.Load() != 0 {
		t.Errorf("looked up %d sources of the index, want none", there.finds.Load())
	}
	key := dependency.SourceKey{Kind: dependency.Secret, Namespace: namespace, Name: "db"}
	for name, c := range map[string]*cluster{
		"the source is absent": newCluster(t),
		"it lacks the key":     newCluster(t, secret("db", "other", "x")),
	} {
		c.late[key] = lookedUp(secret("db", "password", "x"))
		if diff := cmp.Diff(want, c.admit(t, o, nil)); diff != "" || c.finds.Load() != 1 {
			t.Errorf("%s: %d look-ups, annotations (-want +got):\n%s", name, c.finds.Load(), diff)
		}
		c.Read(func(known decide.Evaluator) {
			if s := known.Graph.Source(key); s != nil && s.Has("password") {
				t.Errorf("%s: the graph contains the source that was looked up", name)
			}
		})
	}
	for name, broken := range map[string]error{"it is nowhere": nil, "the look-up fails": errBroken} {
		c := newCluster(t)
		c.broken = broken
		if got := c.admit(t, o, nil); len(onTemplate(got)) != 0 || onWorkload(got)[record.ConfigHashAnnotation] != "" {
			t.Errorf("%s: annotations = %v, on the template %v; want none", name, onWorkload(got), onTemplate(got))
		}
	}

	// Restoring annotations needs no sources.
	c := newCluster(t)
	before := parse(t, deployment("app:1", optedIn+`, "configdep.io/config-hash": "v1.x.y"`, ""))
	if got := c.admit(t, o, before); onWorkload(got)[record.ConfigHashAnnotation] != "v1.x.y" || c.finds.Load() != 0 {
		t.Errorf("%d look-ups, annotations = %v", c.finds.Load(), onWorkload(got))
	}
}

// Secrets that are not read are neither looked up nor waited for: the record covers the other sources.
func TestUnreadSecretsAreNotLookedUp(t *testing.T) {
	key := dependency.SourceKey{Kind: dependency.Secret, Namespace: namespace, Name: "db"}
	unread := secret("db", "password", "x")
	unread.Type = "t"
	for name, tt := range map[string]struct {
		scope   ingest.Scope
		sources []ingesttest.Object
	}{
		"none":    {ingest.Scope{WithoutSecrets: true}, nil},
		"no type": {ingest.Scope{UnreadTypes: []string{"t"}}, []ingesttest.Object{unread}},
	} {
		c := newCluster(t, tt.sources...)
		c.begin(tt.scope, 0)
		c.List()
		c.late[key] = lookedUp(secret("db", "password", "x"))
		made := c.admit(t, parse(t, deployment("app:1", optedIn, "")), nil)
		marks := annotationsAt(made, "metadata")
		if marks[record.ConfigHashAnnotation] == "" || !strings.HasSuffix(marks[record.AppliedSourcesAnnotation], `"sources":{}}`) {
			t.Errorf("%s is read: annotations = %v", name, marks)
		}
		if c.finds.Load() != 0 {
			t.Errorf("%s is read: %d look-ups, want none", name, c.finds.Load())
		}
	}
}

// Answers to unauthenticated callers do not depend on which names exist: otherwise they could
// find the names of all Secrets, letter by letter.
func TestGlobsAreLeftToTheController(t *testing.T) {
	for _, globs := range []string{"secret/d*", "secret/x*", "secret/d*b, secret/db"} {
		c := newCluster(t, secret("db", "password", "x"))
		o := parse(t, deployment("app:1", fmt.Sprintf(`"configdep.io/reload": "listed", "configdep.io/sources": %q`, globs), ""))
		if diff := cmp.Diff(o, c.admit(t, o, nil)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", globs, diff)
		}
		before := parse(t, deployment("app:1", `"configdep.io/reload": "listed", "configdep.io/config-hash": "v1.x.y"`, `"configdep.io/config-hash": "v1.x.y"`))
		if got := c.admit(t, o, before); onTemplate(got)[record.ConfigHashAnnotation] != "v1.x.y" {
			t.Errorf("%s: annotations of the template = %v, want the removed ones restored", globs, onTemplate(got))
		}
	}
}

// The key of the hash is replaced while a source is looked up: the digest with the previous key
// is not used.
func TestKeyIsReplacedMeanwhile(t *testing.T) {
	c := newCluster(t)
	c.late[dependency.SourceKey{Kind: dependency.Secret, Namespace: namespace, Name: "db"}] = lookedUp(secret("db", "password", "x"))
	c.found = func() {
		c.begin(ingest.Scope{}, 1)
		c.List()
	}
	h := c.handler()
	if got := postTo(t, h, asked(t, parse(t, deployment("app:1", optedIn, "")), nil)); got.Patch != nil || c.finds.Load() != 1 {
		t.Errorf("%d look-ups, patch = %s", c.finds.Load(), got.Patch)
	}
}

// An optional source counts as absent only when it has been looked up.
func TestUnknownOptionalSource(t *testing.T) {
	optional := strings.Replace(deployment("app:1", optedIn, ""), `"key": "password"`, `"key": "password", "optional": true`, 1)
	c := newCluster(t)
	if got := c.admit(t, parse(t, optional), nil); onTemplate(got)[record.ConfigHashAnnotation] == "" || c.finds.Load() != 1 {
		t.Errorf("%d look-ups, annotations of the template = %v", c.finds.Load(), onTemplate(got))
	}
	c = newCluster(t)
	c.broken = errBroken
	if got := c.admit(t, parse(t, optional), nil); len(onTemplate(got)) != 0 {
		t.Errorf("annotations of the template = %v", onTemplate(got))
	}
	many := parse(t, optional)
	container := many["spec"].(object)["template"].(object)["spec"].(object)["containers"].([]any)[0].(object)
	env := []any{}
	for i := range maxFinds + 1 {
		env = append(env, object{"name": "E", "valueFrom": object{"secretKeyRef": object{"name": fmt.Sprint("db-", i), "key": "k", "optional": true}}})
	}
	container["env"] = env
	c = newCluster(t)
	if got := c.admit(t, many, nil); len(onTemplate(got)) != 0 || c.finds.Load() != 0 {
		t.Errorf("%d look-ups, annotations of the template = %v", c.finds.Load(), onTemplate(got))
	}
}

// Requests that the webhook cannot or should not handle are admitted unchanged.
func TestHandler_AdmitsUnchanged(t *testing.T) {
	o := parse(t, deployment("app:1", optedIn, ""))
	unsynced := newCluster(t, secret("db", "password", "x"))
	unsynced.begin(ingest.Scope{}, 0)
	synced := newCluster(t, secret("db", "password", "x"))
	for name, tt := range map[string]struct {
		cluster *cluster
		change  func(*admissionv1.AdmissionRequest)
	}{
		"the index has not synced": {unsynced, func(*admissionv1.AdmissionRequest) {}},
		"written by us": {synced, func(r *admissionv1.AdmissionRequest) {
			r.Options.Raw = []byte(`{"kind":"PatchOptions","fieldManager":"configdep"}`)
		}},
		"a subresource":                       {synced, func(r *admissionv1.AdmissionRequest) { r.SubResource = "scale" }},
		"a deletion":                          {synced, func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Delete }},
		"an object that is not a JSON object": {synced, func(r *admissionv1.AdmissionRequest) { r.Object.Raw = []byte(`"x"`) }},
		"no object":                           {synced, func(r *admissionv1.AdmissionRequest) { r.Object = runtime.RawExtension{} }},
		"an object of other types":            {synced, func(r *admissionv1.AdmissionRequest) { r.Object.Raw = []byte(`{"metadata": {"annotations": 1}}`) }},
		"an update without an old object":     {synced, func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Update }},
		"more sources than pods have": {synced, func(r *admissionv1.AdmissionRequest) {
			var from []any
			for i := range dependency.MaxSources + 1 {
				from = append(from, object{"secretRef": object{"name": fmt.Sprint("s-", i), "optional": true}})
			}
			many := parse(t, deployment("app:1", optedIn+`, "configdep.io/exclude": "secret/s-*"`, ""))
			many["spec"].(object)["template"].(object)["spec"].(object)["containers"].([]any)[0].(object)["envFrom"] = from
			r.Object.Raw = encode(t, many)
		}},
		"a template of other types": {synced, func(r *admissionv1.AdmissionRequest) { r.Object.Raw = []byte(`{"spec": {"template": []}}`) }},
		"annotations that are not strings": {synced, func(r *admissionv1.AdmissionRequest) {
			r.Object.Raw = []byte(`{"spec": {"template": {"metadata": {"annotations": {"a": 1}}}}}`)
		}},
	} {
		r := asked(t, o, nil)
		tt.change(r)
		if got := tt.cluster.post(t, r); got.Patch != nil || got.Result != nil {
			t.Errorf("%s: response = %+v", name, got)
		}
	}
	if got := synced.post(t, asked(t, o, nil)); got.Patch == nil {
		t.Error("the request is admitted unchanged even without a reason")
	}
	for what, change := range map[string]func(*Handler){
		"that is not read": func(h *Handler) { h.Namespaces = []string{"other"} },
		"that is exempt":   func(h *Handler) { h.Exempt = func(n string) bool { return n == namespace } },
	} {
		elsewhere := synced.handler()
		change(elsewhere)
		if got := postTo(t, elsewhere, asked(t, o, nil)); got.Patch != nil {
			t.Errorf("in a namespace %s: %s", what, got.Patch)
		}
	}
}

// Random writes: only configdep's annotations change, a second request changes nothing, and a
// template that differs only in these annotations is restored.
func TestAdmissionKeepsItsPromises(t *testing.T) {
	c := newCluster(t, secret("db", "password", "new"))
	record, mark := c.tracked(t)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	some := func(from ...string) string {
		random.Shuffle(len(from), func(i, j int) { from[i], from[j] = from[j], from[i] })
		return strings.Join(from[:random.IntN(len(from)+1)], ", ")
	}
	draw := func() object {
		modes := []string{optedIn, `"configdep.io/reload": "off"`, `"configdep.io/reload": "?"`, `"configdep.io/reload": "listed"`, `"owner": "x"`}
		o := parse(t, deployment(fmt.Sprint("app:", random.IntN(2)),
			some(modes[random.IntN(len(modes))], record, `"configdep.io/last-reload": "1"`, `"configdep.io/recreating": "2"`, `"note": "z"`),
			some(mark, `"configdep.io/reloaded-at": "3"`, `"note": "y"`)))
		template := o["spec"].(object)["template"].(object)
		switch random.IntN(6) {
		case 0:
			delete(template, "metadata")
		case 1:
			delete(template["metadata"].(object), "annotations")
		case 2:
			delete(o["metadata"].(object), "annotations")
		case 3:
			o["spec"].(object)["paused"] = true
		}
		return o
	}
	patched := 0
	for range 1000 {
		o, before := draw(), object(nil)
		if random.IntN(4) > 0 {
			before = draw()
		}
		got := c.admit(t, o, before)
		if again := c.post(t, asked(t, got, before)); again.Patch != nil {
			t.Fatalf("seed %d: patch of a second request = %s, want none", seed, again.Patch)
		}
		if before != nil && cmp.Equal(unmarkedAll(t, o)["spec"].(object)["template"], unmarkedAll(t, before)["spec"].(object)["template"]) &&
			!maps.Equal(onTemplate(got), onTemplate(before)) {
			t.Fatalf("seed %d: the template changes without a reason (before, after):\n%s\n%s", seed, encode(t, before), encode(t, got))
		}
		if !cmp.Equal(o, got) {
			patched++
		}
	}
	if patched < 200 || patched > 950 {
		t.Errorf("seed %d: %d of 1000 requests are patched", seed, patched)
	}
}
