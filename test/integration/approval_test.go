// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

// Content that has to be approved restarts a workload once a user who may has approved it. Other content needs another approval.
func TestApproval(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	approver, viewer := "approver-of-"+s.namespace, "viewer-of-"+s.namespace
	bind(t, aUser(approver), s.namespace, "configdep-approve", toRead, toApprove)
	bind(t, aUser(viewer), s.namespace, "view", toRead)
	decide := func(user string, decision v1alpha1.ApprovalDecision, of *v1alpha1.ConfigDependency) error {
		_, err := as(t, user).ConfigDependencies(s.namespace).Approve(t.Context(), "deployment.web",
			&v1alpha1.Approval{Spec: v1alpha1.ApprovalSpec{Decision: decision, ConfigHash: of.Status.ConfigHash, Reason: "INC-4711"}}, metav1.CreateOptions{})
		return err
	}
	awaits := is(v1alpha1.StatePending, "Approval")

	s.write(db, "password", "x")
	web := owned("web")
	web.Annotations["configdep.io/approval"] = "required"
	s.create(web)
	old := s.view("deployment.web", applied)
	checkError(t, decide(approver, v1alpha1.ApprovalApproved, old), http.StatusConflict, metav1.StatusReasonConflict, "Deployment web needs no approval.")
	awaitAge(t, s.namespace, "web")
	before := s.templates("web")
	s.write(db, "password", "y")
	first := s.view("deployment.web", awaits)
	checkError(t, decide(viewer, v1alpha1.ApprovalApproved, first), http.StatusForbidden, metav1.StatusReasonForbidden, `"configdependencies/approval"`)
	checkError(t, decide(approver, v1alpha1.ApprovalApproved, old), http.StatusConflict, metav1.StatusReasonConflict, "look at it again")
	s.view("deployment.web", awaits)
	if after := s.templates("web"); after != before {
		t.Errorf("%d templates, want %d", after, before)
	}
	s.must(decide(approver, v1alpha1.ApprovalApproved, first))
	s.view("deployment.web", applied, restartedFor(string(db)))

	awaitAge(t, s.namespace, "web")
	before = s.templates("web")
	s.write(db, "password", "z")
	second := s.view("deployment.web", awaits, newer(first))
	if r := s.plugin("deny", "deploy/web", "--hash", first.Status.ConfigHash); r.code == pluginDone || !strings.Contains(r.errOut, "look at it again") {
		t.Errorf("deny other content: %+v", r)
	}
	s.plugin("deny", "deploy/web", "--reason", "INC-4711").golden(t, "deny", pluginDone, `deployment/web: Secret/db has changed. A restart is due when a user has approved the content `+second.Status.ConfigHash+`, as the annotation configdep.io/approval asks for.
deployment/web: Denied. The workload is not restarted until the content changes again, or is approved.`)
	s.view("deployment.web", is(v1alpha1.StateBlocked, "Denied"))
	s.write(db, "password", "a")
	third := s.view("deployment.web", awaits, newer(second))
	if after := s.templates("web"); after != before {
		t.Errorf("%d templates, want %d", after, before)
	}
	s.plugin("approve", "--uses", "secret/other").golden(t, "nothing to approve", pluginDone, "No workload waits for this approval in namespace NAMESPACE.")
	s.plugin("approve", "--uses", "secret/db").golden(t, "approve", pluginDone, `deployment/web: Secret/db has changed. A restart is due when a user has approved the content `+third.Status.ConfigHash+`, as the annotation configdep.io/approval asks for.
deployment/web: Approved. Secret/db has changed. A restart is due.`)
	s.view("deployment.web", applied, restartedFor(string(db)))
}
