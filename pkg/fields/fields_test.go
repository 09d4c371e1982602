// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package fields

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const secret = "s3cr3t-marker"

func TestParse(t *testing.T) {
	const lines = `
# the bucket
spec.storage.s3.accessKey = secret/bucket#accessKey
  spec.env[name=KEY].value=configmap/settings#a.b-c_d
spec.ports[protocol=TCP,containerPort=80].name = secret/b#k | base64 | json .a['b.c/d'].e
spec['a.b/c'].d = secret/b#k | yaml .x
`
	all, err := Parse(lines)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"spec.storage.s3.accessKey = secret/bucket#accessKey",
		"spec.env[name=KEY].value = configmap/settings#a.b-c_d",
		"spec.ports[containerPort=80,protocol=TCP].name = secret/b#k | base64 | json .a['b.c/d'].e",
		"spec['a.b/c'].d = secret/b#k | yaml .x",
	}
	var got []string
	for i := range all {
		got = append(got, all[i].String())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("assignments (-want +got):\n%s", diff)
	}
	if all[1].Kind != ConfigMap || all[0].Kind != Secret || all[0].Name != "bucket" || all[0].Key != "accessKey" {
		t.Errorf("assignments = %+v", all)
	}
}

func TestParse_Errors(t *testing.T) {
	long := strings.Repeat("x", 1100)
	many := strings.Repeat("spec.f%d = secret/b#k\n", MaxAssignments+1)
	for i := range MaxAssignments + 1 {
		many = strings.Replace(many, "%d", string(rune('A'+i%26))+strings.Repeat("x", i/26), 1)
	}
	for line, want := range map[string]string{
		"":                                                     "no field is named",
		"# nothing":                                            "no field is named",
		"spec.a":                                               "must be FIELD = SOURCE",
		"spec.a = ":                                            "a source must be secret/NAME#KEY or configmap/NAME#KEY",
		"spec.a = pod/x#y":                                     "a source must be secret/NAME#KEY or configmap/NAME#KEY",
		"spec.a = secret/x":                                    `"" is not a key of a Secret: a source must be secret/NAME#KEY`,
		"spec.a = secret/X#y":                                  `"X" is not the name of a Secret`,
		"spec.a = secret/../x#y":                               "is not the name of a Secret",
		"spec.a = configmap/x#y z":                             `"y z" is not a key of a ConfigMap`,
		"spec = secret/x#y":                                    "a field must be a single value below spec",
		"metadata.labels.x = secret/x#y":                       "a field must be below spec",
		"status.x = secret/x#y":                                "a field must be below spec",
		"spec.a[name=x] = secret/x#y":                          "a field must be a single value below spec",
		"spec.a[0].b = secret/x#y":                             `an entry of a list must be named by its keys, as in [name=KEY], not by "[0]"`,
		"spec.a[*].b = secret/x#y":                             "an entry of a list must be named by its keys",
		"spec.a[n=x][m=y].b = secret/x#y":                      "an entry of a list cannot be a list",
		"spec.a[n=x,n=y].b = secret/x#y":                       "is named twice",
		"spec.a[a=1,b=1,c=1,d=1,e=1].b = secret/x#y":           "must not be named by more than 4 keys",
		"spec.a[name=x].name = secret/x#y":                     "names the entry of the list, and cannot be set",
		"spec..a = secret/x#y":                                 "a field must be like spec.storage.s3.accessKey",
		"spec.a[ = secret/x#y":                                 "a field must be like",
		"spec.a = secret/x#y | gunzip":                         `a decoding step must be json PATH, yaml PATH or base64, got "gunzip"`,
		"spec.a = secret/x#y | base64 -d":                      "the step base64 takes no argument",
		"spec.a = secret/x#y | json":                           "the step json takes a path of 1 to 16 names",
		"spec.a = secret/x#y | json a":                         "the step json takes a path such as .spec.accessKey",
		"spec.a = secret/x#y | json .a[0]":                     "the step json takes a path such as",
		"spec.a = secret/x#y" + strings.Repeat(" | base64", 5): "more than 4 decoding steps",
		"spec.a = secret/x#y\nspec.b = secret/x#y\nspec.a = secret/z#y": "line 3: spec.a is set twice: by spec.a as well",
		"spec.a.b = secret/x#y\nspec.a = secret/z#y":                    "line 2: spec.a is set twice: by spec.a.b as well",
		"spec.a = secret/x#" + long:                                     "must not have more than 1024 bytes",
		"spec" + strings.Repeat(".a", 16) + " = secret/x#y":             "must not be more than 16 levels deep",
		many: "more than 32 fields are named",
	} {
		if _, err := Parse(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: error = %v, want %q", line, err, want)
		} else if len(err.Error()) > 400 {
			t.Errorf("%.80q: the error has %d bytes", line, len(err.Error()))
		}
	}
}

func TestDecode(t *testing.T) {
	for _, tt := range []struct {
		steps, raw string
		want       any
		problem    string
	}{
		{"", secret, secret, ""},
		{"| base64", "czNjcjN0LW1hcmtlcg==\n", secret, ""},
		{"| base64", secret, nil, "step 1 (base64): the value is not base64"},
		{"| json .a.b", `{"a":{"b":"` + secret + `"}}`, secret, ""},
		{"| json .a['b/c']", `{"a":{"b/c":true}}`, true, ""},
		{"| json .a", `{"a":12345678901234567890}`, json.Number("12345678901234567890"), ""},
		{"| yaml .a.b", "a:\n  b: " + secret, secret, ""},
		{"| yaml .a", "x: &x " + secret + "\na: *x", nil, "the member is an alias, which is not followed"},
		{"| yaml .a", "a: &x " + secret, secret, ""},
		{"| yaml .v", "a: &a \"" + strings.Repeat("x", 1000) + "\"\nv: 1\nb: [" + strings.Repeat("*a,", 50_000) + "]", json.Number("1"), ""}, // expanded, 50 MB
		{"| yaml .a", "a: " + strings.Repeat("x", maxDocument), nil, "more than 262144 bytes"},
		{"| json .a", `{"a":"` + strings.Repeat("x", maxDocument) + `"}`, nil, "more than 262144 bytes"},
		{"| yaml .a.b", "a: [b]", nil, "the value has no member b"},
		{"| yaml .a", "a: {b: c}", nil, "the member is no single value"},
		{"| yaml .a", "a: ~", nil, "the member is null"},
		{"| yaml .a", "a: yes", "yes", ""},
		{"| yaml .a", "a: True", true, ""},
		{"| yaml .a", "a: 0x10", "0x10", ""},
		{"| yaml .a", "a: '5'", "5", ""},
		{"| yaml .a", "a: !!bool " + secret, secret, ""}, // a tag may say anything
		{"| yaml .a", "a: !!int " + secret, secret, ""},
		{"| yaml .a", "a: !!int '{\"b\":1}'", `{"b":1}`, ""},
		{"| yaml .a", "a: !!float 'true'", "true", ""},
		{"| yaml .a", "a: -0.5e3", json.Number("-0.5e3"), ""},
		{"", "a\xffb", nil, "the value is not UTF-8 text"},
		{"| base64", "Yf8=", nil, "the value is not UTF-8 text"},
		{"| yaml .count", "count: 5", json.Number("5"), ""},
		{"| base64 | json .a", "eyJhIjoiczNjcjN0LW1hcmtlciJ9", secret, ""},
		{"| json .a", `{"a":{"b":"` + secret + `"}}`, nil, "the member is no single value"},
		{"| json .a", `{"a":null}`, nil, "the member is null"},
		{"| json .b", `{"a":"` + secret + `"}`, nil, "the value has no member b"},
		{"| json .a.b", `{"a":"` + secret + `"}`, nil, "the value has no member b"},
		{"| json .a", secret, nil, "step 1 (json): the value is not JSON"},
		{"| yaml .a", "\t" + secret, nil, "step 1 (yaml): the value is not YAML"},
		{"| json .a | base64", `{"a":1}`, nil, "step 2: the value before it is no text"},
		{"| base64", strings.Repeat("x", maxValue+1), nil, "more than 1048576 bytes"},
	} {
		all, err := Parse("spec.a = secret/x#y " + tt.steps)
		if err != nil {
			t.Fatal(err)
		}
		got, err := all[0].Decode([]byte(tt.raw))
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s of %.40q (-want +got):\n%s", tt.steps, tt.raw, diff)
		}
		if tt.problem == "" && err != nil || tt.problem != "" && (err == nil || !strings.Contains(err.Error(), tt.problem)) {
			t.Errorf("%s of %.40q: error = %v, want %q", tt.steps, tt.raw, err, tt.problem)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error contains the value: %v", tt.steps, err)
		}
	}
}

func TestPath_Find(t *testing.T) {
	var object any
	if err := json.Unmarshal([]byte(`{"spec":{"a":{"b":1},"env":[{"name":"X","value":"x"},{"name":"KEY","value":"y"},"odd"],"ports":[{"p":80,"q":"TCP","n":"web"}]}}`), &object); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]any{
		"spec.a.b": 1.0, "spec.a": map[string]any{"b": 1.0}, "spec.env[name=KEY].value": "y", "spec.ports[p=80,q=TCP].n": "web",
		"spec.x": nil, "spec.a.b.c": nil, "spec.env[name=Z].value": nil, "spec.env.value": nil, "spec.a[name=KEY].value": nil, "spec.ports[p=81,q=TCP].n": nil,
	} {
		p, _, err := parsePath(path)
		if err != nil {
			t.Fatal(err)
		}
		got, found := p.Find(object)
		if diff := cmp.Diff(want, got); diff != "" || found != (want != nil) {
			t.Errorf("%s: found: %v (-want +got):\n%s", path, found, diff)
		}
	}
}

const document = `{"components":{"schemas":{
 "other":{"type":"object","x-kubernetes-group-version-kind":[{"group":"x.io","version":"v1","kind":"Other"}]},
 "harbor":{"type":"object","x-kubernetes-group-version-kind":[{"group":"x.io","version":"v1","kind":"Harbor"}],"properties":{
  "metadata":{"$ref":"#/components/schemas/meta"},
  "spec":{"type":"object","properties":{
   "key":{"type":"string"},"port":{"type":"integer"},"ratio":{"type":"number"},"on":{"type":"boolean"},"either":{"x-kubernetes-int-or-string":true},
   "s3":{"type":"object","properties":{"accessKey":{"type":"string"}}},
   "labels":{"type":"object","additionalProperties":{"type":"string"}},
   "whole":{"type":"object","x-kubernetes-map-type":"atomic","properties":{"a":{"type":"string"}}},
   "free":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
   "list":{"type":"array","items":{"type":"object","properties":{"name":{"type":"string"},"value":{"type":"string"}}}},
   "ports":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["protocol","port"],
     "items":{"type":"object","properties":{"port":{"type":"integer"},"protocol":{"type":"string"},"name":{"type":"string"},"weight":{"type":"integer"}}}}
  }}}}}}}`

func configured(t *testing.T, values map[string]any, order ...string) (map[string]any, error) {
	t.Helper()
	s, err := ParseSchema([]byte(document), schema.GroupVersionKind{Group: "x.io", Version: "v1", Kind: "Harbor"})
	if err != nil {
		t.Fatal(err)
	}
	var all []Value
	for _, path := range order {
		a, err := Parse(path + " = secret/x#y")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, Value{&a[0], values[path]})
	}
	return Configuration(s, all)
}

func TestConfiguration(t *testing.T) {
	values := map[string]any{
		"spec.key": json.Number("7"), "spec.port": "80\n", "spec.ratio": "0.5", "spec.on": "true", "spec.either": "50%", "spec.s3.accessKey": secret,
		"spec.labels['a/b']": "x", "spec.free.a.b": true, "spec.ports[port=80,protocol=TCP].name": "web", "spec.ports[port=80,protocol=TCP].weight": "3",
		"spec.ports[port=81,protocol=TCP].name": "admin",
	}
	got, err := configured(t, values, "spec.key", "spec.port", "spec.ratio", "spec.on", "spec.either", "spec.s3.accessKey", "spec.labels['a/b']", "spec.free.a.b",
		"spec.ports[port=80,protocol=TCP].name", "spec.ports[port=80,protocol=TCP].weight", "spec.ports[port=81,protocol=TCP].name")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"spec": map[string]any{
		"key": "7", "port": int64(80), "ratio": 0.5, "on": true, "either": "50%", "s3": map[string]any{"accessKey": secret},
		"labels": map[string]any{"a/b": "x"}, "free": map[string]any{"a": map[string]any{"b": true}},
		"ports": []any{
			map[string]any{"port": int64(80), "protocol": "TCP", "name": "web", "weight": int64(3)},
			map[string]any{"port": int64(81), "protocol": "TCP", "name": "admin"},
		},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	a, err := Parse("spec.port = secret/x#y")
	if err != nil {
		t.Fatal(err)
	}
	s, err := ParseSchema([]byte(document), schema.GroupVersionKind{Group: "x.io", Version: "v1", Kind: "Harbor"})
	if err != nil {
		t.Fatal(err)
	}
	typed := []Value{{&a[0], "80\n"}}
	if _, err := Configuration(s, typed); err != nil || typed[0].Value != int64(80) { // a digest is of what is applied
		t.Errorf("value = %v, error = %v", typed[0].Value, err)
	}
}

func TestConfiguration_Errors(t *testing.T) {
	for path, want := range map[string]string{
		"spec.port":                              "spec.port must be an integer, and the value is none",
		"spec.ratio":                             "spec.ratio must be a number, and the value is none",
		"spec.on":                                "spec.on must be true or false, and the value is neither",
		"spec.none":                              "spec.none: there is no such field",
		"spec.key.deeper":                        "spec.key.deeper: there is no such field",
		"spec.s3":                                "spec.s3 is of the type object, and only single values can be set",
		"spec.list":                              "spec.list is of the type array, and only single values can be set",
		"spec.list[name=x].value":                "spec.list[name=x]: the list can only be set as a whole",
		"spec.ports[port=80].name":               "entries of the list are found by the keys port, protocol",
		"spec.ports[port=x,protocol=TCP].name":   "must be an integer, and the value is none",
		"spec.ports[port=080,protocol=TCP].name": "spec.ports[port=080,protocol=TCP]: the key port must be written as 80",
		"spec.ports[port= 80,protocol=TCP].name": "the key port must be written as 80",
		"spec.ports[port=+80,protocol=TCP].name": "the key port must be written as 80",
		"spec.whole.a":                           "spec.whole can only be set as a whole (x-kubernetes-map-type: atomic)",
		"spec.free.a[name=x].b":                  "an entry of a list can only be set if the schema says by which keys entries are found",
	} {
		_, err := configured(t, map[string]any{path: secret}, path)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: error = %v, want %q", path, err, want)
		}
	}
}

// Numbers that JSON does not have are refused like other values that do not fit, and not tried again and again.
func TestConfiguration_Numbers(t *testing.T) {
	for value, want := range map[string]any{"0.5": 0.5, "-1e3": -1000.0, "NaN": nil, "Inf": nil, "-inf": nil, "1e999": nil} {
		got, err := configured(t, map[string]any{"spec.ratio": value}, "spec.ratio")
		if want == nil {
			if err == nil || err.Error() != "spec.ratio must be a number, and the value is none" {
				t.Errorf("%s: %v, error = %v", value, got, err)
			}
			continue
		}
		if diff := cmp.Diff(map[string]any{"spec": map[string]any{"ratio": want}}, got); err != nil || diff != "" {
			t.Errorf("%s: error = %v (-want +got):\n%s", value, err, diff)
		}
	}
}

// Where the schema allows a number or a text, a whole number is one: as a text, it would not be a valid port, for example.
func TestConfiguration_Either(t *testing.T) {
	for value, want := range map[any]any{"80": int64(80), "80\n": int64(80), "50%": "50%", "http": "http", "080": "080", "-1": int64(-1), "1.5": "1.5", json.Number("80"): int64(80)} {
		got, err := configured(t, map[string]any{"spec.either": value}, "spec.either")
		if diff := cmp.Diff(map[string]any{"spec": map[string]any{"either": want}}, got); err != nil || diff != "" {
			t.Errorf("%v: error = %v (-want +got):\n%s", value, err, diff)
		}
	}
}

func TestParseSchema_Errors(t *testing.T) {
	for document, want := range map[string]string{
		"{":  "the OpenAPI document of x.io/v1",
		"{}": "has no schema of a Harbor",
		`{"components":{"schemas":{"a":{"x-kubernetes-group-version-kind":[{"group":"x.io","version":"v2","kind":"Harbor"}]}}}}`: "has no schema of a Harbor",
	} {
		if _, err := ParseSchema([]byte(document), schema.GroupVersionKind{Group: "x.io", Version: "v1", Kind: "Harbor"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error = %v, want %q", document, err, want)
		}
	}
}

func TestCanonical(t *testing.T) {
	for _, equal := range [][]any{{json.Number("5"), 5.0, int64(5)}, {json.Number("0.5"), 0.5}, {"x", "x"}, {true, true}} {
		for _, v := range equal {
			if got, want := string(Canonical(v)), string(Canonical(equal[0])); got != want {
				t.Errorf("Canonical(%v) = %s, want %s", v, got, want)
			}
		}
	}
	if string(Canonical("5")) == string(Canonical(int64(5))) {
		t.Error("a text equals a number")
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"spec.storage.s3.accessKey = secret/bucket#accessKey", "spec.env[name=KEY].value=configmap/a#b", "spec['a.b'].c = secret/b#k | base64 | json .a['b'].c",
		"spec.a[x=1,y=2].b = secret/b#k | yaml .x", "spec.a[", "spec", "= |", "spec.a = secret/b#k |", "spec.a['",
	} {
		f.Add(seed, `{"a":{"b":"c"}}`)
	}
	f.Fuzz(func(t *testing.T, text, raw string) {
		all, err := Parse(text)
		if err != nil {
			return
		}
		var lines []string
		for i := range all {
			_, _ = all[i].Decode([]byte(raw))
			all[i].Path.Find(map[string]any{"spec": map[string]any{}})
			lines = append(lines, all[i].String())
		}
		again, err := Parse(strings.Join(lines, "\n"))
		if err != nil {
			t.Fatalf("%q is read from %q, and then refused: %v", lines, text, err)
		}
		if diff := cmp.Diff(all, again, cmp.AllowUnexported(Step{})); diff != "" {
			t.Errorf("%q is read otherwise the second time:\n%s", text, diff)
		}
	})
}

// FuzzConfiguration: a configuration has each value where its path leads, and can be encoded.
func FuzzConfiguration(f *testing.F) {
	for path, value := range map[string]string{
		"spec.key": "7", "spec.port": "80\n", "spec.ratio": "NaN", "spec.on": "true", "spec.either": "50%", "spec.s3.accessKey": secret, "spec.labels['a/b']": "x",
		"spec.free.a.b": "\xff", "spec.ports[port=80,protocol=TCP].name": "web",
	} {
		f.Add(path+" = secret/x#y", value)
	}
	f.Fuzz(func(t *testing.T, text, raw string) {
		s, err := ParseSchema([]byte(document), schema.GroupVersionKind{Group: "x.io", Version: "v1", Kind: "Harbor"})
		if err != nil {
			t.Fatal(err)
		}
		all, err := Parse(text)
		if err != nil {
			return
		}
		var values []Value
		for i := range all {
			value, err := all[i].Decode([]byte(raw))
			if err != nil {
				return
			}
			values = append(values, Value{&all[i], value})
		}
		configuration, err := Configuration(s, values)
		if err != nil {
			return
		}
		encoded, err := json.Marshal(configuration)
		if err != nil {
			t.Fatalf("%q cannot be encoded: %v", text, err)
		}
		var decoded any
		if err := json.Unmarshal(encoded, &decoded); err != nil {
			t.Fatal(err)
		}
		for _, v := range values {
			if _, found := v.Path.Find(decoded); !found {
				t.Errorf("%s is not in %s", v.Path, encoded)
			}
		}
	})
}
