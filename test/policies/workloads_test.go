// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"fmt"
	"maps"
	"math/rand"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/test/seeds"
)

// kinds are the workloads that the server patches.
var kinds = map[string]struct {
	resource schema.GroupVersionResource
	empty    func() runtime.Object
}{
	"Deployment":  {appsv1.SchemeGroupVersion.WithResource("deployments"), func() runtime.Object { return &appsv1.Deployment{} }},
	"StatefulSet": {appsv1.SchemeGroupVersion.WithResource("statefulsets"), func() runtime.Object { return &appsv1.StatefulSet{} }},
	"DaemonSet":   {appsv1.SchemeGroupVersion.WithResource("daemonsets"), func() runtime.Object { return &appsv1.DaemonSet{} }},
}

// path is the path to a value within an object.
type path []any

func (p path) String() string {
	var s strings.Builder
	for _, part := range p {
		fmt.Fprintf(&s, "/%v", part)
	}
	return s.String()
}

// paths returns the paths to all values within a value, including maps and lists.
func paths(value any, prefix path) (all []path) {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			all = append(all, paths(v[key], append(slices.Clone(prefix), key))...)
		}
	case []any:
		for i := range v {
			all = append(all, paths(v[i], append(slices.Clone(prefix), i))...)
		}
	}
	if len(prefix) > 0 {
		all = append(all, prefix)
	}
	return all
}

// change returns a copy of an object in which one value is changed, or removed if it is in a map.
func change(object map[string]any, p path, remove bool) map[string]any {
	object = runtime.DeepCopyJSON(object)
	var at any = object
	for _, part := range p[:len(p)-1] {
		switch part := part.(type) {
		case string:
			at = at.(map[string]any)[part]
		case int:
			at = at.([]any)[part]
		}
	}
	switch part := p[len(p)-1].(type) {
	case string:
		if remove {
			delete(at.(map[string]any), part)
		} else {
			at.(map[string]any)[part] = another(at.(map[string]any)[part])
		}
	case int:
		at.([]any)[part] = another(at.([]any)[part])
	}
	return object
}

// another returns another value of the same type.
func another(value any) any {
	switch v := value.(type) {
	case string:
		return v + "x"
	case bool:
		return !v
	case int64:
		return v + 1
	case float64:
		return v + 1
	case map[string]any:
		v["another"] = "x"
		return v
	case []any:
		if len(v) > 0 {
			return append(v, runtime.DeepCopyJSONValue(v[0]))
		}
		return append(v, "x")
	default:
		return "x"
	}
}

// filled returns an object whose fields are filled at random.
func filled(t *testing.T, kind string, seed uint64) runtime.Object {
	t.Helper()
	o := kinds[kind].empty()
	codecs := serializer.NewCodecFactory(clientscheme.Scheme)
	fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(int64(seed)), codecs).Fill(o)
	o.GetObjectKind().SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind(kind))
	m, err := meta.Accessor(o)
	if err != nil {
		t.Fatal(err)
	}
	m.SetAnnotations(annotated(m.GetAnnotations(), record.WorkloadMarks()))
	template := templateOf(o)
	template.Annotations = annotated(template.Annotations, append(record.TemplateMarks(), othersOnPods...))
	env := []corev1.EnvVar{
		{Name: "STAKATER_DB_SECRET", Value: "x"}, {Name: "OTHER", Value: "x"},
		{Name: "STAKATER_WEB_SECRET", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k"}}},
	}
	template.Spec.Containers = append(template.Spec.Containers,
		corev1.Container{Name: "app", Env: env}, corev1.Container{Name: "sidecar", Env: env[:1]}, corev1.Container{Name: "plain"})
	template.Spec.InitContainers = append(template.Spec.InitContainers, corev1.Container{Name: "init", Env: env})
	return o
}

func templateOf(o runtime.Object) *corev1.PodTemplateSpec {
	switch o := o.(type) {
	case *appsv1.Deployment:
		return &o.Spec.Template
	case *appsv1.StatefulSet:
		return &o.Spec.Template
	default:
		return &o.(*appsv1.DaemonSet).Spec.Template
	}
}

// othersOnPods are annotations of pod templates that the server may remove, and not set.
var othersOnPods = []string{"pod-reloader.cs.sap.com/config-hash", "wave.pusher.com/config-hash"}

// annotated returns the server's annotations, one that users set, and the one of DaemonSets.
func annotated(annotations map[string]string, ours []string) map[string]string {
	out := map[string]string{policy.ReloadAnnotation: "auto", appsv1.DeprecatedTemplateGeneration: "1", "example.com/other": "x"}
	maps.Copy(out, annotations)
	for _, key := range ours {
		out[key] = "x"
	}
	return out
}

// mayChange reports whether the server, or kube-apiserver in the same request, may change or remove a value of a
// workload.
func mayChange(kind string, p path, remove bool) bool {
	is := func(prefix ...any) bool { return len(p) >= len(prefix) && slices.Equal(p[:len(prefix)], prefix) }
	switch {
	case len(p) == 3 && is("metadata", "annotations"):
		return slices.Contains(record.WorkloadMarks(), p[2].(string)) || kind == "DaemonSet" && p[2] == appsv1.DeprecatedTemplateGeneration && !remove
	case len(p) == 5 && is("spec", "template", "metadata", "annotations"):
		return slices.Contains(record.TemplateMarks(), p[4].(string)) || remove && slices.Contains(othersOnPods, p[4].(string))
	}
	return is("metadata", "managedFields") || !remove && (is("metadata", "generation") || is("metadata", "resourceVersion"))
}

// withoutVariables returns a copy of a workload without the variables that the server may set in containers.
func withoutVariables(o map[string]any) map[string]any {
	o = runtime.DeepCopyJSON(o)
	containers, _, _ := unstructured.NestedFieldNoCopy(o, "spec", "template", "spec", "containers")
	list, _ := containers.([]any)
	for _, c := range list {
		env, _ := c.(map[string]any)["env"].([]any)
		env = slices.DeleteFunc(env, func(e any) bool {
			v := e.(map[string]any)
			name, _ := v["name"].(string)
			for key := range v {
				if key != "name" && key != "value" {
					return false
				}
			}
			return record.MarksVariable(name)
		})
		if c.(map[string]any)["env"] = env; len(env) == 0 {
			delete(c.(map[string]any), "env")
		}
	}
	return o
}

// The server is refused a change of any field of a workload but its own annotations and variables. Policies evaluate typed
// objects and, as in older versions of Kubernetes, JSON.
func TestWorkloads_NothingElseMayChange(t *testing.T) {
	compiled := compile(t, read(t)["workloads"])
	for kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			tried := map[bool]int{}
			seeds.Each(t, 2, func(t *testing.T, seed uint64) { tryEveryField(t, compiled, kind, seed, tried) })
			if tried[true] < 20 || tried[false] < 500 {
				t.Errorf("changes tried, by whether they are allowed: %v; want at least 20 that are and 500 that are not", tried)
			}
		})
	}
}

// always matches the fields that every object has.
var always = regexp.MustCompile(`^(/metadata|/spec|/spec/template|/spec/template/(metadata|spec)|/spec/template/spec/containers(/\d+(/env/\d+)?/name)?)$`)

func tryEveryField(t *testing.T, compiled *compiled, kind string, seed uint64, tried map[bool]int) {
	t.Helper()
	old := filled(t, kind, seed)
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(old)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range paths(raw, nil) {
		if len(p) == 1 && (p[0] == "apiVersion" || p[0] == "kind") {
			continue // the API server sets them
		}
		for _, remove := range []bool{false, true} {
			if !remove || !always.MatchString(p.String()) {
				tryField(t, compiled, kind, old, raw, p, remove, tried)
			}
		}
	}
}

func tryField(t *testing.T, compiled *compiled, kind string, old runtime.Object, raw map[string]any, p path, remove bool, tried map[bool]int) {
	t.Helper()
	changed := change(raw, p, remove)
	if equality.Semantic.DeepEqual(raw, changed) {
		return
	}
	want := mayChange(kind, p, remove) || equality.Semantic.DeepEqual(withoutVariables(raw), withoutVariables(changed))
	check := func(what string, old, now runtime.Object) {
		t.Helper()
		got := compiled.refusal(t, &request{resource: kinds[kind].resource, user: account, old: old, new: now})
		if (got == "") != want {
			t.Fatalf("%s (%s, removed: %v): refusal = %q, want one exactly for fields that the server does not own", p, what, remove, got)
		}
		tried[want]++
	}
	check("as JSON", &unstructured.Unstructured{Object: raw}, &unstructured.Unstructured{Object: changed})
	now := kinds[kind].empty()
	if runtime.DefaultUnstructuredConverter.FromUnstructured(changed, now) == nil && !equality.Semantic.DeepEqual(old, now) {
		check("typed", old, now) // otherwise no such object can be written
	}
}
