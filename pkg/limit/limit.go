// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package limit reads ReloadPolicies, by which a platform limits automatic restarts, and says which of them apply to a workload.
package limit

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/configdep/configdep/pkg/apis/policy/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/window"
)

// Policy is a ReloadPolicy.
type Policy struct {
	Name            string
	UID             types.UID
	ResourceVersion string
	Generation      int64
	// Problem says why the policy is invalid; empty: it is valid. Workloads that an invalid policy selects are not restarted automatically.
	Problem string
	// Told: its status says all this already.
	Told bool

	accepted *metav1.Condition // what its status says; nil: nothing

	Suspend      bool
	Windows      *window.Windows
	Budgets      []Budget
	BakeTime     time.Duration
	FailureLimit int // 0: there is none
	Approval     bool
	// Bound: Reloads on request are limited, too.
	Bound bool

	namespaces, workloads labels.Selector
	sources               *dependency.Matcher // nil: all
}

// Budget limits what is being restarted at a time.
type Budget struct {
	Scope v1alpha1.BudgetScope
	// Pods: it limits pods, and not workloads.
	Pods bool

	number  int
	percent bool
	when    *window.Window // nil: always
}

// The limits of a policy, in addition to those in its CustomResourceDefinition.
const (
	maxSources = 64
	maxBudgets = 8
	maxBake    = 7 * 24 * time.Hour
)

// New reads a ReloadPolicy.
func New(o *v1alpha1.ReloadPolicy) *Policy {
	p := &Policy{Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Generation: o.Generation}
	if err := p.read(&o.Spec); err != nil {
		p.Problem = dependency.Line(err.Error())
	}
	if p.accepted = meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionAccepted); p.accepted != nil {
		p.Told = o.Status.ObservedGeneration == o.Generation && *p.accepted == p.Condition(p.accepted.LastTransitionTime)
	}
	return p
}

func (p *Policy) read(spec *v1alpha1.ReloadPolicySpec) (err error) {
	p.namespaces, p.workloads = labels.Everything(), labels.Everything() // an invalid selector selects all
	if p.namespaces, err = selector(spec.NamespaceSelector); err != nil {
		return fmt.Errorf("namespaceSelector: %w", err)
	}
	if p.workloads, err = selector(spec.WorkloadSelector); err != nil {
		return fmt.Errorf("workloadSelector: %w", err)
	}
	if len(spec.Sources) > maxSources {
		return fmt.Errorf("sources: must not have more than %d", maxSources)
	}
	if len(spec.Sources) > 0 {
		patterns := make([]dependency.Pattern, len(spec.Sources))
		for i, s := range spec.Sources {
			if patterns[i] = (dependency.Pattern{Kind: dependency.SourceKind(s.Kind), Name: s.Name}); patterns[i].Regexp() {
				return fmt.Errorf("sources: name %q: must be a name, or a pattern in which * stands for any characters", s.Name)
			}
		}
		m := dependency.NewMatcher(patterns)
		p.sources = &m
	}
	windows := make([]window.Window, len(spec.Windows))
	for i, w := range spec.Windows {
		windows[i] = window.Window{Kind: string(w.Kind), Schedule: w.Schedule, Duration: w.Duration, TimeZone: w.TimeZone}
	}
	if len(windows) > 0 {
		if p.Windows, err = window.New(windows); err != nil {
			return fmt.Errorf("windows: %w", err)
		}
	}
	if len(spec.Budgets) > maxBudgets {
		return fmt.Errorf("budgets: must not have more than %d", maxBudgets)
	}
	for i := range spec.Budgets {
		b, err := newBudget(&spec.Budgets[i])
		if err != nil {
			return fmt.Errorf("budget %d: %w", i+1, err)
		}
		p.Budgets = append(p.Budgets, b)
	}
	if spec.BakeTime != nil {
		if p.BakeTime = spec.BakeTime.Duration; p.BakeTime < 0 || p.BakeTime > maxBake {
			return fmt.Errorf("bakeTime %v: must be between 0s and %v", p.BakeTime, maxBake)
		}
	}
	if spec.FailureLimit != nil {
		if p.FailureLimit = int(*spec.FailureLimit); p.FailureLimit < 1 {
			return fmt.Errorf("failureLimit %d: must be at least 1", p.FailureLimit)
		}
	}
	p.Suspend, p.Approval, p.Bound = spec.Suspend, spec.Approval == v1alpha1.ApprovalRequired, spec.Requests == v1alpha1.RequestsBound
	return nil
}

// selector returns a selector; with an error, it selects everything.
func selector(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return labels.Everything(), nil
	}
	out, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Everything(), err
	}
	return out, nil
}

func newBudget(spec *v1alpha1.Budget) (b Budget, err error) {
	b.Scope = cmp.Or(spec.Scope, v1alpha1.ScopePolicy)
	value := spec.Workloads
	if b.Pods = spec.Pods != nil; b.Pods == (value != nil) {
		return b, fmt.Errorf("must have either workloads or pods")
	}
	if b.Pods {
		value = spec.Pods
	}
	if b.number, b.percent, err = number(value); err != nil {
		return b, err
	}
	if spec.Schedule == "" && spec.Duration == nil {
		return b, nil
	}
	b.when = &window.Window{Kind: window.Allow, Schedule: spec.Schedule, TimeZone: spec.TimeZone}
	if spec.Duration != nil {
		b.when.Duration = *spec.Duration
	}
	return b, b.when.Complete()
}

// number returns a number, or a percentage.
func number(v *intstr.IntOrString) (n int, percent bool, err error) {
	if v.Type == intstr.Int {
		if n = v.IntValue(); n < 0 {
			return 0, false, fmt.Errorf("%d: must not be negative", n)
		}
		return n, false, nil
	}
	text, percent := strings.CutSuffix(v.StrVal, "%")
	n, err = strconv.Atoi(text)
	if err != nil || !percent || n < 0 || n > 100 {
		return 0, false, fmt.Errorf("%q: must be a number, or a percentage such as 10%%", v.StrVal)
	}
	return n, true, nil
}

// Condition returns the condition that the status of the policy should have at a time.
func (p *Policy) Condition(now metav1.Time) metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted, ObservedGeneration: p.Generation, LastTransitionTime: now,
		Message: "The policy limits the automatic restarts of the workloads that it selects.",
	}
	if p.Problem != "" {
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonInvalid
		c.Message = "No workload that the policy selects is restarted automatically: " + p.Problem
	}
	if p.accepted != nil && p.accepted.Status == c.Status {
		c.LastTransitionTime = p.accepted.LastTransitionTime
	}
	return c
}

// Same reports whether two policies have the same limits. It ignores their statuses.
func (p *Policy) Same(o *Policy) bool { return p.UID == o.UID && p.Generation == o.Generation }

// Concerns reports whether the policy is about restarts because of a source.
func (p *Policy) Concerns(kind dependency.SourceKind, name string) bool {
	return p.sources == nil || p.sources.Matches(kind, name)
}

// Percent reports whether the limit is a percentage of the workloads or pods in scope.
func (b *Budget) Percent() bool { return b.percent }

// Limit returns how many workloads or pods may be restarted at a time (negative: any number), given how many are in scope, and until when this holds
// (zero: forever).
func (b *Budget) Limit(all int, now time.Time) (limit int, until time.Time) {
	if b.when != nil {
		var open bool
		if open, until = b.when.State(now); !open {
			return -1, until
		}
	}
	if !b.percent {
		return b.number, until
	}
	return (all*b.number + 99) / 100, until
}

// None reports whether nothing may be restarted while the budget applies.
func (b *Budget) None() bool { return b.number == 0 }

// String says how many may be restarted at a time.
func (b *Budget) String() string {
	n, what := strconv.Itoa(b.number), "workload"
	if b.Pods {
		what = "pod"
	}
	switch {
	case b.percent:
		n, what = n+"% of", what+"s"
	case b.number != 1:
		what += "s"
	}
	switch b.Scope {
	case v1alpha1.ScopeNamespace:
		what += " of a namespace"
	case v1alpha1.ScopeSource:
		what += " with the same source"
	}
	return n + " " + what
}

// Set holds all policies of the cluster. It is immutable; nil is empty.
type Set struct {
	policies []*Policy // by name
	unread   bool      // there may be others
}

// maxPolicies limits how many policies there may be, because each workload is compared with all.
const maxPolicies = 64

// With returns the set with a policy added, or replaced if the set has one of the same name.
func (s *Set) With(p *Policy) *Set {
	out := s.Without(p.Name)
	if out == nil {
		out = &Set{}
	}
	i, _ := slices.BinarySearchFunc(out.policies, p.Name, compareNames)
	out.policies = slices.Insert(out.policies, i, p)
	return out
}

// Without returns the set without a policy.
func (s *Set) Without(name string) *Set {
	if s == nil {
		return nil
	}
	out := &Set{slices.Clone(s.policies), s.unread}
	if i, found := slices.BinarySearchFunc(out.policies, name, compareNames); found {
		out.policies = slices.Delete(out.policies, i, i+1)
	}
	return out.orNil()
}

// Unread returns the set, marked with whether there may be other policies that were not read.
func (s *Set) Unread(is bool) *Set {
	out := &Set{unread: is}
	if s != nil {
		out.policies = s.policies
	}
	return out.orNil()
}

func (s *Set) orNil() *Set {
	if len(s.policies) == 0 && !s.unread {
		return nil
	}
	return s
}

func compareNames(p *Policy, name string) int { return strings.Compare(p.Name, name) }

// Same reports whether two sets have the same limits. It ignores the statuses of their policies.
func (s *Set) Same(o *Set) bool {
	if s == nil || o == nil || s == o {
		return s == o
	}
	return s.unread == o.unread && slices.EqualFunc(s.policies, o.policies, (*Policy).Same)
}

// Unknown says, in a clause, why there may be policies that Of does not know; empty: there are none.
func (s *Set) Unknown() string {
	switch {
	case s == nil:
	case s.unread:
		return "the ReloadPolicies of the cluster cannot be read"
	case len(s.policies) > maxPolicies:
		return fmt.Sprintf("the cluster has more than %d ReloadPolicies", maxPolicies)
	}
	return ""
}

// In returns the policies that a graph has; see dependency.Graph.SetLimits.
func In(g *dependency.Graph) *Set {
	s, _ := g.Limits().(*Set)
	return s
}

// All returns all policies, by name.
func (s *Set) All() []*Policy {
	if s == nil {
		return nil
	}
	return s.policies
}

// Of returns the policies, by name, that select a workload by its labels and the labels of its namespace.
func (s *Set) Of(namespace, workload map[string]string) (out []*Policy) {
	if s == nil {
		return nil
	}
	for _, p := range s.policies[:min(len(s.policies), maxPolicies)] {
		if p.namespaces.Matches(labels.Set(namespace)) && p.workloads.Matches(labels.Set(workload)) {
			out = append(out, p)
		}
	}
	return out
}
