// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

func TestFieldSelectors(t *testing.T) {
	tests := map[string]struct {
		label, value string
		want         string // the value, unless says is set
		says         string // a part of the error
	}{
		"a name":                               {"metadata.name", "deployment.web", "deployment.web", ""},
		"a namespace":                          {"metadata.namespace", "shop", "shop", ""},
		"a state":                              {"status.state", "Stale", "Stale", ""},
		"a state in lower case":                {"status.state", "rollingout", "RollingOut", ""},
		"no state":                             {"status.state", "", "", "use one of Blocked"},
		"an unknown state":                     {"status.state", "Unmanaged", "", "use one of Blocked, Failed, InSync, Pending, RollingOut, Settling, Stale, Unknown"},
		"a reason":                             {"status.reason", "AnyWord", "AnyWord", ""},
		"a mode":                               {"spec.reload.mode", "auto", "Auto", ""},
		"an unknown mode":                      {"spec.reload.mode", "On", "", "use one of Auto, Listed, Matched, Off"},
		"a kind":                               {"spec.workloadRef.kind", "Deployment", "Deployment", ""},
		"a workload":                           {"spec.workloadRef.name", "web", "web", ""},
		"values of other fields are unchanged": {"metadata.name", "secret/db", "secret/db", ""},
		"a source":                             {"source", "Secret/db", "Secret/db", ""},
		"a source in lower case":               {"source", "secret/db", "Secret/db", ""},
		"a source in upper case":               {"source", "CONFIGMAP/Db", "ConfigMap/Db", ""},
		"a class":                              {"source", "secretproviderclass/keys", "SecretProviderClass/keys", ""},
		"a name with a slash":                  {"source", "secret/a/b", "Secret/a/b", ""},
		"no source":                            {"source", "", "", ""},
		"a source without a kind":              {"source", "db", "", "not of the form ConfigMap/NAME"},
		"a source without a name":              {"source", "secret/", "", "not of the form ConfigMap/NAME"},
		"a source in the plural":               {"source", "secrets/db", "", "not of the form ConfigMap/NAME"},
		"a source with a space":                {"source", " secret/db", "", "not of the form ConfigMap/NAME"},
		"the error for an unknown field lists the supported fields": {
			"spec.replicas", "1", "",
			"use one of metadata.name, metadata.namespace, status.state, status.reason, spec.reload.mode, spec.workloadRef.kind, spec.workloadRef.name, source",
		},
		"field names are case-sensitive": {"Source", "Secret/db", "", `"Source" is not supported`},
	}
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			// As the generic API server calls it.
			label, value, err := scheme.ConvertFieldLabel(SchemeGroupVersion.WithKind("ConfigDependency"), tt.label, tt.value)
			if tt.says != "" {
				if err == nil || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("%s=%s, error %v", label, value, err)
				}
				return
			}
			if err != nil || label != tt.label || value != tt.want {
				t.Errorf("%s=%s, error %v", label, value, err)
			}
		})
	}
}

// FuzzFieldLabel: an accepted label is a selectable field, with a value in the form in which objects are compared;
// that form is accepted unchanged.
func FuzzFieldLabel(f *testing.F) {
	for _, seed := range [][2]string{
		{"metadata.name", "x"}, {"status.state", ""}, {"status.state", "stale"}, {"spec.reload.mode", "OFF"}, {"source", "Secret/db"}, {"source", "configmap/a/b"},
		{"source", "/"}, {"source", ""}, {"source", "secret/\x00"}, {"sources", "x"}, {"source", "ſecret/db"}, {"", ""},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, label, value string) {
		gotLabel, got, err := convertFieldLabel(label, value)
		if err != nil {
			if gotLabel != "" || got != "" {
				t.Errorf("an error with result %q=%q, want it empty", gotLabel, got)
			}
			return
		}
		if gotLabel != label || !slices.Contains(selectableFields, label) {
			t.Errorf("label %q is converted to %q", label, gotLabel)
		}
		if label == FieldSource && got != "" {
			kind, name, _ := strings.Cut(got, "/")
			if !slices.Contains(SourceKinds, SourceKind(kind)) || name == "" || !strings.HasSuffix(value, "/"+name) {
				t.Errorf("value %q is converted to %q", value, got)
			}
		} else if enum := label == FieldState || label == FieldMode; enum && !strings.EqualFold(got, value) || !enum && got != value {
			t.Errorf("value %q is converted to %q", value, got)
		}
		if againLabel, again, err := convertFieldLabel(gotLabel, got); err != nil || againLabel != gotLabel || again != got {
			t.Errorf("%q=%q is converted to %q=%q the second time, error %v", gotLabel, got, againLabel, again, err)
		}
	})
}
