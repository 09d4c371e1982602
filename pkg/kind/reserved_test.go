// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind_test

import (
	"strings"
	"testing"

	"github.com/configdep/configdep/pkg/kind"
)

// A restart must not overwrite an annotation that says whether and how the workload is restarted.
func TestNew_ReservedAnnotations(t *testing.T) {
	for key, want := range map[string]bool{
		"configdep.io/reload": true, "configdep.io/config-hash": true, "reloader.stakater.com/auto": true, "secret.reloader.stakater.com/reload": true,
		"pod-reloader.cs.sap.com/secrets": true, "wave.pusher.com/update-on-config-change": true, "kubectl.kubernetes.io/last-applied-configuration": true,
		"kubectl.kubernetes.io/restartedAt": false, "strimzi.io/manual-rolling-update": false,
	} {
		_, errs := kind.New(kind.Descriptor{
			Group: "example.com", Kind: "Farm", Resource: "farms", Versions: []string{"v1"}, Reload: kind.Reload{By: kind.ByAnnotation, Annotation: key},
		}, nil)
		if refused := len(errs) > 0 && strings.Contains(errs[0].Error(), "must not be an annotation of configdep"); refused != want {
			t.Errorf("%s: errors = %v, refused: %v", key, errs, want)
		}
	}
}
