// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
)

// The table of the chart says the same about each preset as the server, as far as rights and admission policies depend on it.
func TestPresetsOfTheChart(t *testing.T) {
	found := regexp.MustCompile(`(?s)\{\{- define "configdep.presets" -\}\}(.*?)\{\{- end \}\}`).FindSubmatch(read(t, "templates/_helpers.tpl"))
	if found == nil {
		t.Fatal("the chart has no table of presets")
	}
	got, want := map[string]kind.Descriptor{}, map[string]kind.Descriptor{}
	if err := yaml.UnmarshalStrict(found[1], &got); err != nil {
		t.Fatal(err)
	}
	for _, p := range kind.Presets() {
		d := p.Descriptor
		want[p.Name] = kind.Descriptor{
			Group: d.Group, Kind: d.Kind, Alias: d.Alias, Resource: d.Resource, Versions: d.Versions, PodTemplates: d.PodTemplates,
			Reload: kind.Reload{By: d.Reload.By, Path: d.Reload.Path, Annotation: d.Reload.Annotation}, RestartAt: d.RestartAt, Fields: d.Fields,
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-server +chart):\n%s", diff)
	}
	var values struct{ Kinds struct{ Presets []string } }
	if err := yaml.Unmarshal(read(t, "values.yaml"), &values); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(kind.PresetNames(), values.Kinds.Presets); diff != "" {
		t.Errorf("values.yaml (-server +chart):\n%s", diff)
	}
	for _, arg := range arguments(t, rendered(t, "default.yaml")) {
		if strings.HasPrefix(arg, "--kinds") {
			t.Errorf("the default is passed: %s", arg)
		}
	}
}

// property is a part of a JSON schema.
type property struct {
	Const      string
	Enum       []string
	Not        *property
	MaxItems   int
	Items      *property
	Required   []string
	Properties map[string]*property
}

// The schema of the chart has the fields that the server reads, and their limits.
func TestSchemaOfKindsIsTheServers(t *testing.T) {
	var all property
	if err := json.Unmarshal(read(t, "values.schema.json"), &all); err != nil {
		t.Fatal(err)
	}
	kinds := all.Properties["kinds"].Properties
	if diff := cmp.Diff(kind.PresetNames(), kinds["presets"].Items.Enum); diff != "" {
		t.Errorf("presets (-server +schema):\n%s", diff)
	}
	if most := kinds["config"].MaxItems; most != 64 {
		t.Errorf("at most %d kinds, want 64", most)
	}
	sameFields(t, "kinds.config", reflect.TypeFor[kind.Descriptor](), kinds["config"].Items)
	reload := kinds["config"].Items.Properties["reload"].Properties
	by := []string{string(kind.ByTemplateAnnotation), string(kind.ByAnnotation), string(kind.ByField), string(kind.ByEvent), string(kind.ByNone)}
	if diff := cmp.Diff(by, reload["by"].Enum); diff != "" {
		t.Errorf("reload.by (-server +schema):\n%s", diff)
	}
	list := regexp.MustCompile(`(?s)reservedGroups = sets\.New\((.*?)\n\)`).FindSubmatch(read(t, "../../../pkg/kind/compile.go"))
	if list == nil {
		t.Fatal("the server has no list of groups that are refused")
	}
	var groups []string
	for _, group := range regexp.MustCompile(`"([^"]+)"`).FindAllSubmatch(list[1], -1) {
		groups = append(groups, string(group[1]))
	}
	if diff := cmp.Diff(groups, kinds["config"].Items.Properties["group"].Not.Enum); diff != "" {
		t.Errorf("groups that are refused (-server +schema):\n%s", diff)
	}
	controllers := []string{string(kind.ControlledByWorkload), string(kind.ControlledByReplicaSet), string(kind.ControlledByAny)}
	if diff := cmp.Diff(controllers, kinds["config"].Items.Properties["pods"].Properties["controller"].Enum); diff != "" {
		t.Errorf("pods.controller (-server +schema):\n%s", diff)
	}
}

// sameFields compares the fields of a type with the properties of a schema.
func sameFields(t *testing.T, path string, of reflect.Type, schema *property) {
	t.Helper()
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
		if of.Kind() == reflect.Slice {
			schema = schema.Items
		}
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct {
		return
	}
	var fields, known []string
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		fields = append(fields, name)
		if below := schema.Properties[name]; below != nil {
			sameFields(t, path+"."+name, field.Type, below)
		}
	}
	for name := range schema.Properties {
		known = append(known, name)
	}
	if diff := cmp.Diff(fields, known, cmpopts.SortSlices(strings.Compare)); diff != "" {
		t.Errorf("%s (-server +schema):\n%s", path, diff)
	}
}

// chartKinds returns the kinds of a rendered chart with values for them.
func chartKinds(t *testing.T) []*kind.Kind {
	t.Helper()
	configMap := rendered(t, "kinds.yaml")[objectKey{"ConfigMap", namespace, "configdep-kinds"}]
	if configMap == nil {
		t.Fatal("the chart has no ConfigMap with kinds")
	}
	content, _, _ := nestedString(configMap.Object, "data", "config.yaml")
	described, errs := kind.ParseFile([]byte(content))
	if len(errs) > 0 {
		t.Fatalf("%v, of\n%s", errs, content)
	}
	table, err := kind.NewTable([]string{"argo-rollout", "leaderworkerset", "ray-cluster", "strimzi-podset"}, described)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// The server accepts what the chart makes of its values, and reads it from the file that the flag names.
func TestKindsOfTheChartAreValid(t *testing.T) {
	objects := rendered(t, "kinds.yaml")
	custom := slices.DeleteFunc(chartKinds(t), func(k *kind.Kind) bool { return !k.Traits.Custom })
	if len(custom) != 9 {
		t.Errorf("found %d kinds, want 6 and 3 presets", len(custom))
	}
	args := arguments(t, objects)
	for _, want := range []string{"--kinds=argo-rollout,leaderworkerset,ray-cluster,strimzi-podset", "--kinds-config=/etc/configdep/kinds/config.yaml"} {
		if !slices.Contains(args, want) {
			t.Errorf("%s is missing in the arguments %v", want, args)
		}
	}
	deployment := objects[objectKey{"Deployment", namespace, name}].Object
	mounts, _, _ := unstructured.NestedSlice(deployment, "spec", "template", "spec", "containers")
	mounted, _, _ := unstructured.NestedSlice(mounts[0].(map[string]any), "volumeMounts")
	if want := map[string]any{"name": "kinds", "mountPath": "/etc/configdep/kinds", "readOnly": true}; !slices.ContainsFunc(mounted, func(m any) bool { return cmp.Equal(m, any(want)) }) {
		t.Errorf("mounts = %v, want one of the kinds", mounted)
	}
}

// A change of the kinds replaces the pods, because the server reads them at the start.
func TestChangeOfKindsReplacesThePods(t *testing.T) {
	sum := func(more ...string) string {
		t.Helper()
		args := []string{"--values", mustAbs(t, chart+"/ci/kinds.yaml")}
		for _, set := range more {
			args = append(args, "--set", set)
		}
		out, err := template(t, args...)
		if err != nil {
			t.Fatalf("%v:\n%s", err, out)
		}
		return regexp.MustCompile(`checksum/kinds: .*`).FindString(out)
	}
	before := sum()
	if before == "" || sum("replicas=3") != before {
		t.Errorf("the checksum is %q, and another one with another value", before)
	}
	if sum("kinds.config[0].resource=others") == before {
		t.Error("the checksum stays the same")
	}
}

// The server has exactly the rights on each kind that it needs.
func TestRightsOnKinds(t *testing.T) {
	var presets []*kind.Kind
	for _, name := range kind.PresetNames() {
		presets = append(presets, workloadtest.Preset(name))
	}
	for file, kinds := range map[string][]*kind.Kind{"default.yaml": presets, "kinds.yaml": chartKinds(t)} {
		t.Run(file, func(t *testing.T) {
			want, got := map[schema.GroupResource][]string{}, map[schema.GroupResource][]string{}
			for _, k := range kinds {
				switch {
				case !k.Traits.Custom:
				case k.Traits.Rollable || k.Traits.Fields:
					want[k.Resource.GroupResource()] = []string{"get", "list", "watch", "patch"}
				default:
					want[k.Resource.GroupResource()] = []string{"get", "list", "watch"}
				}
			}
			var role rbacv1.ClusterRole
			convert(t, rendered(t, file)[objectKey{"ClusterRole", "", name}], &role)
			for _, rule := range role.Rules {
				for _, group := range rule.APIGroups {
					if !strings.Contains(group, ".") || group == "secrets-store.csi.x-k8s.io" { // what is read of sources, not of workloads
						continue
					}
					for _, resource := range rule.Resources {
						got[schema.GroupResource{Group: group, Resource: resource}] = rule.Verbs
					}
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Kinds that are not described cost neither a right nor a policy.
func TestWithoutKinds(t *testing.T) {
	out, err := template(t, "--set", "kinds.presets=null")
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	if !strings.Contains(out, "- --kinds=\n") {
		t.Error("the server still has presets")
	}
	for _, not := range []string{"argoproj.io", "custom-resources", "--kinds-config", "Custom resources", "checksum/kinds", "configdep-kinds"} {
		if strings.Contains(out, not) {
			t.Errorf("%q is in the rendered chart", not)
		}
	}
}

// What the server would refuse is an error of the chart, as far as its schema can say so.
func TestInvalidKindsOfTheChart(t *testing.T) {
	const valid = "kinds.config[0].group=example.com,kinds.config[0].kind=Farm,kinds.config[0].resource=farms,kinds.config[0].versions[0]=v1,kinds.config[0].reload.by=Event"
	if out, err := template(t, "--set", valid); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	second := func(fields string) string {
		return ",kinds.config[1]." + strings.ReplaceAll(fields, ",", ",kinds.config[1].") + ",kinds.config[1].versions[0]=v1,kinds.config[1].reload.by=Event"
	}
	for set, want := range map[string]string{
		"kinds.presets={rollouts}":                              "at '/kinds/presets/0': value must be one of",
		"kinds.config[0].kind=Farm":                             "at '/kinds/config/0': missing properties",
		valid + ",kinds.config[0].Kind=x":                       "additional properties 'Kind' not allowed",
		valid + ",kinds.config[0].group=configdep.io":           "at '/kinds/config/0/group'",
		valid + ",kinds.config[0].resource=Farms":               "at '/kinds/config/0/resource'",
		valid + ",kinds.config[0].reload.unless=spec.x":         "at '/kinds/config/0/reload/unless'",
		valid + ",kinds.config[0].reload.by=TemplateAnnotation": "kinds.config: farms.example.com needs reload.path",
		valid + ",kinds.config[0].reload.by=Annotation,kinds.config[0].reload.annotation=configdep.io/x":                                "at '/kinds/config/0/reload/annotation'",
		valid + second("group=example.com,kind=Barn,resource=farms"):                                                                    "kinds.config: farms.example.com is described twice",
		valid + second("group=example.com,kind=Farm,alias=Barn,resource=barns"):                                                         "kinds.config: barns.example.com has the same kind and group as farms.example.com",
		valid + second("group=example.org,kind=FARM,resource=farms"):                                                                    "kinds.config: farms.example.org has the name FARM, as has farms.example.com",
		valid + second("group=example.org,kind=rollout,resource=rollouts"):                                                              "kinds.config: rollouts.example.org has the name rollout, as has rollouts.argoproj.io",
		valid + second("group=example.org,kind=Job,resource=jobs"):                                                                      "has the name Job, as has a kind of Kubernetes itself",
		valid + ",kinds.config[0].reload.by=Field":                                                                                      "farms.example.com needs reload.path, the field that is set",
		valid + ",kinds.config[0].reload.by=Field,kinds.config[0].reload.path=.spec":                                                    "reload.path must not be all of spec",
		valid + ",kinds.config[0].reload.by=Field,kinds.config[0].reload.path=.a,kinds.config[0].podTemplates[0].path=.a.b":             "reload.path must not be part of a pod template, nor contain one",
		valid + ",kinds.config[0].reload.path=.spec.x":                                                                                  "reload.path has no meaning if by is Event",
		valid + ",kinds.config[0].reload.annotation=example.com/x":                                                                      "reload.annotation has no meaning if by is Event",
		valid + ",kinds.config[0].reload.by=Annotation,kinds.config[0].reload.value=x":                                                  "reload.value has no meaning without reload.annotation",
		valid + ",kinds.config[0].reload.by=None,kinds.config[0].reload.unless=.spec.x":                                                 "reload.unless has no meaning if by is None",
		valid + ",kinds.config[0].reload.by=None,kinds.config[0].fields=true":                                                           "fields cannot be true if reload.by is None",
		valid + ",kinds.config[0].reload.by=None,kinds.config[0].restartAt=true":                                                        "restartAt cannot be true if reload.by is None",
		valid + ",kinds.config[0].templateFrom.apiVersion=.a,kinds.config[0].templateFrom.kind=.b,kinds.config[0].templateFrom.name=.c": "templateFrom needs restartAt",
		valid + ",kinds.config[0].reload.by=TemplateAnnotation,kinds.config[0].podTemplates[0].path=.a[*]":                              "must not contain [*]: one pod template is changed",
		valid + ",kinds.config[0].reload.by=TemplateAnnotation,kinds.config[0].podTemplates[0].path=.a,kinds.config[0].reload.path=.b":  "reload.path must be one of podTemplates",
	} {
		t.Run(set, func(t *testing.T) {
			out, err := template(t, "--set", strings.ReplaceAll(set, "[*]", `[*\]`))
			if err == nil || !strings.Contains(out, want) {
				t.Errorf("helm printed\n%s\nwant an error (%v) with %q", out, err, want)
			}
		})
	}
}
