// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"strings"
	"testing"

	"github.com/configdep/configdep/pkg/record"
)

// A label has the documented values, whatever text a client writes into an annotation.
func TestMetrics_TriggerHasFixedValues(t *testing.T) {
	for trigger, want := range map[string]string{
		"Secret/db": "Secret", record.TriggerRequest: "Request", record.TriggerUnknown: "Unknown", "": "Unknown", "Request/x": "Unknown", "whatever/a tenant writes": "Unknown",
	} {
		if got := triggerLabel(&Event{Trigger: trigger}); got != want {
			t.Errorf("%q is counted as %q, want %q", trigger, got, want)
		}
	}
}

// What names a source is one of the kinds, and a name that may be a pattern.
func TestEvent_Source(t *testing.T) {
	for trigger, want := range map[string]string{
		"Secret/db": "Secret db", "ConfigMap/feature-*": "ConfigMap feature-*", "Secret/a/b": "Secret a/b", "SecretProviderClass/keys": "SecretProviderClass keys",
		"": "", "Secret": "", "Secret/": "", "/db": "", "secret/db": "", "Pod/web": "", record.TriggerRequest: "", record.TriggerUnknown: "",
	} {
		kind, name, found := (&Event{Trigger: trigger}).Source()
		if got := strings.TrimSpace(string(kind) + " " + name); got != want || found != (want != "") {
			t.Errorf("source of %q = %q, %t, want %q", trigger, got, found, want)
		}
	}
}
