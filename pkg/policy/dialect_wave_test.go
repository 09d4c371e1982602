// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/policy"
)

func TestWave_WhatRestarts(t *testing.T) {
	const in, configMaps, secrets = "wave.pusher.com/update-on-config-change", "wave.pusher.com/extra-configmaps", "wave.pusher.com/extra-secrets"
	for name, tt := range map[string]struct {
		workload annotations
		want     map[string]string
		problem  string
	}{
		"all that is read":       {annotations{in: "true"}, everything(in, bothKinds), ""},
		"not exactly true":       {annotations{in: "True"}, map[string]string{}, ""},
		"more":                   {annotations{in: "true", configMaps: "x-unused", secrets: " shop/x-unused"}, with(with(everything(in, bothKinds), "configmap/x-unused", configMaps), "secret/x-unused", secrets), ""},
		"more, but not opted in": {annotations{configMaps: "x-unused"}, map[string]string{}, ""},
		"of another namespace":   {annotations{in: "true", secrets: "bank/x-unused"}, everything(in, bothKinds), `invalid annotation wave.pusher.com/extra-secrets="bank/x-unused": "bank/x-unused" is in another namespace: only sources in the namespace of the workload restart it`},
	} {
		t.Run(name, func(t *testing.T) {
			p, got := restarts(t, policy.Annotated{Workload: tt.workload, InNamespace: "shop"}, policy.Defaults{Mode: policy.Off})
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("what restarts the workload, and by which annotation (-want +got):\n%s", diff)
			}
			if problems := strings.Join(p.Problems, "; "); problems != tt.problem {
				t.Errorf("problems = %s, want %s", problems, tt.problem)
			}
		})
	}
}
