// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// Values at a limit are valid, and values beyond it are a problem.
func TestNewPolicy_BoundsOfValues(t *testing.T) {
	for name, tt := range map[string]struct {
		key, value string
		problem    string // a substring of the problem; empty: none
	}{
		"the longest name":                       {policy.SourcesAnnotation, "secret/" + strings.Repeat("a", 253), ""},
		"a name that no object can have":         {policy.SourcesAnnotation, "secret/Db", "is neither a valid object name"},
		"a longer name":                          {policy.SourcesAnnotation, "secret/" + strings.Repeat("a", 254), "is neither a valid object name"},
		"as many stars as allowed":               {policy.SourcesAnnotation, "secret/*a*b*c*", ""},
		"one star too many":                      {policy.SourcesAnnotation, "secret/*a*b*c*d*", "must not have more than 4 *"},
		"a duration of 0":                        {policy.SettleAnnotation, "0", ""},
		"a negative duration":                    {policy.SettleAnnotation, "-1ns", "a duration such as"},
		"the longest value that a message shows": {policy.SettleAnnotation, strings.Repeat("a", 64), `"` + strings.Repeat("a", 64) + `"`},
		"the longest list of patterns":           {policy.SourcesAnnotation, longestList(), ""},
		"the same with repeats":                  {policy.ExcludeAnnotation, strings.Repeat("secret/a,", 67_000/9), ""},
		"a longer value":                         {policy.SourcesAnnotation, longestList() + ",,", "must not have more than 67584 bytes"},
		"a longer value of another annotation":   {policy.KindsAnnotation, strings.Repeat("secret,", 10_000), "must not have more than 67584 bytes"},
		"a value that a message shortens":        {policy.SettleAnnotation, strings.Repeat("a", 65), `"` + strings.Repeat("a", 64) + `…"`},
	} {
		t.Run(name, func(t *testing.T) {
			p := policy.NewPolicy(policy.Annotated{Workload: map[string]string{policy.ReloadAnnotation: "auto", tt.key: tt.value}}, policy.Defaults{})
			if tt.problem == "" && len(p.Problems) > 0 || tt.problem != "" && (len(p.Problems) != 1 || !strings.Contains(p.Problems[0], tt.problem)) {
				t.Errorf("problems = %q", p.Problems)
			}
		})
	}
}

// longestList returns a list of as many patterns as are allowed, each as long as is allowed.
func longestList() string {
	patterns := make([]string, 256)
	for i := range patterns {
		patterns[i] = fmt.Sprintf("configmap/%0253d", i)
	}
	return strings.Join(patterns, ",")
}

// Values that are too long are not kept, but for what shows that they are.
func TestRead_KeepsNoMoreOfAValueThanItMayHave(t *testing.T) {
	long := map[string]string{policy.ReloadAnnotation: "auto", policy.SourcesAnnotation: strings.Repeat("secret/a,", 25_000)}
	w := policy.Dialects(nil).ReadWorkload(&dependency.Object{Meta: &metav1.ObjectMeta{Annotations: long}, Template: &corev1.PodTemplateSpec{}})
	for where, kept := range map[string]map[string]string{"workload": w.Annotations, "namespace": policy.Dialects(nil).ReadNamespace(long, true)} {
		if n := len(kept[policy.SourcesAnnotation]); n != 67_585 {
			t.Errorf("%s: %d bytes are kept", where, n)
		}
		if p := policy.NewPolicy(policy.Annotated{Workload: kept}, policy.Defaults{}); len(p.Problems) != 1 {
			t.Errorf("%s: problems = %q, want one", where, p.Problems)
		}
	}
}

// The workloads of a namespace share what its annotations say, however long that is, and read it once.
func TestNote_SharesWhatANamespaceSays(t *testing.T) {
	namespace := map[string]string{policy.ReloadAnnotation: "auto", policy.SourcesAnnotation: longestList(), policy.ExcludeAnnotation: longestList()}
	note := func() policy.Policy {
		return policy.Note(&dependency.Workload{}, namespace, policy.Defaults{})
	}
	one, other := note(), note()
	if len(one.Sources) != 256 || &one.Sources[0] != &other.Sources[0] || &one.Exclude[0] != &other.Exclude[0] {
		t.Error("the annotation of the namespace was parsed twice")
	}
}

// The index is locked while patterns are matched against sources.
func TestPolicy_BoundsComparisons(t *testing.T) {
	for _, tt := range []struct {
		globs, sources int
		glob           string
		ok             bool
	}{
		{0, 1_000_000, "s-%d-*", true},
		{50, 400, "s-%d-*", true},
		{59, 339, "s-%d-*", false}, // 20,001
		// Nine characters count as ten.
		{5, 400, "^(?:s-%d-[a-z])$", true},
		{5, 401, "^(?:s-%d-[a-z])$", false},
	} {
		var p policy.Policy
		p.Sources = append(p.Sources, dependency.Pattern{Kind: dependency.Secret, Name: "plain"}) // which counts as one of them
		tt.sources--
		for i := range tt.globs {
			pattern := dependency.Pattern{Kind: dependency.Secret, Name: fmt.Sprintf(tt.glob, i)}
			if i%2 == 0 {
				p.Sources = append(p.Sources, pattern)
			} else {
				p.Exclude = append(p.Exclude, pattern)
			}
		}
		p.Bound(tt.sources)
		if ok := len(p.Problems) == 0; ok != tt.ok || ok != (len(p.Sources) > 0) || !ok && p.Exclude != nil {
			t.Errorf("%d globs with %s and %d sources: %d and %d patterns are tried, and the problems are %q", tt.globs, tt.glob, tt.sources, len(p.Sources), len(p.Exclude), p.Problems)
		}
	}
}

// Sources that annotations name are matched against globs, like those that the template names.
func TestPolicy_BoundsComparisonsOfWhatIsNamed(t *testing.T) {
	named := func(names int) (p policy.Policy) {
		p.Exclude = []dependency.Pattern{{Kind: dependency.Secret, Name: "^(?:" + strings.Repeat(".", 199) + ")$"}} // counts as 200
		for i := range names {
			p.Sources = append(p.Sources, dependency.Pattern{Kind: dependency.ConfigMap, Name: fmt.Sprint("c-", i)})
		}
		p.Bound(50)
		return p
	}
	if p := named(50); len(p.Problems) != 0 {
		t.Errorf("100 sources: problems = %q, want none", p.Problems)
	}
	if p := named(51); len(p.Problems) != 1 || !strings.HasSuffix(p.Problems[0], "have 1, which count as 200 (a regular expression counts as 1 plus its length); multiplied by the 101 sources that the pod template and configdep.io/sources name, this exceeds 20000") {
		t.Errorf("101 sources: problems = %q, want one", p.Problems)
	}
}

// The annotation that names pods must fit into an object. If there are more pods than it can
// name, a rollout replaces them.
func TestRestartPatch_BoundsPodsToEvict(t *testing.T) {
	p := policy.Policy{Mode: policy.Auto, Strategy: record.Recreate}
	for _, tt := range []struct {
		pods     int
		recreate bool
	}{{0, true}, {1, true}, {10_000, true}, {10_001, false}} {
		var pods []types.UID
		for i := range tt.pods {
			pods = append(pods, types.UID(fmt.Sprint("pod-", i)))
		}
		patch, err := p.RestartPatch(&dependency.Workload{}, &record.Restart{Present: record.Record{Hash: "v1.k.h"}, Last: record.NewAutomaticReload(nil, epoch, time.Second, "Secret/db"), Pods: pods})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(patch), record.RecreatingAnnotation); got != tt.recreate || got == strings.Contains(string(patch), `"template"`) {
			t.Errorf("%d pods: evicted = %v, in a patch of %d bytes", tt.pods, got, len(patch))
		}
	}
}

// A custom resource may name sources outside of a pod template, or have the template of another workload.
func TestDecide_SaysWhatNamesTooManySources(t *testing.T) {
	of := dependency.WorkloadKey{Kind: "Deployment", Namespace: "shop", Name: "web"}
	for name, tt := range map[string]struct {
		templateOf *dependency.WorkloadKey
		want       string
	}{
		"itself":               {nil, "The Rollout names more than 500 ConfigMaps and Secrets"},
		"many of one template": {&of, "More than 16 workloads have the pod template of Deployment web."},
	} {
		t.Run(name, func(t *testing.T) {
			g := dependency.NewGraph()
			g.SetDigester(dependency.NewDigester(make([]byte, 32)))
			g.SetWorkload(dependency.NewWorkload(&dependency.Object{
				Kind: of.Kind, Meta: &metav1.ObjectMeta{Namespace: of.Namespace, Name: of.Name, UID: "d", ResourceVersion: "5"}, Template: &corev1.PodTemplateSpec{},
			}, dependency.Annotations{}), dependency.Patterns{})
			w := policy.Dialects(nil).ReadWorkload(&dependency.Object{
				Kind: "Rollout", Template: &corev1.PodTemplateSpec{}, Traits: dependency.Traits{Rollable: true, Custom: true}, TemplateOf: tt.templateOf, Truncated: true,
				Meta: &metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "r", ResourceVersion: "6", Annotations: annotations{policy.ReloadAnnotation: "auto"}},
			})
			p := policy.Note(w, nil, policy.Defaults{Mode: policy.Off})
			g.SetWorkload(w, p.Patterns())
			d := decide.Evaluator{Graph: g, Defaults: policy.Defaults{Mode: policy.Off}}.Evaluate(w).Decide(epoch)
			if d.Reason != decide.ReasonTooManySources || !strings.HasPrefix(d.Message, tt.want) {
				t.Errorf("decision = %s: %s", d.Reason, d.Message)
			}
		})
	}
}

// A workload whose template consumes more sources than are kept is never InSync, and is neither restarted nor recorded
// automatically.
func TestDecide_MoreSourcesThanAreKept(t *testing.T) {
	many := func(n int) (parts []part) {
		for i := range n {
			parts = append(parts, optionalEnvFrom(dependency.Secret, fmt.Sprint("s-", i)))
		}
		return parts
	}
	blocked := outcome{State: decide.Blocked, Reason: decide.ReasonTooManySources}
	for name, tt := range map[string]struct {
		sources int
		do      func(*world)
		want    outcome
	}{
		"as many sources as are kept":               {dependency.MaxSources, func(*world) {}, recording},
		"one source too many":                       {dependency.MaxSources + 1, func(*world) {}, blocked},
		"one source too many, and a source changes": {dependency.MaxSources + 1, func(x *world) { x.set(secret("s-1", "k", "2")) }, blocked},
		"one source too many, not opted in":         {dependency.MaxSources + 1, func(x *world) { x.annotate(policy.ReloadAnnotation, "off") }, outcome{State: decide.InSync, Reason: decide.ReasonContentApplied}},
		"one source too many, and a key is missing": {dependency.MaxSources + 1, func(x *world) {
			x.edit(func(d *appsv1.Deployment) { env(dependency.Secret, "s-1", "k")(&d.Spec.Template.Spec) })
		}, blocked},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(many(tt.sources)...), secret("s-1", "k", "1"))
			tt.do(x)
			x.tick(time.Hour)
			if diff := cmp.Diff(tt.want, outcomeOf(x.decide())); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// Messages name the first things in a long list, and count the rest.
func TestEnumerate_IsBounded(t *testing.T) {
	for n, want := range map[int]string{
		10: "Secret s-0 is missing; Secret s-1 is missing; Secret s-2 is missing; Secret s-3 is missing; Secret s-4 is missing; Secret s-5 is missing; Secret s-6 is missing; Secret s-7 is missing; Secret s-8 is missing; Secret s-9 is missing",
		11: "Secret s-0 is missing; Secret s-1 is missing; Secret s-10 is missing; Secret s-2 is missing; Secret s-3 is missing; Secret s-4 is missing; Secret s-5 is missing; Secret s-6 is missing; Secret s-7 is missing; Secret s-8 is missing; 1 more is missing or lacks keys",
		12: "Secret s-0 is missing; Secret s-1 is missing; Secret s-10 is missing; Secret s-11 is missing; Secret s-2 is missing; Secret s-3 is missing; Secret s-4 is missing; Secret s-5 is missing; Secret s-6 is missing; Secret s-7 is missing; 2 more are missing or lack keys",
	} {
		var parts []part
		for i := range n {
			parts = append(parts, env(dependency.Secret, fmt.Sprint("s-", i), "k"))
		}
		clauses, absent := newWorld(t, podOf(parts...)).evaluate().Missing()
		if got := strings.Join(clauses, "; "); got != want || !absent {
			t.Errorf("%d missing sources: absent = %v, message %s", n, absent, got)
		}
	}
	for n, want := range map[int]string{
		0: "", 1: "0", 2: "0 and 1", 3: "0, 1 and 2",
		10: "0, 1, 2, 3, 4, 5, 6, 7, 8 and 9", 11: "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 1 more",
	} {
		var names []string
		for i := range n {
			names = append(names, fmt.Sprint(i))
		}
		if got := decide.Enumerate(names); got != want {
			t.Errorf("%d names: %q, want %q", n, got, want)
		}
	}
}

// The globs of a workload are matched against each of its sources.
func TestDecide_TooManyPatterns(t *testing.T) {
	globs := make([]string, 32)
	for i := range globs {
		globs[i] = fmt.Sprintf("secret/x-%d-*", i)
	}
	pod := corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}
	for i := range dependency.MaxSources {
		pod.Containers[0].EnvFrom = append(pod.Containers[0].EnvFrom, corev1.EnvFromSource{
			SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: fmt.Sprint("s-", i)}, Optional: new(true)},
		})
	}
	x := newWorld(t, pod)
	x.annotate(policy.SourcesAnnotation, strings.Join(globs, ","), policy.ExcludeAnnotation, strings.Join(globs, ","))
	if d := x.decide(); d.State != decide.Blocked || d.Reason != decide.ReasonTooManyPatterns || !strings.Contains(d.Message, "Too many patterns: configdep.io/sources and configdep.io/exclude have 64, which count as 64 (a regular expression counts as 1 plus its length); multiplied by the 500 sources") {
		t.Errorf("decision = %+v", d)
	}
	x.annotate(policy.SettleAnnotation, "soon") // takes precedence
	if d := x.decide(); d.State != decide.Blocked || d.Reason != decide.ReasonInvalidAnnotation || !strings.Contains(d.Message, "Invalid annotation configdep.io/settle") || !strings.Contains(d.Message, "too many patterns") {
		t.Errorf("with an invalid annotation as well, decision = %+v", d)
	}
}
