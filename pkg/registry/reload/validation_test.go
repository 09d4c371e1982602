// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
)

func TestRequestsAreValidated(t *testing.T) {
	meta := func(namespace, name string) v1alpha1.Reload {
		return v1alpha1.Reload{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	spec := func(s v1alpha1.ReloadSpec) v1alpha1.Reload { return v1alpha1.Reload{Spec: s} }
	long := strings.Repeat("ö", 257) // the limit counts characters, not bytes
	tests := map[string]struct {
		request v1alpha1.Reload
		refused func(error) bool // nil: valid
		causes  []string         // the fields of the 422
	}{
		"an empty request":                        {v1alpha1.Reload{}, nil, nil},
		"the same names as in the URL":            {meta("shop", "deployment.web"), nil, nil},
		"another name":                            {meta("shop", "deployment.api"), apierrors.IsBadRequest, nil},
		"the name of the workload":                {meta("", "web"), apierrors.IsBadRequest, nil},
		"another namespace":                       {meta("other", "deployment.web"), apierrors.IsBadRequest, nil},
		"Always":                                  {spec(v1alpha1.ReloadSpec{Mode: v1alpha1.ReloadAlways}), nil, nil},
		"IfStale":                                 {spec(v1alpha1.ReloadSpec{Mode: v1alpha1.ReloadIfStale}), nil, nil},
		"an unknown mode":                         {spec(v1alpha1.ReloadSpec{Mode: "always"}), apierrors.IsInvalid, []string{"spec.mode"}},
		"a reason of the maximum length":          {spec(v1alpha1.ReloadSpec{Reason: strings.TrimSuffix(long, "ö")}), nil, nil},
		"a reason of two lines":                   {spec(v1alpha1.ReloadSpec{Reason: "x\nERROR: y"}), apierrors.IsInvalid, []string{"spec.reason"}},
		"a reason that moves the cursor":          {spec(v1alpha1.ReloadSpec{Reason: "\x1b[2J"}), apierrors.IsInvalid, []string{"spec.reason"}},
		"a reason with a text direction override": {spec(v1alpha1.ReloadSpec{Reason: "a\u202eb"}), apierrors.IsInvalid, []string{"spec.reason"}},
		"a reason with a separator":               {spec(v1alpha1.ReloadSpec{Reason: "a\u2028b"}), apierrors.IsInvalid, []string{"spec.reason"}},
		"a reason with joined emoji":              {spec(v1alpha1.ReloadSpec{Reason: "👨\u200d👩\u200d👧 & naïve"}), nil, nil},
		"a reason that is too long":               {spec(v1alpha1.ReloadSpec{Reason: long}), apierrors.IsInvalid, []string{"spec.reason"}},
		"all errors at once":                      {spec(v1alpha1.ReloadSpec{Mode: "x", Reason: long}), apierrors.IsInvalid, []string{"spec.mode", "spec.reason"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := validate(&tt.request, "shop", "deployment.web")
			if tt.refused == nil {
				if err != nil {
					t.Errorf("error %v", err)
				}
				return
			}
			if !tt.refused(err) {
				t.Fatalf("error %v", err)
			}
			if strings.Contains(err.Error(), long) {
				t.Error("the error contains the reason")
			}
			var causes []string
			if details := err.(apierrors.APIStatus).Status().Details; details != nil {
				for _, c := range details.Causes {
					causes = append(causes, c.Field)
				}
			}
			if diff := cmp.Diff(tt.causes, causes); diff != "" {
				t.Errorf("fields (-want +got):\n%s", diff)
			}
		})
	}
}

func TestKindsThatCanBeReloaded(t *testing.T) {
	for name, want := range map[string]bool{
		"Deployment": true, "StatefulSet": true, "DaemonSet": true,
		"CronJob": false, "Job": false, "ReplicaSet": false, "Pod": false, "": false,
	} {
		ref := v1alpha1.WorkloadReference{Kind: name}
		if k := kind.Table(nil).Of(dependency.WorkloadKind(name)); k != nil {
			ref.APIVersion = k.GroupVersionKind().GroupVersion().String()
		}
		view := &v1alpha1.ConfigDependency{Spec: v1alpha1.ConfigDependencySpec{WorkloadRef: ref}}
		err := validateKind(nil, view)
		if want != (err == nil) {
			t.Errorf("%s: error %v", name, err)
		}
		if err != nil && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "a "+name+" cannot be restarted: only a DaemonSet, Deployment or StatefulSet can")) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// A client cannot set the status of the answer.
func TestDefaultsReplaceTheStatusOfTheRequest(t *testing.T) {
	got := &v1alpha1.Reload{Status: v1alpha1.ReloadStatus{Triggered: true, Message: "done"}}
	setDefaults(got, "shop", "deployment.web")
	want := &v1alpha1.Reload{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deployment.web"},
		Spec:       v1alpha1.ReloadSpec{Mode: v1alpha1.ReloadAlways},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	got.Spec.Mode = v1alpha1.ReloadIfStale
	if setDefaults(got, "shop", "deployment.web"); got.Spec.Mode != v1alpha1.ReloadIfStale {
		t.Errorf("mode %s", got.Spec.Mode)
	}
}
