// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"errors"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Only what the API server says of a JSON patch that cannot be applied is a conflict. A refusal that looks alike is none, or nobody would hear of it.
func TestTested(t *testing.T) {
	gk := schema.GroupKind{Group: "apps", Kind: "Deployment"}
	refused := func(reason metav1.StatusReason, code int32, details *metav1.StatusDetails) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Reason: reason, Code: code, Details: details, Message: `admission webhook "x" denied the request`}}
	}
	for name, tt := range map[string]struct {
		err      error
		conflict bool
	}{
		"none":                    {nil, false},
		"no answer":               {errors.New("x"), false},
		"the test has failed":     {apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", "testing value failed", 0, false), true},
		"a conflict":              {apierrors.NewConflict(schema.GroupResource{}, "web", errors.New("x")), true},
		"an invalid field":        {apierrors.NewInvalid(gk, "web", field.ErrorList{field.Invalid(field.NewPath("x"), "x", "x")}), false},
		"invalid, without fields": {apierrors.NewInvalid(gk, "web", nil), false},
		"a policy":                {refused(metav1.StatusReasonInvalid, http.StatusUnprocessableEntity, &metav1.StatusDetails{Causes: []metav1.StatusCause{{Message: "x"}}}), false},
		"a webhook":               {refused("", http.StatusUnprocessableEntity, nil), false},
		"forbidden":               {refused(metav1.StatusReasonForbidden, http.StatusForbidden, &metav1.StatusDetails{}), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Tested(rollout(t), "web", tt.err); apierrors.IsConflict(got) != tt.conflict || !tt.conflict && got != tt.err { //nolint:errorlint // it is the same
				t.Errorf("got %v", got)
			}
		})
	}
}
