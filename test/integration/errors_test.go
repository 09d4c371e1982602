// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// checkError checks that an error is a Status with a code, a reason, and the information that a user needs.
func checkError(t *testing.T, err error, code int32, reason metav1.StatusReason, messages ...string) {
	t.Helper()
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		t.Errorf("error = %v, want a %d %s", err, code, reason)
		return
	}
	if s := status.ErrStatus; s.Code != code || s.Reason != reason {
		t.Errorf("error = %d %s, want %d %s: %s", s.Code, s.Reason, code, reason, s.Message)
	}
	for _, want := range messages {
		if !strings.Contains(status.ErrStatus.Message, want) {
			t.Errorf("message = %q, want it to contain %q", status.ErrStatus.Message, want)
		}
	}
}
