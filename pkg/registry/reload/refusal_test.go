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
		says    string // empty: they hold
	}{
		"none":                         {&v1alpha1.Reload{}, live("workload-uid"), ""},
		"empty ones":                   {with(nil, nil), live("workload-uid"), ""},
		"the UID of the view":          {with(new(types.UID("view-uid")), nil), live("workload-uid"), ""},
		"the UID of the workload":      {with(new(types.UID("workload-uid")), nil), live("workload-uid"), ""},
		"another UID":                  {with(new(types.UID("x")), nil), live("workload-uid"), `UID in precondition: "x"`},
		"an empty UID":                 {with(new(types.UID("")), nil), live("workload-uid"), `UID in precondition: ""`},
		"the UID in the metadata":      {&v1alpha1.Reload{ObjectMeta: metav1.ObjectMeta{UID: "view-uid"}}, live("workload-uid"), ""},
		"another one in the metadata":  {&v1alpha1.Reload{ObjectMeta: metav1.ObjectMeta{UID: "x"}}, live("workload-uid"), `UID in precondition: "x"`},
		"the present hash":             {with(nil, new(hashA)), live("workload-uid"), ""},
		"another hash":                 {with(nil, new(hashB)), live("workload-uid"), "configHash in precondition"},
		"an empty hash":                {with(nil, new("")), live("workload-uid"), "configHash in precondition"},
		"a workload of the same name,": {&v1alpha1.Reload{}, live("new-uid"), "deleted and created again"},
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
				t.Errorf("error %v, want a conflict that says %q", err, tt.says)
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
		"the workload has gone":            {apierrors.NewNotFound(deployments, "web"), http.StatusNotFound, `configdependencies.configdep.io "deployment.web" not found`},
		"our rights do not suffice":        {deniedByRole, http.StatusInternalServerError, "configdep's service account (not your user) is not authorized"},
		"what right is told":               {deniedByRole, http.StatusInternalServerError, `cannot patch resource "deployments"`},
		"nor those to read":                {forbidden(`User "x" cannot get resource "deployments"`), http.StatusInternalServerError, "configdep's service account"},
		"nor those to list pods":           {forbidden(`User "x" cannot list resource "pods" in API group ""`), http.StatusInternalServerError, "configdep's service account"},
		"a policy refuses":                 {deniedByAdmission, http.StatusForbidden, "no rollouts on Fridays"},
		"a quota refuses":                  {deniedByQuota, http.StatusForbidden, "exceeded quota"},
		"a webhook finds it invalid":       {apierrors.NewInvalid(schema.GroupKind{Group: "apps", Kind: "Deployment"}, "web", nil), http.StatusUnprocessableEntity, "is invalid"},
		"it changes all the time":          {apierrors.NewConflict(deployments, "web", errors.New("the object has been modified")), http.StatusConflict, "has been modified"},
		"the API server is busy":           {apierrors.NewTooManyRequests("busy", 1), http.StatusTooManyRequests, "busy"},
		"wrapped, which would be a 500":    {fmt.Errorf("patching: %w", deniedByQuota), http.StatusForbidden, "exceeded quota"},
		"the connection broke":             {errors.New("connection refused"), http.StatusInternalServerError, "restarting Deployment web: connection refused"},
		"the client has not waited for us": {context.Canceled, http.StatusGatewayTimeout, "restarting Deployment web: context canceled"},
		"it has taken too long":            {fmt.Errorf("patching: %w", context.DeadlineExceeded), http.StatusGatewayTimeout, "context deadline exceeded"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			status, ok := apiError(tt.err, view).(apierrors.APIStatus)
			if !ok {
				t.Fatal("not an API error by itself, so the generic API server makes a 500 of it")
			}
			if got := status.Status(); got.Code != tt.code || !strings.Contains(got.Message, tt.says) {
				t.Errorf("%d %s, want %d and %q", got.Code, got.Message, tt.code, tt.says)
			}
		})
	}
}

// During a rollout the workload changes many times a second: the patch is made again from
// what is there then.
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

// Not for ever: the user waits, and is told at last.
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
			t.Errorf("tried %d times in %s", len(s.patches()), took)
		}
		if told := s.told(); len(told) != 0 {
			t.Errorf("events %q", told)
		}
	})
}

// A workload that goes between two tries is gone; one that is paused is paused.
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
			t.Errorf("after %d reads: %v", reads, err)
		}
	})
}

// What the API server says of the patch is what the user gets to hear.
func TestRefusalsOfThePatch(t *testing.T) {
	tests := map[string]struct {
		verb string
		err  error
		code int32
		says string
	}{
		"by our rights to patch": {"patch", deniedByRole, http.StatusInternalServerError, "configdep's service account (not your user) is not authorized"},
		"by a policy":            {"patch", deniedByAdmission, http.StatusForbidden, "no rollouts on Fridays"},
		"because it has gone":    {"patch", apierrors.NewNotFound(deployments, "web"), http.StatusNotFound, "deployment.web"},
		"or had gone before":     {"get", apierrors.NewNotFound(deployments, "web"), http.StatusNotFound, "deployment.web"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			view := testView(kind.Deployment)
			s := newServer(view, testDeployment())
			s.client.PrependReactor(tt.verb, "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, tt.err
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
