// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package limit_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/configdep/configdep/pkg/apis/policy/v1alpha1"
	"github.com/configdep/configdep/pkg/limit"
)

func of(spec v1alpha1.ReloadPolicySpec) *limit.Policy {
	return limit.New(&v1alpha1.ReloadPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", Generation: 3}, Spec: spec})
}

func duration(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

// What the definition does not refuse, or would not if another one was installed, makes a policy invalid, and the problem says what is allowed.
func TestNew_Problems(t *testing.T) {
	for want, spec := range map[string]v1alpha1.ReloadPolicySpec{
		"":                                     {},
		"namespaceSelector: ":                  {NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}},
		"workloadSelector: ":                   {WorkloadSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b c"}}},
		`sources: name "^d": must be a name`:   {Sources: []v1alpha1.SourcePattern{{Kind: "Secret", Name: "^d"}}},
		"sources: must not have more than 64":  {Sources: make([]v1alpha1.SourcePattern, 65)},
		"budgets: must not have more than 8":   {Budgets: make([]v1alpha1.Budget, 9)},
		"budget 1: must have either workloads": {Budgets: []v1alpha1.Budget{{}}},
		"budget 1: must have either":           {Budgets: []v1alpha1.Budget{{Workloads: new(intstr.FromInt32(1)), Pods: new(intstr.FromInt32(1))}}},
		"budget 1: -1: must not be negative":   {Budgets: []v1alpha1.Budget{{Workloads: new(intstr.FromInt32(-1))}}},
		`budget 2: "101%": must be a number, or a percentage such as 10%`: {Budgets: []v1alpha1.Budget{{Pods: new(intstr.FromInt32(1))}, {Pods: new(intstr.FromString("101%"))}}},
		`budget 1: "5": must be a number`:                                 {Budgets: []v1alpha1.Budget{{Pods: new(intstr.FromString("5"))}}},
		"budget 1: duration 0s: must be between":                          {Budgets: []v1alpha1.Budget{{Pods: new(intstr.FromInt32(1)), Schedule: "0 1 * * *"}}},
		`budget 1: schedule "": must have the five`:                       {Budgets: []v1alpha1.Budget{{Pods: new(intstr.FromInt32(1)), Duration: duration(time.Hour)}}},
		`windows: window 1: schedule "0 1 99 * *": `:                      {Windows: []v1alpha1.Window{{Kind: "Allow", Schedule: "0 1 99 * *", Duration: *duration(time.Hour)}}},
		"bakeTime 169h0m0s: must be between":                              {BakeTime: duration(169 * time.Hour)},
		"bakeTime -1s: must be between 0s and":                            {BakeTime: duration(-time.Second)},
		"failureLimit 0: must be at least 1":                              {FailureLimit: new(int32(0))},
	} {
		p := of(spec)
		if !strings.HasPrefix(p.Problem, want) || (want == "") != (p.Problem == "") {
			t.Errorf("%q, want %q", p.Problem, want)
		}
		if c := p.Condition(metav1.Now()); (c.Status == metav1.ConditionTrue) != (want == "") || !strings.HasSuffix(c.Message, p.Problem) || c.ObservedGeneration != 3 {
			t.Errorf("condition %+v", c)
		}
	}
}

// A status that says what holds is not written again, and its condition keeps the time as long as the policy stays valid or invalid.
func TestNew_Told(t *testing.T) {
	o := &v1alpha1.ReloadPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", Generation: 1}}
	before, now := metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(2000, 0))
	if p := limit.New(o); p.Told || p.Condition(now).LastTransitionTime != now {
		t.Errorf("new: %+v", p)
	}
	o.Status = v1alpha1.ReloadPolicyStatus{ObservedGeneration: 1, Conditions: []metav1.Condition{{Type: "Other"}, limit.New(o).Condition(before)}}
	if p := limit.New(o); !p.Told {
		t.Errorf("told: %+v", p)
	}
	o.Generation = 2
	if p := limit.New(o); p.Told || p.Condition(now).LastTransitionTime != before {
		t.Errorf("still valid: %+v", p)
	}
	o.Spec.FailureLimit = new(int32(0))
	if p := limit.New(o); p.Told || p.Condition(now).LastTransitionTime != now {
		t.Errorf("no longer valid: %+v", p)
	}
}

// Budgets say what they are, and to how many a percentage comes.
func TestBudget(t *testing.T) {
	at := time.Date(2026, 6, 1, 1, 30, 0, 0, time.UTC)
	for _, tt := range []struct {
		budget v1alpha1.Budget
		text   string
		limit  int // of 15
		until  string
	}{
		{v1alpha1.Budget{Workloads: new(intstr.FromInt32(2))}, "2 workloads", 2, "0001-01-01T00:00:00Z"},
		{v1alpha1.Budget{Pods: new(intstr.FromString("10%")), Scope: v1alpha1.ScopeNamespace}, "10% of pods of a namespace", 2, "0001-01-01T00:00:00Z"},
		{v1alpha1.Budget{Workloads: new(intstr.FromInt32(0)), Scope: v1alpha1.ScopeSource, Schedule: "0 1 * * *", Duration: duration(time.Hour)}, "0 workloads with the same source", 0, "2026-06-01T02:00:00Z"},
		{v1alpha1.Budget{Workloads: new(intstr.FromInt32(0)), Schedule: "0 1 * * *", Duration: duration(time.Hour), TimeZone: "Europe/Berlin"}, "0 workloads", -1, "2026-06-01T23:00:00Z"},
	} {
		p := of(v1alpha1.ReloadPolicySpec{Budgets: []v1alpha1.Budget{tt.budget}})
		if p.Problem != "" {
			t.Fatal(p.Problem)
		}
		b := &p.Budgets[0]
		if n, until := b.Limit(15, at); b.String() != tt.text || n != tt.limit || until.UTC().Format(time.RFC3339) != tt.until {
			t.Errorf("%s allows %d until %v, want %+v", b, n, until, tt)
		}
	}
}

// A set has its policies by name, one of each.
func TestSet(t *testing.T) {
	var s *limit.Set
	for _, name := range []string{"b", "a", "c", "b"} {
		s = s.With(limit.New(&v1alpha1.ReloadPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	names := func(all []*limit.Policy) (out string) {
		for _, p := range all {
			out += p.Name
		}
		return out
	}
	if got := names(s.All()) + names(s.Without("b").All()) + names(s.Without("x").Of(nil, nil)); got != "abcacabc" {
		t.Errorf("got %s", got)
	}
	if s.Unknown() != "" || s.Unread(true).Unknown() == "" || s.Unread(true).Same(s) || !s.Same(s.Unread(false)) {
		t.Error("whether there may be others is not told")
	}
	for i := range 62 {
		s = s.With(limit.New(&v1alpha1.ReloadPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("d", i)}}))
	}
	if s.Unknown() == "" || len(s.Of(nil, nil)) != 64 || len(s.All()) != 65 {
		t.Errorf("of %d policies: %q, %d count", len(s.All()), s.Unknown(), len(s.Of(nil, nil)))
	}
	if s = (*limit.Set)(nil); s.Unknown() != "" || s.All() != nil || s.Of(nil, nil) != nil || s.Without("a") != nil || s.Unread(false) != nil || !s.Same(nil) {
		t.Error("none is some")
	}
}
