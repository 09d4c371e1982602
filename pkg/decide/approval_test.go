// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/policy/v1alpha1"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// What a user may decide about is the content of a restart that is due and needs an approval, whatever else it waits for.
func TestNeedsApproval(t *testing.T) {
	x := typical(t)
	x.adopt()
	needs := func(what string, want bool) {
		t.Helper()
		d := x.decide()
		if got := x.evaluate().NeedsApproval(&d); got != want {
			t.Errorf("%s: %v", what, got)
		}
	}
	approve := func(decision string) {
		t.Helper()
		a := record.NewApproval(decision, x.evaluate().Hash, "ada", "", metav1.NewMicroTime(x.now))
		x.patch(record.ApprovalPatch(x.workload(), &a))
	}
	x.set(secret("db", "password", "2"))
	needs("nothing asks for one", false)
	x.annotate(policy.ApprovalAnnotation, "required")
	needs("while content settles", true)
	x.tick(time.Minute)
	approve(record.Denied)
	needs("denied", true)
	approve(record.Approved)
	needs("approved after all", true)
	x.want("the last decision counts", rollOut("Secret/db"))
	x.act()
	x.rollOut()
	needs("restarted", false)
	x.annotate(record.ApprovedAnnotation, "{")
	x.set(secret("db", "password", "3"))
	x.tick(time.Minute)
	needs("an invalid approval", true)
	if d := x.decide(); d.Reason != "Approval" {
		t.Errorf("an invalid approval: %s", d.Message)
	}

	x.annotate(policy.ApprovalAnnotation, "")
	x.limited("other", v1alpha1.ReloadPolicySpec{Approval: v1alpha1.ApprovalRequired, Sources: []v1alpha1.SourcePattern{{Kind: "Secret", Name: "other"}}})
	needs("a policy asks for other sources", false)
	x.limited("prod", v1alpha1.ReloadPolicySpec{Approval: v1alpha1.ApprovalRequired})
	needs("a policy asks", true)
}

// Who sees when a restart is due sees that it also needs an approval.
func TestDecide_SaysThatAnApprovalIsNeededBeforeContentHasSettled(t *testing.T) {
	const needs = " It then also waits for a user's approval, as the annotation configdep.io/approval asks for."
	x := typical(t)
	x.adopt()
	x.annotate(policy.ApprovalAnnotation, "required")
	says := func(reason string, want bool) {
		t.Helper()
		if d := x.decide(); d.Reason != reason || strings.HasSuffix(d.Message, needs) != want || !want && strings.Contains(d.Message, "approv") {
			t.Errorf("%s: %s", d.Reason, d.Message)
		}
	}
	decide := func(decision string) {
		t.Helper()
		a := record.NewApproval(decision, x.evaluate().Hash, "ada", "", metav1.NewMicroTime(x.now))
		x.patch(record.ApprovalPatch(x.workload(), &a))
	}
	x.set(secret("db", "password", "2"))
	says("SourceChanged", true)
	decide(record.Denied)
	says("SourceChanged", true)
	decide(record.Approved)
	says("SourceChanged", false)
	x.tick(time.Minute)
	x.want("it has settled", rollOut("Secret/db"))
	x.act()
	x.rollOut()

	x.annotate(policy.MinIntervalAnnotation, "1h")
	x.set(secret("db", "password", "3"))
	x.tick(time.Minute)
	says("MinInterval", true)
	decide(record.Approved)
	says("MinInterval", false)
	x.annotate(policy.ApprovalAnnotation, "")
	x.set(secret("db", "password", "4"))
	says("SourceChanged", false)
}
