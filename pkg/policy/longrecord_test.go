// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// Other clients can write annotations of up to 256 kB, and what is read from them is shown, logged and kept.
func TestRecordOf_BoundsAHash(t *testing.T) {
	hash := "v1.01234567." + strings.Repeat("0", 32)
	mixed := "v1.01234567.mixed-18446744073709551615"
	long := "v1.01234567." + strings.Repeat("0", 200_000)
	for hash, want := range map[string]string{"": "", hash: hash, mixed: mixed, long: "invalid"} {
		for _, marks := range []dependency.Marks{{Hash: hash}, {TemplateHash: hash}} {
			if got := policy.RecordOf(&dependency.Workload{Marks: marks}).Hash; got != want {
				t.Errorf("%.60q is read as %.60q, want %q", hash, got, want)
			}
		}
	}
}

func TestLastReloadOf_BoundsTexts(t *testing.T) {
	at := metav1.NewMicroTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	read := func(l policy.LastReload) *policy.LastReload {
		value, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		return policy.LastReloadOf(&dependency.Workload{Marks: dependency.Marks{LastReload: string(value)}})
	}
	// What configdep writes is read as it was written.
	name := strings.Repeat("n", 253)
	longest := strings.Repeat("ö", 256)
	for _, l := range []policy.LastReload{
		{Time: at, Trigger: "SecretProviderClass/" + name, Automatic: &at, Streak: 3},
		{Time: at, Trigger: policy.TriggerRequest, RequestedBy: longest, Reason: longest},
		{Time: at, Trigger: policy.TriggerRequest, RequestedBy: strings.Repeat("<", 256), Reason: strings.Repeat("&", 256)},
		policy.NewRequestedReload(nil, at.Time, strings.Repeat("<", 100_000), longest),
	} {
		got := read(l)
		if got == nil || got.Trigger != l.Trigger || got.RequestedBy != l.RequestedBy || got.Reason != l.Reason || got.Streak != l.Streak {
			t.Errorf("%+v is read as %+v", l, got)
		}
	}
	// Longer texts are cut, and the times are kept.
	got := read(policy.LastReload{Time: at, Trigger: "SecretProviderClass/" + name + "x", RequestedBy: longest + "x", Reason: longest + "xyz", Automatic: &at, Streak: 3})
	if got == nil || got.Trigger != policy.TriggerUnknown || got.Streak != 3 || !got.Automatic.Equal(&at) {
		t.Fatalf("%+v", got)
	}
	for _, text := range []string{got.RequestedBy, got.Reason} {
		if utf8.RuneCountInString(text) != 256 || !strings.HasSuffix(text, "ö…") {
			t.Errorf("a text of %d characters is %q", utf8.RuneCountInString(text), text)
		}
	}
	// One that is far longer is none of configdep's.
	if got := read(policy.LastReload{Time: at, Reason: strings.Repeat("x", 240_000)}); got != nil {
		t.Errorf("a record of 240 kB is read: %.100v", got)
	}
}
