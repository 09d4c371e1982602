// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/configdep/configdep/pkg/dependency"
)

// harbor names sources in several ways.
func harbor() Descriptor {
	return Descriptor{
		Group: "goharbor.io", Kind: "HarborCluster", Resource: "harborclusters", Versions: []string{"v1beta1"},
		PodTemplates: []TemplatePath{{".spec.template"}, {".spec.jobs[*].template"}},
		Sources: []SourceFields{
			{Kind: dependency.Secret, Name: ".spec.db.secretRef", KeyName: "password"},
			{Kind: dependency.Secret, Name: ".spec.users[*].secret.name", Namespace: ".spec.users[*].secret.namespace", Key: ".spec.users[*].secret.key", KeyName: "value"},
			{Kind: dependency.ConfigMap, Name: ".spec.bundles[*]", Optional: true},
			{Kind: dependency.Secret, Name: ".metadata.annotations['goharbor.io/tls']"},
			{Kind: dependency.Secret, Name: ".spec.template.metadata.annotations.extra"},
		},
		Reload: Reload{By: ByAnnotation},
	}
}

func mustNew(t testing.TB, d Descriptor) *Kind {
	t.Helper()
	k, errs := New(d, nil)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return k
}

func TestDecode(t *testing.T) {
	for name, tt := range map[string]struct {
		object string
		want   []string
	}{
		"nothing": {`{}`, nil},
		"a field": {`{"spec":{"db":{"secretRef":"db","other":{"secretRef":"no"}}}}`, []string{"Secret/db Object .spec.db.secretRef password"}},
		"a key of its own, of the same element": {
			`{"spec":{"users":[{"secret":{"name":"a","key":"k"}},{"secret":{"key":"lost"}},{"secret":{"name":"b"}}]}}`,
			[]string{"Secret/a Object .spec.users[*].secret.name k", "Secret/b Object .spec.users[*].secret.name value"},
		},
		"of a map": {
			`{"spec":{"users":{"z":{"secret":{"name":"a","key":"k"}},"y":{"secret":{"name":"b"}}}}}`,
			[]string{"Secret/a Object .spec.users[*].secret.name k", "Secret/b Object .spec.users[*].secret.name value"},
		},
		"its namespace, and another": {
			`{"spec":{"users":[{"secret":{"name":"a","namespace":"shop"}},{"secret":{"name":"b","namespace":"other"}},{"secret":{"name":"c","namespace":""}}]}}`,
			[]string{"Secret/a Object .spec.users[*].secret.name value", "Secret/c Object .spec.users[*].secret.name value"},
		},
		"all in one text": {
			`{"spec":{"bundles":["shop/a/x","other/b/y","shop/c/y","shop/c/z"],"users":[{"secret":{"name":"shop/d/of-the-text","namespace":"other","key":"k"}},{"secret":{"name":"other/e/k","namespace":"shop"}}],"db":{"secretRef":"shop/f/k"}}}`,
			[]string{"ConfigMap/a Object .spec.bundles[*] x", "ConfigMap/c Object .spec.bundles[*] y", "ConfigMap/c Object .spec.bundles[*] z",
				"Secret/d Object .spec.users[*].secret.name of-the-text", "Secret/f Object .spec.db.secretRef k"},
		},
		"names that no object can have": {
			`{"spec":{"bundles":["A","a b","a_b","a/b","shop/a","10.0.0.0/8","shop//x","shop/a/","/a/x","shop/a/x/y","shop/a/x y","shop/A/x","${NAME}","{{name}}","-","` + strings.Repeat("x", 254) + `",
				"` + strings.Repeat("x", 253) + `"],"db":{"secretRef":"My Secret"}},"metadata":{"annotations":{"goharbor.io/tls":""}}}`,
			[]string{"ConfigMap/" + strings.Repeat("x", 253) + " Object .spec.bundles[*] *"},
		},
		"a list of names":              {`{"spec":{"bundles":["b","a",7,null,["c"],{"d":"e"},"a"]}}`, []string{"ConfigMap/a Object .spec.bundles[*] *", "ConfigMap/b Object .spec.bundles[*] *"}},
		"an annotation":                {`{"metadata":{"annotations":{"goharbor.io/tls":"cert"}}}`, []string{"Secret/cert Object .metadata.annotations['goharbor.io/tls'] *"}},
		"white space, escapes, text":   {" {\n\t\"spec\" : { \"d\\u0062\" : { \"secretRef\" : \"d\\u0062\" , \"x\" : \"}\\\\\\\"{\" } } } ", []string{"Secret/db Object .spec.db.secretRef password"}},
		"numbers and literals":         {`{"a":-1.5e+7,"b":[true,false,null,[[]],{}],"spec":{"n":12,"db":{"secretRef":"db"}}}`, []string{"Secret/db Object .spec.db.secretRef password"}},
		"a text instead of an object":  {`{"spec":"x"}`, nil},
		"a list instead of an object":  {`{"spec":[{"db":{"secretRef":"db"}}]}`, nil},
		"an object instead of a text":  {`{"spec":{"db":{"secretRef":{"name":"db"}}}}`, nil},
		"a text instead of a list":     {`{"spec":{"users":"x","bundles":"y","jobs":"z"}}`, nil},
		"null":                         {`{"spec":null}`, nil},
		"a long name":                  {`{"spec":{"db":{"secretRef":"` + strings.Repeat("x", 5000) + `"}}}`, nil},
		"a template that is a text":    {`{"spec":{"template":"x","db":{"secretRef":"db"}}}`, []string{"Secret/db Object .spec.db.secretRef password"}},
		"a template that is malformed": {`{"spec":{"template":{"spec":{"containers":"x"}},"db":{"secretRef":"db"}}}`, []string{"Secret/db Object .spec.db.secretRef password"}},
		"a template, and a name in it": {
			`{"spec":{"template":{"metadata":{"annotations":{"extra":"more"}},"spec":{"containers":[{"name":"app","envFrom":[{"secretRef":{"name":"a"}}]}]}}}}`,
			[]string{"Secret/a EnvFrom app *", "Secret/more Object .spec.template.metadata.annotations.extra *"},
		},
		"templates in a list": {
			`{"spec":{"jobs":[{"template":{"spec":{"containers":[{"name":"one","envFrom":[{"secretRef":{"name":"a"}}]}]}}},{"template":null},{"template":{"spec":{"containers":[{"name":"two","envFrom":[{"secretRef":{"name":"a"}}]}]}}}]}}`,
			[]string{"Secret/a EnvFrom one *", "Secret/a EnvFrom two *"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := mustNew(t, harbor())
			raw := []byte(tt.object)
			var whole map[string]any
			if err := json.Unmarshal(raw, &whole); err != nil {
				t.Fatal(err)
			}
			merge(whole, map[string]any{"metadata": map[string]any{"namespace": "shop", "name": "web"}})
			o, _ := decode(t, k, raw)
			o.SetNamespace("shop")
			read, err := k.Read(o)
			if err != nil {
				t.Fatal(err)
			}
			w := dependency.NewWorkload(read, dependency.Annotations{})
			if diff := cmp.Diff(tt.want, usesOf(w)); diff != "" || w.Truncated {
				t.Errorf("truncated: %v (-want +got):\n%s", w.Truncated, diff)
			}
			for i := range raw { // the buffer is used again
				raw[i] = 'x'
			}
			again, err := k.Read(o)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, usesOf(dependency.NewWorkload(again, dependency.Annotations{}))); diff != "" {
				t.Errorf("after the buffer has changed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecode_Metadata(t *testing.T) {
	k := mustNew(t, harbor())
	o, read := decode(t, k, []byte(`{"apiVersion":"goharbor.io/v1beta1","kind":"HarborCluster","status":{},"metadata":{"name":"web","namespace":"shop","uid":"u",
		"resourceVersion":"7","generation":3,"labels":{"app":"web"},"annotations":{"a":"b","kubectl.kubernetes.io/last-applied-configuration":"{}"},
		"managedFields":[{"manager":"m","operation":"Update","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:jobs":{}}}}]}}`))
	c := o.(*custom)
	if got := c.GetObjectKind().GroupVersionKind(); got != k.GroupVersionKind() {
		t.Error(got)
	}
	want := metav1.ObjectMeta{
		Name: "web", Namespace: "shop", UID: "u", ResourceVersion: "7", Generation: 3, Labels: map[string]string{"app": "web"},
		Annotations: map[string]string{"a": "b"}, ManagedFields: c.ManagedFields,
	}
	if diff := cmp.Diff(want, c.ObjectMeta); diff != "" || len(c.ManagedFields) != 1 {
		t.Error(diff)
	}
	w := dependency.NewWorkload(read, dependency.Annotations{})
	if len(w.TemplateBy) != 1 || w.TemplateWritten.IsZero() || read.Template == nil {
		t.Errorf("the template was written by %d managers at %v", len(w.TemplateBy), w.TemplateWritten)
	}
	other := o.DeepCopyObject().(*custom)
	other.Labels["app"] = "other"
	if c.Labels["app"] != "web" || other.layout != c.layout {
		t.Error("a copy shares the metadata, or is not of the kind")
	}
	// As a client decodes it.
	into := k.New()
	if err := json.Unmarshal([]byte(`{"metadata":{"name":"x"},"spec":{"db":{"secretRef":"db"}}}`), into); err != nil || into.GetName() != "x" {
		t.Errorf("%v, name %q", err, into.GetName())
	}
}

// A workload without pod templates has its own names, and nothing else.
// The marks of restarts are read of the pod template that they are written to, wherever its path is among the others. An object
// without that template gets none: it is only reported that its content has changed.
func TestRead_TemplateThatIsRestarted(t *testing.T) {
	d := harbor()
	d.PodTemplates = []TemplatePath{{".spec.jobs[*].template"}, {".spec.a.template"}, {".spec.b.template"}}
	d.Reload = Reload{By: ByTemplateAnnotation, Path: ".spec.b.template"}
	one := func(name string) string { return `{"template":{"metadata":{"name":"` + name + `"}}}` }
	for name, tt := range map[string]struct {
		spec         string
		template     string
		others       []string
		onlyReported bool
	}{
		"all":              {`"jobs":[` + one("x") + `,` + one("y") + `],"a":` + one("a") + `,"b":` + one("b"), "b", []string{"x", "y", "a"}, false},
		"it alone":         {`"b":` + one("b"), "b", nil, false},
		"the others":       {`"jobs":[` + one("x") + `],"a":` + one("a"), "", []string{"x", "a"}, true},
		"something else":   {`"b":{"template":"odd"}`, "", nil, true},
		"null":             {`"b":{"template":null}`, "", nil, true},
		"none":             {``, "", nil, true},
		"an empty one":     {`"b":{"template":{}}`, "", nil, false},
		"none, but it has": {`"db":{"secretRef":"db"}`, "", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			k := mustNew(t, d)
			o, err := k.Decode([]byte(`{"metadata":{"name":"web","namespace":"shop"},"spec":{` + tt.spec + `}}`))
			if err != nil {
				t.Fatal(err)
			}
			read, err := k.Read(o)
			if err != nil {
				t.Fatal(err)
			}
			var others []string
			for _, other := range read.Others {
				others = append(others, other.Name)
			}
			if diff := cmp.Diff(tt.others, others); diff != "" || read.Template.Name != tt.template {
				t.Errorf("template = %q, others (-want +got):\n%s", read.Template.Name, diff)
			}
			if !read.Traits.Rollable || read.Traits.OnlyReported() != tt.onlyReported {
				t.Errorf("traits = %+v", read.Traits)
			}
		})
	}
}

func TestDecode_WithoutTemplates(t *testing.T) {
	d := harbor()
	d.PodTemplates = nil
	k := mustNew(t, d)
	_, read := decode(t, k, []byte(`{"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z","managedFields":[{"manager":"m","time":"2026-02-01T00:00:00Z","fieldsV1":{"f:spec":{"f:template":{}}}}]},
		"spec":{"template":{"spec":{"containers":[{"name":"app"}]}},"db":{"secretRef":"db"}}}`))
	w := dependency.NewWorkload(read, dependency.Annotations{})
	if len(w.References) != 1 || w.Containers != nil || w.TemplateWritten.Month() != 1 || w.Rollout != complete {
		t.Errorf("%+v", w)
	}
}

// Only what the descriptor names is kept.
func TestDecode_Prunes(t *testing.T) {
	o, _ := decode(t, mustNew(t, harbor()), []byte(`{"apiVersion": "v1","spec": {"db":{"secretRef":"db","more":{"secretRef":"x"}},"other":{"secretRef":"y","db":{}},
		"users":[{"secret":{"name":"a","x":1},"name":"z"},{"name":"z"},[],7],"bundles":["b",{"c":"d"}],"empty":{}},"metadata":{"annotations":{"x":"y"}},"db":{"secretRef":"z"}}`))
	want := map[string]any{"spec": map[string]any{
		"db": map[string]any{"secretRef": "db"}, "users": []any{map[string]any{"secret": map[string]any{"name": "a"}}}, "bundles": []any{"b"},
	}}
	if diff := cmp.Diff(want, o.(*custom).values); diff != "" || o.(*custom).APIVersion != "v1" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
}

// A descriptor may name nothing but the kind.
func TestDecode_NothingNamed(t *testing.T) {
	k := mustNew(t, Descriptor{Group: "example.com", Kind: "Thing", Resource: "things", Versions: []string{"v1"}, Reload: Reload{By: ByEvent}})
	o, read := decode(t, k, []byte(` {"spec":{"a":[1]}, "metadata" : {"name":"web"} , "kind" : "Thing"}`))
	if o.GetName() != "web" || o.GetObjectKind().GroupVersionKind().Kind != "Thing" || o.(*custom).values != nil || read.Template == nil {
		t.Errorf("%+v", o)
	}
}

func TestDecode_Errors(t *testing.T) {
	k := mustNew(t, harbor())
	for raw, want := range map[string]string{
		``:                              "reading a HarborCluster: invalid JSON",
		`{"a":`:                         "reading a HarborCluster: invalid JSON",
		`{} {}`:                         "reading a HarborCluster: invalid JSON",
		`[]`:                            "reading a HarborCluster: not a JSON object",
		`"x"`:                           "reading a HarborCluster: not a JSON object",
		`{"metadata":{"labels":"x"}}`:   "reading a HarborCluster: decoding metadata: json: cannot unmarshal string into Go struct field ObjectMeta.labels of type map[string]string",
		strings.Repeat(`{"a":`, 20_000): "reading a HarborCluster: invalid JSON",
		strings.Repeat(`[`, 20_000) + strings.Repeat(`]`, 20_000): "reading a HarborCluster: invalid JSON",
	} {
		if _, err := k.Decode([]byte(raw)); err == nil || err.Error() != want {
			t.Errorf("%.40s: %v, want %s", raw, err, want)
		}
	}
	deep := `{"spec":{"x":` + strings.Repeat(`[`, 9000) + strings.Repeat(`]`, 9000) + `,"db":{"secretRef":"db"}}}`
	if _, read := decode(t, k, []byte(deep)); len(read.Named) != 1 {
		t.Errorf("named: %v", read.Named)
	}
}

// What an object may cost is bounded, and what is left out is told.
func TestDecode_Bounds(t *testing.T) {
	list := func(n int, element string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + "]"
	}
	for name, tt := range map[string]struct {
		spec      string
		truncated bool
		named     int
		templates int
	}{
		"names":               {`"bundles":` + list(dependency.MaxUses, `"a"`), false, dependency.MaxUses, 0},
		"one name too many":   {`"bundles":` + list(dependency.MaxUses+1, `"a"`), true, dependency.MaxUses, 0},
		"values":              {`"bundles":` + list(maxValues, `7`), false, 0, 0},
		"one value too many":  {`"bundles":` + list(maxValues+1, `7`), true, 0, 0},
		"values and a name":   {`"bundles":` + list(maxValues, `7`) + `,"db":{"secretRef":"db"}`, true, 0, 0},
		"a name and values":   {`"db":{"secretRef":"db"},"bundles":` + list(maxValues, `7`), true, 1, 0},
		"nothing to keep":     {`"users":` + list(100_000, `{}`), false, 0, 0},
		"templates":           {`"jobs":` + list(maxTemplates, `{"template":{}}`), false, 0, maxTemplates},
		"a template too many": {`"jobs":` + list(maxTemplates+1, `{"template":{}}`), true, 0, maxTemplates},
	} {
		_, read := decode(t, mustNew(t, harbor()), []byte(`{"spec":{`+tt.spec+`}}`))
		templates := 0
		if tt.templates > 0 {
			templates = 1 + len(read.Others)
		}
		if read.Truncated != tt.truncated || len(read.Named) != tt.named || templates != tt.templates {
			t.Errorf("%s: truncated: %v, %d names, %d templates", name, read.Truncated, len(read.Named), templates)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, tt := range presetObjects {
		f.Add(objectOf(new(testing.T), ofPreset(f, "argo-rollout"), tt.object))
	}
	f.Add([]byte(`{"spec":{"users":[{"secret":{"name":"a"}}],"db":{"secretRef":"\ud800"}},"metadata":{"name":"x"}}`))
	k := mustNew(f, harbor())
	f.Fuzz(func(t *testing.T, raw []byte) {
		o, err := k.Decode(bytes.Clone(raw))
		if err != nil {
			return
		}
		read, err := k.Read(o)
		if err != nil {
			t.Fatal(err)
		}
		dependency.NewWorkload(read, dependency.Annotations{})
		k.Progress(o)
		// The same as without pruning. Of members with one name, that counts only the last.
		var whole any
		if utiljson.Unmarshal(raw, &whole) != nil || read.Truncated || hasDuplicates(raw) {
			return
		}
		var names []string
		mustPath(t, ".spec.users[*].secret.name").Each(whole, func(v any) bool {
			if s, ok := v.(string); ok && s != "" && len(s) < 1000 {
				names = append(names, s)
			}
			return true
		})
		var got []string
		mustPath(t, ".spec.users[*].secret.name").Each(o.(*custom).values, func(v any) bool {
			if s, ok := v.(string); ok && s != "" && len(s) < 1000 {
				got = append(got, s)
			}
			return true
		})
		if diff := cmp.Diff(names, got); diff != "" {
			t.Fatalf("(-whole +pruned):\n%s", diff)
		}
	})
}

// hasDuplicates reports whether an object in valid JSON may have two members of one name.
func hasDuplicates(raw []byte) bool {
	var whole any
	if json.Unmarshal(raw, &whole) != nil {
		return true
	}
	count := 0
	var visit func(any)
	visit = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, inner := range v {
				count++
				visit(inner)
			}
		case []any:
			for _, inner := range v {
				visit(inner)
			}
		}
	}
	visit(whole)
	return bytes.Count(raw, []byte(":")) != count
}

// large returns an object of about 50 KB, of which a descriptor names a little.
func large() []byte {
	var b strings.Builder
	b.WriteString(`{"apiVersion":"goharbor.io/v1beta1","kind":"HarborCluster","metadata":{"name":"web","namespace":"shop"},"spec":{"db":{"secretRef":"db"},"users":[{"secret":{"name":"a"}}],"settings":[`)
	for i := range 400 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"name":"setting-%d","enabled":true,"weight":%d,"description":"what this setting is for, in words","limits":{"cpu":"1"}}`, i, i)
	}
	b.WriteString(`],"template":{"spec":{"containers":[{"name":"app","image":"app:1","envFrom":[{"secretRef":{"name":"a"}}]}]}}},"status":{"conditions":[]}}`)
	return []byte(b.String())
}

// FuzzParseFile: any file is refused, or describes kinds of which any object can be read.
func FuzzParseFile(f *testing.F) {
	const head = "apiVersion: config.configdep.io/v1alpha1\nkind: WorkloadKinds\nkinds:\n"
	object := string(large())
	for _, seed := range []string{
		"- {group: a.io, kind: A, resource: as, versions: [v1], reload: {by: Event}, sources: [{kind: Secret, name: '.spec.db.secretRef', keyName: x}], fields: true}\n",
		"- {group: a.io, kind: A, resource: as, versions: [v1], podTemplates: [{path: '.spec.t[*].x'}], pods: {}, reload: {by: TemplateAnnotation, path: '.spec.t[*].x'}}\n",
		"- {group: a.io, kind: A, resource: as, versions: [v1], reload: {by: Field, path: .spec.x}, status: {complete: [{condition: Ready}], failed: [{path: .status.p, value: x}], replicas: .spec.r}}\n",
	} {
		f.Add([]byte(head+seed), []byte(object))
	}
	for _, p := range presets {
		file, err := json.Marshal(map[string]any{"apiVersion": "config.configdep.io/v1alpha1", "kind": "WorkloadKinds", "kinds": []any{p.Descriptor}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(file, []byte(`{"metadata":{"name":"x"},"spec":{"template":{"spec":{}}},"status":{}}`))
	}
	f.Fuzz(func(t *testing.T, file, raw []byte) {
		kinds, errs := ParseFile(file)
		if (len(errs) == 0) != (len(kinds) > 0) {
			t.Fatalf("%d kinds, errors = %v", len(kinds), errs)
		}
		for _, k := range kinds {
			o, err := k.Decode(bytes.Clone(raw))
			if err != nil {
				continue
			}
			read, err := k.Read(o)
			if err != nil {
				t.Fatal(err)
			}
			dependency.NewWorkload(read, dependency.Annotations{})
			k.Progress(o)
		}
	})
}
