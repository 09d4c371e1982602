// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"errors"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
)

// Only what the API server says of a JSON patch that cannot be applied is a conflict. A refusal that looks alike is none, or no user would hear of it.
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

// An API server that does not answer, or a workload that changes, is no refusal: users need not act.
func TestRefuses(t *testing.T) {
	resource, gk := schema.GroupResource{Group: "apps", Resource: "deployments"}, schema.GroupKind{Group: "apps", Kind: "Deployment"}
	for name, tt := range map[string]struct {
		err  error
		want bool
	}{
		"a policy":                       {apierrors.NewForbidden(resource, "web", errors.New("quota")), true},
		"an invalid workload":            {apierrors.NewInvalid(gk, "web", nil), true},
		"a webhook":                      {&apierrors.StatusError{ErrStatus: metav1.Status{Code: 400, Message: `admission webhook "x" denied the request`}}, true},
		"too many annotations":           {apierrors.NewRequestEntityTooLargeError("x"), true},
		"a webhook that cannot be asked": {apierrors.NewInternalError(errors.New(`failed calling webhook "x"`)), true},
		"a storage that fails":           {apierrors.NewInternalError(errors.New("etcdserver: leader changed")), false},
		"a conflict":                     {apierrors.NewConflict(resource, "web", errors.New("x")), false},
		"a workload that is gone":        {apierrors.NewNotFound(resource, "web"), false},
		"a server that is busy":          {apierrors.NewTooManyRequestsError("x"), false},
		"a timeout":                      {apierrors.NewServerTimeout(resource, "patch", 1), false},
		"no answer":                      {errors.New("connection refused"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Refuses(tt.err); got != tt.want {
				t.Errorf("Refuses = %v, want %v", got, tt.want)
			}
		})
	}
}

// stale is an API server that has a newer version of each object.
type stale struct{ Objects }

func (stale) Patch(context.Context, *kind.Kind, string, string, types.PatchType, []byte, metav1.PatchOptions) (metav1.Object, error) {
	return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", "testing value failed", 0, false)
}

// Only a JSON patch can fail like that because of the version.
func TestPatch_OfAnotherVersion(t *testing.T) {
	key := dependency.WorkloadKey{Kind: kind.Deployment, Namespace: "shop", Name: "web"}
	for patch, conflict := range map[string]bool{"[]": true, "{}": false} {
		if _, err := Patch(t.Context(), Client{Objects: stale{}}, key, []byte(patch), nil); apierrors.IsConflict(err) != conflict {
			t.Errorf("patch %s: %v", patch, err)
		}
	}
}
