// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
)

func lender(secret string) *dependency.Workload {
	template := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "app", EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: secret}}}},
	}}}}
	return dependency.NewWorkload(&dependency.Object{
		Kind: "Deployment", Meta: &metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "web", ResourceVersion: "5"}, Template: template,
		Traits: dependency.Traits{Rollable: true},
	}, dependency.Annotations{})
}

func borrower(name string, of dependency.WorkloadKey) *dependency.Workload {
	return dependency.NewWorkload(&dependency.Object{
		Kind: "Rollout", Meta: &metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "x", ResourceVersion: "6"}, Template: &corev1.PodTemplateSpec{},
		Traits: dependency.Traits{Rollable: true, Custom: true}, TemplateFrom: &dependency.TemplateReference{}, TemplateOf: &of,
	}, dependency.Annotations{})
}

func TestBorrow(t *testing.T) {
	g := dependency.NewGraph()
	of := lender("db")
	w := borrower("a", of.WorkloadKey)
	if g.Borrow(w) || w.References != nil {
		t.Errorf("references of a template that is not there: %v", w.References)
	}
	g.SetWorkload(w, dependency.Patterns{})
	g.SetWorkload(of, dependency.Patterns{})
	next := *w
	if !g.Borrow(&next) || len(next.References) != 1 || next.References[0].Name != "db" {
		t.Errorf("references = %v", next.References)
	}
	if g.Borrow(&next) {
		t.Error("the same references are a change")
	}
	other := lender("other")
	g.SetWorkload(other, dependency.Patterns{})
	if !g.Borrow(&next) || next.References[0].Name != "other" {
		t.Errorf("references = %v", next.References)
	}
	g.DeleteWorkload(other.WorkloadKey)
	if !g.Borrow(&next) || next.References != nil {
		t.Errorf("references after the template is gone: %v", next.References)
	}
	if of := lender("db"); of.TemplateOf != nil || g.Borrow(of) || len(of.References) != 1 {
		t.Errorf("a workload with a template of its own has the references %v", of.References)
	}
}

// A template that many workloads name costs each write of it as much as a few. Which of them have its sources depends on their names, and not
// on which came first, so that it is the same on each replica, and those that have them are told of each change.
func TestBorrow_Bound(t *testing.T) {
	g := dependency.NewGraph()
	of := lender("db")
	g.SetWorkload(of, dependency.Patterns{})
	all := 2 * dependency.MaxBorrowers
	name := func(i int) string { return fmt.Sprintf("w%02d", i) }
	for i := range all { // those whose names come last come first
		w := borrower(name(all-1-i), of.WorkloadKey)
		g.Borrow(w)
		g.SetWorkload(w, dependency.Patterns{})
	}
	for i := range all {
		w := *borrower(name(i), of.WorkloadKey)
		g.Borrow(&w)
		if known := i < dependency.MaxBorrowers; w.Truncated == known || (len(w.References) > 0) != known {
			t.Errorf("workload %d: truncated: %v, references %v", i, w.Truncated, w.References)
		}
	}
	if n := len(g.Borrowers(of.WorkloadKey)); n != dependency.MaxBorrowers+1 {
		t.Errorf("%d workloads are updated with each write", n)
	}
}
