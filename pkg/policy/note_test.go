// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
)

// A namespace opts a workload in and the workload itself does after that, which is read first.
func TestNote_NamespaceThatIsReadLate(t *testing.T) {
	read := func(version, reload string) *dependency.Workload {
		o := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u", ResourceVersion: version}}
		if reload != "" {
			o.Annotations = map[string]string{ReloadAnnotation: reload}
		}
		return readWorkload(o)
	}
	for name, tc := range map[string]struct {
		namespace map[string]string
		version   string
		want      uint64
	}{
		"opts in, before":                 {map[string]string{ReloadAnnotation: "auto"}, "106", 106},
		"opts in, after":                  {map[string]string{ReloadAnnotation: "auto"}, "110", 108},
		"does not opt in":                 {map[string]string{ReloadAnnotation: "off"}, "106", 108},
		"says something else of restarts": {map[string]string{SettleAnnotation: "1m"}, "106", 108},
	} {
		t.Run(name, func(t *testing.T) {
			first, opted := read("100", ""), read("108", "auto")
			Note(first, nil, nil, Defaults{Mode: Off}, "100", dependency.Arrival{Live: true, Order: 1})
			at := dependency.Arrival{Live: true, Order: 2}
			opted.After(first, at)
			Note(opted, first, nil, Defaults{Mode: Off}, "108", at)
			told := *opted
			Note(&told, opted, tc.namespace, Defaults{Mode: Off}, tc.version, dependency.Arrival{Live: true, Order: 3})
			if told.OptedAt.Version != tc.want {
				t.Errorf("opted in at %d, want %d", told.OptedAt.Version, tc.want)
			}
		})
	}
}

// A workload that is read again as it was before its namespace opted it in did so no earlier.
func TestNote_WorkloadThatIsReadAgain(t *testing.T) {
	w := readWorkload(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u", ResourceVersion: "100"}})
	auto := map[string]string{ReloadAnnotation: "auto"}
	Note(w, nil, nil, Defaults{Mode: Off}, "100", dependency.Arrival{Live: true, Order: 1})
	opted, again := *w, *w
	Note(&opted, w, auto, Defaults{Mode: Off}, "106", dependency.Arrival{Live: true, Order: 2})
	Note(&again, &opted, auto, Defaults{Mode: Off}, "100", dependency.Arrival{Live: true, Order: 3})
	if again.OptedAt.Version != 106 {
		t.Errorf("opted in at %d, want 106", again.OptedAt.Version)
	}
}

// A workload that was off by itself was so whatever its namespace said.
func TestNote_NamespaceThatIsReadLate_OfAWorkloadThatWasOff(t *testing.T) {
	auto := map[string]string{ReloadAnnotation: "auto"}
	o := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u", ResourceVersion: "100", Annotations: map[string]string{ReloadAnnotation: "off"}}}
	first := readWorkload(&o)
	Note(first, nil, auto, Defaults{Mode: Off}, "100", dependency.Arrival{Live: true, Order: 1})
	o.ResourceVersion, o.Annotations = "108", nil
	opted, at := readWorkload(&o), dependency.Arrival{Live: true, Order: 2}
	opted.After(first, at)
	Note(opted, first, auto, Defaults{Mode: Off}, "108", at)
	told := *opted
	Note(&told, opted, map[string]string{ReloadAnnotation: "auto", SettleAnnotation: "1m"}, Defaults{Mode: Off}, "106", dependency.Arrival{Live: true, Order: 3})
	if told.OptedAt.Version != 108 {
		t.Errorf("opted in at %d, want 108", told.OptedAt.Version)
	}
}

// Nothing is decided on a workload that has not opted in, but for pods that are being evicted; with a mistake in its
// annotations it has tried to.
func TestDormant(t *testing.T) {
	for name, tt := range map[string]struct {
		annotations []string
		want        bool
	}{
		"has not opted in":          {[]string{ReloadAnnotation, "off"}, true},
		"has opted in":              {[]string{ReloadAnnotation, "auto"}, false},
		"has opted out":             {[]string{ReloadAnnotation, "off", ConfigHashAnnotation, "v1.00000000.1"}, true},
		"with pods left to evict":   {[]string{ReloadAnnotation, "off", RecreatingAnnotation, "a1b2c3d4"}, false},
		"has a mistake in its mode": {[]string{ReloadAnnotation, "yes"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			x := newWorld(t, podOf(env(dependency.Secret, "db", "password")), secret("db", "password", "1"))
			x.annotate(tt.annotations...)
			if got := Dormant(x.workload()); got != tt.want {
				t.Errorf("dormant: %t", got)
			}
			if d := x.decide(); tt.want && d.Action != None {
				t.Errorf("it is to %s", d.Action)
			}
		})
	}
}
