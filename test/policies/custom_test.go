// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
)

const customPolicy = "custom-resources"

// documents returns the documents of a file.
func documents(t *testing.T, path string) (all [][]byte) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	reader := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(content)))
	buffer := make([]byte, 1<<20)
	for {
		n, err := reader.Read(buffer)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, bytes.Clone(buffer[:n]))
	}
}

// chartKinds returns the kinds of the chart with kinds, by their resources: presets, and those that it describes.
func chartKinds(t *testing.T) map[string]*kind.Kind {
	t.Helper()
	all := map[string]*kind.Kind{}
	for _, name := range []string{"argo-rollout", "leaderworkerset", "strimzi-podset"} {
		k := workloadtest.Preset(name)
		all[k.Resource.GroupResource().String()] = k
	}
	for _, document := range documents(t, withKinds) {
		var c corev1.ConfigMap
		if err := sigsyaml.Unmarshal(document, &c); err != nil || c.Name != "configdep-kinds" || c.Kind != "ConfigMap" {
			continue
		}
		kinds, errs := kind.ParseFile([]byte(c.Data["config.yaml"]))
		if len(errs) > 0 || len(kinds) < 5 {
			t.Fatalf("%d kinds, %v", len(kinds), errs)
		}
		for _, k := range kinds {
			all[k.Resource.GroupResource().String()] = k
		}
	}
	if len(all) < 8 {
		t.Fatalf("only %d kinds", len(all))
	}
	return all
}

// presets returns the presets, by their resources.
func presets() map[string]*kind.Kind {
	all := map[string]*kind.Kind{}
	for _, name := range kind.PresetNames() {
		k := workloadtest.Preset(name)
		all[k.Resource.GroupResource().String()] = k
	}
	return all
}

// put sets a value within an object, and makes the objects on the way.
func put(object map[string]any, value any, path ...string) {
	for _, name := range path[:len(path)-1] {
		next, is := object[name].(map[string]any)
		if !is {
			next = map[string]any{}
			object[name] = next
		}
		object = next
	}
	object[path[len(path)-1]] = value
}

// resource returns a custom resource with all that may be written, and more beside each of that.
func resource(k *kind.Kind) map[string]any {
	o := map[string]any{"status": map[string]any{"phase": "x"}, "data": map[string]any{"x": "y"}}
	o["apiVersion"], o["kind"] = k.GroupVersionKind().ToAPIVersionAndKind()
	annotations := map[string]any{}
	for key, value := range annotated(nil, record.WorkloadMarks()) {
		annotations[key] = value
	}
	o["metadata"] = map[string]any{
		"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7", "generation": int64(1), "labels": map[string]any{"app": "web"},
		"ownerReferences": []any{map[string]any{"name": "x"}}, "annotations": annotations,
		"managedFields": []any{map[string]any{"manager": "x"}},
	}
	o["spec"] = map[string]any{
		"replicas": int64(2), "restartAt": "x", "storage": map[string]any{"key": "x", "list": []any{map[string]any{"name": "x", "value": "y"}}},
		"template": map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"app": "web"}, "annotations": map[string]any{record.ConfigHashAnnotation: "x"}},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "app", "image": "app"}}},
		},
	}
	for _, path := range k.TemplatePaths() {
		if names, err := path.Names(); err == nil {
			put(o, "x", append(slices.Clone(names), "spec", "nodeName")...)
			put(o, "x", append(slices.Clone(names), "metadata", "labels", "app")...)
		}
	}
	if path := k.Traits.TemplatePath(); path != nil && k.Traits.Rollable {
		marks := map[string]any{}
		for key, value := range annotated(nil, append(record.TemplateMarks(), othersOnPods...)) {
			marks[key] = value
		}
		put(o, marks, append(slices.Clone(path), "metadata", "annotations")...)
	}
	if r := k.Traits.Restart; r != nil && r.Field != nil {
		put(o, "x", r.Field...)
		put(o, "x", append(slices.Clone(r.Field[:len(r.Field)-1]), "beside")...)
	}
	if r := k.Traits.Restart; r != nil && r.Annotation != "" {
		put(o, "x", "metadata", "annotations", r.Annotation)
	}
	return o
}

// mayWrite reports whether the server, or kube-apiserver in the same request, may change or remove a value of a custom resource.
func mayWrite(k *kind.Kind, p path, remove bool) bool {
	names := make([]string, len(p))
	for i := range p {
		names[i] = fmt.Sprint(p[i])
	}
	at := strings.Join(names, "\x00")
	below := func(prefix ...string) (string, bool) { // what is directly below a path
		rest, found := strings.CutPrefix(at, strings.Join(prefix, "\x00")+"\x00")
		return rest, found && !strings.Contains(rest, "\x00")
	}
	restart := k.Traits.Restart
	if key, found := below("metadata", "annotations"); found {
		return slices.Contains(record.WorkloadMarks(), key) || restart != nil && restart.Annotation == key && !remove
	}
	if path := k.Traits.TemplatePath(); path != nil && k.Traits.Rollable {
		if key, found := below(append(slices.Clone(path), "metadata", "annotations")...); found {
			return slices.Contains(record.TemplateMarks(), key) || remove && slices.Contains(othersOnPods, key)
		}
	}
	switch {
	case restart != nil && restart.Field != nil && slices.Equal(names, restart.Field),
		k.Traits.RestartsAt && slices.Equal(names, []string{"spec", "restartAt"}):
		return true
	case len(names) >= 2 && names[0] == "metadata":
		return names[1] == "managedFields" || !remove && len(names) == 2 && (names[1] == "generation" || names[1] == "resourceVersion")
	}
	return false
}

// The server is refused a change of any field of a custom resource but those that the description of its kind names. The kinds are
// those of the program, so that the manifests cannot allow something else.
func TestCustomResources_NothingElseMayChange(t *testing.T) {
	for file, all := range map[string]map[string]*kind.Kind{withPresets: presets(), withKinds: chartKinds(t)} {
		compiled := compile(t, readFrom(t, file)[customPolicy])
		for name, k := range all {
			if !k.Traits.Rollable && !k.Traits.Fields { // which the server has no right to write
				continue
			}
			t.Run(filepath.Base(file)+"/"+name, func(t *testing.T) {
				raw, tried := resource(k), map[bool]int{}
				for _, p := range paths(raw, nil) {
					if len(p) == 1 && (p[0] == "apiVersion" || p[0] == "kind" || p[0] == "metadata") {
						continue // the API server sets them
					}
					for _, remove := range []bool{false, true} {
						changed := change(raw, p, remove)
						if equality.Semantic.DeepEqual(raw, changed) {
							continue
						}
						want := mayWrite(k, p, remove)
						got := compiled.refusal(t, &request{
							resource: k.Resource, user: account, old: &unstructured.Unstructured{Object: raw}, new: &unstructured.Unstructured{Object: changed},
						})
						if (got == "") != want {
							t.Errorf("%s (removed: %v): refusal = %q, want one exactly for fields that the server does not own", p, remove, got)
						}
						tried[want]++
					}
				}
				if tried[true] < 10 || tried[false] < 30 {
					t.Errorf("changes tried, by whether they are allowed: %v", tried)
				}
			})
		}
	}
}

// A policy applies to a resource in all versions, since the right to patch it does.
func TestCustomResources_AreCoveredInAllVersions(t *testing.T) {
	for file, all := range map[string]map[string]*kind.Kind{withPresets: presets(), withKinds: chartKinds(t)} {
		covered := map[string]bool{}
		for _, r := range readFrom(t, file)[customPolicy].Spec.MatchConstraints.ResourceRules {
			if !slices.Equal(r.APIVersions, []string{"*"}) || len(r.APIGroups) != 1 {
				t.Errorf("%s: rule %v", file, r)
			}
			for _, resource := range r.Resources {
				covered[resource+"."+r.APIGroups[0]] = true
			}
		}
		want := map[string]bool{}
		for name, k := range all {
			if k.Traits.Rollable || k.Traits.Fields {
				want[name] = true
			}
		}
		if !maps.Equal(covered, want) {
			t.Errorf("%s covers %v, want %v", file, covered, want)
		}
	}
}

const (
	customRefusal = "configdep may change nothing else of a custom resource than what the description of its kind names"
	fieldsRefusal = customRefusal + ", and below spec what configdep.io/fields names"
)

// Objects on the way to what a restart writes come into being with it.
func TestCustomResources_FirstRestart(t *testing.T) {
	of := func(k *kind.Kind, pairs ...any) *unstructured.Unstructured {
		o := map[string]any{"metadata": map[string]any{"name": "web"}, "spec": map[string]any{"replicas": int64(1)}}
		o["apiVersion"], o["kind"] = k.GroupVersionKind().ToAPIVersionAndKind()
		for i := 0; i < len(pairs); i += 2 {
			put(o, pairs[i+1], pairs[i].([]string)...)
		}
		return &unstructured.Unstructured{Object: o}
	}
	marks := map[string]any{record.ConfigHashAnnotation: "x"}
	all := chartKinds(t)
	rollout, group, farm := all["rollouts.argoproj.io"], all["leaderworkersets.leaderworkerset.x-k8s.io"], all["farms.example.com"]
	template := []string{"spec", "template", "metadata", "annotations"}
	worker := []string{"spec", "leaderWorkerTemplate", "workerTemplate", "metadata", "annotations"}
	compiled := compile(t, readFrom(t, withKinds)[customPolicy])
	for name, tt := range map[string]struct {
		kind     *kind.Kind
		old, new *unstructured.Unstructured
		refusal  string
	}{
		"a pod template without metadata":     {rollout, of(rollout, template[:2], map[string]any{"spec": map[string]any{}}), of(rollout, template[:2], map[string]any{"spec": map[string]any{}}, template, marks), ""},
		"a time to restart at":                {rollout, of(rollout), of(rollout, []string{"spec", "restartAt"}, "now"), ""},
		"a pod template elsewhere":            {group, of(group, worker[:4], map[string]any{}), of(group, worker, marks), ""},
		"a pod template that is not its own":  {group, of(group), of(group, template, marks), fieldsRefusal},
		"a field, and the object that has it": {farm, of(farm), of(farm, []string{"spec", "operations", "restartedAt"}, "now"), ""},
		"a field beside it":                   {farm, of(farm), of(farm, []string{"spec", "operations", "paused"}, true), fieldsRefusal},
		"no pod template":                     {rollout, of(rollout, template[:3], map[string]any{}, []string{"spec", "template", "spec"}, map[string]any{}), of(rollout), fieldsRefusal},
		"no specification":                    {rollout, of(rollout), &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "web"}}}, fieldsRefusal},
	} {
		t.Run(name, func(t *testing.T) {
			if got := compiled.refusal(t, &request{resource: tt.kind.Resource, user: account, old: tt.old, new: tt.new}); got != tt.refusal {
				t.Errorf("refusal = %q, want %q", got, tt.refusal)
			}
			if got := compiled.refusal(t, &request{resource: tt.kind.Resource, user: "kim", old: tt.old, new: tt.new}); got != "" {
				t.Errorf("a user is refused: %s", got)
			}
		})
	}
}

// The server sets fields of kinds that allow it, in members of spec that the owner names, and never in pod templates.
func TestCustomResources_Fields(t *testing.T) {
	all := chartKinds(t)
	farm, rollout := all["farms.example.com"], all["rollouts.argoproj.io"]
	group := func(name, image string, replicas int64) map[string]any {
		return map[string]any{"name": name, "replicas": replicas, "pods": map[string]any{"a.b": map[string]any{"image": image}}}
	}
	of := func(lines string, change func(spec map[string]any)) *unstructured.Unstructured {
		spec := map[string]any{
			"storage": map[string]any{"key": "one", "size": int64(1)}, "size": int64(1), "si": int64(1), "odd-1": "x",
			"groups": []any{group("a", "app", 1), group("b", "app", 1)}, "template": map[string]any{"spec": map[string]any{}},
		}
		if change != nil {
			change(spec)
		}
		metadata := map[string]any{"name": "web"}
		if lines != "" {
			metadata["annotations"] = map[string]any{policy.FieldsAnnotation: lines}
		}
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Farm", "metadata": metadata, "spec": spec, "status": map[string]any{}}}
	}
	set := func(value any, path ...string) func(map[string]any) {
		return func(spec map[string]any) { put(spec, value, path...) }
	}
	groups := func(all ...any) func(map[string]any) { return func(spec map[string]any) { spec["groups"] = all } }
	const line, inGroups = "spec.storage.key = secret/x#y", "\n  spec.groups[name=a].replicas=configmap/x#y"
	compiled := compile(t, readFrom(t, withKinds)[customPolicy])
	for name, tt := range map[string]struct {
		lines   string
		change  func(spec map[string]any)
		manager string // default: that of fields
		kind    *kind.Kind
		refusal string
	}{
		"a field that is named":                {lines: line, change: set("two", "storage", "key")},
		"a field that is not there yet":        {lines: "spec.more.key=secret/x#y", change: set("two", "more", "key")},
		"a member of spec itself":              {lines: "spec.size = secret/x#y", change: set(int64(2), "size")},
		"a member of spec itself, no blank":    {lines: "spec.size=secret/x#y", change: set(int64(2), "size")},
		"a quoted member":                      {lines: "spec['odd-1'] = secret/x#y", change: set("y", "odd-1")},
		"a field of an entry":                  {lines: line + inGroups, change: groups(group("a", "app", 2), group("b", "app", 1))},
		"an entry that is not there yet":       {lines: line + inGroups, change: groups(group("a", "app", 1), group("b", "app", 1), map[string]any{"name": "c"})},
		"nothing":                              {change: nil},
		"a field beside it":                    {lines: line, change: set(int64(2), "size"), refusal: fieldsRefusal},
		"a member with the same beginning":     {lines: "spec.size = secret/x#y", change: set(int64(2), "si"), refusal: fieldsRefusal},
		"no annotation":                        {change: set("two", "storage", "key"), refusal: fieldsRefusal},
		"a comment":                            {lines: "# " + line, change: set("two", "storage", "key"), refusal: fieldsRefusal},
		"another field manager":                {lines: line, change: set("two", "storage", "key"), manager: record.FieldManager, refusal: fieldsRefusal},
		"a kind that does not allow it":        {lines: line, change: set("two", "storage", "key"), kind: rollout, refusal: fieldsRefusal},
		"removing a member":                    {lines: line, change: func(spec map[string]any) { delete(spec, "storage") }, refusal: fieldsRefusal},
		"a pod template of an entry":           {lines: line + inGroups, change: groups(group("a", "mine", 1), group("b", "app", 1)), refusal: fieldsRefusal},
		"a pod template":                       {lines: "spec.template.spec.x=secret/x#y", change: set("mine", "template", "spec", "x"), refusal: fieldsRefusal},
		"a pod template that is not there":     {lines: line + inGroups, change: groups(group("a", "app", 1), group("b", "app", 1), group("c", "mine", 1)), refusal: fieldsRefusal},
		"a pod template that is there no more": {lines: line + inGroups, change: groups(group("a", "app", 1)), refusal: fieldsRefusal},
	} {
		t.Run(name, func(t *testing.T) {
			k, manager := farm, record.FieldsManager
			if tt.kind != nil {
				k = tt.kind
			}
			if tt.manager != "" {
				manager = tt.manager
			}
			r := &request{resource: k.Resource, user: account, manager: manager, old: of(tt.lines, nil), new: of(tt.lines, tt.change)}
			if got := compiled.refusal(t, r); got != tt.refusal {
				t.Errorf("refusal = %q, want %q", got, tt.refusal)
			}
		})
	}
	t.Run("the server names fields itself", func(t *testing.T) {
		r := &request{resource: farm.Resource, user: account, manager: record.FieldsManager, old: of("", nil), new: of(line, set("two", "storage", "key"))}
		if got := compiled.refusal(t, r); !strings.HasPrefix(got, "configdep may change no annotation of a workload but its own") {
			t.Errorf("refusal = %q", got)
		}
	})
	t.Run("a status", func(t *testing.T) {
		now := of(line, nil)
		put(now.Object, "x", "status", "phase")
		r := &request{resource: farm.Resource, user: account, manager: record.FieldsManager, old: of(line, nil), new: now}
		if got := compiled.refusal(t, r); got != fieldsRefusal {
			t.Errorf("refusal = %q", got)
		}
	})
}

// Large custom resources cost a small part of the budget that kube-apiserver has for an expression.
func TestCustomResources_CostIsBounded(t *testing.T) {
	all := chartKinds(t)
	farm, rollout := all["farms.example.com"], all["rollouts.argoproj.io"]
	large := func(value string) *unstructured.Unstructured {
		members, annotations, lines := map[string]any{}, map[string]any{}, ""
		for i := range 250 {
			members[fmt.Sprintf("member%d", i)] = strings.Repeat("x", 1000)
			annotations[fmt.Sprint(i)] = strings.Repeat("x", 100)
		}
		for i := range 32 {
			lines += fmt.Sprintf("spec.storage%d.key = secret/x#y | json %s\n", i, strings.Repeat(".x", 400))
		}
		annotations[policy.FieldsAnnotation] = lines
		o := map[string]any{"metadata": map[string]any{"annotations": annotations}, "spec": members}
		put(o, value, "spec", "storage31", "key")
		put(o, map[string]any{record.ConfigHashAnnotation: "x"}, "spec", "template", "metadata", "annotations")
		return &unstructured.Unstructured{Object: o}
	}
	compiled := compile(t, readFrom(t, withKinds)[customPolicy])
	for name, r := range map[string]*request{
		"fields":    {resource: farm.Resource, manager: record.FieldsManager, old: large("x"), new: large("y")},
		"a restart": {resource: rollout.Resource, old: large("x"), new: large("x")},
	} {
		r.user = account
		if refusal := compiled.refusal(t, r); refusal != "" {
			t.Errorf("%s: %s", name, refusal)
		}
		cost := compiled.cost(t, r)
		t.Logf("%s: cost = %d", name, cost)
		if cost > celconfig.PerCallLimit/10 {
			t.Errorf("%s: cost = %d, want at most %d", name, cost, int64(celconfig.PerCallLimit/10))
		}
	}
}

// The annotations of custom resources are kept wherever their pod template is, and where there is none.
func TestAnnotations_OfCustomResources(t *testing.T) {
	for file, all := range map[string]map[string]*kind.Kind{withPresets: presets(), withKinds: chartKinds(t)} {
		for name, k := range all {
			if !k.Traits.Rollable {
				continue
			}
			t.Run(filepath.Base(file)+"/"+name, func(t *testing.T) {
				path := k.Traits.TemplatePath()
				of := func(pairs ...string) *unstructured.Unstructured {
					o := map[string]any{"apiVersion": k.Resource.GroupVersion().String(), "kind": "Any", "metadata": map[string]any{"name": "web"}, "spec": map[string]any{"replicas": int64(1)}}
					if path != nil {
						put(o, "Always", append(slices.Clone(path), "spec", "restartPolicy")...)
					}
					for i := 0; i < len(pairs); i += 2 {
						put(o, pairs[i+1], "metadata", "annotations", pairs[i])
						if path != nil {
							put(o, pairs[i+1], append(slices.Clone(path), "metadata", "annotations", pairs[i])...)
						}
					}
					return &unstructured.Unstructured{Object: o}
				}
				before := of(record.ConfigHashAnnotation, "h")
				none := of()
				if path != nil {
					put(none.Object, nil, append(slices.Clone(path), "metadata", "annotations")...)
				}
				for _, version := range k.Versions {
					resource := k.Resource.GroupResource().WithVersion(version)
					for what, now := range map[string]*unstructured.Unstructured{"no annotations": of(), "null": none} {
						r := &request{resource: resource, user: "kim", old: before, new: now}
						if diff := cmp.Diff(before, keeperOf(t, file, resource).admit(t, r)); diff != "" {
							t.Errorf("version %s, %s (-want +got):\n%s", version, what, diff)
						}
					}
					if k.Traits.Restart == nil { // by its pod template
						r := &request{resource: resource, user: account, old: none, new: before}
						if refusal := compile(t, readFrom(t, file)[customPolicy]).refusal(t, r); refusal != "" {
							t.Errorf("version %s, the first restart of a template with null: %s", version, refusal)
						}
					}
				}
			})
		}
	}
}
