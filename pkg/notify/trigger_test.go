// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"strings"
	"testing"

	"github.com/configdep/configdep/pkg/policy"
)

// A label has the documented values, whatever text a client writes into an annotation.
func TestMetrics_TriggerHasFixedValues(t *testing.T) {
	for trigger, want := range map[string]string{
		"Secret/db":                         "Secret",
		"ConfigMap/feature-*":               "ConfigMap",
		policy.TriggerRequest:               "Request",
		policy.TriggerUnknown:               "Unknown",
		"":                                  "Unknown",
		"Secret":                            "Unknown",
		"Request/x":                         "Unknown",
		"SecretProviderClass/keys":          "Unknown",
		"whatever a tenant writes":          "Unknown",
		"whatever/a tenant writes":          "Unknown",
		strings.Repeat("x", 100_000) + "/y": "Unknown",
	} {
		if got := triggerLabel(trigger); got != want {
			t.Errorf("%.40q is counted as %.40q, want %q", trigger, got, want)
		}
	}
}
