// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/policy"
)

func TestPodReloader_WhatRestarts(t *testing.T) {
	const configMaps, secrets = "pod-reloader.cs.sap.com/configmaps", "pod-reloader.cs.sap.com/secrets"
	for name, tt := range map[string]struct {
		workload, labels annotations
		want             map[string]string
	}{
		"names":              {annotations{configMaps: "web, app,app", secrets: "x-unused"}, nil, map[string]string{"configmap/app": configMaps, "configmap/web": configMaps, "secret/x-unused": secrets}},
		"no patterns":        {annotations{configMaps: "a*,app-.*"}, nil, map[string]string{}},
		"the label ignored":  {annotations{configMaps: "app"}, annotations{"pod-reloader.cs.sap.com/ignored": "true"}, map[string]string{}},
		"the label disabled": {annotations{configMaps: "app"}, annotations{"pod-reloader.cs.sap.com/disabled": "true"}, map[string]string{}},
		"another value":      {annotations{configMaps: "app"}, annotations{"pod-reloader.cs.sap.com/disabled": "false"}, map[string]string{"configmap/app": configMaps}},
		"a name that Reloader's annotation also says": {
			annotations{configMaps: "web", configMapList: "web"}, nil, map[string]string{"configmap/web": configMapList + ", " + configMaps},
		},
		"labels say nothing about other dialects": {
			annotations{configMaps: "app", secretList: "web"}, annotations{"pod-reloader.cs.sap.com/disabled": "true"}, map[string]string{"secret/web": secretList},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, got := restarts(t, policy.Annotated{Workload: tt.workload, Labels: tt.labels}, policy.Defaults{Mode: policy.Off})
			if diff := cmp.Diff(tt.want, got); diff != "" || len(p.Problems) > 0 {
				t.Errorf("problems = %q; what restarts the workload, and by which annotation (-want +got):\n%s", p.Problems, diff)
			}
		})
	}
}
