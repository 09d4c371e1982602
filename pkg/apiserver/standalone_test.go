// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// A load balancer that just lost its connection to kube-apiserver answers 502 with no body.
func TestStandalone_AsksForRightsAgainAfterAFailure(t *testing.T) {
	client, asked := fake.NewClientset(), 0
	client.PrependReactor("create", "selfsubjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		if asked++; asked == 1 {
			return true, nil, apierrors.NewGenericServerResponse(502, "post", authorizationv1.Resource("selfsubjectaccessreviews"), "", "", 0, true)
		}
		return true, &authorizationv1.SelfSubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}, nil
	})
	if err := (&standalone{client: client}).checkRights(t.Context()); err != nil || asked < 2 {
		t.Errorf("after %d requests: %v", asked, err)
	}
}
