// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/workload/workloadtest"
)

// A namespace opts a workload in, and then the workload itself does, but the workload is read first.
func TestNote_NamespaceThatIsReadLate(t *testing.T) {
	read := func(version, reload string) *dependency.Workload {
		o := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u", ResourceVersion: version}}
		if reload != "" {
			o.Annotations = map[string]string{policy.ReloadAnnotation: reload}
		}
		return workloadtest.Read(o)
	}
	for name, tc := range map[string]struct {
		namespace map[string]string
		version   string
		want      uint64
	}{
		"opts in earlier":                      {map[string]string{policy.ReloadAnnotation: "auto"}, "106", 106},
		"opts in later":                        {map[string]string{policy.ReloadAnnotation: "auto"}, "110", 108},
		"does not opt in":                      {map[string]string{policy.ReloadAnnotation: "off"}, "106", 108},
		"sets another annotation for restarts": {map[string]string{policy.SettleAnnotation: "1m"}, "106", 108},
	} {
		t.Run(name, func(t *testing.T) {
			first, opted := read("100", ""), read("108", "auto")
			policy.Note(first, nil, nil, policy.Defaults{Mode: policy.Off}, "100", dependency.Arrival{Live: true, Order: 1})
			at := dependency.Arrival{Live: true, Order: 2}
			opted.After(first, at)
			policy.Note(opted, first, nil, policy.Defaults{Mode: policy.Off}, "108", at)
			told := *opted
			policy.Note(&told, opted, tc.namespace, policy.Defaults{Mode: policy.Off}, tc.version, dependency.Arrival{Live: true, Order: 3})
			if told.OptedAt.Version != tc.want {
				t.Errorf("opted in at %d, want %d", told.OptedAt.Version, tc.want)
			}
		})
	}
}

// An older state of the workload, from before its namespace opted it in, does not make the opt-in earlier.
func TestNote_WorkloadThatIsReadAgain(t *testing.T) {
	w := workloadtest.Read(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u", ResourceVersion: "100"}})
	auto := map[string]string{policy.ReloadAnnotation: "auto"}
	policy.Note(w, nil, nil, policy.Defaults{Mode: policy.Off}, "100", dependency.Arrival{Live: true, Order: 1})
	opted, again := *w, *w
	policy.Note(&opted, w, auto, policy.Defaults{Mode: policy.Off}, "106", dependency.Arrival{Live: true, Order: 2})
	policy.Note(&again, &opted, auto, policy.Defaults{Mode: policy.Off}, "100", dependency.Arrival{Live: true, Order: 3})
	if again.OptedAt.Version != 106 {
		t.Errorf("opted in at %d, want 106", again.OptedAt.Version)
	}
}

// A workload that was off by its own annotation was off whatever its namespace said.
func TestNote_NamespaceThatIsReadLate_OfAWorkloadThatWasOff(t *testing.T) {
	auto := map[string]string{policy.ReloadAnnotation: "auto"}
	o := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u", ResourceVersion: "100", Annotations: map[string]string{policy.ReloadAnnotation: "off"}}}
	first := workloadtest.Read(&o)
	policy.Note(first, nil, auto, policy.Defaults{Mode: policy.Off}, "100", dependency.Arrival{Live: true, Order: 1})
	o.ResourceVersion, o.Annotations = "108", nil
	opted, at := workloadtest.Read(&o), dependency.Arrival{Live: true, Order: 2}
	opted.After(first, at)
	policy.Note(opted, first, auto, policy.Defaults{Mode: policy.Off}, "108", at)
	told := *opted
	policy.Note(&told, opted, map[string]string{policy.ReloadAnnotation: "auto", policy.SettleAnnotation: "1m"}, policy.Defaults{Mode: policy.Off}, "106", dependency.Arrival{Live: true, Order: 3})
	if told.OptedAt.Version != 108 {
		t.Errorf("opted in at %d, want 108", told.OptedAt.Version)
	}
}

// A workload that has not opted in needs no decisions, unless something is left to be done: pods to be evicted, a pause to be ended,
// or fields to be given up. An invalid mode is not an opt-out.
func TestDormant(t *testing.T) {
	for name, tt := range map[string]struct {
		annotations []string
		want        bool
	}{
		"has not opted in":        {[]string{policy.ReloadAnnotation, "off"}, true},
		"has opted in":            {[]string{policy.ReloadAnnotation, "auto"}, false},
		"has opted out":           {[]string{policy.ReloadAnnotation, "off", policy.ConfigHashAnnotation, "v1.00000000.1"}, true},
		"with pods left to evict": {[]string{policy.ReloadAnnotation, "off", policy.RecreatingAnnotation, "a1b2c3d4"}, false},
		"with a pause to be ended": {[]string{policy.ReloadAnnotation, "off", pausedAt, "2026-01-02T15:04:05Z", policy.LastReloadAnnotation,
			`{"time":"2026-01-02T15:04:05.000000Z","trigger":"Secret/db"}`}, false},
		"with fields to give up": {[]string{policy.ReloadAnnotation, "off", policy.AppliedFieldsAnnotation, "{}"}, false},
		"has an invalid mode":    {[]string{policy.ReloadAnnotation, "yes"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
			x.annotate(tt.annotations...)
			if got := policy.Dormant(x.workload()); got != tt.want {
				t.Errorf("Dormant = %t", got)
			}
			if d := x.decide(); tt.want && d.Action != policy.None {
				t.Errorf("action = %s", d.Action)
			}
		})
	}
}
