// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import "testing"

// A version that is not a number is earlier than all others, so that nothing waits for the write.
func TestParseVersion(t *testing.T) {
	for s, want := range map[string]uint64{
		"": 0, "none": 0, "-1": 0, "10": 10, "9223372036854775808": 1 << 63, "18446744073709551616": 0,
	} {
		if got := ParseVersion(s); got != want {
			t.Errorf("version of %q = %d, want %d", s, got, want)
		}
	}
}
