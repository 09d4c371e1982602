// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
)

func forbidden(why string) error {
	return apierrors.NewForbidden(deployments, "web", errors.New(why))
}

func TestPreconditions(t *testing.T) {
	view := &v1alpha1.ConfigDependency{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deployment.web", UID: "view-uid"},
		Spec:       v1alpha1.ConfigDependencySpec{WorkloadRef: v1alpha1.WorkloadReference{UID: "workload-uid"}},
	}
	live := func(uid types.UID) *dependency.Workload {
		return &dependency.Workload{WorkloadKey: dependency.WorkloadKey{Kind: kind.Deployment, Name: "web"}, UID: uid}
	}
	with := func(uid *types.UID, hash *string) *v1alpha1.Reload {
		return &v1alpha1.Reload{Spec: v1alpha1.ReloadSpec{Preconditions: &v1alpha1.ReloadPreconditions{UID: uid, ConfigHash: hash}}}
	}
	tests := map[string]struct {
		request *v1alpha1.Reload
		live    *dependency.Workload
		says    string // a part of the error; empty: none
	}{
		"no preconditions":            {&v1alpha1.Reload{}, live("workload-uid"), ""},
		"empty preconditions":         {with(nil, nil), live("workload-uid"), ""},
		"the UID of the view":         {with(new(types.UID("view-uid")), nil), live("workload-uid"), ""},
		"the UID of the workload":     {with(new(types.UID("workload-uid")), nil), live("workload-uid"), ""},
		"another UID":                 {with(new(types.UID("x")), nil), live("workload-uid"), `UID in precondition: "x"`},
		"an empty UID":                {with(new(types.UID("")), nil), live("workload-uid"), `UID in precondition: ""`},
		"the UID in the metadata":     {&v1alpha1.Reload{ObjectMeta: metav1.ObjectMeta{UID: "view-uid"}}, live("workload-uid"), ""},
		"another UID in the metadata": {&v1alpha1.Reload{ObjectMeta: metav1.ObjectMeta{UID: "x"}}, live("workload-uid"), `UID in precondition: "x"`},
		"one right UID, one wrong": {&v1alpha1.Reload{
			ObjectMeta: metav1.ObjectMeta{UID: "view-uid"}, Spec: v1alpha1.ReloadSpec{Preconditions: &v1alpha1.ReloadPreconditions{UID: new(types.UID("x"))}},
		}, live("workload-uid"), `UID in precondition: "x"`},
		"the current hash": {with(nil, new(hashA)), live("workload-uid"), ""},
		"another hash":     {with(nil, new(hashB)), live("workload-uid"), "configHash in precondition"},
		"an empty hash":    {with(nil, new("")), live("workload-uid"), "configHash in precondition"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := checkPreconditions(view, tt.request, tt.live, hashA)
			if tt.says == "" {
				if err != nil {
					t.Errorf("error %v", err)
				}
				return
			}
			if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error = %v, want a conflict with %q", err, tt.says)
			}
		})
	}
}

var deployments = schema.GroupResource{Group: "apps", Resource: "deployments"}

func TestErrorsOfTheAPIServer(t *testing.T) {
	view := testView(kind.Deployment)
	tests := map[string]struct {
		err  error
		code int32
		says string
	}{
		"the workload was deleted":         {apierrors.NewNotFound(deployments, "web"), http.StatusNotFound, `configdependencies.configdep.io "deployment.web" not found`},
		"a policy denies the request":      {deniedByAdmission, http.StatusForbidden, "no rollouts on Fridays"},
		"a quota denies the request":       {deniedByQuota, http.StatusForbidden, "exceeded quota"},
		"a webhook returns Invalid":        {apierrors.NewInvalid(schema.GroupKind{Group: "apps", Kind: "Deployment"}, "web", nil), http.StatusUnprocessableEntity, "is invalid"},
		"the workload keeps changing":      {apierrors.NewConflict(deployments, "web", errors.New("the object has been modified")), http.StatusConflict, "has been modified"},
		"the API server is busy":           {apierrors.NewTooManyRequests("busy", 1), http.StatusTooManyRequests, "busy"},
		"a wrapped error keeps its status": {fmt.Errorf("patching: %w", deniedByQuota), http.StatusForbidden, "exceeded quota"},
		"the connection failed":            {errors.New("connection refused"), http.StatusInternalServerError, "changing Deployment web: connection refused"},
		"the client closed the request":    {context.Canceled, http.StatusGatewayTimeout, "changing Deployment web: context canceled"},
		"the deadline was exceeded":        {fmt.Errorf("patching: %w", context.DeadlineExceeded), http.StatusGatewayTimeout, "context deadline exceeded"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			status, ok := apiError(tt.err, view).(apierrors.APIStatus)
			if !ok {
				t.Fatal("not an API error: the generic API server would return it as a 500")
			}
			if got := status.Status(); got.Code != tt.code || !strings.Contains(got.Message, tt.says) {
				t.Errorf("error = %d %s, want %d with %q", got.Code, got.Message, tt.code, tt.says)
			}
		})
	}
}

// A workload changes many times a second during a rollout: after a conflict, the patch is computed again from the
// current workload.
func TestConflictsAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := testView(kind.Deployment)
		s := newServer(view, testDeployment())
		version := 7
		s.client.PrependReactor("get", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
			version++
			return true, testDeployment(func(o *appsv1.Deployment) { o.ResourceVersion = fmt.Sprint(version) }), nil
		})
		s.client.PrependReactor("patch", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
			if version < 10 {
				return true, nil, apierrors.NewConflict(deployments, "web", errors.New("modified"))
			}
			return true, testDeployment(func(o *appsv1.Deployment) { o.Generation = 4 }), nil
		})
		got, err := s.create(view.Name, &v1alpha1.Reload{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !got.Status.Triggered || got.Status.Generation != 4 {
			t.Errorf("status %+v", got.Status)
		}
		var versions []string
		for _, p := range s.patches() {
			var sent struct {
				Metadata struct{ ResourceVersion string }
			}
			if err := json.Unmarshal(p.Patch, &sent); err != nil {
				t.Fatal(err)
			}
			versions = append(versions, sent.Metadata.ResourceVersion)
		}
		if diff := cmp.Diff([]string{"8", "9", "10"}, versions); diff != "" {
			t.Errorf("versions in the patches (-want +got):\n%s", diff)
		}
		if told := s.told(); len(told) != 1 {
			t.Errorf("events %q", told)
		}
	})
}

// Retries end, so that the user gets an error.
func TestConflictsThatDoNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := testView(kind.Deployment)
		s := newServer(view, testDeployment())
		s.client.PrependReactor("patch", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewConflict(deployments, "web", errors.New("modified"))
		})
		start := time.Now()
		_, err := s.create(view.Name, &v1alpha1.Reload{}, metav1.CreateOptions{})
		if !apierrors.IsConflict(err) {
			t.Errorf("error %v", err)
		}
		if took := time.Since(start); took < 3*time.Second || took > 10*time.Second || len(s.patches()) < 20 {
			t.Errorf("%d attempts in %s", len(s.patches()), took)
		}
		if told := s.told(); len(told) != 0 {
			t.Errorf("events %q", told)
		}
	})
}

// Each retry decides again: a workload that was paused in the meantime is not restarted.
func TestTryingAgainDecidesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := testView(kind.Deployment)
		s := newServer(view, testDeployment())
		reads := 0
		s.client.PrependReactor("get", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
			reads++
			return true, testDeployment(func(o *appsv1.Deployment) { o.Spec.Paused = reads > 1 }), nil
		})
		s.client.PrependReactor("patch", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewConflict(deployments, "web", errors.New("modified"))
		})
		_, err := s.create(view.Name, &v1alpha1.Reload{}, metav1.CreateOptions{})
		if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "paused") || reads != 2 {
			t.Errorf("after %d reads: error = %v, want paused after 2", reads, err)
		}
	})
}

// The user gets the error of the patch or of the read before.
func TestRefusalsOfThePatch(t *testing.T) {
	const lacksRight = "configdep's service account (not your user) is not authorized"
	tests := map[string]struct {
		verb    string
		err     error
		allowed bool // the API server says that the server may patch the workload
		code    int32
		says    string
	}{
		"our service account may not patch":           {"patch", deniedByRole, false, http.StatusInternalServerError, lacksRight},
		"the message names the missing permission":    {"patch", deniedByRole, false, http.StatusInternalServerError, `cannot patch resource "deployments"`},
		"an authorizer with a text of its own":        {"patch", forbidden("no"), false, http.StatusInternalServerError, lacksRight},
		"our service account may not read":            {"get", forbidden("no"), true, http.StatusInternalServerError, lacksRight},
		"a policy denies the patch":                   {"patch", deniedByAdmission, true, http.StatusForbidden, "no rollouts on Fridays"},
		"a policy denies it in an authorizer's words": {"patch", deniedByRole, true, http.StatusForbidden, `cannot patch resource "deployments"`},
		"the workload was deleted before the patch":   {"patch", apierrors.NewNotFound(deployments, "web"), true, http.StatusNotFound, "deployment.web"},
		"the workload was deleted before the read":    {"get", apierrors.NewNotFound(deployments, "web"), true, http.StatusNotFound, "deployment.web"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			view := testView(kind.Deployment)
			s := newServer(view, testDeployment())
			s.client.PrependReactor(tt.verb, "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, tt.err
			})
			s.client.PrependReactor("create", "selfsubjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
				review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview)
				want := &authorizationv1.ResourceAttributes{Verb: "patch", Group: "apps", Version: "v1", Resource: "deployments", Namespace: "shop", Name: "web"}
				if diff := cmp.Diff(want, review.Spec.ResourceAttributes); diff != "" {
					t.Errorf("what is reviewed (-want +got):\n%s", diff)
				}
				review.Status.Allowed = tt.allowed
				return true, review, nil
			})
			_, err := s.create(view.Name, &v1alpha1.Reload{}, metav1.CreateOptions{})
			status, ok := err.(apierrors.APIStatus)
			if !ok {
				t.Fatalf("error %v", err)
			}
			if got := status.Status(); got.Code != tt.code || !strings.Contains(got.Message, tt.says) {
				t.Errorf("%d %s", got.Code, got.Message)
			}
			if told := s.told(); len(told) != 0 {
				t.Errorf("events %q", told)
			}
		})
	}
}

var (
	deniedByRole      = forbidden(`User "system:serviceaccount:configdep-system:configdep" cannot patch resource "deployments" in API group "apps" in the namespace "shop"`)
	deniedByAdmission = forbidden("ValidatingAdmissionPolicy 'freeze' denied request: no rollouts on Fridays")
	deniedByQuota     = forbidden("exceeded quota: compute")
)
