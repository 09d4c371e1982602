// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
)

// The decisions of an Approval.
const (
	Approved = "Approved"
	Denied   = "Denied"
)

// Approval is what a user has decided about the content of a workload. Its JSON is the value of ApprovedAnnotation.
type Approval struct {
	// Decision is Approved or Denied.
	Decision string `json:"decision"`
	// ConfigHash is the hash of the content; of other content it says nothing.
	ConfigHash string           `json:"configHash"`
	By         string           `json:"by,omitempty"`
	Time       metav1.MicroTime `json:"time"`
	Reason     string           `json:"reason,omitempty"`
}

// NewApproval returns a decision, with texts that are not too long.
func NewApproval(decision, hash, by, reason string, at metav1.MicroTime) Approval {
	return Approval{Decision: decision, ConfigHash: hash, By: cut(by), Time: at, Reason: cut(reason)}
}

// ApprovalOf returns what was decided about the content of a workload; nil: nothing that is valid.
func ApprovalOf(w *dependency.Workload) *Approval {
	value := w.Marks.Approval
	var a Approval
	if value == "" || len(value) > maxLastReload || json.Unmarshal([]byte(value), &a) != nil || a.Decision != Approved && a.Decision != Denied {
		return nil
	}
	a.By, a.Reason = dependency.Line(cut(a.By)), dependency.Line(cut(a.Reason))
	return &a
}

// Text returns the value of ApprovedAnnotation.
func (a *Approval) Text() string { return mustJSON(a) }
